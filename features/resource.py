"""The resource that a cluster or partition is about: the one whose shares, capacity and advice a reader asks for.

What is declared wins (`resource` and `resources` of clusters.toml). Otherwise it is inferred:

1. GPUs, where at least half of the nodes have one, or jobs that hold GPUs take at least half of the time held;
2. whole nodes, where the log does not say CPUs, or jobs that hold every CPU of their nodes take 95 % of the time held;
3. memory, where jobs hold a larger share of the memory than of the cores by a quarter;
4. cores.

Time held is counted in core time where the log says CPUs, else in node time, else in run time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from features.capacity import AMOUNTS, OF_NODE, TIMED, Capacity, Resource, by_node
from features.partition_nodes import places_of_partitions
from features.trace import Trace
from features.usage import steps_of
from traces.clusters import ClusterSettings

KNOWN = 0.95  # share of the attempts that must say an amount before it is used for all
HALF, WHOLE, LARGER = 0.5, 0.95, 1.25  # of the thresholds above
WORDS: dict[Resource, str] = {"GPU": "GPUs", "core": "cores", "memory": "memory", "node": "whole nodes"}


# Unit of each resource, and several of it.
UNITS: dict[Resource, str] = {"GPU": "GPU", "core": "core", "memory": "GiB", "node": "node"}
MANY: dict[Resource, str] = {"GPU": "GPUs", "core": "cores", "memory": "GiB", "node": "nodes"}


class Binding(NamedTuple):
    """A resource, and the sentence that says why it is the one."""

    resource: Resource
    why: str
    is_declared: bool = False


def binding(
    held: pl.DataFrame, on_nodes: pl.DataFrame, size: Capacity, settings: ClusterSettings, partition: str | None = None
) -> Binding:
    """The binding resource of the runs `held` (see `usage.runs`) and of their placements (`capacity.by_node`): those of
    one partition where it is named."""
    declared: Any = settings.resources.get(partition, settings.resource) if partition is not None else settings.resource
    if declared is not None:
        return Binding(declared, "declared in clusters.toml", True)
    known = {name: _is_known(held, name) for name in ("gpus", "cpus", "nodes")}
    weight, basis = _time_held(known)
    time = held.select("gpus", "cpus", "nodes", weight.alias("time"))
    total = float(time["time"].sum() or 0)
    of_gpus = float(time.filter(pl.col("gpus") > 0)["time"].sum() or 0) / total if total else 0.0
    with_gpus = size.sizes.filter(pl.col("gpus") > 0).height / max(size.sizes.height, 1)
    if partition is None and with_gpus >= HALF:
        return Binding("GPU", f"{100 * with_gpus:.0f} % of the nodes have GPUs")
    if of_gpus >= HALF:
        return Binding("GPU", f"jobs that hold GPUs take {100 * of_gpus:.0f} % of the {basis}")
    if not known["cpus"]:
        return Binding("node", "the log does not say the CPUs of its jobs")
    whole = _whole_nodes_share(on_nodes, size)
    if known["nodes"] and (held["cpus"] == held["nodes"]).all() and (held["nodes"] > 1).any():
        return Binding("node", "every job has one CPU a node: the log counts nodes")
    if whole is not None and whole >= WHOLE:
        return Binding("node", f"jobs that hold every CPU of their nodes take {100 * whole:.0f} % of the core time")
    memory, cores = (_mean_share(held, size, resource) for resource in ("memory", "core"))
    if memory is not None and cores is not None and _is_known(held, "mem_mib") and memory > LARGER * cores:
        return Binding("memory", f"jobs hold {100 * memory:.0f} % of the memory and {100 * cores:.0f} % of the cores")
    return Binding("core", f"jobs that hold GPUs take {100 * of_gpus:.1f} % of the {basis}, and jobs share nodes")


def resource_of(trace: Trace, settings: ClusterSettings, held: pl.DataFrame, size: Capacity) -> Resource:
    """The resource that the cluster of `trace` is about; held: see `usage.runs`."""
    return binding(held, by_node(trace, held), size, settings).resource


def unit_time(resource: Resource) -> pl.Expr:
    """What a row of `usage.runs` held of that resource: GPU s, core s, GiB s or node s."""
    amount, in_unit = TIMED[resource]
    return pl.col(amount) * (pl.col("end_epoch") - pl.col("start_epoch")).clip(0) // in_unit


def _is_known(held: pl.DataFrame, name: str) -> bool:
    return bool(held.height) and held[name].count() >= KNOWN * held.height


def _time_held(known: dict[str, bool]) -> tuple[pl.Expr, str]:
    seconds = (pl.col("end_epoch") - pl.col("start_epoch")).clip(0)
    if known["cpus"]:
        return seconds * pl.col("cpus").fill_null(0), "core time held"
    if known["nodes"]:
        return seconds * pl.col("nodes").fill_null(0), "node time held"
    return seconds, "run time"


def _whole_nodes_share(on_nodes: pl.DataFrame, size: Capacity) -> float | None:
    """Share of the core time of jobs that hold every CPU of their nodes; null where the log names no nodes.

    A node on which few jobs were seen may have more CPUs than they held: it counts with the median node's at least.
    """
    if on_nodes.is_empty() or not size.sizes["cpus"].count():
        return None
    median = float(str(size.sizes["cpus"].median()))
    whole = size.sizes.select("node", pl.max_horizontal("cpus", pl.lit(median)).alias("whole")).drop_nulls("node")
    core_s = pl.col("cpus") * (pl.col("end_epoch") - pl.col("start_epoch")).clip(0)
    rows = on_nodes.with_columns(pl.col("node").cast(pl.String)).join(whole, on="node")
    full = core_s.filter(pl.col("cpus") >= WHOLE * pl.col("whole")).sum()
    total, share = rows.select(core_s.sum().alias("all"), full.alias("full")).row(0)
    return share / total if total else None


def _mean_share(held: pl.DataFrame, size: Capacity, resource: Resource) -> float | None:
    """Mean share of the capacity held from the first start to the last end; null where the capacity is not stated."""
    whole = size.of(resource)
    if not whole or size.source not in ("settings", "machine list") or held.is_empty():
        return None
    span = int(str(held["end_epoch"].max())) - int(str(held["start_epoch"].min()))
    used = steps_of(held, AMOUNTS[resource])
    return float(used.area(used.times[-1:])[0]) / (whole * span) if span and len(used.times) else None


class PartitionResource(NamedTuple):
    """A partition: its nodes and what it is about."""

    size: Capacity
    binding: Binding


def of_partitions(
    trace: Trace, held: pl.DataFrame, size: Capacity, settings: ClusterSettings
) -> dict[str, PartitionResource]:
    """Every named partition; one of which no nodes are known has the size of the cluster."""
    names = [str(name) for name in held["partition"].drop_nulls().unique(maintain_order=True)]
    sizes = size.sizes.with_row_index("place")
    on_nodes = by_node(trace, held).with_columns(pl.col("node").cast(pl.String))
    placed = on_nodes.join(sizes.select("place", "node").drop_nulls("node"), on="node").select("partition", "place")
    places = places_of_partitions(trace, placed, sizes, [*names]) if sizes.height else {}
    parts = {}
    for name in names:
        mine = size
        if name in places and len(places[name]) < sizes.height:
            of = sizes.filter(pl.col("place").is_in(list(places[name]))).drop("place")
            gpus, cpus, mem_mib = (None if of[name].null_count() else int(of[name].sum()) for name in OF_NODE)
            mine = Capacity(of.height, gpus, cpus, mem_mib, size.source, of)
        of_name = pl.col("partition") == name
        parts[name] = PartitionResource(
            mine, binding(held.filter(of_name), on_nodes.filter(of_name), mine, settings, name)
        )
    return parts
