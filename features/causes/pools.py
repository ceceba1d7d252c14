"""Free resources over time where a job could have run: pools of nodes, and whether a shape of job fitted into them.

With placements, a pool consists of the nodes that a partition's jobs may use, and each node is followed separately.
Without placements, the whole cluster is one pool and only counts (of GPUs, CPUs, nodes or jobs) are known. Each pool
exists in two versions: with all of its nodes (`features.resources.capacity`), and with the nodes in service, which
excludes a node on which nothing ran for days. The module has no table of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.resources.capacity import OF_NODE, Capacity, Resource, by_node
from features.resources.in_service import usable_capacity
from features.resources.partition_nodes import places_of_partitions
from features.resources.usage import Steps, horizon, shows_its_end, steps_of
from features.trace import Trace, ordered
from simulator.recorded.parameters import WINDOW_S
from traces.arrays import Int32s, Int64s

Basis = Literal["placements", "GPU counts", "CPU counts", "node counts", "job counts"]
_RESOURCES: dict[str, Resource] = {"gpus": "GPU", "cpus": "core", "nodes": "node"}
COUNTS: dict[Basis, str] = {"GPU counts": "gpus", "CPU counts": "cpus", "node counts": "nodes", "job counts": "jobs"}
KNOWN = 0.95  # share of the attempts that must record an amount before it is used
SHARED_SHOWN = 30  # minimum number of placements without a shared node to infer that a partition allocates whole nodes
ENFORCED = 1.05  # if jobs held more than this times a node's listed memory, memory is not enforced
OPEN_SHARE = 0.5  # free share of a pool that is too large to be kept for one queued job
FOREVER = np.iinfo(np.int64).max // 4


class Demand(NamedTuple):
    """The total request of a job; unknown counts are 0, and a job without a node count requests one node.

    like: requirements on its nodes, as features joined by &, then ; and GPU types joined by |. None: no requirements.
    """

    gpus: int
    cpus: int
    mem_mib: int
    nodes: int
    like: str | None = None


@dataclass(frozen=True)
class Fit:
    """Three step functions of 0 and 1 from the epoch on; at most one of them is 1 at any time.

    full: too little is free in the pool, even if all of its nodes were in service. away: the job would fit, but only
    with nodes that are out of service. fits: the job fits. Where all three are 0, enough is free in total, but
    fragmented.
    """

    full: Steps
    away: Steps
    fits: Steps

    @property
    def length(self) -> int:
        """Number of steps held in memory."""
        return len(self.full.times) + len(self.away.times) + len(self.fits.times)


def collapsed(times: Int64s, values: NDArray[np.bool_]) -> Steps:
    """Build the step function that is `values[i]` from `times[i]` on, without steps that change nothing."""
    keep = np.append(True, values[1:] != values[:-1])
    return Steps(times[keep], values[keep].astype(np.int64))


class Counted:
    """The whole cluster as one pool, known only by counts of one amount."""

    def __init__(self, held: pl.DataFrame, basis: Basis, size: Capacity, queued: Steps, shows_its_end: bool) -> None:
        """Compute the free amount over time.

        held: see `usage.runs`, with a column `jobs` of ones. queued: number of users in the queue, over time.
        """
        self._amount = COUNTS[basis]
        used = steps_of(held, self._amount)
        resource = _RESOURCES.get(self._amount)
        dated = None if resource is None else size.steps(resource)
        amount = used.lasting_peak if resource is None else size.of(resource) or 0
        known = dated or Steps(np.zeros(1, np.int64), np.full(1, amount, np.int64))
        in_service = usable_capacity(used, queued, known.peak, shows_its_end)
        times = np.unique(np.concatenate([[0], known.times, used.times, in_service.times])).astype(np.int64)
        whole, taken = known.at(times), used.at(times)
        has_begun = times >= used.times[0] if len(used.times) else np.zeros(len(times), np.bool_)
        present = np.where(has_begun, in_service.at(times), whole)
        self.nodes: int | None = size.nodes
        self._times, self._free = times, np.minimum(present, np.maximum(whole, taken)) - taken
        self._free_in_all = np.maximum(whole, taken) - taken
        self.is_open = collapsed(times, self._free_in_all >= OPEN_SHARE * whole)

    def plenty(self, asked: dict[str, Steps]) -> Steps:
        """Return 1 while at least as much is free as all queued jobs request; asked: amount -> total request."""
        amount = asked.get(self._amount)
        if amount is None:
            return collapsed(self._times, self._free >= 0)
        times = np.union1d(self._times, amount.times)
        return collapsed(times, Steps(self._times, self._free).at(times) >= amount.at(times))

    def fit(self, demand: Demand) -> Fit:
        """Return when the pool is full for `demand`; any sufficient free amount is assumed to fit."""
        asked = 1 if self._amount == "jobs" else getattr(demand, self._amount)
        full, fits = self._free_in_all < asked, self._free >= asked
        return Fit(*(collapsed(self._times, values) for values in (full, ~full & ~fits, fits)))


@dataclass(frozen=True)
class Placed:
    """A pool of named nodes, each followed separately.

    size (nodes, 3): GPUs, CPUs, MiB of each node. The changes (k,) are in order of time: time (epoch s), node (index
    into `size`), taken (k, 3) on that node (negative when released), and is_away where the node leaves service or
    returns to it. labels (nodes,): the features of each node and the type of its GPUs.
    """

    time: Int64s
    node: Int32s
    taken: Int32s
    is_away: NDArray[np.bool_]
    size: Int64s
    labels: tuple[frozenset[str], ...] = ()

    @property
    def nodes(self) -> int:
        """Number of nodes in the pool."""
        return len(self.size)

    @cached_property
    def _last(self) -> Int64s:
        """Index of the last change of each instant, in an array that begins with the state before all changes."""
        return np.append(0, np.flatnonzero(np.append(self.time[1:] != self.time[:-1], True)) + 1)[: len(self.time) + 1]

    @cached_property
    def _times(self) -> Int64s:
        return np.append(0, self.time)[self._last]

    @cached_property
    def _all_in_service(self) -> Placed:
        """The same pool with every node in service all the time."""
        taken = np.where(self.is_away[:, None], 0, self.taken).astype(np.int32)
        return Placed(self.time, self.node, taken, np.zeros_like(self.is_away), self.size)

    @cached_property
    def _free(self) -> Int64s:
        """GPUs, CPUs and MiB free on all nodes together: (3, instants)."""
        used = np.concatenate([np.zeros((1, 3), np.int64), np.cumsum(self.taken, axis=0, dtype=np.int64)])
        free: Int64s = (self.size.sum(axis=0) - used[self._last]).T
        return free

    def fit(self, demand: Demand) -> Fit:
        """Return when the demand fits: each of the requested number of nodes has its share, rounded up, free."""
        if demand.like is not None:
            return self.like(demand.like).fit(demand._replace(like=None))
        enough, room = self._enough(demand)
        fits = enough & room
        if not self.is_away.any():
            return Fit(*(collapsed(self._times, values) for values in (~enough, np.zeros_like(fits), fits)))
        in_all, room_in_all = self._all_in_service._enough(demand)
        away = in_all & room_in_all & ~fits
        return Fit(*(collapsed(self._times, values) for values in (~in_all, away, fits)))

    def plenty(self, asked: dict[str, Steps]) -> Steps:
        """Return 1 while at least as much is free as all queued jobs request; asked: amount -> total request."""
        times = np.unique(np.concatenate([self._times, *(steps.times for steps in asked.values())]))
        enough = np.ones(len(times), np.bool_)
        for resource, amount in enumerate(OF_NODE[:2]):
            enough &= Steps(self._times, self._free[resource]).at(times) >= asked[amount].at(times)
        return collapsed(times, enough)

    @cached_property
    def is_open(self) -> Steps:
        """1 while at least OPEN_SHARE of the pool is free, counting nodes in service or not."""
        free, whole = self._all_in_service._free, self.size.sum(axis=0)
        known = whole > 0
        return collapsed(self._times, np.all(free[known] >= OPEN_SHARE * whole[known, None], axis=0))

    def like(self, required: str) -> Placed:
        """Select the nodes with features and GPU types `required` (see `Demand.like`); all where no node has them."""
        if required not in self._narrowed:
            features, _, types = required.partition(";")
            all_of, any_of = set(filter(None, features.split("&"))), set(filter(None, types.split("|")))
            has = [all_of <= labels and (not any_of or bool(any_of & labels)) for labels in self.labels]
            self._narrowed[required] = self._of(np.flatnonzero(has)) if any(has) and not all(has) else self
        return self._narrowed[required]

    @cached_property
    def _narrowed(self) -> dict[str, Placed]:
        return {}

    def _of(self, places: Int64s) -> Placed:
        """Select nodes by index."""
        place_of = np.full(len(self.size), -1, np.int32)
        place_of[places] = np.arange(len(places), dtype=np.int32)
        node = place_of[self.node]
        kept = node >= 0
        labels = tuple(self.labels[place] for place in places)
        return Placed(self.time[kept], node[kept], self.taken[kept], self.is_away[kept], self.size[places], labels)

    def _enough(self, demand: Demand) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return whether enough is free in total, and whether enough nodes have room, at each instant."""
        asked = np.array(demand[:3], np.int64)
        need = -(-asked // demand.nodes)
        enough = np.all(self._free_on(np.all(self.size >= need, axis=1)) >= asked[:, None], axis=0)
        return enough, self._with_room(need) >= demand.nodes

    def _free_on(self, nodes: NDArray[np.bool_]) -> Int64s:
        """GPUs, CPUs and MiB free on the selected nodes together: (3, instants)."""
        if nodes.all():
            return self._free
        taken = np.where(nodes[self.node][:, None], self.taken, 0)
        return Placed(self.time, self.node, taken, self.is_away, np.where(nodes[:, None], self.size, 0))._free

    def _with_room(self, need: Int64s) -> Int64s:
        from features.causes.room import nodes_with_room  # imported late: reading table names needs no compilation

        count = np.zeros(len(self.time) + 1, np.int64)
        nodes_with_room(self.node, self.taken, self.size.copy(), need, count)
        return count[self._last]


class Pools(NamedTuple):
    """The pool of each partition."""

    by_partition: dict[str | None, Placed]
    with_memory: bool  # whether memory is allocated like GPUs and CPUs


def placed_pools(trace: Trace, held: pl.DataFrame, size: Capacity) -> Pools | None:
    """Build the pool of each partition; None where the log does not name the nodes of its jobs.

    held: see `usage.runs`. A node is out of service in every period longer than WINDOW_S in which nothing ran on it.
    If the log does not show the machine at its end, we assume that a node runs an unfinished job after its last one.
    """
    ran = held.filter(pl.col("end_epoch") > pl.col("start_epoch"))
    placed = trace.placements.select("job_key", "attempt").unique()
    if ran.is_empty() or ran.join(placed, on=["job_key", "attempt"], how="semi").height < KNOWN * ran.height:
        return None
    del placed
    sizes = size.sizes.with_row_index("place").with_columns(pl.col("node").fill_null(""))
    with_memory = _enforces_memory(trace, held, size)
    on_nodes, sizes = _shares(by_node(trace, ran), sizes, with_memory)
    del ran
    partitions = [None if name is None else str(name) for name in trace.jobs["partition"].unique().to_list()]
    places = places_of_partitions(trace, on_nodes, sizes, partitions)
    changes = _changes(on_nodes, sizes, horizon(trace), shows_its_end(trace))
    del on_nodes
    taken = np.ascontiguousarray(np.stack([changes[name].to_numpy() for name in OF_NODE], axis=1), np.int32)
    every = Placed(
        changes["time"].to_numpy(), changes["place"].to_numpy().astype(np.int32), taken,
        changes["is_away"].to_numpy(), sizes.select(OF_NODE).to_numpy().astype(np.int64), _labels(trace, sizes),
    )  # fmt: skip
    pools = {nodes: every._of(np.array(sorted(nodes), np.int64)) for nodes in set(places.values())}
    return Pools({name: pools[nodes] for name, nodes in places.items()}, with_memory)


def _enforces_memory(trace: Trace, held: pl.DataFrame, size: Capacity) -> bool:
    """Return whether memory is enforced: known for every node, and jobs never held clearly more of it."""
    if not held.height or held["mem_mib"].count() < KNOWN * held.height or size.sizes["mem_mib"].null_count():
        return False
    listed = trace.nodes.select(pl.col("node").cast(pl.String), pl.col("memory_mib"))
    if listed["memory_mib"].count() < listed.height or not listed.height:
        return False
    over = size.sizes.join(listed, on="node").filter(pl.col("mem_mib") > ENFORCED * pl.col("memory_mib"))
    return over.is_empty()


def _shares(on_nodes: pl.DataFrame, sizes: pl.DataFrame, with_memory: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Compute what each attempt holds of each of its nodes, and the sizes of the nodes without nulls.

    The first frame has place, partition, start_epoch, end_epoch and the amounts. An unknown share of GPUs counts as the
    whole node; so does any share in a partition whose jobs never shared a node. Where the log records no CPUs, each
    node has one CPU, and an attempt without a GPU count holds it and thus the whole node.
    """
    has_cpus = on_nodes["cpus"].count() >= KNOWN * max(on_nodes.height, 1)
    no_memory = [] if with_memory else [pl.lit(0, pl.Int64).alias("mem_mib")]
    sizes = sizes.with_columns(
        pl.col("gpus").fill_null(0), pl.col("cpus").fill_null(0) if has_cpus else pl.lit(1).alias("cpus")
    )
    sizes = sizes.with_columns(no_memory).with_columns(pl.col(OF_NODE).cast(pl.Int64))
    whole = sizes.select(
        "place",
        pl.col("node").cast(on_nodes.schema["node"]),
        *(pl.col(name).alias(f"whole {name}") for name in OF_NODE),
    )
    rows = on_nodes.drop("job_key", "attempt").join(whole, on="node")
    cpus = pl.col("cpus").fill_null(0) if has_cpus else pl.col("gpus").is_null().cast(pl.Int64)
    rows = rows.with_columns(
        pl.coalesce("gpus", "whole gpus").alias("gpus"), cpus.alias("cpus"),
        pl.lit(0).alias("mem_mib") if no_memory else pl.col("mem_mib").fill_null(0),
    )  # fmt: skip
    alone = pl.col("partition").is_in(exclusive_partitions(rows)).fill_null(False)
    counts = [pl.when(alone).then(f"whole {name}").otherwise(name).cast(pl.Int32).alias(name) for name in OF_NODE]
    return rows.select("place", "partition", "start_epoch", "end_epoch", *counts), sizes


def exclusive_partitions(on_nodes: pl.DataFrame) -> list[str]:
    """List the partitions that allocate whole nodes: their jobs never shared a node, although some held a part of one.

    on_nodes: node, partition, start_epoch, end_epoch, and gpus, cpus held of `whole gpus`, `whole cpus`.
    """
    is_part = (pl.col("gpus") < pl.col("whole gpus")) | (pl.col("cpus") < pl.col("whole cpus"))
    latest = pl.col("end_epoch").cum_max().shift(1).over("partition", "node")
    rows = (
        on_nodes.select("partition", "node", "start_epoch", "end_epoch", is_part.alias("part"))
        .sort("start_epoch")
        .select("partition", "node", "part", (pl.col("start_epoch") < latest).fill_null(False).alias("shared"))
    )
    found = rows.group_by("partition").agg(
        pl.len().alias("n"), pl.col("part").mean(), pl.col("shared").any(), pl.col("node").n_unique().alias("nodes")
    )
    alone = found.filter(
        ~pl.col("shared") & (pl.col("part") > 0) & (pl.col("n") >= SHARED_SHOWN) & (pl.col("nodes") > 2)
    )
    return [str(name) for name in alone["partition"].drop_nulls()]


def _changes(on_nodes: pl.DataFrame, sizes: pl.DataFrame, until: int, shows_end: bool) -> pl.DataFrame:
    """List the changes in order of time: amounts that attempts take and release, and nodes that leave and return.

    The columns are time, place, gpus, cpus, mem_mib and is_away; they are narrow because there are twice as many rows
    as placements. A node that is idle for more than WINDOW_S until the log ends (`until`) has left permanently. A node
    on which nothing ever ran was never in service.
    """
    amounts = [pl.col(name).cast(pl.Int32) for name in OF_NODE]
    sizes = sizes.select(pl.col("place").cast(pl.UInt32), *amounts)
    held = on_nodes.select("place", "start_epoch", "end_epoch", *amounts, pl.lit(False).alias("is_away"))
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
    # A node that is out of service when the log begins has been out since the epoch; one out at the end stays out.
    away = idle.filter(pl.col("end_epoch") - pl.col("start_epoch") > WINDOW_S).with_columns(
        pl.when(pl.col("start_epoch") == first).then(0).otherwise("start_epoch").alias("start_epoch")
    )
    gone = (
        held.group_by("place")
        .agg(pl.col("end_epoch").max().alias("start_epoch"))
        .filter((until - pl.col("start_epoch") > WINDOW_S) | pl.lit(not shows_end))
    )
    never = sizes.join(held, on="place", how="anti").select("place", pl.lit(0, pl.Int64).alias("start_epoch"))
    for_good = [part.with_columns(pl.lit(FOREVER, pl.Int64).alias("end_epoch")) for part in (gone, never)]
    is_away = (pl.lit(True), pl.lit(shows_end), pl.lit(True))
    parts = zip((away, *for_good), is_away, strict=True)
    out = pl.concat([part.with_columns(away_or_held.alias("is_away")) for part, away_or_held in parts]).join(
        sizes, on="place"
    )
    both = pl.concat([held, out.select(*held.columns)])
    del held, idle, away, gone, out
    taken: list[Any] = [pl.col("start_epoch").alias("time"), "place", *OF_NODE, "is_away"]
    released: list[Any] = [pl.col("end_epoch").alias("time"), "place", *(-pl.col(name) for name in OF_NODE), "is_away"]
    changes = pl.concat([both.select(taken), both.select(released)])
    del both
    return ordered(changes, "time")


def _labels(trace: Trace, sizes: pl.DataFrame) -> tuple[frozenset[str], ...]:
    """Look up the features and the GPU type of each node of `sizes` in the machine list."""
    features = pl.col("features").cast(pl.String).fill_null("").str.split(",")
    listed = trace.nodes.select(
        pl.col("node").cast(pl.String), features, pl.col("gpu_type").cast(pl.String).alias("type")
    )
    rows = sizes.select("place", "node").join(listed, on="node", how="left", maintain_order="left")
    return tuple(
        frozenset(filter(None, [*(names or ()), gpu_type]))
        for names, gpu_type in rows.select("features", "type").iter_rows()
    )
