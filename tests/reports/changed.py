"""Rows of the tables `what_if` and `advice` for a report."""

from __future__ import annotations

from typing import Any

import polars as pl

from models.tables import WHAT_IF, frame
from models.what_if.advice.curves import curve_rows
from models.what_if.advice.table import ADVICE, ADVICE_CURVES

# change, nodes, mean wait, its change and the interval (s), verdict
CHANGES = (
    ("as it is", 16, 3600.0, 0.0, (0.0, 0.0), "no change"),
    ("ask=1.2", 16, 3000.0, -600.0, (-900.0, -60.0), "less"),
    ("nodes=+10%", 18, 1200.0, -2400.0, (-3000.0, -1800.0), "less"),
    ("backfill=off", 16, 3500.0, -100.0, (-400.0, 200.0), "cannot tell"),
)


def tables(cluster: str) -> dict[str, pl.DataFrame]:
    """Both tables of a cluster."""
    return {
        WHAT_IF.name: frame(WHAT_IF, [_replayed(cluster, *change) for change in CHANGES]),
        ADVICE.name: frame(ADVICE, [_advised(cluster, 1, 0), _advised(cluster, 2, 1)]),
        ADVICE_CURVES.name: frame(ADVICE_CURVES, _curves(cluster)),
    }


def _curves(cluster: str) -> list[dict[str, Any]]:
    """The candidate halves the waits and the queue of both days."""
    days = {"at": [1.0, 2.0], "recorded": [4.0, 6.0], "unchanged": [4.0, 5.0], "changed": [2.0, 2.5]}
    waits = {"at": [0.0, 1.0], "recorded": [60.0, 9e4], "unchanged": [60.0, 8e4], "changed": [30.0, 4e4]}
    return curve_rows({"cluster": cluster, "place": 1, "waits": waits, "queue": days})


def _advised(cluster: str, place: int, losing: int) -> dict[str, Any]:
    """A candidate of the advisor; recommended if nobody loses."""
    return {
        "cluster": cluster, "place": place, "changes": f"priority.limit.{place}h=+6h", "objective": "p90-wait",
        "jobs": 300, "base_value": 7200.0, "base_error": 60.0, "value": 3600.0, "difference": -3600.0,
        "difference_low": -4000.0, "difference_high": -600.0, "verdict": "less", "whole_difference": -1800.0,
        "error_share": 0.02,
        "losing_groups": losing, "is_recommended": not losing, "trust": "figures",
        "why_not": "1 group would wait too much longer" if losing else None,
        "trust_why": "the base's mean wait is off by 3 %", "to_do": "",
    }  # fmt: skip


def _replayed(
    cluster: str, change: str, nodes: int, wait_s: float, change_s: float, ends: tuple[float, float], verdict: str
) -> dict[str, Any]:
    return {
        "cluster": cluster, "change": change, "capacity_nodes": nodes, "jobs": 300,
        "mean_wait_s": wait_s, "p50_wait_s": wait_s / 2, "p95_wait_s": 4 * wait_s, "mean_bounded_slowdown": 3.0,
        "wait_change_s": change_s, "wait_change_low_s": ends[0], "wait_change_high_s": ends[1],
        "wait_change_whole_s": 2 * change_s, "verdict": verdict, "recorded_mean_wait_s": 3700.0, "base_spearman": 0.85,
        "trust": "figures", "trust_why": "the base's mean wait is off by 3 %", "said": "",
    }  # fmt: skip
