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

COMPARED = ("scheduler", "capacity_nodes", "recorded_wait_s", "simulated_wait_s")  # of `simulated_starts`


def distance(group: pl.DataFrame) -> dict[str, Any]:
    """Return `simulator.metrics.wait_distance` of one replay, with null for a figure that has no meaning."""
    figures = wait_distance(group["simulated_wait_s"].to_numpy(), group["recorded_wait_s"].to_numpy())
    return {name: None if math.isnan(value) else value for name, value in figures.items()}


def trust_in_replays(source: Source, base: dict[str, Any]) -> str:
    """Say how far to trust replays, from the row `as it is` of the table what_if."""
    verdict = "Trust direction and size" if base["trust"] == "figures" else "Trust the direction, not the size"
    words = (
        f"{verdict}. The replay of the unchanged cluster, anew from the record every day, gives a mean wait of "
        f"{fmt.duration(base['mean_wait_s'])}; the recorded mean wait is {fmt.duration(base['recorded_mean_wait_s'])}"
    )
    if base["base_spearman"] is not None:
        words += (
            f", and the rank correlation of simulated and recorded waits is {base['base_spearman']:.2f} (1 is perfect)"
        )
    return f"{words}.{_calibrated(source)}{indicative(source)}"


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
