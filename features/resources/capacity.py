"""The capacity of a cluster: GPUs, CPUs and memory node by node, and the source of each number. No table of its own.

Declared numbers come first, then the machine list, then what the log shows in use. Where the log contradicts a declared
or listed machine, the larger number counts and `Capacity.contradictions` names both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from features.resources.on_nodes import OnNodes, by_node
from features.resources.usage import Steps, steps_of
from features.trace import Trace
from traces import instants
from traces.arrays import Int64s
from traces.clusters import ClusterSettings
from traces.counted import counted

Resource = Literal["GPU", "core", "memory", "node"]
AMOUNTS: dict[Resource, str] = {"GPU": "gpus", "core": "cpus", "memory": "mem_mib", "node": "nodes"}
# Resource -> (column of `usage.runs` whose time is summed, how many of its units make one of `resource.UNITS`).
TIMED: dict[Resource, tuple[str, int]] = {
    "GPU": ("gpu_milli", 1000), "core": ("cpus", 1), "memory": ("mem_mib", 1024), "node": ("nodes", 1),
}  # fmt: skip
OF_NODE = ("gpus", "cpus", "mem_mib")  # amounts of a node
_WORDS = {"gpus": "GPUs", "cpus": "CPUs", "mem_mib": "MiB of memory"}
CapacitySource = Literal["settings", "machine list", "nodes in use", "peak in use"]
KNOWN_BY: dict[CapacitySource, str] = {
    "settings": "declared",
    "machine list": "in the machine list",
    "nodes in use": "seen in use",
    "peak in use": "in use at the peak",
}
_SIZES = {"node": pl.String, "gpus": pl.Int64, "cpus": pl.Int64, "mem_mib": pl.Int64, "gpu_type": pl.String}


@dataclass(frozen=True)
class Capacity:
    """The capacity of the cluster; an unknown amount is None.

    sizes: one row per node (node, null for a declared node that the log never names; gpus, cpus, mem_mib, gpu_type);
    empty where only totals are known. Where the number of nodes changes by date, `nodes` is the largest number and
    `node_steps` holds all of them. contradictions: a sentence for each number that the log contradicts.
    """

    nodes: int | None
    gpus: int | None
    cpus: int | None
    mem_mib: int | None
    source: CapacitySource
    sizes: pl.DataFrame
    node_steps: Steps | None = None
    contradictions: tuple[str, ...] = ()

    @property
    def gpus_per_node(self) -> int | None:
        """GPUs of the largest node; None where unknown."""
        largest = self.sizes["gpus"].max()
        if isinstance(largest, int):
            return largest
        return self.gpus // self.nodes if self.gpus and self.nodes and self.source == "settings" else None

    def of(self, resource: Resource) -> int | None:
        """Return the amount of a resource: GPUs, CPUs, MiB or nodes."""
        amount: int | None = getattr(self, AMOUNTS[resource])
        return amount

    def steps(self, resource: Resource) -> Steps | None:
        """Return the amount over time where the number of nodes changes by date, else None."""
        whole = self.of(resource)
        if self.node_steps is None or not self.nodes or whole is None:
            return None
        return Steps(self.node_steps.times, self.node_steps.values * whole // self.nodes)

    def at(self, resource: Resource, instants_s: Int64s) -> Int64s:
        """Return the amount at each instant (epoch s); 0 where unknown."""
        dated = self.steps(resource)
        return np.full(len(instants_s), self.of(resource) or 0, np.int64) if dated is None else dated.at(instants_s)


def capacity(trace: Trace, settings: ClusterSettings, held: pl.DataFrame) -> Capacity:
    """Find the capacity from the settings, else the machine list, else the nodes in use, else the peak in use.

    trace: with every placement. held: see `usage.runs`.
    """
    dated = _node_steps(settings)
    declared = dated.peak if dated else settings.nodes
    on_nodes = by_node(trace, held)
    if trace.nodes.height or on_nodes.placed.height:
        nodes: int | None
        sizes, nodes, contradictions = _of_named_nodes(trace, settings, on_nodes, declared)
        source: CapacitySource = "machine list" if trace.nodes.height else "nodes in use"
        whole = {name: None if sizes[name].null_count() else int(sizes[name].sum()) for name in OF_NODE}
    else:
        sizes, nodes, contradictions = pl.DataFrame(schema=_SIZES), declared, []
        source = "peak in use"
        if nodes is None or held["gpus"].null_count() == held["cpus"].null_count() == held.height:
            peak = steps_of(held, "nodes").lasting_peak
            if nodes is not None and peak > nodes:
                contradictions.append(f"{counted(nodes, 'node', 'is')} declared, but jobs held {peak:,} at once")
            nodes = max(nodes or 0, peak) or None
        per_node = _declared_per_node(settings)
        whole = {name: None if one is None or nodes is None else one * nodes for name, one in per_node.items()}
    source = "settings" if declared is not None else source
    totals: dict[str, int | None] = {}
    for name, total in whole.items():
        peak = steps_of(held, name).lasting_peak
        if total and peak > total:
            contradictions.append(f"{total:,} {_WORDS[name]} are {KNOWN_BY[source]}, but jobs held {peak:,} at once")
        totals[name] = max(total or 0, peak) or None
    return Capacity(nodes, **totals, source=source, sizes=sizes, node_steps=dated, contradictions=tuple(contradictions))


def _of_named_nodes(
    trace: Trace, settings: ClusterSettings, on_nodes: OnNodes, declared: int | None
) -> tuple[pl.DataFrame, int, list[str]]:
    """Find sizes, number of nodes and contradictions, where jobs or a machine list name nodes."""
    sizes, contradictions = node_sizes(trace, settings, on_nodes)
    listed, nodes = trace.nodes.height, sizes.height
    if declared is not None:
        busy = busy_nodes(on_nodes).lasting_peak
        if busy > declared:
            contradictions.append(f"{counted(declared, 'node', 'is')} declared, but jobs ran on {busy:,} at once")
        nodes = max(declared, busy)
        unseen = pl.DataFrame({"node": pl.Series([None] * max(nodes - sizes.height, 0), dtype=pl.String)})
        per_node = [pl.lit(value, pl.Int64).alias(name) for name, value in _declared_per_node(settings).items()]
        like_others = [pl.coalesce(name, pl.lit(sizes[name].mode().max(), pl.Int64)).alias(name) for name in OF_NODE]
        unseen = unseen.with_columns(*per_node, pl.lit(None, pl.String).alias("gpu_type")).with_columns(*like_others)
        sizes = pl.concat([sizes, unseen.select(sizes.columns)])
    elif listed and nodes > listed:
        contradictions.append(
            f"the machine list has {counted(listed, 'node')}, but jobs ran on {counted(nodes - listed, 'other')}"
        )
    return sizes, nodes, contradictions


def node_sizes(trace: Trace, settings: ClusterSettings, on_nodes: OnNodes) -> tuple[pl.DataFrame, list[str]]:
    """Find the size of each node that is listed or ran a job, and the contradictions by the log.

    The columns are node, gpus, cpus, mem_mib and gpu_type. An amount is the declared one, else the listed one, but at
    least the most held on the node at once. If CPUs are neither declared nor listed, a node gets the most CPUs in use
    on any node with the same number of GPUs.
    """
    listed = trace.nodes.select(
        pl.col("node").cast(pl.String), "gpus", "cpus", pl.col("memory_mib").alias("mem_mib"),
        pl.col("gpu_type").cast(pl.String),
    )  # fmt: skip
    peaks = peak_by_node(on_nodes)
    sizes = listed.join(peaks, on="node", how="full", coalesce=True, suffix="_held").sort("node")
    contradictions = []
    for name, per_node in _declared_per_node(settings).items():
        given = pl.coalesce(pl.lit(per_node, pl.Int64), name)
        over = sizes.filter(pl.col(f"{name}_held") > given)
        if over.height:
            most = over.sort(f"{name}_held", "node", descending=[True, False]).row(0, named=True)
            contradictions.append(
                f"on {counted(over.height, 'node')}, jobs held more {_WORDS[name]} at once than "
                f"{'declared' if per_node is not None else 'the machine list says'} (most: {most['node']}, "
                f"{most[f'{name}_held']:,})"
            )
        sizes = sizes.with_columns(pl.max_horizontal(given, f"{name}_held").alias(name))
    alike = pl.when(pl.col("gpus") > 0).then(pl.col("cpus").max().over("gpus")).otherwise("cpus")
    unsaid = trace.nodes["cpus"].null_count() == trace.nodes.height and settings.cpus_per_node is None
    return sizes.with_columns(alike.alias("cpus") if unsaid else "cpus").select(list(_SIZES)), contradictions


def peak_by_node(on_nodes: OnNodes) -> pl.DataFrame:
    """Compute the most gpus, cpus and mem_mib held at once on each node; null where no job's share is known."""
    peaks = [
        (str(node), *(steps_of(held, name).peak if held[name].count() else None for name in OF_NODE))
        for rows in on_nodes.parts("node", "start_epoch", "end_epoch", *OF_NODE)
        for (node,), held in rows.group_by("node")
    ]
    return pl.DataFrame(peaks, schema={"node": pl.String, **dict.fromkeys(OF_NODE, pl.Int64)}, orient="row")


