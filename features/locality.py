"""Spread of jobs over nodes, sharing of nodes, and waits by locality."""

from __future__ import annotations

import numpy as np
import polars as pl

from features.fragmentation import each_node
from features.resources.capacity import Capacity, capacity
from features.resources.on_nodes import OnNodes, by_node
from features.resources.partition_nodes import counts_by_partition, nodes_of_partitions
from features.resources.sizes import size_bucket
from features.resources.usage import runs, steps_of, without_runs
from features.tables.fragmentation import LOCALITY, PLACEMENT_SPREAD
from features.trace import Trace, left_join, ordered, read_trace, shaped
from traces.arrays import Int64s
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store.folder import DataFolder

TABLES: tuple[Table, ...] = (PLACEMENT_SPREAD, LOCALITY)
MOST_EXCESS = 3  # largest group of nodes beyond the fewest; it includes all larger numbers


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables for the cluster of `settings` from the warehouse."""
    return from_trace(
        read_trace(data, settings.name, jobs=("wait_s", "eligible_wait_s", "run_s"), by_node=True), settings
    )


def from_trace(trace: Trace, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables from canonical frames."""
    held = runs(trace, settings)
    trace = without_runs(trace)
    size = capacity(trace, settings, held)
    on_nodes = by_node(trace, held)
    spread = _spread(on_nodes, _fewest(trace, on_nodes, size), settings.name)
    return {PLACEMENT_SPREAD.name: spread, LOCALITY.name: _locality(trace, spread, settings.name)}


def _spread(on_nodes: OnNodes, fewest: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Compare the nodes used by each attempt with the fewest that hold as many GPUs (`fewest`: see `_fewest`)."""
    held = on_nodes.held
    placed = np.bincount(on_nodes.placed["run"].to_numpy(), minlength=held.height)
    node_s = pl.Series("node_s", placed) * (held["end_epoch"] - held["start_epoch"]).clip(0)
    rows = held.with_columns(pl.Series("placed", placed), node_s, pl.Series("shared_node_s", _shared_s(on_nodes)))
    is_placed = pl.col("placed") > 0
    basis = pl.when(is_placed).then(pl.lit("placements")).otherwise(pl.lit("node counts"))
    rows = left_join(rows, fewest, ["partition", "gpus"], nulls_equal=True).with_columns(
        pl.lit(cluster).alias("cluster"),
        pl.from_epoch("start_epoch", "s").cast(pl.Datetime("us")).alias("start_utc"),
        size_bucket(pl.col("gpus")).cast(pl.Categorical).alias("size_bucket"),
        pl.when(is_placed).then("placed").otherwise("nodes").alias("nodes"),
        basis.cast(pl.Categorical).alias("basis"),
        pl.when(pl.col("node_s") > 0).then(pl.col("shared_node_s") / pl.col("node_s")).alias("shared_share"),
    )
    rows = rows.with_columns((pl.col("nodes") - pl.col("fewest_nodes")).alias("excess_nodes"))
    return ordered(shaped(rows, PLACEMENT_SPREAD), "start_utc", "job_key", "attempt")


def _fewest(trace: Trace, on_nodes: OnNodes, size: Capacity) -> pl.DataFrame:
    """Find the fewest nodes of each partition with a given number of GPUs: partition, gpus, fewest_nodes.

    The largest nodes count first, each with its own number of GPUs. Where the log names no nodes, each node has the
    number of GPUs of the settings.
    """
    asked = on_nodes.held.filter(pl.col("gpus") > 0).select("partition", "gpus").unique()
    if trace.placements.is_empty():
        per_node = size.gpus_per_node
        rounded_up = -(-pl.col("gpus") // per_node) if per_node else pl.lit(None, pl.Int64)
        return asked.with_columns(rounded_up.alias("fewest_nodes"))
    of_node = {node.name: node.gpus for node in each_node(on_nodes, size)}
    parts = [asked.clear().with_columns(pl.lit(None, pl.Int64).alias("fewest_nodes"))]
    for partition, names in nodes_of_partitions(counts_by_partition(on_nodes)).items():
        gpus = np.cumsum(sorted((of_node.get(name, 0) for name in names), reverse=True))
        mine = asked.filter(pl.col("partition").eq_missing(pl.lit(partition, pl.String)))
        mine = mine.filter(pl.col("gpus") <= int(gpus[-1]))
        fewest = np.searchsorted(gpus, mine["gpus"].to_numpy()) + 1
        parts.append(mine.with_columns(pl.Series("fewest_nodes", fewest, pl.Int64)))
    return pl.concat(parts)


def _shared_s(on_nodes: OnNodes) -> Int64s:
    """Compute the node-seconds of each attempt with another attempt on the node, (held,)."""
    shared = np.zeros(on_nodes.held.height, np.int64)
    for part in on_nodes.parts("run", "node", "start_epoch", "end_epoch"):
        for _, rows in part.with_columns(pl.lit(1).alias("one")).group_by("node"):
            others = steps_of(rows, "one").above(1)
            start, end = rows["start_epoch"].to_numpy(), rows["end_epoch"].to_numpy()
            np.add.at(shared, rows["run"].to_numpy(), others.area(np.maximum(start, end)) - others.area(start))
    return shared


def _locality(trace: Trace, spread: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Summarize waits by GPUs and by nodes beyond the fewest, both of the first attempt."""
    columns = ("job_key", "gpus", "size_bucket", "excess_nodes", "shared_share")
    first = spread.select(*columns, "start_utc", "attempt").sort("start_utc", "attempt")
    wait = pl.coalesce("eligible_wait_s", "wait_s")
    rows = (
        first.select(columns)
        .unique("job_key", keep="first", maintain_order=True)
        .join(trace.jobs.select("job_key", wait.alias("wait_s"), "run_s"), on="job_key")
        .filter((pl.col("gpus") > 0) & pl.col("excess_nodes").is_not_null() & (pl.col("wait_s") >= 0))
        .with_columns(pl.col("excess_nodes").clip(0, MOST_EXCESS))
    )
    waited = pl.col("wait_s")
    waits = rows.group_by("size_bucket", "excess_nodes").agg(
        pl.len().alias("jobs"),
        waited.mean().alias("wait_mean_s"),
        *(waited.quantile(q, interpolation="linear").alias(f"wait_p{round(q * 100)}_s") for q in (0.5, 0.9, 0.95)),
        pl.col("run_s").median().alias("run_p50_s"),
        pl.col("shared_share").mean().alias("shared_share"),
    )
    return shaped(waits.with_columns(pl.lit(cluster).alias("cluster")).sort("size_bucket", "excess_nodes"), LOCALITY)
