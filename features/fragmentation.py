"""Fragmentation of free GPUs: free resources over time, and the largest job that could start.

With placements, the state of every node is exact. Without placements, we assume that jobs hold whole nodes; the column
`basis` records this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.resources.capacity import Capacity, capacity
from features.resources.on_nodes import OnNodes, by_node
from features.resources.usage import Steps, asked_gpus, asked_nodes, horizon, queue_end, runs, steps_of
from features.tables.fragmentation import EMPTY_NODES, FRAGMENTATION
from features.trace import ASKED, Trace, read_trace, shaped
from traces.arrays import Int64s
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store.folder import DataFolder
from traces.store.frames import empty

TABLES: tuple[Table, ...] = (FRAGMENTATION, EMPTY_NODES)
GRID_S = 600
MAX_INSTANTS = 100_000  # 694 days of 10 minutes; longer logs get a coarser grid
WHOLE = 0.95  # minimum share of runs on whole nodes to assume it of all runs
CHUNK_CELLS = 4_000_000  # instants x nodes held in memory at once

Table2D = NDArray[np.int64]


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables for the cluster of `settings` from the warehouse."""
    return from_trace(read_trace(data, settings.name, jobs=ASKED, by_node=True), settings)


def from_trace(trace: Trace, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables from canonical frames."""
    held = runs(trace, settings)
    size = capacity(trace, settings, held)
    nodes = node_states(trace, held, size)
    instants = grid(held)
    if len(instants):
        series = _series(trace, settings, held, size, nodes, instants)
        named = (pl.lit(settings.name).alias("cluster"), pl.lit(size.source).alias("capacity_source"))
        series = series.with_columns(*named)
    else:
        series = empty(FRAGMENTATION)
    series = shaped(series, FRAGMENTATION)
    return {FRAGMENTATION.name: series, EMPTY_NODES.name: empty_nodes(series, settings.name)}


def grid(held: pl.DataFrame) -> Int64s:
    """List instants (epoch s) from first start to last end, GRID_S or a multiple of it apart (at most MAX_INSTANTS)."""
    if held.is_empty():
        return np.zeros(0, dtype=np.int64)
    first, last = int(str(held["start_epoch"].min())), int(str(held["end_epoch"].max()))
    step = GRID_S * max(1, -(-(last - first) // (GRID_S * MAX_INSTANTS)))
    return np.arange(-(-first // step) * step, last + 1, step, dtype=np.int64)


@dataclass(frozen=True)
class NodeStates:
    """The state of every node over time, from placements.

    `gpus` (nodes,): GPUs of each node, 0 where unknown. `jobs` and `held`: attempts on each node and GPUs held there.
    """

    gpus: Int64s
    jobs: list[Steps]
    held: list[Steps]


class NodeState(NamedTuple):
    """The state of one node over time: its GPUs (0 where unknown), the attempts on it and the GPUs that they hold."""

    name: str
    gpus: int
    jobs: Steps
    held: Steps


def each_node(on_nodes: OnNodes, size: Capacity) -> Iterator[NodeState]:
    """Compute the state of every node on which something ran. Each node has the GPUs of `size`, or the most in use."""
    gpus_of = dict(zip(size.sizes["node"].to_list(), size.sizes["gpus"].fill_null(0).to_list(), strict=True))
    for part in on_nodes.parts("node", "start_epoch", "end_epoch", "placed_gpus"):
        for (name,), rows in part.group_by("node", maintain_order=True):
            whole = gpus_of[str(name)]
            # An unknown share of GPUs counts as the whole node.
            rows = rows.with_columns(pl.col("placed_gpus").fill_null(whole), pl.lit(1).alias("one"))
            used, jobs = steps_of(rows, "placed_gpus"), steps_of(rows, "one")
            yield NodeState(str(name), max(whole, used.peak), jobs, Steps(jobs.times, used.values))


def node_states(trace: Trace, held: pl.DataFrame, size: Capacity) -> NodeStates | None:
    """Compute the state of every node; None where the log names no nodes. Nodes on which nothing ran come last."""
    if trace.placements.is_empty():
        return None
    nodes = list(each_node(by_node(trace, held), size))
    names = [node.name for node in nodes]
    never = size.sizes.filter(~pl.col("node").is_in(names).fill_null(False))["gpus"].fill_null(0).to_list()
    more = [Steps(np.zeros(0, np.int64), np.zeros(0, np.int64))] * len(never)
    gpus = np.array([*(node.gpus for node in nodes), *never], dtype=np.int64)
    return NodeStates(gpus, [node.jobs for node in nodes] + more, [node.held for node in nodes] + more)


def _series(
    trace: Trace,
    settings: ClusterSettings,
    held: pl.DataFrame,
    size: Capacity,
    nodes: NodeStates | None,
    instants: Int64s,
) -> pl.DataFrame:
    """Compute the state at each instant."""
    asked = _asked(trace, settings, size.gpus_per_node if nodes is None else int(nodes.gpus.max(initial=0)))
    queue = Steps.of_intervals(*_columns(asked, "waiting_from", "waiting_to", "one"))
    queued_gpus = Steps.of_intervals(*_columns(asked, "waiting_from", "waiting_to", "gpus"))
    state = _whole_nodes(held, size, instants) if nodes is None else _by_node(nodes, asked, instants)
    knows_gpus = asked["gpus"].null_count() < asked.height
    return state.with_columns(
        pl.from_epoch(pl.Series(instants), "s").cast(pl.Datetime("us")).alias("time_utc"),
        pl.Series("pending_jobs", queue.at(instants)),
        pl.Series("pending_gpus", queued_gpus.at(instants)) if knows_gpus else pl.lit(None).alias("pending_gpus"),
        (pl.col("empty_nodes") / pl.col("capacity_nodes")).alias("empty_node_share"),
        pl.lit("node counts" if nodes is None else "placements").alias("basis"),
    )


def _asked(trace: Trace, settings: ClusterSettings, per_node: int | None) -> pl.DataFrame:
    """List each job's demand (gpus, on_one_node) and its time in the queue, epoch s.

    A job that never ran waits until its end. A job with an unknown time in the queue is left out.
    """
    nodes = asked_nodes()
    gpus = asked_gpus(settings)
    return trace.jobs.select(
        gpus.alias("gpus"),
        # The requested nodes divide a gang's GPUs; without them we pack it on as few nodes as possible.
        pl.when(nodes > 0).then((gpus + nodes - 1) // nodes)
        .otherwise(pl.min_horizontal(gpus, pl.lit(per_node or None, pl.Int64)) if per_node else gpus)
        .alias("on_one_node"),
        pl.coalesce("eligible_utc", "submit_utc").dt.epoch("s").alias("waiting_from"),
        queue_end(horizon(trace)).alias("waiting_to"),
        pl.lit(1).alias("one"),
    ).drop_nulls(["waiting_from", "waiting_to"])  # fmt: skip


def _columns(frame: pl.DataFrame, *names: str) -> tuple[Int64s, Int64s, Int64s]:
    first, second, third = (frame[name].fill_null(0).to_numpy().astype(np.int64) for name in names)
    return first, second, third


def _whole_nodes(held: pl.DataFrame, size: Capacity, instants: Int64s) -> pl.DataFrame:
    """Compute the state where only counts are known.

    We assume that jobs hold whole nodes. If their GPU counts contradict this, empty nodes and gangs are unknown.
    """
    busy, total = steps_of(held, "nodes").at(instants), size.at("node", instants)
    gpus, used = (None, None) if size.gpus is None else (size.at("GPU", instants), steps_of(held, "gpus").at(instants))
    per_node = size.gpus_per_node if size.source == "settings" else None
    free = None if gpus is None or used is None else np.maximum(gpus - used, 0)
    empty_nodes = np.maximum(total - busy, 0) if _holds_whole_nodes(held, size) else None
    gang = None if empty_nodes is None or per_node is None else empty_nodes * per_node
    columns: dict[str, Int64s | None] = {
        "capacity_nodes": total,
        "busy_nodes": None if empty_nodes is None else busy,
        "empty_nodes": empty_nodes,
        "capacity_gpus": gpus,
        "busy_gpus": used,
        "free_gpus": free,
        "largest_node_gpus": None if gang is None else np.minimum(gang, np.int64(per_node or 0)),
        "largest_gang_nodes": empty_nodes,
        "largest_gang_gpus": gang,
    }
    return pl.DataFrame({name: _int_series(values, len(instants)) for name, values in columns.items()})


def _holds_whole_nodes(held: pl.DataFrame, size: Capacity) -> bool:
    """Return False if more than one run in twenty holds some GPUs, but fewer than its nodes have."""
    per_node = size.gpus_per_node
    if not per_node:
        return True
    parts = held.select(((pl.col("gpus") > 0) & (pl.col("gpus") < pl.col("nodes") * per_node)).mean()).item()
    return (parts or 0.0) <= 1 - WHOLE


def _int_series(values: Int64s | None, length: int) -> pl.Series:
    return pl.Series([None] * length, dtype=pl.Int64) if values is None else pl.Series(values, dtype=pl.Int64)


def _by_node(nodes: NodeStates, asked: pl.DataFrame, instants: Int64s) -> pl.DataFrame:
    """Compute the state from the placements, in chunks of instants."""
    demands = asked.drop_nulls("on_one_node").filter(pl.col("on_one_node") > 0)
    queues = {
        int(str(demand)): (
            len(rows),
            Steps.of_intervals(*_columns(rows, "waiting_from", "waiting_to", "one")),
        )
        for (demand,), rows in demands.group_by("on_one_node")
    }
    chunk = max(CHUNK_CELLS // max(len(nodes.gpus), 1), 1)
    parts = [_some_instants(nodes, queues, instants[i : i + chunk]) for i in range(0, len(instants), chunk)]
    frame = pl.concat(parts)
    if nodes.gpus.any():
        return frame
    unknown = ("capacity_gpus", "busy_gpus", "free_gpus", "largest_node_gpus", "largest_gang_gpus")
    return frame.with_columns(pl.lit(None, pl.Int64).alias(name) for name in unknown)


def _some_instants(nodes: NodeStates, queues: dict[int, tuple[int, Steps]], instants: Int64s) -> pl.DataFrame:
    """Compute the state at some instants.

    `queues`: GPUs requested on one node -> (number of such jobs in the trace, number in the queue over time).
    """
    jobs: Table2D = np.stack([steps.at(instants) for steps in nodes.jobs])  # (nodes, instants)
    free: Table2D = nodes.gpus[:, None] - np.stack([steps.at(instants) for steps in nodes.held])
    is_empty = jobs == 0
    total_free = free.sum(axis=0)
    mix = _out_of_reach(free, {demand: np.full(len(instants), count) for demand, (count, _) in queues.items()})
    queued = _out_of_reach(free, {demand: steps.at(instants) for demand, (_, steps) in queues.items()})
    return pl.DataFrame(
        {
            "capacity_nodes": np.full(len(instants), len(nodes.gpus)),
            "busy_nodes": (~is_empty).sum(axis=0),
            "empty_nodes": is_empty.sum(axis=0),
            "capacity_gpus": np.full(len(instants), nodes.gpus.sum()),
            "busy_gpus": nodes.gpus.sum() - total_free,
            "free_gpus": total_free,
            "largest_node_gpus": free.max(axis=0),
            "largest_gang_nodes": is_empty.sum(axis=0),
            "largest_gang_gpus": (free * is_empty).sum(axis=0),
            "unusable_free_share": mix,
            "unusable_free_share_pending": queued,
        }
    ).with_columns(pl.col("unusable_free_share", "unusable_free_share_pending").fill_nan(None))


def _out_of_reach(free: Table2D, jobs: dict[int, Int64s]) -> NDArray[np.float64]:
    """Compute the share of free GPUs on nodes with fewer free GPUs than a job requests, as the mean over the jobs.

    This is the fragmentation measure of Weng et al., ATC'23. free: (nodes, instants). jobs: GPUs requested on one node
    -> number of such jobs at each instant (instants,). NaN where nothing is free or there is no job.
    """
    lost = np.zeros(free.shape[1], dtype=np.int64)
    weight = np.zeros(free.shape[1], dtype=np.int64)
    for demand, count in jobs.items():
        lost += count * np.where(free < demand, free, 0).sum(axis=0)
        weight += count
    possible = weight * free.sum(axis=0)
    share: NDArray[np.float64] = np.divide(lost, possible, out=np.full(len(lost), np.nan), where=possible > 0)
    return share


def empty_nodes(series: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Group the instants of `fragmentation` by tenths of the cluster in use."""
    in_gpus = series["capacity_gpus"].null_count() < series.height
    used, whole = ("busy_gpus", "capacity_gpus") if in_gpus else ("busy_nodes", "capacity_nodes")
    # Integer tenths avoid 0.6999... for a share of exactly 0.7. Use beyond a declared capacity counts as full.
    tenth = (10 * pl.col(used) // pl.col(whole)).clip(0, 10)
    rows = (
        series.filter((pl.col(whole) > 0) & pl.col("empty_node_share").is_not_null())
        .with_columns(tenth.alias("tenth"))
        .group_by("tenth")
        .agg(
            pl.len().alias("instants"),
            pl.col("empty_node_share").mean().alias("empty_node_share_mean"),
            pl.col("empty_node_share").median().alias("empty_node_share_p50"),
            (pl.col("largest_gang_gpus") / pl.col("free_gpus")).filter(pl.col("free_gpus") > 0).mean()
            .alias("largest_gang_share_mean"),
            pl.col("unusable_free_share").mean().alias("unusable_free_share_mean"),
        )
        .with_columns(
            pl.lit(cluster).alias("cluster"),
            pl.lit("GPU" if in_gpus else "node").alias("unit"),
            (pl.col("tenth") / 10).alias("utilization_from"),
        )
    )  # fmt: skip
    return shaped(rows.sort("tenth"), EMPTY_NODES)