def busy_nodes(on_nodes: OnNodes) -> Steps:
    """Count the nodes that run at least one job, over time."""
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    jobs = pl.lit(1, pl.Int64).alias("jobs")
    for rows in on_nodes.parts("node", "start_epoch", "end_epoch"):
        for _, held in rows.with_columns(jobs).group_by("node"):
            busy = steps_of(held, "jobs").above(0)
            change = np.diff(busy.values, prepend=0)
            starts.append(busy.times[change > 0])
            ends.append(busy.times[change < 0])
    start, end = np.concatenate(starts), np.concatenate(ends)
    return Steps.of_intervals(start, end, np.ones(len(start), np.int64))


def free(held: pl.DataFrame, size: Capacity, resource: Resource) -> Steps | None:
    """Compute the free amount of a resource in the whole cluster over time (GPUs, cores, MiB or nodes).

    None where the capacity of the cluster is unknown.
    """
    if size.of(resource) is None:
        return None
    used, dated = steps_of(held, AMOUNTS[resource]), size.steps(resource)
    # Start at the epoch, so that the cluster is empty before the first start.
    times = np.unique(np.concatenate([[0], used.times, dated.times if dated else used.times[:0]])).astype(np.int64)
    return Steps(times, size.at(resource, times) - used.at(times))


