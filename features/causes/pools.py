"""Free resources over time where a job could have run: pools of nodes, and whether a shape of job fitted into them.

With placements, a pool consists of the nodes that a partition's jobs may use, and each node is followed separately.
Without placements, the whole cluster is one pool and only counts (of GPUs, CPUs, nodes or jobs) are known. Each pool
exists in two versions: with all of its nodes (`features.resources.capacity`), and with the nodes in service, which
excludes a node on which nothing ran for days. The module has no table of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.causes.node_changes import KNOWN, changes_in_order, spans_on_nodes
from features.resources.capacity import OF_NODE, Capacity, Resource
from features.resources.in_service import usable_capacity
from features.resources.on_nodes import by_node
from features.resources.partition_nodes import places_of_partitions
from features.resources.usage import Steps, collapsed, horizon, product, shows_its_end, steps_of
from features.trace import Trace
from traces.arrays import Int32s, Int64s

Basis = Literal["placements", "GPU counts", "CPU counts", "node counts", "job counts"]
_RESOURCES: dict[str, Resource] = {"gpus": "GPU", "cpus": "core", "nodes": "node"}
COUNTS: dict[Basis, str] = {"GPU counts": "gpus", "CPU counts": "cpus", "node counts": "nodes", "job counts": "jobs"}
ENFORCED = 1.05  # if jobs held more than this times a node's listed memory, memory is not enforced
OPEN_SHARE = 0.5  # free share of a pool that is too large to be kept for one queued job


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


Asked = Callable[[str], Steps]  # amount (gpus, cpus or nodes) -> total request of the queued jobs


def enough(asked: Steps, free: Steps) -> Steps:
    """Return 1 while at least as much is free as is asked."""
    times = np.union1d(free.times, asked.times)
    return collapsed(times, free.at(times) >= asked.at(times))


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

    def plenty(self, asked: Asked) -> Steps:
        """Return 1 while at least as much is free as all queued jobs request."""
        if self._amount == "jobs":
            return collapsed(self._times, self._free >= 0)
        return enough(asked(self._amount), Steps(self._times, self._free))

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
    def _is_last(self) -> NDArray[np.bool_]:
        """Mark the last change of each instant, in an array that begins with the state before all changes."""
        return np.concatenate([[True], self.time[1:] != self.time[:-1], [True]])[: len(self.time) + 1]

    @cached_property
    def _times(self) -> Int64s:
        return np.append(0, self.time)[self._is_last]

    def _free(self, resource: int, is_left_out: NDArray[np.bool_]) -> Int64s:
        """Amount free on all nodes together, (instants,), without the changes that are left out."""
        used = np.zeros(len(self.time) + 1, np.int64)
        np.cumsum(np.where(is_left_out, 0, self.taken[:, resource]), out=used[1:])
        free: Int64s = self.size[:, resource].sum() - used[self._is_last]
        return free

    def fit(self, demand: Demand) -> Fit:
        """Return when the demand fits: each of the requested number of nodes has its share, rounded up, free."""
        if demand.like is not None:
            return self.like(demand.like).fit(demand._replace(like=None))
        enough, room = self._room(demand, np.zeros_like(self.is_away))
        fits = enough & room
        if not self.is_away.any():
            return Fit(*(collapsed(self._times, values) for values in (~enough, np.zeros_like(fits), fits)))
        in_all, room_in_all = self._room(demand, self.is_away)
        away = in_all & room_in_all & ~fits
        return Fit(*(collapsed(self._times, values) for values in (~in_all, away, fits)))

    def plenty(self, asked: Asked) -> Steps:
        """Return 1 while at least as much is free as all queued jobs request."""
        gpus, cpus = (
            enough(asked(amount), Steps(self._times, self._free(resource, np.zeros_like(self.is_away))))
            for resource, amount in enumerate(OF_NODE[:2])
        )
        return product(gpus, cpus)

    @cached_property
    def is_open(self) -> Steps:
        """1 while at least OPEN_SHARE of the pool is free, counting nodes in service or not."""
        is_open = np.ones(len(self._times), np.bool_)
        for resource, whole in enumerate(self.size.sum(axis=0)):
            if whole > 0:
                is_open &= self._free(resource, self.is_away) >= OPEN_SHARE * whole
        return collapsed(self._times, is_open)

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
        """Select nodes by index, in rising order."""
        if len(places) == len(self.size):
            return self
        place_of = np.full(len(self.size), -1, np.int32)
        place_of[places] = np.arange(len(places), dtype=np.int32)
        node = place_of[self.node]
        kept = node >= 0
        labels = tuple(self.labels[place] for place in places)
        return Placed(self.time[kept], node[kept], self.taken[kept], self.is_away[kept], self.size[places], labels)

    def _room(self, demand: Demand, is_left_out: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return whether enough is free in total, and whether enough nodes have room, at each instant."""
        from features.causes.room import room_after_each  # imported late: reading table names needs no compilation

        asked = np.array(demand[:3], np.int64)
        need = -(-asked // demand.nodes)
        is_large = np.all(self.size >= need, axis=1)
        room = np.empty(len(self.time) + 1, np.uint8)
        room_after_each(self.node, self.taken, is_left_out, self.size.copy(), is_large, asked, need, demand.nodes, room)
        room = room[self._is_last]
        return room % 2 > 0, room > 1


class Pools(NamedTuple):
    """The pool of each partition."""

    by_partition: dict[str | None, Placed]
    with_memory: bool  # whether memory is allocated like GPUs and CPUs


def placed_pools(trace: Trace, held: pl.DataFrame, size: Capacity) -> Pools | None:
    """Build the pool of each partition; None where the log does not name the nodes of its jobs.

    held: see `usage.runs`. A node is out of service in every period longer than WINDOW_S in which nothing ran on it.
    If the log does not show the machine at its end, we assume that a node runs an unfinished job after its last one.
    """
    has_run = held["end_epoch"] > held["start_epoch"]
    on_nodes = by_node(trace, held).only(has_run)
    named = np.count_nonzero(np.bincount(on_nodes.placed["run"].to_numpy()))
    if not has_run.any() or named < KNOWN * int(has_run.sum()):
        return None
    sizes = size.sizes.with_row_index("place").with_columns(pl.col("node").fill_null(""))
    with_memory = _enforces_memory(trace, held, size)
    partitions = [None if name is None else str(name) for name in trace.jobs["partition"].unique().to_list()]
    places = places_of_partitions(trace, on_nodes, sizes, partitions)
    spans, out, sizes = spans_on_nodes(on_nodes, sizes, with_memory, horizon(trace), shows_its_end(trace))
    del on_nodes
    every = Placed(
        *changes_in_order(spans, out), sizes.select(OF_NODE).to_numpy().astype(np.int64), _labels(trace, sizes)
    )
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
