"""Section `fidelity`: how far to trust the simulator, by its waits compared with the recorded ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from reports import figures
from reports import format as fmt
from reports.advice.advice import AS_IT_IS
from reports.advice.trust import COMPARED, distance
from reports.layout import Figure, Section, TableView, columns
from reports.source import Source
from simulator.metrics import NOTICED_WAIT_S
from simulator.recorded.calibration.study import unexplained
from traces.counted import counted

_WAITS = {
    f"{side}_{figure}_wait": f"{side}, {figure}"
    for figure in ("mean", "p50", "p95")
    for side in ("recorded", "simulated")
}

_CALIBRATED = (
    "jobs|jobs|count", "recorded_mean_wait_s|recorded mean|duration", "simulated_mean_wait_s|calibrated mean|duration",
    "recorded_p90_wait_s|recorded p90|duration", "simulated_p90_wait_s|calibrated p90|duration",
    "mean_absolute_error_s|MAE|duration", "relative_error|MAE / recorded mean|percent", "spearman|Spearman|number",
    "spearman_waited|Spearman if waited|number",
)  # fmt: skip
_FORM_ORDER = {"frozen": 0, "causal": 1, "forked": 2, "informed": 3}


def _not_replayed(source: Source) -> str:
    """Compare the mean waits alone, if only changed clusters were replayed and no replay was kept job by job."""
    replays = source.rows("what_if")
    base = replays.filter(pl.col("change") == AS_IT_IS).to_dicts() if not replays.is_empty() else []
    if not base or base[0]["mean_wait_s"] is None or source.mean_wait_s is None:
        return "The trace was not replayed in the simulator, so the error of simulated waits is unknown."
    return (
        "The trace was not replayed job by job. The replay of the unchanged cluster has a mean wait of "
        f"{fmt.duration(base[0]['mean_wait_s'])} on {counted(base[0]['capacity_nodes'], 'node')}; the recorded mean "
        f"wait is {fmt.duration(source.mean_wait_s)}."
    )


def fidelity(source: Source) -> Section:
    """Return mean, p50, p95, mean absolute error and rank correlation for each simulated scheduler."""
    section = Section("fidelity", "Accuracy of the simulation: simulated against recorded waits")
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
            f"{counted(replayed - starts.height, 'replayed job', 'lacks')} a start in the log or in the replay; the "
            "figures exclude these jobs."
        )
    section.tables.append(
        TableView(
            "distance",
            "Difference between simulated and recorded waits",
            "MAE is the mean absolute difference job by job; Spearman is the rank correlation, ties averaged, "
            f"for all jobs and for those with a recorded wait over {NOTICED_WAIT_S // 60} minutes. "
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
    """Add the calibrated waits, what each mechanism contributes, and which waits stay unexplained."""
    figures = source.rows("calibration_figures")
    if figures.is_empty():
        section.missing.append(
            "There are no calibrated waits: `baton run` computes them for each month with four weeks of log before it."
        )
        return section
    whole = figures.filter(pl.col("change") == "all").sort("from_utc", pl.col("form").replace_strict(_FORM_ORDER))
    newest = whole.filter((pl.col("form") == "forked") & (pl.col("from_utc") == pl.col("from_utc").max()))
    section.sentences += [_calibrated_sentence(row) for row in newest.to_dicts()]
    if source.remarks.uncalibrated:
        section.sentences.append(f"The log is long, so calibration leaves out {fmt.text(source.remarks.uncalibrated)}.")
    section.tables.append(
        TableView(
            "calibration",
            "Calibrated waits of each month, fitted on the log before it",
            "Frozen: the trace is replayed with parameters from before the month. Causal: as frozen, with the usable "
            "nodes taken from the log. Forked: each job is simulated from the recorded state of the queue at its "
            "submission. Informed: each job also sees the recorded jobs until it starts, which is easier. Ceiling: "
            "Spearman of a model that knows every wait but ties those up to 10 s. Development: methods and settings "
            "were developed on that month. " + source.caption(int(newest["jobs"].sum()), "jobs of the newest month"),
            columns("month|month|name", "form|form|name", *_CALIBRATED, "spearman_ceiling|ceiling|number"),
            [_calibrated_row(row, source.remarks.development_until) for row in whole.to_dicts()],
        )
    )
    parts = figures.filter(pl.col("change") != "all").to_dicts()
    if parts:
        section.tables.append(
            TableView(
                "mechanisms",
                "What each mechanism contributes",
                "On a sample of the newest month: mechanisms added one by one, and all mechanisms without one of them. "
                + source.caption(int(parts[0]["jobs"]), "jobs"),
                columns("form|form|name", "change|change|name", "mechanism|mechanism|name", *_CALIBRATED),
                [_calibrated_row(row) for row in parts],
            )
        )
    section.tables.append(_unexplained(source))
    return section


def _unexplained(source: Source) -> TableView:
    """Return the jobs whose calibrated wait is far from the recorded one, by the direction of the error."""
    starts = source.rows("calibrated_starts")
    return TableView(
        "unexplained",
        "Waits that calibration does not explain",
        "Jobs by the error of the forked form. Early: simulated to start earlier than recorded, for a reason that the "
        "simulator does not model (a dependency, a begin time, a reservation, a pinned node). Late: simulated to "
        "start later than recorded, because in the log it overtook jobs that the simulated rules put first. "
        + source.caption(starts.height, "jobs"),
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
    """Say how accurate a calibrated wait is."""
    recorded, error = row["recorded_mean_wait_s"], row["mean_absolute_error_s"]
    order = "undefined" if row["spearman"] is None else f"{row['spearman']:.2f}"
    return (
        f"The simulator, calibrated on the log before {row['from_utc']:%B %Y}, has a mean absolute error of "
        f"{fmt.duration(error)} a wait in that month. The mean wait is {fmt.duration(recorded)} recorded and "
        f"{fmt.duration(row['simulated_mean_wait_s'])} simulated; Spearman {order}, n {row['jobs']:,}."
    )


def _sentence(row: dict[str, Any]) -> str:
    """Say the direction and size of the difference, and whether the order of jobs is kept."""
    recorded, simulated = row["recorded_mean_wait_s"], row["simulated_mean_wait_s"]
    if recorded > 0:
        ratio = simulated / recorded
        apart = f"{100 * abs(ratio - 1):.0f} % {'longer' if ratio >= 1 else 'shorter'} than the recorded mean"
    else:
        apart = "while no job waited in the log"
    order = row["spearman"]
    if order is None:
        kept = "The order of the waits cannot be compared, since all waits of one side are equal"
    else:
        strength = "well" if order >= 0.8 else "moderately" if order >= 0.5 else "poorly"
        kept = f"The order of the waits agrees {strength} with the log (Spearman {order:.2f})"
    return (
        f"Under {fmt.text(row['scheduler'])} on {counted(row['capacity_nodes'], 'node')} the simulated mean wait is "
        f"{fmt.duration(simulated)}, {apart} ({fmt.duration(recorded)}). The mean absolute error of a job's wait is "
        f"{fmt.duration(row['mean_absolute_error_s'])}. {kept}."
    )


def _overlay(source: Source, scheduler: str, capacity: int, group: pl.DataFrame) -> Figure:
    curves = {side: (group[f"{side}_wait_s"].to_numpy().astype(np.float64), side) for side in ("recorded", "simulated")}
    return Figure(
        "waits_compared",
        f"Waits under {scheduler}",
        f"Share of jobs with at most this wait (log axis; 0 counts as 1 s), replayed under {scheduler} on "
        f"{counted(capacity, 'node')}. {source.caption(group.height, 'jobs')}",
        figures.ecdf(f"{source.slug}-{scheduler}-{capacity}", curves, "wait from submission", dashed=("simulated",)),
        "Cumulative distributions of recorded and simulated waits overlaid.",
    )
