"""Section `fidelity`: how far to trust the simulator. Simulated and calibrated waits against the recorded ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from reports import figures
from reports import format as fmt
from reports.advice import AS_IT_IS
from reports.layout import Figure, Section, TableView, columns
from reports.source import Source
from reports.trust import COMPARED, distance
from simulator.metrics import NOTICED_WAIT_S
from simulator.recorded.study import unexplained
from traces.counted import counted

_WAITS = {
    f"{side}_{figure}_wait": f"{side}, {figure}"
    for figure in ("mean", "p50", "p95")
    for side in ("recorded", "simulated")
}

_CALIBRATED = (
    "jobs|jobs|count", "recorded_mean_wait_s|recorded mean|duration", "simulated_mean_wait_s|calibrated mean|duration",
    "recorded_p90_wait_s|recorded p90|duration", "simulated_p90_wait_s|calibrated p90|duration",
    "mean_absolute_error_s|MAE|duration", "relative_error|MAE of mean|percent", "spearman|Spearman|number",
    "spearman_waited|Spearman if waited|number",
)  # fmt: skip
_FORM_ORDER = {"frozen": 0, "causal": 1, "forked": 2, "informed": 3}


def _not_replayed(source: Source) -> str:
    """Without a replay job by job the mean wait is all there is to compare, where changed clusters were replayed."""
    replays = source.rows("what_if")
    base = replays.filter(pl.col("change") == AS_IT_IS).to_dicts() if not replays.is_empty() else []
    if not base or base[0]["mean_wait_s"] is None or source.mean_wait_s is None:
        return "The trace was not replayed in the simulator, so nothing says how close its waits come."
    return (
        "The trace was not replayed job by job. The replays of changed clusters start from a mean wait of "
        f"{fmt.duration(base[0]['mean_wait_s'])} on {counted(base[0]['capacity_nodes'], 'node')}; the log has "
        f"{fmt.duration(source.mean_wait_s)}."
    )


def fidelity(source: Source) -> Section:
    """Mean, p50, p95, mean absolute error and rank correlation for each scheduler that was simulated."""
    section = Section("fidelity", "How far to trust this: simulated against recorded waits")
    starts = source.columns("simulated_starts", *COMPARED)
    replayed = starts.height
    if not starts.is_empty():
        starts = starts.filter((pl.col("recorded_wait_s") >= 0) & (pl.col("simulated_wait_s") >= 0))
    if starts.is_empty():
        section.missing.append(_not_replayed(source))
        return _with_calibration(source, section)
    rows = []
    for (scheduler, capacity), group in starts.group_by("scheduler", "capacity_nodes", maintain_order=True):
        rows.append({"scheduler": scheduler, "capacity_nodes": capacity, **distance(group)})
        section.sentences.append(_sentence(rows[-1]))
        section.figures.append(_overlay(source, f"{scheduler}", int(str(capacity)), group))
    if starts.height < replayed:
        section.sentences.append(
            f"{counted(replayed - starts.height, 'replayed job', 'lacks')} a start on one side; they count in none of "
            "these figures."
        )
    section.tables.append(
        TableView(
            "distance",
            "How far apart they are",
            "MAE is the mean absolute difference job by job; Spearman is the rank correlation, ties averaged, "
            f"beside it that of the jobs recorded to wait over {NOTICED_WAIT_S // 60} minutes alone. "
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
    return _with_calibration(source, section)


def _with_calibration(source: Source, section: Section) -> Section:
    """The section with what calibration reached, what each mechanism contributes and which waits stay unexplained."""
    figures = source.rows("calibration_figures")
    if figures.is_empty():
        section.missing.append("No month has four weeks of record before it, so nothing was calibrated.")
        return section
    whole = figures.filter(pl.col("change") == "all").sort("from_utc", pl.col("form").replace_strict(_FORM_ORDER))
    newest = whole.filter((pl.col("form") == "forked") & (pl.col("from_utc") == pl.col("from_utc").max()))
    section.sentences += [_calibrated_sentence(row) for row in newest.to_dicts()]
    if source.told.uncalibrated:
        section.sentences.append(f"The record is long: calibration leaves out {fmt.text(source.told.uncalibrated)}.")
    section.tables.append(
        TableView(
            "calibration",
            "Calibrated waits, each month fitted on what came before it",
            "Frozen: the trace replayed with parameters from before the month. Causal: the same with the usable nodes "
            "following the record. Forked: each job from the recorded state of the others at its submission, simulated "
            "from then on. Informed: each job told of the others up to each instant, which is easier. Ceiling: "
            "Spearman of a model that knew every wait but tied those up to 10 s. Development: methods and "
            "settings were made with that month in view. "
            + source.caption(int(newest["jobs"].sum()), "jobs of the newest month"),
            columns("month|month|name", "form|form|name", *_CALIBRATED, "spearman_ceiling|ceiling|number"),
            [_calibrated_row(row, source.told.development_until) for row in whole.to_dicts()],
        )
    )
    parts = figures.filter(pl.col("change") != "all").to_dicts()
    if parts:
        section.tables.append(
            TableView(
                "mechanisms",
                "What each mechanism contributes",
                "A sample of the newest month: each added to those above it, from none on, and each left out of all. "
                + source.caption(int(parts[0]["jobs"]), "jobs"),
                columns("form|form|name", "change|change|name", "mechanism|mechanism|name", *_CALIBRATED),
                [_calibrated_row(row) for row in parts],
            )
        )
    section.tables.append(_unexplained(source))
    return section


def _unexplained(source: Source) -> TableView:
    """Jobs whose calibrated wait is far from the recorded one, by the direction of the error."""
    starts = source.rows("calibrated_starts")
    return TableView(
        "unexplained",
        "Which waits stay unexplained",
        "Jobs by the error of the forked form. Early: the record kept the job waiting for a reason that no rule "
        "here knows (a dependency, a begin time, a reservation, a pinned node). Late: it started past jobs that "
        "the rules put first. " + source.caption(starts.height, "jobs"),
        columns(
            "month|month|name", "class|error|name", "jobs|jobs|count", "share_of_jobs|of jobs|percent",
            "recorded_wait_h|recorded wait, h|number", "error_h|error, h|number", "share_of_error|of error|percent",
        ),
        [{**row, "month": f"{row['from_utc']:%Y-%m}"} for row in unexplained(starts).to_dicts()],
    )  # fmt: skip


def _calibrated_row(row: dict[str, Any], development_until: datetime | None = None) -> dict[str, Any]:
    recorded = row["recorded_mean_wait_s"]
    is_development = development_until is not None and row["from_utc"] < development_until
    return {
        **row,
        "month": f"{row['from_utc']:%Y-%m}" + " (development)" * is_development,
        "relative_error": row["mean_absolute_error_s"] / recorded if recorded else None,
    }


def _calibrated_sentence(row: dict[str, Any]) -> str:
    """What an operator may expect of a calibrated wait."""
    recorded, error = row["recorded_mean_wait_s"], row["mean_absolute_error_s"]
    order = "undefined" if row["spearman"] is None else f"{row['spearman']:.2f}"
    return (
        f"Calibrated on what came before and simulated from the queue at submission, waits of {row['from_utc']:%B %Y} "
        f"are off by {fmt.duration(error)} on average where the mean recorded wait is {fmt.duration(recorded)} "
        f"(calibrated mean {fmt.duration(row['simulated_mean_wait_s'])}); Spearman {order}, n {row['jobs']:,}."
    )


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
        f"Under {fmt.text(row['scheduler'])} on {counted(row['capacity_nodes'], 'node')} the simulated mean wait is "
        f"{fmt.duration(simulated)}, {apart} ({fmt.duration(recorded)}); a single job is off by "
        f"{fmt.duration(row['mean_absolute_error_s'])} on average, and {kept}."
    )


def _overlay(source: Source, scheduler: str, capacity: int, group: pl.DataFrame) -> Figure:
    curves = {side: (group[f"{side}_wait_s"].to_numpy().astype(np.float64), side) for side in ("recorded", "simulated")}
    return Figure(
        "waits_compared",
        f"Waits under {scheduler}",
        f"Share of jobs that waited at most so long (log axis; 0 counts as 1 s), replayed under {scheduler} on "
        f"{counted(capacity, 'node')}. {source.caption(group.height, 'jobs')}",
        figures.ecdf(f"{source.slug}-{scheduler}-{capacity}", curves, "wait from submission", dashed=("simulated",)),
        "Cumulative distributions of recorded and simulated waits overlaid.",
    )
