"""The tables of queue-time prediction, invented: two methods, four weeks of which one is far off."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from models.queue_time.tables import QUEUE_TIME_DRIFT, QUEUE_TIME_PREDICTIONS, QUEUE_TIME_RELEASES, QUEUE_TIME_SCORES
from models.tables import frame

FROM = datetime(2024, 2, 1)
WEEKS = ((0.96, 1.0, 1.1), (0.95, 2.0, 1.8), (0.6, 9.0, 2.0), (0.94, 1.0, 1.0))  # coverage, median wait, predicted


def _parts(names: list[tuple[str, str]]) -> str:
    rows = [
        {
            key: name, "n": 50, "crps_h": 1.0, "coverage_95": covered, "mean_wait_h": waited * 1.5,
            "median_wait_h": waited, "median_predicted_h": found,
        }
        for (key, name), (covered, waited, found) in zip(names, WEEKS, strict=False)
    ]  # fmt: skip
    return json.dumps(rows)


def _scored(cluster: str, method: str, crps_h: float, is_naive: bool) -> dict[str, Any]:
    weeks = [("week_utc", f"{FROM + timedelta(weeks=k):%Y-%m-%dT%H:%M}") for k in range(len(WEEKS))]
    return {
        "cluster": cluster, "method": method, "is_naive": is_naive, "from_utc": FROM, "to_utc": datetime(2024, 2, 29),
        "fitted_on": 900, "n": 200, "n_over_10min": 120, "never_started": 7, "blocks": 4, "indicative": True,
        "mean_wait_h": 3.0, "crps_h": crps_h, "crps_low_h": crps_h - 0.5, "crps_high_h": crps_h + 0.5,
        "best_naive": "limits", "difference_h": crps_h - 2.0, "difference_low_h": crps_h - 2.25,
        "difference_high_h": crps_h - 1.75, "balanced_accuracy": 0.8, "brier": 0.1, "median_ae_h": 1.5,
        "within_factor_2": 0.4, "spearman": 0.7, "coverage_50": 0.5, "coverage_80": 0.79, "coverage_95": 0.86,
        "width_95_h": 12.0, "fit_s": 1.0, "weeks": _parts(weeks),
        "sizes": _parts([("size", "smallest"), ("size", "larger")]),
    }  # fmt: skip


def queue_time_drift(cluster: str, *, value: float, week: datetime = datetime(2024, 3, 11)) -> pl.DataFrame:
    """A week whose waits outside the intervals are `value`, where .06 was promised and .15 is the bound."""
    row = {
        "cluster": cluster, "week_utc": week, "champion_version": 2, "weeks": 9, "n": 50, "chance": 0.1,
        "score": "crps_h", "value": 1.5, "promised": 1.25, "bound": 2.5, "is_beyond": False,
    }  # fmt: skip
    missed = {"score": "missed_95", "value": value, "promised": 0.06, "bound": 0.15, "is_beyond": value > 0.15}
    return frame(QUEUE_TIME_DRIFT, [row, row | missed])


def started_tables(cluster: str) -> dict[str, pl.DataFrame]:
    """The four tables of the cluster."""
    predictions = [
        {
            "cluster": cluster, "method": method, "job_key": str(k), "submit_utc": FROM + timedelta(hours=k),
            "partition": "gpu", "size": 1, "limit_s": 3600, "wait_s": 60 * k, "p025_s": 1.0 * k, "p10_s": 5.0 * k,
            "p50_s": 50.0 * k, "p90_s": 90.0 * k, "p975_s": 200.0 * k, "p_under_600s": 0.5, "crps_h": 0.1,
        }
        for method in ("boosting", "limits") for k in range(100)
    ]  # fmt: skip
    release = {
        "cluster": cluster, "decided_utc": datetime(2024, 3, 1), "registered_version": 2, "champion_method": "boosting",
        "candidate_version": 2, "method": "boosting", "verdict": "better", "provisional": False,
        "reason": "better: CRPS -1 h a job", "opponent": "the best naive method, limits", "jobs": 200, "blocks": 4,
        "crps_difference_h": -1.0, "crps_difference_low_h": -1.2, "crps_difference_high_h": -0.8,
    }  # fmt: skip
    scores = [_scored(cluster, "boosting", 1.0, False), _scored(cluster, "limits", 2.0, True)]
    return {
        QUEUE_TIME_SCORES.name: frame(QUEUE_TIME_SCORES, scores),
        QUEUE_TIME_PREDICTIONS.name: frame(QUEUE_TIME_PREDICTIONS, predictions),
        QUEUE_TIME_RELEASES.name: frame(QUEUE_TIME_RELEASES, [release]),
        QUEUE_TIME_DRIFT.name: queue_time_drift(cluster, value=0.2),
    }
