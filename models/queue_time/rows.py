"""Make the rows of `models.queue_time.tables` from the results of a study."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl

from models.queue_time import scores
from models.queue_time.study import Judgement
from models.queue_time.tables import QUEUE_TIME_PREDICTIONS, QUEUE_TIME_SCORES
from models.study.windows import Window
from models.tables import frame
from traces import instants

PLACES = {"p025_s": 0, "p10_s": 3, "p50_s": 19, "p90_s": 35, "p975_s": 38}  # positions among LEVELS
_PLAIN = (
    "method", "is_naive", "n", "n_over_10min", "blocks", "indicative", "crps_h", "balanced_accuracy", "brier",
    "median_ae_h", "within_factor_2", "spearman",
)  # fmt: skip


def scores_frame(cluster: str, window: Window, found: dict[str, Any]) -> pl.DataFrame:
    """Make `queue_time_scores` from `models.queue_time.study.figures_of`."""
    shared = {
        "cluster": cluster,
        "from_utc": instants.utc(window.from_s),
        "to_utc": instants.utc(window.until_s),
        "fitted_on": found["fitted_on"],
        "never_started": found["never_started"],
        "mean_wait_h": found["mean_wait_h"],
    }
    return frame(QUEUE_TIME_SCORES, [{**shared, **_scored(row)} for row in found["results"]])


def _scored(row: dict[str, Any]) -> dict[str, Any]:
    low, high = _ends(row["ci95"].get("crps_h"))
    against = row["difference_to_best_naive"] or {}
    less_low, less_high = _ends(against.get("ci95"))
    return {
        **{name: row[name] for name in _PLAIN},
        "crps_low_h": low,
        "crps_high_h": high,
        "best_naive": against.get("method"),
        "difference_h": against.get("crps_h"),
        "difference_low_h": less_low,
        "difference_high_h": less_high,
        **{f"coverage_{name[2:].ljust(2, '0')}": value for name, value in row["coverage"].items()},
        "width_95_h": row["width_h"],
        "fit_s": row["wall_s"],
        "weeks": json.dumps(row["weeks"]),
        "sizes": json.dumps(row["sizes"]),
    }


def _ends(ends: list[float] | None) -> tuple[float | None, float | None]:
    return (None, None) if ends is None else (ends[0], ends[1])


def predictions_frame(cluster: str, found: Judgement) -> pl.DataFrame:
    """Make `queue_time_predictions`: every method's forecast of every judged job."""
    jobs = found.jobs
    record = jobs.log.record
    job = np.flatnonzero(record.ran)[jobs.within(*found.window_s)]
    shared = pl.DataFrame(
        {
            "job_key": [record.job_key[at] for at in job.tolist()],
            "submit_utc": [instants.utc(at) for at in record.submit_s[job].tolist()],
            "partition": [jobs.log.names["partition"][at] for at in job.tolist()],
            "size": record.size[job],
            "limit_s": record.limit_s[job],
            "wait_s": found.rows.wait_s,
        }
    )
    parts = []
    for name, forecast in found.forecasts.items():
        predicted = {column: forecast.quantiles_s[:, at] for column, at in PLACES.items()}
        predicted |= {"p_under_600s": forecast.p_under_600s, "crps_h": scores.crps_h(forecast, found.rows.wait_s)}
        columns = {column: pl.Series(values) for column, values in predicted.items()}
        parts.append(shared.with_columns(**columns, cluster=pl.lit(cluster), method=pl.lit(name)))
    order = [column.name for column in QUEUE_TIME_PREDICTIONS.columns]
    return pl.concat(parts).select(order).cast({"size": pl.Int64, "submit_utc": pl.Datetime("us")})
