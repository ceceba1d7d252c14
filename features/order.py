"""Starts out of order, and which of them did no harm (Jeon et al., ATC'19, section 3.1: out-of-order scheduling).

A job starts out of order if a job of the same queue that has waited longer still waits. A queue is a partition or
virtual cluster. A start is harmless by count if, without this job, the overtaken job would not have fitted at any
instant until this job ended or the overtaken one started. Counts are in the cluster's binding resource. Where the
overtaken job would have fitted by count, it may still have lacked a node or quota, so the harmless share is a lower
bound.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from features.resources.capacity import Resource, capacity, free
from features.resources.resource import resource_of
from features.resources.sizes import asked_amount, size_bucket
from features.resources.usage import Steps, horizon, queue_end, runs
from features.tables.queueing import START_ORDER, START_ORDER_BY
from features.trace import ASKED, ASKED_OF_OTHERS, Trace, ordered, read_trace, shaped
from traces.arrays import Int64s
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store.folder import DataFolder

TABLES: tuple[Table, ...] = (START_ORDER, START_ORDER_BY)
NEVER = np.iinfo(np.int64).min


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables for the cluster of `settings` from the warehouse."""
    return from_trace(read_trace(data, settings.name, jobs=(*ASKED, *ASKED_OF_OTHERS), by_node=True), settings)


def from_trace(trace: Trace, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables from canonical frames; these are freed once used if the caller keeps no reference."""
    held = runs(trace, settings)
    size = capacity(trace, settings, held)
    resource = resource_of(trace, settings, held, size)
    unused = free(held, size, resource)
    most_free = None if unused is None else RangeMaximum(unused)
    queued = _queued(trace, settings, resource)
    del trace, held, unused, size
    parts = [_overtaken(rows, most_free) for _, rows in queued.group_by("partition", maintain_order=True)]
    started = pl.concat([queued.clear().with_columns(*_no_order()), *parts]).filter(pl.col("start").is_not_null())
    del parts, queued, most_free
    started = shaped(started, START_ORDER)
    rows = ordered(started, "start_utc", "job_key")
    return {START_ORDER.name: rows, START_ORDER_BY.name: _by(rows, settings.name)}


def _queued(trace: Trace, settings: ClusterSettings, resource: Resource) -> pl.DataFrame:
    """List each job's eligible time, its start or the end of its wait, and its demand."""
    until, amount = horizon(trace), asked_amount(resource, settings)
    return trace.jobs.select(
        "cluster", "job_key", "partition", "start_utc",
        amount.alias("demand"),
        size_bucket(amount, resource).cast(pl.Categorical).alias("size_bucket"),
        pl.coalesce("eligible_utc", "submit_utc").dt.epoch("s").alias("eligible"),
        pl.col("start_utc").dt.epoch("s").alias("start"),
        queue_end(until).alias("left_queue"),
        pl.coalesce(pl.col("end_utc").dt.epoch("s"), pl.lit(until)).alias("end"),
    ).drop_nulls(["eligible", "left_queue"])  # fmt: skip


def _no_order() -> tuple[pl.Expr, ...]:
    return (
        pl.lit(None, pl.Boolean).alias("is_out_of_order"),
        pl.lit(None, pl.Boolean).alias("is_harmless"),
        pl.lit(None, pl.Int64).alias("smallest_overtaken"),
    )


def _overtaken(queue: pl.DataFrame, most_free: RangeMaximum | None) -> pl.DataFrame:
    """Determine for every start of one queue whether it overtook a job, and whether this harmed the overtaken jobs.

    This takes one pass per demand in the queue. Among jobs of one demand that were eligible earlier and still wait,
    only the one that waits until last matters: it was in the queue whenever another was.
    """
    jobs = queue.sort("eligible", "job_key")
    eligible, start, left_queue, end = (
        jobs[name].fill_null(NEVER).to_numpy() for name in ("eligible", "start", "left_queue", "end")
    )
    demand = jobs["demand"].fill_null(-1).to_numpy()
    before = np.searchsorted(eligible, eligible, side="left")  # jobs that were eligible earlier
    out_of_order = np.zeros(len(jobs), dtype=bool)
    harmed = np.zeros(len(jobs), dtype=bool)
    smallest = np.full(len(jobs), -1, dtype=np.int64)
    for size in np.unique(demand)[::-1]:
        latest = np.concatenate([[NEVER], np.maximum.accumulate(np.where(demand == size, left_queue, NEVER))])[before]
        overtakes = (start != NEVER) & (latest > start)
        out_of_order |= overtakes
        if size < 0:
            continue
        smallest[overtakes] = size
        if most_free is not None:
            places = np.flatnonzero(overtakes)
            room = most_free.over(start[places], np.minimum(end[places], latest[places]))
            harmed[places] |= room + np.maximum(demand[places], 0) >= size
    known = most_free is not None
    return jobs.with_columns(
        pl.Series("is_out_of_order", out_of_order),
        pl.when(pl.Series(out_of_order & (smallest >= 0))).then(pl.Series(~harmed)).alias("is_harmless")
        if known
        else pl.lit(None, pl.Boolean).alias("is_harmless"),
        pl.when(pl.Series(smallest >= 0)).then(pl.Series(smallest)).alias("smallest_overtaken"),
    )


class RangeMaximum:
    """Largest value of a step function over intervals, from a table of maxima over powers of two."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        is_small = np.abs(steps.values).max(initial=0) <= np.iinfo(np.int32).max
        self._levels = [steps.values.astype(np.int32) if is_small else steps.values]
        width = 1
        while 2 * width <= len(steps.values):
            last = self._levels[-1]
            self._levels.append(np.maximum(last[:-width], last[width:]))
            width *= 2

    def over(self, begin: Int64s, end: Int64s) -> Int64s:
        """Return the largest value in [begin, end), each of shape (n,); NEVER // 2 for an empty interval."""
        first = np.maximum(np.searchsorted(self._steps.times, begin, side="right") - 1, 0)
        last = np.searchsorted(self._steps.times, end, side="left") - 1
        largest = np.full(len(begin), NEVER // 2, dtype=np.int64)
        is_nonempty = (end > begin) & (last >= first)
        level = np.zeros(len(begin), dtype=np.int64)
        level[is_nonempty] = np.log2(last[is_nonempty] - first[is_nonempty] + 1).astype(np.int64)
        for depth in np.unique(level[is_nonempty]):
            rows = np.flatnonzero(is_nonempty & (level == depth))
            table = self._levels[int(depth)]
            largest[rows] = np.maximum(table[first[rows]], table[last[rows] - 2 ** int(depth) + 1])
        return largest


def _by(rows: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Compute counts and shares in total, by queue and by size."""
    rows = rows.with_columns(pl.lit("all").alias("all"))
    over, harmless = pl.col("is_out_of_order"), pl.col("is_harmless")
    parts = [
        rows.group_by(pl.col(dimension).alias("value"))
        .agg(
            pl.len().alias("starts"),
            over.sum().alias("out_of_order"),
            over.mean().alias("out_of_order_share"),
            pl.when(harmless.count() > 0).then(harmless.sum()).alias("harmless"),
            harmless.mean().alias("harmless_share"),
        )
        .with_columns(
            pl.col("value").cast(pl.String), pl.lit(cluster).alias("cluster"), pl.lit(dimension).alias("dimension")
        )
        .sort("value")
        for dimension in ("all", "partition", "size_bucket")
    ]
    return shaped(pl.concat(parts), START_ORDER_BY)
