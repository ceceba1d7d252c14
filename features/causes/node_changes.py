"""What attempts take and release on each node, and which nodes leave service and return, in order of time.

`features.causes.pools` follows each node by these changes. The module has no table of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.resources.capacity import OF_NODE
from features.resources.on_nodes import OnNodes
from simulator.recorded.parameters import WINDOW_S
from traces.arrays import Int32s, Int64s

KNOWN = 0.95  # share of the attempts that must record an amount before it is used
SHARED_SHOWN = 30  # minimum number of placements without a shared node to infer that a partition allocates whole nodes
FOREVER = np.iinfo(np.int64).max // 4


class NodeChanges(NamedTuple):
    """The changes (k,) in order of time: see `pools.Placed`."""

    time: Int64s
    node: Int32s
    taken: Int32s
    is_away: NDArray[np.bool_]


def spans_on_nodes(
    on_nodes: OnNodes, sizes: pl.DataFrame, with_memory: bool, until: int, shows_end: bool
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """List what attempts hold, and when nodes are out of service; fill the unknown amounts of `sizes`.

    sizes: place, node, gpus, cpus, mem_mib. The first two results have place, start_epoch, end_epoch and the amounts.

    An unknown share of GPUs counts as the whole node; so does any share in a partition whose jobs never shared a node.
    Where the log records no CPUs, each node has one CPU, and an attempt without a GPU count holds it and thus the whole
    node. A node that is idle for more than WINDOW_S until the log ends (`until`) has left permanently. A node on which
    nothing ever ran was never in service.
    """
    held, runs = on_nodes.held, on_nodes.placed["run"]
    is_known = held["cpus"].is_not_null() & held["nodes"].is_not_null()
    has_cpus = int(is_known.gather(runs).sum()) >= KNOWN * max(len(runs), 1)
    no_memory = [] if with_memory else [pl.lit(0, pl.Int64).alias("mem_mib")]
    sizes = sizes.with_columns(
        pl.col("gpus").fill_null(0), pl.col("cpus").fill_null(0) if has_cpus else pl.lit(1).alias("cpus")
    )
    sizes = sizes.with_columns(no_memory).with_columns(pl.col(OF_NODE).cast(pl.Int64))
    whole = sizes.select(
        "place",
        pl.col("node").cast(on_nodes.placed.schema["node"]),
        *(pl.col(name).alias(f"whole {name}") for name in OF_NODE),
    )
    cpus = pl.col("cpus").fill_null(0) if has_cpus else pl.col("gpus").is_null().cast(pl.Int64)
    first = int(str(held["start_epoch"].gather(runs).min()))
    rows, away, seen = [], [], []
    for part in on_nodes.parts("partition", "node", "start_epoch", "end_epoch", *OF_NODE):
        shares = part.join(whole, on="node").with_columns(
            pl.coalesce("gpus", "whole gpus").alias("gpus"), cpus.alias("cpus"),
            pl.lit(0).alias("mem_mib") if no_memory else pl.col("mem_mib").fill_null(0),
        )  # fmt: skip
        seen.append(_sharing(shares))
        rows.append(shares.select("place", "partition", "start_epoch", "end_epoch", pl.col(OF_NODE).cast(pl.Int32)))
        away.append(_idle(rows[-1], first))
    held = _of_whole_nodes(pl.concat(rows), sizes, exclusive_partitions(pl.concat(seen)))
    return held.drop("partition"), _out_of_service(held, pl.concat(away), sizes, until, shows_end), sizes


def _sharing(shares: pl.DataFrame) -> pl.DataFrame:
    """Summarize some nodes by partition: placements, parts of nodes, whether jobs shared a node, and nodes."""
    is_part = (pl.col("gpus") < pl.col("whole gpus")) | (pl.col("cpus") < pl.col("whole cpus"))
    latest = pl.col("end_epoch").cum_max().shift(1).over("partition", "node")
    rows = (
        shares.select("partition", "node", "start_epoch", "end_epoch", is_part.alias("part"))
        .sort("start_epoch")
        .select("partition", "node", "part", (pl.col("start_epoch") < latest).fill_null(False).alias("shared"))
    )
    return rows.group_by("partition").agg(
        pl.len().alias("n"), pl.col("part").sum(), pl.col("shared").any(), pl.col("node").n_unique().alias("nodes")
    )


def exclusive_partitions(seen: pl.DataFrame) -> list[str]:
    """List the partitions that allocate whole nodes: their jobs never shared a node, although some held a part of one.

    seen: rows of `_sharing`.
    """
    found = seen.group_by("partition").agg(pl.col("n", "part", "nodes").sum(), pl.col("shared").any())
    alone = found.filter(
        ~pl.col("shared") & (pl.col("part") > 0) & (pl.col("n") >= SHARED_SHOWN) & (pl.col("nodes") > 2)
    )
    return [str(name) for name in alone["partition"].drop_nulls()]


def _of_whole_nodes(held: pl.DataFrame, sizes: pl.DataFrame, partitions: list[str]) -> pl.DataFrame:
    """Give the attempts of these partitions all of their nodes."""
    if not partitions:
        return held
    is_alone = pl.col("partition").is_in(partitions).fill_null(False)
    whole = [sizes[name].cast(pl.Int32).gather(held["place"]) for name in OF_NODE]
    return held.with_columns(
        pl.when(is_alone).then(all_of).otherwise(all_of.name).alias(all_of.name) for all_of in whole
    )


def _idle(held: pl.DataFrame, first: int) -> pl.DataFrame:
    """List the periods longer than WINDOW_S in which nothing ran on a node: place, start_epoch, end_epoch.

    A node that is out of service when the log begins (`first`) has been out since the epoch.
    """
    idle = (
        held.select("place", "start_epoch", "end_epoch")
        .sort("start_epoch")
        .select(
            "place",
            pl.col("end_epoch").cum_max().shift(1, fill_value=first).over("place").alias("start_epoch"),
            pl.col("start_epoch").alias("end_epoch"),
        )
    )
    return idle.filter(pl.col("end_epoch") - pl.col("start_epoch") > WINDOW_S).with_columns(
        pl.when(pl.col("start_epoch") == first).then(0).otherwise("start_epoch").alias("start_epoch")
    )


def _out_of_service(
    held: pl.DataFrame, away: pl.DataFrame, sizes: pl.DataFrame, until: int, shows_end: bool
) -> pl.DataFrame:
    """List the periods in which a node is out of service, or held to the end of the log, with its amounts."""
    gone = (
        held.group_by("place")
        .agg(pl.col("end_epoch").max().alias("start_epoch"))
        .filter((until - pl.col("start_epoch") > WINDOW_S) | pl.lit(not shows_end))
    )
    never = sizes.select(pl.col("place").cast(pl.UInt32)).join(held, on="place", how="anti")
    never = never.select("place", pl.lit(0, pl.Int64).alias("start_epoch"))
    for_good = [part.with_columns(pl.lit(FOREVER, pl.Int64).alias("end_epoch")) for part in (gone, never)]
    parts = zip((away, *for_good), (True, shows_end, True), strict=True)
    amounts = sizes.select(pl.col("place").cast(pl.UInt32), pl.col(OF_NODE).cast(pl.Int32))
    return pl.concat([part.with_columns(pl.lit(is_away).alias("is_away")) for part, is_away in parts]).join(
        amounts, on="place"
    )


def changes_in_order(held: pl.DataFrame, out: pl.DataFrame) -> NodeChanges:
    """Sort the begins and ends of the frames of `spans_on_nodes` by time.

    Both frames are consumed: a column is freed as soon as it is used.
    """
    n = held.height + out.height
    is_out = np.concatenate([np.zeros(held.height, np.bool_), out.drop_in_place("is_away").to_numpy()])

    def both(name: str) -> NDArray[Any]:
        return np.concatenate([frame.drop_in_place(name).to_numpy() for frame in (held, out)])

    time = np.concatenate([both("start_epoch"), both("end_epoch")])
    order = pl.Series(time).arg_sort().to_numpy()
    time = time[order]
    is_end, order = order >= n, order % n
    taken = np.empty((2 * n, len(OF_NODE)), np.int32)
    for resource, name in enumerate(OF_NODE):
        amount = both(name)[order]
        taken[:, resource] = np.negative(amount, out=amount, where=is_end)
    return NodeChanges(time, both("place").astype(np.int32)[order], taken, is_out[order])
