"""How far a replay is from the record: what a simulated effect is worth."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from features.conventions import BLOCK_DAYS, INDICATIVE_BELOW_BLOCKS
from reports import format as fmt
from reports.source import Source
from simulator.metrics import wait_distance
from traces.counted import counted

LITTLE = "Little"  # how the verdict on a replay far from the record begins
CLOSE, NEAR = 1.25, 2.0  # times that the simulated mean wait is off by: a size to plan with, an order of magnitude
KEPT_WELL, KEPT_SOMEWHAT = 0.8, 0.5  # Spearman's rank correlation of simulated and recorded waits

COMPARED = ("scheduler", "capacity_nodes", "recorded_wait_s", "simulated_wait_s")  # of `simulated_starts`


def distance(group: pl.DataFrame) -> dict[str, Any]:
    """`simulator.metrics.wait_distance` of one replay, with null for a figure that has no meaning."""
    figures = wait_distance(group["simulated_wait_s"].to_numpy(), group["recorded_wait_s"].to_numpy())
    return {name: None if math.isnan(value) else value for name, value in figures.items()}


def compared_starts(source: Source) -> pl.DataFrame:
    """Simulated starts of jobs that have a wait on both sides."""
    starts = source.columns("simulated_starts", *COMPARED)
    if starts.is_empty():
        return starts
    return starts.filter((pl.col("recorded_wait_s") >= 0) & (pl.col("simulated_wait_s") >= 0))


def trust_in_replays(source: Source, replayed_mean_wait_s: float) -> str:
    """One or two sentences: a verdict, and the distance between the replay of the cluster as it is and the record.

    Where the replay was not kept job by job, the mean waits alone are compared.
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
        return "Unknown: the log holds no wait to compare the simulation with."
    words = (
        f"{_verdict(recorded, simulated, order)} The replay of the unchanged cluster gives a mean wait of "
        f"{fmt.duration(simulated)}; the recorded mean wait is {fmt.duration(recorded)}"
    )
    if order is not None:
        words += f", and the rank correlation of simulated and recorded waits is {order:.2f} (1 is perfect)"
    return f"{words}.{_calibrated(source)}{indicative(source)}"


def distance_s(source: Source, replayed_mean_wait_s: float) -> float | None:
    """How far the mean wait of the replay of the cluster as it is lies from the recorded one, s; None where the log
    holds no wait."""
    starts = compared_starts(source)
    if starts.is_empty():
        return None if source.mean_wait_s is None else abs(source.mean_wait_s - replayed_mean_wait_s)
    figures = distance(starts)
    recorded, simulated = figures["recorded_mean_wait_s"], figures["simulated_mean_wait_s"]
    return None if recorded is None or simulated is None else abs(float(recorded) - float(simulated))


def _verdict(recorded: float, simulated: float, order: float | None) -> str:
    low, high = sorted((recorded + 1, simulated + 1))  # one second more, for waits of none
    if high / low <= CLOSE and (order is None or order >= KEPT_WELL):
        return "Well: trust direction and size."
    if high / low <= NEAR and (order is None or order >= KEPT_SOMEWHAT):
        return "Moderately: trust the order of magnitude."
    return f"{LITTLE}: trust the direction, not the size."


def _calibrated(source: Source) -> str:
    """How far the calibrated simulator, in which policies are compared, is off in the newest month."""
    figures = source.rows("calibration_figures")
    if not figures.is_empty():
        figures = figures.filter((pl.col("change") == "all") & (pl.col("form") == "forked")).sort("from_utc")
    if figures.is_empty():
        return ""
    row = figures.to_dicts()[-1]
    return (
        f" Calibrated on the log, simulated waits of {row['from_utc']:%B %Y} have a mean absolute error of "
        f"{fmt.duration(row['mean_absolute_error_s'])}; the recorded mean is "
        f"{fmt.duration(row['recorded_mean_wait_s'])}."
    )


def indicative(source: Source) -> str:
    """A sentence for a log of few weeks, else ''."""
    first, last = source.window
    blocks = 0 if first is None or last is None else (last - first).days // BLOCK_DAYS
    if blocks >= INDICATIVE_BELOW_BLOCKS:
        return ""
    return f" The log has {counted(blocks, 'whole week')}: the interval is indicative."
