"""The distance between a replay and the record, and how far to trust simulated effects."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from features.conventions import BLOCK_DAYS, INDICATIVE_BELOW_BLOCKS
from reports import format as fmt
from reports.source import Source
from simulator.metrics import wait_distance
from traces.counted import counted

DIRECTION_ONLY = "Trust the direction, not the size"  # the verdict on a replay that is far from the record
CLOSE, NEAR = 1.25, 2.0  # largest ratio of the mean waits at which to trust the size, or the order of magnitude
KEPT_WELL, KEPT_SOMEWHAT = 0.8, 0.5  # least Spearman rank correlation of the waits, for the same two verdicts

COMPARED = ("scheduler", "capacity_nodes", "recorded_wait_s", "simulated_wait_s")  # of `simulated_starts`


def distance(group: pl.DataFrame) -> dict[str, Any]:
    """Return `simulator.metrics.wait_distance` of one replay, with null for a figure that has no meaning."""
    figures = wait_distance(group["simulated_wait_s"].to_numpy(), group["recorded_wait_s"].to_numpy())
    return {name: None if math.isnan(value) else value for name, value in figures.items()}


def compared_starts(source: Source) -> pl.DataFrame:
    """Return the simulated starts of the jobs that have a recorded and a simulated wait."""
    starts = source.columns("simulated_starts", *COMPARED)
    if starts.is_empty():
        return starts
    return starts.filter((pl.col("recorded_wait_s") >= 0) & (pl.col("simulated_wait_s") >= 0))


def trust_in_replays(source: Source, replayed_mean_wait_s: float) -> str:
    """Say how far to trust replays: a verdict, and how far the replay of the unchanged cluster is from the record.

    If the replay was not kept job by job, only the mean waits are compared.
    """
    starts = compared_starts(source)
    order: float | None = None
    if starts.is_empty():
        recorded, simulated = source.mean_wait_s, replayed_mean_wait_s
    else:
        figures = distance(starts)
        recorded, simulated = figures["recorded_mean_wait_s"], figures["simulated_mean_wait_s"]
        order = figures["spearman"]
    if recorded is None:
        return "Unknown: the log has no wait to compare the simulation with."
    words = (
        f"{_verdict(recorded, simulated, order)} The replay of the unchanged cluster gives a mean wait of "
        f"{fmt.duration(simulated)}; the recorded mean wait is {fmt.duration(recorded)}"
    )
    if order is not None:
        words += f", and the rank correlation of simulated and recorded waits is {order:.2f} (1 is perfect)"
    return f"{words}.{_calibrated(source)}{indicative(source)}"


def distance_s(source: Source, replayed_mean_wait_s: float) -> float | None:
    """Return the difference between the replayed and the recorded mean wait, s; None if the log has no wait."""
    starts = compared_starts(source)
    if starts.is_empty():
        return None if source.mean_wait_s is None else abs(source.mean_wait_s - replayed_mean_wait_s)
    figures = distance(starts)
    recorded, simulated = figures["recorded_mean_wait_s"], figures["simulated_mean_wait_s"]
    return None if recorded is None or simulated is None else abs(float(recorded) - float(simulated))


def _verdict(recorded: float, simulated: float, order: float | None) -> str:
    low, high = sorted((recorded + 1, simulated + 1))  # plus one second, because a mean wait can be 0
    if high / low <= CLOSE and (order is None or order >= KEPT_WELL):
        return "Trust direction and size."
    if high / low <= NEAR and (order is None or order >= KEPT_SOMEWHAT):
        return "Trust the order of magnitude."
    return f"{DIRECTION_ONLY}."


def _calibrated(source: Source) -> str:
    """Say how far the calibrated simulator, in which policies are compared, is off in the newest month."""
    figures = source.rows("calibration_figures")
    if not figures.is_empty():
        figures = figures.filter((pl.col("change") == "all") & (pl.col("form") == "forked")).sort("from_utc")
    if figures.is_empty():
        return ""
    row = figures.to_dicts()[-1]
    return (
        f" In {row['from_utc']:%B %Y} the waits of the calibrated simulator have a mean absolute error of "
        f"{fmt.duration(row['mean_absolute_error_s'])}; the recorded mean wait is "
        f"{fmt.duration(row['recorded_mean_wait_s'])}."
    )


def indicative(source: Source) -> str:
    """Return a sentence for a log of few weeks, else ''."""
    first, last = source.window
    blocks = 0 if first is None or last is None else (last - first).days // BLOCK_DAYS
    if blocks >= INDICATIVE_BELOW_BLOCKS:
        return ""
    return f" The log has {counted(blocks, 'whole week')}, so the interval is only indicative."
