"""Tables of replays under GPU schedulers made by hand: one is better beyond chance and every draw, one is not."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl

from models.tables import WHAT_IF_GROUPS, WHAT_IF_SCHEDULERS, frame

# scheduler, change, mean completion time, its change, interval, ends over draws; s
SCHEDULED = (
    ("yarn", "as it is", 7200.0, 0.0, (None, None), (0.0, 0.0)),
    ("tiresias", "as it is", 3600.0, -3600.0, (-5400.0, -1800.0), (-4000.0, -3200.0)),
    ("srtf", "as it is", 1800.0, -5400.0, (-7000.0, -600.0), (-7200.0, 60.0)),  # a draw says otherwise
)
PARTS = (
    ("size", "1", -7200.0, (-9000.0, -3600.0), (-7300.0, -7100.0)),
    ("size", "9-up", 900.0, (300.0, 1500.0), (800.0, 1000.0)),
    ("user", "somebody", 1200.0, (600.0, 1800.0), (1100.0, 1300.0)),
    ("group", "vc1", -60.0, (-200.0, 80.0), (-70.0, -50.0)),
)


def _scheduled(
    cluster: str,
    scheduler: str,
    change: str,
    jct_s: float,
    change_s: float,
    ends: tuple[float | None, float | None],
    draws: tuple[float, float],
    at: datetime,
) -> dict[str, Any]:
    preempts = scheduler != "yarn"
    beside_record = {
        "recorded_jobs": 290, "recorded_mean_wait_s": 7200.0, "recorded_median_wait_s": 60.0,
        "recorded_p90_wait_s": 36000.0, "base_mean_wait_s": 1800.0, "base_median_wait_s": 0.0,
        "base_p90_wait_s": 3600.0, "base_spearman": 0.415,
    }  # fmt: skip
    return {
        **({} if preempts else beside_record),
        "cluster": cluster, "place": 1 + [one[0] for one in SCHEDULED].index(scheduler), "scheduler": scheduler,
        "change": change, "jobs": 300, "from_utc": at, "until_utc": at, "capacity_gpus": 64, "seed": 0,
        "draws": 3, "mean_jct_s": jct_s, "p50_jct_s": jct_s / 2, "p99_jct_s": 9 * jct_s, "mean_queueing_s": jct_s / 4,
        "makespan_s": 1e6, "utilization": 0.6, "fragmentation": 0.02, "worst_rho": 9.0, "mean_rho": 1.5,
        "preemptions": 600.0 if preempts else 0.0, "lost_gpu_h": 12.0 if preempts else 0.0,
        "mean_jct_low_s": jct_s - 60, "mean_jct_high_s": jct_s + 60, "mean_jct_least_s": jct_s - 9,
        "mean_jct_most_s": jct_s + 9, "jct_change_s": change_s, "jct_change_low_s": ends[0],
        "jct_change_high_s": ends[1], "jct_change_least_s": draws[0], "jct_change_most_s": draws[1],
        "queueing_change_s": change_s, "queueing_change_low_s": ends[0], "queueing_change_high_s": ends[1],
        "assumptions": "each job draws a model (generated)\nquotas <b>by</b> user",
    }  # fmt: skip


def _part(
    cluster: str, dimension: str, name: str, change_s: float, ends: tuple[float, float], draws: tuple[float, float]
) -> dict[str, Any]:
    return {
        "cluster": cluster, "scheduler": "tiresias", "change": "as it is", "dimension": dimension, "name": name,
        "jobs": 100, "mean_jct_s": 3600.0, "jct_change_s": change_s, "jct_change_low_s": ends[0],
        "jct_change_high_s": ends[1], "jct_change_least_s": draws[0], "jct_change_most_s": draws[1],
    }  # fmt: skip


def tables(cluster: str, at: datetime, user: str) -> dict[str, pl.DataFrame]:
    """`what_if_schedulers` and `what_if_groups` of a cluster; `user` is the one who loses."""
    parts = [(kind, user if kind == "user" else name, change, ends, draws) for kind, name, change, ends, draws in PARTS]
    replays = [
        _scheduled(cluster, name, change, jct_s, by_s, ends, draws, at)
        for name, change, jct_s, by_s, ends, draws in SCHEDULED
    ]
    return {
        WHAT_IF_SCHEDULERS.name: frame(WHAT_IF_SCHEDULERS, replays),
        WHAT_IF_GROUPS.name: frame(WHAT_IF_GROUPS, [_part(cluster, *one) for one in parts]),
    }
