"""Section `fidelity`: simulated against recorded waits, how far apart they are, in numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from reports import figures
from reports import format as fmt
from reports.layout import Figure, Section, TableView, columns
from reports.source import Source
from simulator.metrics import wait_distance

_WAITS = {
    f"{side}_{figure}_wait": f"{side}, {figure}"
    for figure in ("mean", "p50", "p95")
    for side in ("recorded", "simulated")
}


def fidelity(source: Source) -> Section:
    """Mean, p50, p95, mean absolute error and rank correlation for each scheduler that was simulated."""
    section = Section("fidelity", "Simulated against recorded waits")
    starts = source.rows("simulated_starts")
    replayed = starts.height
    if not starts.is_empty():
        starts = starts.filter((pl.col("recorded_wait_s") >= 0) & (pl.col("simulated_wait_s") >= 0))
    if starts.is_empty():
        section.missing.append("The trace was not replayed in the simulator, so nothing says how close its waits come.")
        return section
    rows = []
    for (scheduler, capacity), group in starts.group_by("scheduler", "capacity_nodes", maintain_order=True):
        rows.append({"scheduler": scheduler, "capacity_nodes": capacity, **distance(group)})
        section.sentences.append(_sentence(rows[-1]))
        section.figures.append(_overlay(source, f"{scheduler}", int(str(capacity)), group))
    if starts.height < replayed:
        section.sentences.append(
            f"{replayed - starts.height:,} replayed jobs lack a start on one side; they count in none of these figures."
        )
    section.tables.append(
        TableView(
            "distance",
            "How far apart they are",
            "MAE is the mean absolute difference job by job; Spearman is the rank correlation, ties averaged, "
            "beside it that of the jobs recorded to wait over 10 minutes alone. "
            + source.caption(starts.height, "simulated starts"),
            columns(
                "scheduler|scheduler|name", "capacity_nodes|nodes|count", "jobs|jobs|count",
                *(f"{name}_s|{label}|duration" for name, label in _WAITS.items()),
                "mean_absolute_error_s|MAE|duration", "spearman|Spearman|number",
                "spearman_waited|Spearman if waited|number",
            ),
            rows,
        )
    )  # fmt: skip
    return section


def distance(group: pl.DataFrame) -> dict[str, Any]:
    """`simulator.metrics.wait_distance` of one replay, with null for a figure that has no meaning."""
    found = wait_distance(group["simulated_wait_s"].to_numpy(), group["recorded_wait_s"].to_numpy())
    return {name: None if math.isnan(value) else value for name, value in found.items()}


def _sentence(row: dict[str, Any]) -> str:
    """An honest sentence: direction and size of the difference, and whether the order of jobs is kept."""
    recorded, simulated = row["recorded_mean_wait_s"], row["simulated_mean_wait_s"]
    if recorded > 0:
        ratio = simulated / recorded
        apart = f"{100 * abs(ratio - 1):.0f} % {'longer' if ratio >= 1 else 'shorter'} than recorded"
    else:
        apart = "while nobody waited in the record"
    order = row["spearman"]
    if order is None:
        kept = "the order cannot be compared, for one side never varies"
    else:
        strength = "well" if order >= 0.8 else "moderately" if order >= 0.5 else "poorly"
        kept = f"the order of who waits long is kept {strength} (Spearman {order:.2f})"
    return (
        f"Under {fmt.text(row['scheduler'])} on {row['capacity_nodes']:,} nodes the simulated mean wait is "
        f"{fmt.duration(simulated)}, {apart} ({fmt.duration(recorded)}); a single job is off by "
        f"{fmt.duration(row['mean_absolute_error_s'])} on average, and {kept}."
    )


def _overlay(source: Source, scheduler: str, capacity: int, group: pl.DataFrame) -> Figure:
    curves = {side: (group[f"{side}_wait_s"].to_numpy().astype(np.float64), side) for side in ("recorded", "simulated")}
    return Figure(
        "waits_compared",
        f"Waits under {scheduler}",
        f"Share of jobs that waited at most so long (log axis; 0 counts as 1 s), replayed under {scheduler} on "
        f"{capacity:,} nodes. {source.caption(group.height, 'jobs')}",
        figures.ecdf(f"{source.slug}-{scheduler}-{capacity}", curves, "wait from submission", dashed=("simulated",)),
        "Cumulative distributions of recorded and simulated waits overlaid.",
    )