def nodes_shown(trace: Trace, held: pl.DataFrame) -> int:
    """Count the nodes that the log shows, a lower bound of those of the cluster (`held`: see `runs`).

    These are the nodes on which jobs ran and those of the machine list, if the log names any; else the most in use at
    once. Where nodes are named, node counts of jobs must not be added up, because jobs may share a node.
    """
    ran = trace.placements.join(held.select("job_key", "attempt"), on=["job_key", "attempt"], how="semi")
    named = pl.concat([ran["node"], trace.nodes["node"]]).n_unique()
    return named or steps_of(held, "nodes").lasting_peak


def _declared_per_node(settings: ClusterSettings) -> dict[str, int | None]:
    """Return the declared gpus, cpus and mem_mib of each node."""
    memory = settings.memory_gib_per_node
    return {
        "gpus": settings.gpus_per_node,
        "cpus": settings.cpus_per_node,
        "mem_mib": None if memory is None else 1024 * memory,
    }


def _node_steps(settings: ClusterSettings) -> Steps | None:
    """Return the nodes by date; `settings.nodes`, else the first number, applies before the first date."""
    if not settings.nodes_by_date:
        return None
    first = settings.nodes if settings.nodes is not None else settings.nodes_by_date[0][1]
    times = [0, *(instants.epoch_s(since) for since, _ in settings.nodes_by_date)]
    values = [first, *(nodes for _, nodes in settings.nodes_by_date)]
    return Steps(np.array(times, dtype=np.int64), np.array(values, dtype=np.int64))
