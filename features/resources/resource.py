"""The binding resource of a cluster or partition: the one to which shares, capacity and advice refer.

A declared resource wins (`resource` and `resources` of clusters.toml). Otherwise the first rule that applies decides:

1. GPUs, if at least half of the nodes have one, or jobs that hold GPUs take at least half of the time held;
2. whole nodes, if the log does not record CPUs, or jobs that hold every CPU of their nodes take 95 % of the time held;
3. memory, if the share of the memory that jobs hold exceeds their share of the cores by a quarter;
4. cores.

Time held is core time where the log records CPUs, else node time, else run time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from features.resources.capacity import AMOUNTS, OF_NODE, TIMED, Capacity, Resource
from features.resources.on_nodes import OnNodes, by_node
from features.resources.partition_nodes import places_of_partitions
from features.resources.usage import steps_of
from features.trace import Trace
from traces.clusters import ClusterSettings

KNOWN = 0.95  # share of the attempts that must record an amount before it is used
HALF, WHOLE, LARGER = 0.5, 0.95, 1.25  # thresholds of the rules above
WORDS: dict[Resource, str] = {"GPU": "GPUs", "core": "cores", "memory": "memory", "node": "whole nodes"}


# Unit of each resource, singular and plural.
UNITS: dict[Resource, str] = {"GPU": "GPU", "core": "core", "memory": "GiB", "node": "node"}
PLURALS: dict[Resource, str] = {"GPU": "GPUs", "core": "cores", "memory": "GiB", "node": "nodes"}


class Binding(NamedTuple):
    """A binding resource, and the reason for it."""

    resource: Resource
    why: str
    is_declared: bool = False


def binding(
    held: pl.DataFrame, on_nodes: OnNodes, size: Capacity, settings: ClusterSettings, partition: str | None = None
) -> Binding:
    """Find the binding resource of the runs `held` (see `usage.runs`) and their placements (`on_nodes.by_node`).

    If `partition` is given, all rows must belong to it.
    """
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
        return Binding("node", "the log does not record the CPUs of its jobs")
    whole = _whole_nodes_share(on_nodes, size)
    if known["nodes"] and (held["cpus"] == held["nodes"]).all() and (held["nodes"] > 1).any():
        return Binding("node", "every job has one CPU per node, so the log counts nodes")
    if whole is not None and whole >= WHOLE:
        return Binding("node", f"jobs that hold every CPU of their nodes take {100 * whole:.0f} % of the core time")
    memory, cores = (_mean_share(held, size, resource) for resource in ("memory", "core"))
    if memory is not None and cores is not None and _is_known(held, "mem_mib") and memory > LARGER * cores:
        return Binding("memory", f"jobs hold {100 * memory:.0f} % of the memory and {100 * cores:.0f} % of the cores")
    return Binding("core", f"jobs that hold GPUs take {100 * of_gpus:.1f} % of the {basis}, and jobs share nodes")


def resource_of(trace: Trace, settings: ClusterSettings, held: pl.DataFrame, size: Capacity) -> Resource:
    """Find the binding resource of the cluster of `trace`; held: see `usage.runs`."""
    return binding(held, by_node(trace, held), size, settings).resource


def unit_time(resource: Resource) -> pl.Expr:
    """Time that a row of `usage.runs` held of the resource: GPU s, core s, GiB s or node s."""
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


def _whole_nodes_share(on_nodes: OnNodes, size: Capacity) -> float | None:
    """Compute the share of core time of jobs that hold every CPU of their nodes; None where the log names no nodes.

    A node with few observed jobs may have more CPUs than these held, so it counts with at least the median node's.
    """
    if on_nodes.placed.is_empty() or not size.sizes["cpus"].count():
        return None
    median = float(str(size.sizes["cpus"].median()))
    whole = size.sizes.select("node", pl.max_horizontal("cpus", pl.lit(median)).alias("whole")).drop_nulls("node")
    core_s = pl.col("cpus") * (pl.col("end_epoch") - pl.col("start_epoch")).clip(0)
    full = core_s.filter(pl.col("cpus") >= WHOLE * pl.col("whole")).sum()
    share = total = 0
    for part in on_nodes.parts("node", "start_epoch", "end_epoch", "cpus"):
        rows = part.with_columns(pl.col("node").cast(pl.String)).join(whole, on="node")
        of_part = rows.select(core_s.sum().alias("all"), full.alias("full")).row(0)
        total, share = total + of_part[0], share + of_part[1]
    return share / total if total else None


def _mean_share(held: pl.DataFrame, size: Capacity, resource: Resource) -> float | None:
    """Compute the mean share of capacity held from first start to last end; None where the capacity is not given."""
    whole = size.of(resource)
    if not whole or size.source not in ("settings", "machine list") or held.is_empty():
        return None
    span = int(str(held["end_epoch"].max())) - int(str(held["start_epoch"].min()))
    used = steps_of(held, AMOUNTS[resource])
    return float(used.area(used.times[-1:])[0]) / (whole * span) if span and len(used.times) else None


class PartitionResource(NamedTuple):
    """The capacity and the binding resource of a partition."""

    size: Capacity
    binding: Binding


def of_partitions(
    trace: Trace, held: pl.DataFrame, size: Capacity, settings: ClusterSettings
) -> dict[str, PartitionResource]:
    """Describe every named partition; one without known nodes gets the capacity of the cluster."""
    names = [str(name) for name in held["partition"].drop_nulls().unique(maintain_order=True)]
    sizes = size.sizes.with_row_index("place")
    on_nodes = by_node(trace, held)
    places = places_of_partitions(trace, on_nodes, sizes, [*names]) if sizes.height else {}
    parts = {}
    for name in names:
        own_capacity = size
        if name in places and len(places[name]) < sizes.height:
            own_sizes = sizes.filter(pl.col("place").is_in(list(places[name]))).drop("place")
            gpus, cpus, mem_mib = (
                None if own_sizes[name].null_count() else int(own_sizes[name].sum()) for name in OF_NODE
            )
            own_capacity = Capacity(own_sizes.height, gpus, cpus, mem_mib, size.source, own_sizes)
        is_own = (held["partition"] == name).fill_null(False)
        parts[name] = PartitionResource(
            own_capacity, binding(held.filter(is_own), on_nodes.only(is_own), own_capacity, settings, name)
        )
    return parts
