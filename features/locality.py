"""Spread of jobs over nodes, sharing of nodes, and waits by locality."""

from __future__ import annotations

import numpy as np
import polars as pl

from features.fragmentation import NodeStates, node_states
from features.resources.capacity import Capacity, capacity
from features.resources.partition_nodes import nodes_of_partitions
from features.resources.sizes import size_bucket
from features.resources.usage import Steps, runs, steps_of
from features.tables.fragmentation import LOCALITY, PLACEMENT_SPREAD
from features.trace import Trace, read_trace, shaped
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
    size = capacity(trace, settings, held)
    fewest = _fewest(trace, held, size, node_states(trace, held, size))
    spread = _spread(trace, held, fewest, settings.name)
    return {PLACEMENT_SPREAD.name: spread, LOCALITY.name: _locality(trace, spread, settings.name)}


def _spread(trace: Trace, held: pl.DataFrame, fewest: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Compare the nodes used by each attempt with the fewest that hold as many GPUs (`fewest`: see `_fewest`)."""
    placed = trace.placements.group_by("job_key", "attempt").agg(pl.len().cast(pl.Int64).alias("placed"))
    is_placed = pl.col("placed").is_not_null()
    rows = (
        held.join(placed, on=["job_key", "attempt"], how="left")
        .join(_shared(trace, held), on=["job_key", "attempt"], how="left")
        .join(fewest, on=["partition", "gpus"], how="left", nulls_equal=True)
        .with_columns(
            pl.lit(cluster).alias("cluster"),
            pl.from_epoch("start_epoch", "s").cast(pl.Datetime("us")).alias("start_utc"),
            size_bucket(pl.col("gpus")).alias("size_bucket"),
            pl.coalesce("placed", "nodes").alias("nodes"),
            pl.when(is_placed).then(pl.lit("placements")).otherwise(pl.lit("node counts")).alias("basis"),
            pl.when(pl.col("node_s") > 0).then(pl.col("shared_node_s") / pl.col("node_s")).alias("shared_share"),
        )
        .with_columns((pl.col("nodes") - pl.col("fewest_nodes")).alias("excess_nodes"))
        .sort("start_utc", "job_key", "attempt")
    )
    return shaped(rows, PLACEMENT_SPREAD)


def _fewest(trace: Trace, held: pl.DataFrame, size: Capacity, nodes: NodeStates | None) -> pl.DataFrame:
    """Find the fewest nodes of each partition with a given number of GPUs: partition, gpus, fewest_nodes.

    The largest nodes count first, each with its own number of GPUs. Where the log names no nodes, each node has the
    number of GPUs of the settings.
    """
    asked = held.filter(pl.col("gpus") > 0).select("partition", "gpus").unique()
    if nodes is None:
        per_node = size.gpus_per_node
        rounded_up = -(-pl.col("gpus") // per_node) if per_node else pl.lit(None, pl.Int64)
        return asked.with_columns(rounded_up.alias("fewest_nodes"))
    of_node = dict(zip(nodes.names, nodes.gpus.tolist(), strict=False))  # nodes without a name come last
    held = held.select("job_key", "attempt", "partition")
    placed = trace.placements.join(held, on=["job_key", "attempt"]).select("partition", "node")
    parts = [asked.clear().with_columns(pl.lit(None, pl.Int64).alias("fewest_nodes"))]
    for partition, names in nodes_of_partitions(placed).items():
        gpus = np.cumsum(sorted((of_node.get(name, 0) for name in names), reverse=True))
        mine = asked.filter(pl.col("partition").eq_missing(pl.lit(partition, pl.String)))
        mine = mine.filter(pl.col("gpus") <= int(gpus[-1]))
        fewest = np.searchsorted(gpus, mine["gpus"].to_numpy()) + 1
        parts.append(mine.with_columns(pl.Series("fewest_nodes", fewest, pl.Int64)))
    return pl.concat(parts)


def _shared(trace: Trace, held: pl.DataFrame) -> pl.DataFrame:
    """Compute node-seconds held (node_s), and those with another attempt on the node (shared_node_s), per attempt."""
    on_nodes = trace.placements.select("job_key", "attempt", "node").join(
        held.select("job_key", "attempt", "start_epoch", "end_epoch", pl.lit(1).alias("one")),
        on=["job_key", "attempt"],
    )
    shared = np.zeros(len(on_nodes), np.int64)
    spans = on_nodes.select("node", "start_epoch", "end_epoch", "one").with_row_index("row")
    for _, rows in spans.group_by("node"):
        others: Steps = steps_of(rows, "one").above(1)
        start, end = rows["start_epoch"].to_numpy(), rows["end_epoch"].to_numpy()
        shared[rows["row"].to_numpy()] = others.area(np.maximum(start, end)) - others.area(start)
    node_s = (pl.col("end_epoch") - pl.col("start_epoch")).clip(0).alias("node_s")
    times = on_nodes.select("job_key", "attempt", node_s, pl.Series("shared_node_s", shared))
    del on_nodes, spans
    return times.group_by("job_key", "attempt").agg(pl.all().sum())


def _locality(trace: Trace, spread: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Summarize waits by GPUs and by nodes beyond the fewest, both of the first attempt."""
    first = spread.sort("start_utc", "attempt").unique("job_key", keep="first", maintain_order=True)
    wait = pl.coalesce("eligible_wait_s", "wait_s")
    rows = (
        first.select("job_key", "gpus", "size_bucket", "excess_nodes", "shared_share")
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
