"""Judge every month of a record under every form, and return the calibration tables of `simulator.tables`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from simulator.metrics import spearman
from simulator.recorded.calibration.judge import (
    CAUSAL,
    FORKED,
    FORMS,
    Month,
    contribution_steps,
    contributions,
    error_classes,
    figures,
    fits,
    judged_starts,
    steps,
)
from simulator.recorded.parameters import Parameters
from simulator.recorded.record import RecordedTrace, events
from simulator.tables import CALIBRATED_STARTS, CALIBRATION_FIGURES, CALIBRATION_PARAMETERS
from traces.arrays import Int64s
from traces.progress import Progress
from traces.schema import Table
from traces.store.frames import conform

NOISE_S = 10  # waits up to this are the scheduler's latency, which no queueing rule explains


@dataclass(frozen=True)
class CalibrationStudy:
    """The three calibration tables of one cluster."""

    figures: pl.DataFrame
    starts: pl.DataFrame
    parameters: pl.DataFrame


def study(record: RecordedTrace, cluster: str, judged: list[Month], *, mechanisms_every: int = 0) -> CalibrationStudy:
    """Judge each month under all forms; for the last month also measure the contribution of each mechanism.

    The contributions use every `mechanisms_every`-th judged job; 0 skips them. Each mechanism needs runs of its own,
    and queues are long when few mechanisms are on: a month with 4,000 jobs takes minutes.
    """
    happened = events(record)
    rows: list[dict[str, Any]] = []
    waits, parameters = [], []
    changed = [
        (form, replace(month, every=mechanisms_every * month.every))
        for month in judged[-1:]
        for form in ((FORKED, CAUSAL) if mechanisms_every else ())
    ]
    total = sum(len(month.weeks) + sum(steps(form, month) for form in FORMS) for month in judged)
    total += sum(contribution_steps(form, sample) for form, sample in changed)
    with Progress("calibration", total, "steps", stays=False) as progress:

        def on_progress(count: int) -> None:
            for _ in range(count):
                progress.advance("calibration")

        for month in judged:
            fitted = fits(record, month, on_progress)
            parameters.append(_parameter_row(month, fitted[0]))
            begun: dict[str, Int64s] = {}
            for form in FORMS:
                begun[form] = judged_starts(form, record, happened, month, fitted, on_progress=on_progress)
            rows += [_figure_row(record, month, form, "all", "", figures(record, month, begun[form])) for form in FORMS]
            waits.append(_wait_rows(record, cluster, month, begun))
        for form, sample in changed:
            contributed = contributions(record, happened, sample, fitted, form, on_progress)
            rows += [_figure_row(record, sample, form, *row) for row in contributed]
    return CalibrationStudy(
        _frame(CALIBRATION_FIGURES, cluster, rows),
        pl.concat(waits) if waits else _frame(CALIBRATED_STARTS, cluster, []),
        _frame(CALIBRATION_PARAMETERS, cluster, parameters),
    )


def unexplained(calibrated: pl.DataFrame) -> pl.DataFrame:
    """Summarise `calibrated_starts` by month and class of the forked error: jobs, wait hours, share of all error."""
    error = (pl.col("forked_wait_s") - pl.col("recorded_wait_s")).abs()
    return (
        calibrated.group_by("from_utc", pl.col("forked_error").alias("class"))
        .agg(
            pl.len().alias("jobs"),
            (pl.col("recorded_wait_s").sum() / 3600).alias("recorded_wait_h"),
            (error.sum() / 3600).alias("error_h"),
        )
        .with_columns(
            (pl.col("jobs") / pl.col("jobs").sum().over("from_utc")).alias("share_of_jobs"),
            (pl.col("error_h") / pl.col("error_h").sum().over("from_utc")).fill_nan(0.0).alias("share_of_error"),
        )
        .sort("from_utc", "error_h", descending=[False, True])
    )


def _figure_row(
    record: RecordedTrace, month: Month, form: str, change: str, mechanism: str, measured: dict[str, float]
) -> dict[str, Any]:
    wanted = ("recorded_mean_wait_s", "simulated_mean_wait_s", "recorded_p90_wait_s", "simulated_p90_wait_s")
    judged = month.of(record)
    recorded = (record.start_s - record.submit_s)[judged]
    defined = {
        "spearman": measured["spearman"],
        "spearman_waited": measured["spearman_waited"],
        "spearman_ceiling": spearman(np.where(recorded > NOISE_S, recorded, 0), recorded),
    }
    return {
        "from_utc": month.from_s * 1_000_000,
        "until_utc": month.until_s * 1_000_000,
        "form": form,
        "change": change,
        "mechanism": mechanism,
        "jobs": int(measured["jobs"]),
        **{name: measured[name] for name in wanted},
        "mean_absolute_error_s": measured["mean_absolute_error_s"],
        **{name: None if np.isnan(value) else value for name, value in defined.items()},
    }


def _wait_rows(record: RecordedTrace, cluster: str, month: Month, begun: dict[str, Int64s]) -> pl.DataFrame:
    judged = np.flatnonzero(month.of(record))
    recorded = (record.start_s - record.submit_s)[judged]
    waits = {form: (begun[form] - record.submit_s)[judged] for form in FORMS}
    frame = {
        "job_key": [record.job_key[row] for row in judged],
        "from_utc": np.full(len(judged), month.from_s * 1_000_000),
        "submit_utc": record.submit_s[judged] * 1_000_000,
        "recorded_wait_s": recorded,
        **{f"{form}_wait_s": wait for form, wait in waits.items()},
        "forked_error": error_classes(recorded, waits[FORKED]),
    }
    return _frame(CALIBRATED_STARTS, cluster, frame)


def _parameter_row(month: Month, fitted: Parameters) -> dict[str, Any]:
    names = ("nodes", "max_jobs", "max_nodes", "points_per_hour", "concordance", "concordance_fcfs", "pairs")
    values = {name: getattr(fitted, name) for name in names}
    numbers = {name: None if value is None or np.isnan(value) else value for name, value in values.items()}
    return {"from_utc": month.from_s * 1_000_000, **numbers}


def _frame(table: Table, cluster: str, rows: Any) -> pl.DataFrame:
    """Convert rows or columns to the table's declared types; times are in microseconds since the epoch."""
    names = [name for name in table.names if name != "cluster"]
    frame = pl.DataFrame(rows, schema=None if len(rows) else names, infer_schema_length=None)
    return conform(table, frame.with_columns(pl.lit(cluster).alias("cluster")))
