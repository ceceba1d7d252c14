"""What was free where a job could have run: pools of nodes over time, and whether a shape of job fitted into them.

With placements a pool is the nodes on which jobs of a partition ran, each followed by itself. Without them the whole
cluster is one pool and only counts (of GPUs, CPUs, nodes or jobs) are known. Either way the machine is what the record
shows to be in service, not what is declared: nodes that are drained are not there. No table of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.trace import Trace, ordered
from features.usage import Int64s, Steps, horizon, shows_its_end, steps_of
from simulator.recorded.parameters import WINDOW_S
from traces.clusters import ClusterSettings

Basis = Literal["placements", "GPU counts", "CPU counts", "node counts", "job counts"]
COUNTS: dict[Basis, str] = {"GPU counts": "gpus", "CPU counts": "cpus", "node counts": "nodes", "job counts": "jobs"}
KNOWN = 0.95  # share of the attempts of which the log must tell a thing before it is used for all
SEEN = 0.9  # Good-Turing coverage from which a partition's nodes are taken to be all known
Int32s = NDArray[np.int32]
FOREVER = np.iinfo(np.int64).max // 4


class Demand(NamedTuple):
    """What a job asks for in all; unknown counts are 0, and a job without a node count asks for one node."""

    gpus: int
    cpus: int
    nodes: int


@dataclass(frozen=True)
class Fit:
    """Two step functions of 0 and 1 from the epoch on, never both 1: too little is free in the pool (`full`), and a
    place is free in which the job fits (`fits`). Where both are 0 enough is free, but in no place that fits."""

    full: Steps
    fits: Steps


def usable(used: Steps, shows_its_end: bool) -> Steps:
    """What is in service at each change of use: the most in use within WINDOW_S before or after it, the lesser of both.

    So a dip shorter than the window is idle time, and a longer one is nodes out of service. A window that reaches
    beyond the first change is moved inside; so is one beyond the last, if the log shows the machine at its end.
    """
    if not len(used.times):
        return used
    first, last = int(used.times[0]), int(used.times[-1])
    # A level holds up to the next change, so it counts there too.
    times = np.stack([np.append(used.times[0], used.times[1:] - 1), used.times], axis=1).ravel()
    values = np.stack([np.append(0, used.values[:-1]), used.values], axis=1).ravel()
    before = _rolling(times, values, np.maximum(used.times, min(first + WINDOW_S, last)))
    latest = min(-last + WINDOW_S, -first) if shows_its_end else -last
    after = _rolling(-times[::-1], values[::-1], np.maximum(-used.times, latest))
    return Steps(used.times, np.minimum(before, after))


def _rolling(times: Int64s, values: Int64s, at: Int64s) -> Int64s:
    """Largest value with a time in [t - WINDOW_S, t] for each t of `at`; `times` rise, ties allowed."""
    frame = pl.DataFrame({"time": times, "value": values})
    most = frame.select(
        "time", pl.col("value").rolling_max_by("time", window_size=f"{WINDOW_S}i", closed="both").alias("most")
    )
    largest: Int64s = most["most"].to_numpy()[np.searchsorted(times, at, side="right") - 1]
    return largest


def collapsed(times: Int64s, values: Int64s) -> Steps:
    """The step function that is `values[i]` from `times[i]` on, without the steps that change nothing."""
    keep = np.append(True, values[1:] != values[:-1])
    return Steps(times[keep], values[keep])


class Counted:
    """The whole cluster by counts alone."""

    def __init__(self, held: pl.DataFrame, amount: str, shows_its_end: bool) -> None:
        """`held`: see `usage.runs`, with columns cpus and jobs; `amount` is one of COUNTS."""
        used = steps_of(held, amount)
        there = usable(used, shows_its_end).values
        self._amount = amount
        self._times = np.append(0, used.times)
        # Before the first start the cluster is taken to be what it was then.
        self._free = np.append(there[:1] if len(there) else 0, there - used.values)

    def fit(self, demand: Demand) -> Fit:
        """Full while less is free than `demand`; whatever is enough is taken to fit."""
        asked = 1 if self._amount == "jobs" else getattr(demand, self._amount)
        full = (self._free < asked).astype(np.int64)
        return Fit(collapsed(self._times, full), collapsed(self._times, 1 - full))


@dataclass(frozen=True)
class Placed:
    """Named nodes, each by itself. Changes (k,) in order of time: instant (epoch s), node (its place among `gpus`), and
    what is taken of it; `gpus` and `cpus` (nodes,): what each holds."""

    time: Int64s
    node: Int32s
    taken_gpus: Int32s
    taken_cpus: Int32s
    gpus: Int64s
    cpus: Int64s

    @cached_property
    def _last(self) -> Int64s:
        """The last change of each instant, as a place in an array that begins with the state before all changes."""
        return np.append(0, np.flatnonzero(np.append(self.time[1:] != self.time[:-1], True)) + 1)[: len(self.time) + 1]

    @cached_property
    def _times(self) -> Int64s:
        return np.append(0, self.time)[self._last]

    @cached_property
    def _free(self) -> tuple[Int64s, Int64s]:
        """GPUs and CPUs free on all the nodes together."""
        both = ((self.gpus, self.taken_gpus), (self.cpus, self.taken_cpus))
        gpus, cpus = (np.append(0, -np.cumsum(taken))[self._last] + whole.sum() for whole, taken in both)
        return gpus, cpus

    def fit(self, demand: Demand) -> Fit:
        """Fits: as many nodes as asked for have each their share of the GPUs and CPUs free, rounded up."""
        nodes = demand.nodes
        free_gpus, free_cpus = self._free
        room = self._with_room(-(-demand.gpus // nodes), -(-demand.cpus // nodes))
        full = ((free_gpus < demand.gpus) | (free_cpus < demand.cpus)).astype(np.int64)
        fits = ((room >= nodes) & (full == 0)).astype(np.int64)
        return Fit(collapsed(self._times, full), collapsed(self._times, fits))

    def _with_room(self, gpus: int, cpus: int) -> Int64s:
        from features.room import nodes_with_room  # numba: whoever only names the analytics needs no compiler

        count = np.zeros(len(self.time) + 1, np.int64)
        taken = (self.node, self.taken_gpus, self.taken_cpus)
        nodes_with_room(*taken, self.gpus.copy(), self.cpus.copy(), gpus, cpus, count)
        return count[self._last]


def placed_pools(trace: Trace, settings: ClusterSettings, held: pl.DataFrame) -> dict[str | None, Placed] | None:
    """The nodes that the jobs of each partition may use; None where the log does not name the nodes of its jobs.

    A node is out of service in every span longer than WINDOW_S in which nothing ran on it, and after its last job where
    the log does not show the machine at its end.
    """
    ran = held.filter(pl.col("end_epoch") > pl.col("start_epoch")).select(
        "job_key", "attempt", "partition", "start_epoch", "end_epoch", "nodes", "gpus", "cpus"
    )
    placed = trace.placements.select("job_key", "attempt").unique()
    if ran.is_empty() or ran.join(placed, on=["job_key", "attempt"], how="semi").height < KNOWN * ran.height:
        return None
    del placed
    by_node = trace.placements.lazy().select("job_key", "attempt", "node", pl.col("gpus").alias("there"))
    on_nodes = _shares(trace, settings, by_node.join(ran.lazy(), on=["job_key", "attempt"]))
    del ran
    size, of_partitions = _sizes(on_nodes), nodes_of_partitions(on_nodes)
    changes = _changes(on_nodes, size, horizon(trace), WINDOW_S if shows_its_end(trace) else -1)
    del on_nodes
    pools: dict[str | None, Placed] = {}
    by_nodes: dict[frozenset[str], Placed] = {}
    everywhere = dict.fromkeys(trace.jobs["partition"].unique(), frozenset(size["node"]))  # where none was placed
    for name, names in (everywhere | of_partitions).items():
        if names not in by_nodes:
            by_nodes[names] = _pool(changes, size, names)
        pools[name] = by_nodes[names]
    return pools


def _shares(trace: Trace, settings: ClusterSettings, on_nodes: pl.LazyFrame) -> pl.DataFrame:
    """node, partition, start_epoch, end_epoch, declared, gpus and cpus: what an attempt holds of each of its nodes.

    A share of GPUs that the log does not give is the whole node. Where it tells no CPUs, an attempt without a GPU
    count holds the whole node, as the one CPU that the node then has.
    """
    listed = trace.nodes.select("node", pl.col("gpus").alias("listed"))
    declared = pl.coalesce(pl.lit(settings.gpus_per_node, pl.Int64), "listed", pl.lit(0))
    cpus = pl.coalesce(-(-pl.col("cpus") // pl.col("nodes").clip(1)), pl.col("gpus").is_null().cast(pl.Int64))
    counts = (declared.alias("declared"), pl.coalesce("there", declared).alias("gpus"), cpus.alias("cpus"))
    return (
        on_nodes.join(listed.lazy(), on="node", how="left")
        .select("node", "partition", "start_epoch", "end_epoch", *(count.cast(pl.Int32) for count in counts))
        .collect()
    )


def _sizes(on_nodes: pl.DataFrame) -> pl.DataFrame:
    """node, gpus, cpus of each: what is declared, and never less than was held at once.

    Nobody declares CPUs. A node with GPUs has as many as any other with as many GPUs was seen to give out.
    """
    rows = []
    for (name,), held in on_nodes.group_by("node", maintain_order=True):
        gpus = max(int(str(held["declared"][0])), steps_of(held, "gpus").peak)
        rows.append((name, gpus, steps_of(held, "cpus").peak))
    kinds = pl.Schema({"node": on_nodes.schema["node"], "gpus": pl.Int64(), "cpus": pl.Int64()})
    size = pl.DataFrame(rows, schema=kinds, orient="row")
    alike = pl.when(pl.col("gpus") > 0).then(pl.col("cpus").max().over("gpus")).otherwise("cpus")
    return size.with_columns(alike.alias("cpus"))


def _changes(on_nodes: pl.DataFrame, size: pl.DataFrame, until: int, idle_at_end_s: int) -> pl.DataFrame:
    """time, place (row of `size`), gpus, cpus in order of time: what attempts take and give back, and nodes that leave
    and return. Narrow columns: there are twice as many rows as placements.

    A node that is idle for more than `idle_at_end_s` until the log ends (`until`) has left for good.
    """
    amounts = pl.col("gpus", "cpus").cast(pl.Int32)
    size = size.with_row_index("place").select("place", "node", amounts)
    held = on_nodes.join(size.select("place", "node"), on="node").select("place", "start_epoch", "end_epoch", amounts)
    first = int(str(held["start_epoch"].min()))
    idle = (
        held.select("place", "start_epoch", "end_epoch")
        .sort("start_epoch")
        .select(
            "place",
            pl.col("end_epoch").cum_max().shift(1, fill_value=first).over("place").alias("start_epoch"),
            pl.col("start_epoch").alias("end_epoch"),
        )
    )
    # What is out when the log begins or ends is out for good.
    away = idle.filter(pl.col("end_epoch") - pl.col("start_epoch") > WINDOW_S).with_columns(
        pl.when(pl.col("start_epoch") == first).then(0).otherwise("start_epoch").alias("start_epoch")
    )
    gone = (
        held.group_by("place")
        .agg(pl.col("end_epoch").max().alias("start_epoch"))
        .filter(until - pl.col("start_epoch") > idle_at_end_s)
        .with_columns(pl.lit(FOREVER, pl.Int64).alias("end_epoch"))
    )
    out = pl.concat([away, gone]).join(size, on="place").select(held.columns)
    both = pl.concat([held, out])
    del held, idle, away, gone, out
    taken = (pl.col("start_epoch").alias("time"), "place", "gpus", "cpus")
    released = (pl.col("end_epoch").alias("time"), "place", -pl.col("gpus"), -pl.col("cpus"))
    changes = pl.concat([both.select(taken), both.select(released)])
    del both
    return ordered(changes, "time")


def nodes_of_partitions(on_nodes: pl.DataFrame) -> dict[str | None, frozenset[str]]:
    """Partition -> its nodes: those on which its jobs ran. `on_nodes`: a row a placement, with partition and node.

    A partition with few jobs was not seen on all of its nodes. Where more than one in ten of its placements is the only
    one on its node (Good-Turing estimate of what is unseen), it also gets the nodes of every partition that shares one
    with it.
    """
    counts = on_nodes.group_by("partition", "node", maintain_order=True).len()
    seen: dict[str | None, frozenset[str]] = {}
    sure: set[str | None] = set()
    for (name,), rows in counts.group_by("partition", maintain_order=True):
        partition = None if name is None else str(name)
        seen[partition] = frozenset(rows["node"].to_list())
        if 1 - int((rows["len"] == 1).sum()) / int(rows["len"].sum()) >= SEEN:
            sure.add(partition)
    neighbours: Mapping[str | None, list[frozenset[str]]] = {
        name: [other for other in seen.values() if other & nodes] for name, nodes in seen.items()
    }
    return {name: nodes if name in sure else frozenset().union(*neighbours[name]) for name, nodes in seen.items()}


def _pool(changes: pl.DataFrame, size: pl.DataFrame, names: frozenset[str]) -> Placed:
    mine = size.with_row_index("row").filter(pl.col("node").is_in(list(names))).sort("node")
    place_of = np.full(len(size), -1, np.int32)
    place_of[mine["row"].to_numpy()] = np.arange(len(mine), dtype=np.int32)
    node = place_of[changes["place"].to_numpy()]
    kept = node >= 0
    time, gpus, cpus = (changes[name].to_numpy()[kept] for name in ("time", "gpus", "cpus"))
    return Placed(time, node[kept], gpus, cpus, *(mine[name].to_numpy() for name in ("gpus", "cpus")))
