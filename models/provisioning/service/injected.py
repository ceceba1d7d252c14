"""A simulated cluster with the links of one chain in it, beside all recorded jobs: when links start, and what is seen.

A chain begins with a job that is submitted to the replayed trace, as the predecessor of an injected pair
(`models.provisioning.pairs.injected`). From then on the replay goes on with the chain's links in it. They hold nodes
and delay the other jobs. No other chain is there.

Each link is a row behind those of the trace. Rows are used again in turn, long after their links have ended.

A link that may get less than it asks for (`Link.fits_s`) waits with its least limit, and has another from the second in
which it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from features import observe
from features.futures.run_times import RunTimeHistory, history
from features.futures.summary import FUTURES
from models.provisioning.futures.injected import Owners, cycles_within, play_flat_futures
from models.provisioning.futures.recorded import most_arrivals
from models.provisioning.pairs.injected import check_nodes, never_starts, observe_branch
from models.provisioning.service.chain import NOTHING, Link, ServiceChain
from models.provisioning.service.links import CYCLES_S, HORIZON_S
from simulator.cluster import ANY_EXTRA, NONE, Build, advance, copy, relimit, start_of, submit, withdraw
from simulator.flat.future import FlatHistory, new_room
from simulator.recorded.record import NEVER
from simulator.workload import Workload
from traces.arrays import Float32s, Int64s
from traces.units import DAY_S


class InjectedCluster:
    """Any world of `simulator.cluster` in which jobs can be withdrawn (`ChainCluster`), without futures."""

    def __init__(self, build: Build, nodes: int, limit_s: int, longest_s: int, rows: int) -> None:
        """The first link of a chain has `nodes` nodes and `limit_s`; none has more nodes, or more than `longest_s`.

        rows: four times as many as the links that a chain needs. Raises InputError for links that the cluster cannot
        hold.
        """
        self.world = build(extra=rows, nodes=nodes, limit_s=longest_s, threads=2)
        check_nodes(nodes, self.world.most_nodes)
        self.nodes, self.limit_s, self.rows = nodes, limit_s, rows
        self.cluster: Any  # of all branches but the last, which shows what would happen
        self.ahead: Any
        self.cluster, self.ahead = self.world.clusters
        room = self.world.first_extra + rows + 1
        self._base, self._first, self._changed, self._branch, self._leaf = (
            self.world.branch(room, observe.RECENT) for _ in range(5)
        )
        self._starts = self._base_starts = self.starts(self.cluster).copy()

    def jobs(self, cluster: Any) -> Any:
        """The table of the cluster's jobs, with the columns limit_s and run_s."""
        return cluster.run.jobs

    def starts(self, cluster: Any) -> Int64s:
        """The latest start of each row in a branch of the cluster."""
        starts: Int64s = cluster.run.out.start_s
        return starts

    def begin(self, submit_s: int) -> None:
        """Let the next chains begin with a job submitted at `submit_s`, not before that of earlier ones."""
        self.starts(self.cluster)[:] = self._base_starts
        advance(self.cluster, self._base, submit_s - 1)
        self._base_starts = self.starts(self.cluster).copy()
        copy(self.cluster, self._first, self._base)
        row = self._ask(0, self.limit_s)
        submit(self.cluster, self._first, row, submit_s)
        self._submit_s, self._start_s = submit_s, start_of(self.cluster, self._first, row)
        if self._start_s == NONE:
            raise never_starts(self.nodes)
        self._starts = self.starts(self.cluster).copy()

    def chain(self, number: int) -> ServiceChain:
        """A new chain, the only one from now on, at the start of its first link."""
        self.starts(self.cluster)[:] = self._starts
        copy(self.cluster, self._branch, self._first)
        link = Link(self.limit_s, self._submit_s, self._start_s, self._start_s + self.limit_s)
        self._row_of = {id(link): self._ask(0, self.limit_s)}
        self._next, self._at_s = 1, self._start_s - 1  # others may start in the same second
        chain = ServiceChain(number, self.limit_s, [link])
        self.first_start(chain, self._start_s)
        return chain

    def change(self, chain: ServiceChain, at_s: int, submitted: Sequence[Link], gone: Sequence[Link]) -> None:
        """Submit and withdraw links; `at_s` may lie in the past, but not before the last change."""
        if at_s <= self._at_s:  # chosen by a clairvoyant player
            copy(self.cluster, self._branch, self._changed)
            self._at_s = self._changed_s
        self._advance(at_s - 1)
        for link in gone:
            withdraw(self.cluster, self._branch, self._row_of[id(link)], at_s)
        there = [*chain.queued, *chain.running(at_s)]
        self._row_of = {id(link): self._row_of[id(link)] for link in there if id(link) in self._row_of}
        for link, place in zip(submitted, self._free(len(submitted)), strict=True):
            row = self._ask(place, link.fits_s, link.shape.nodes)
            submit(self.cluster, self._branch, row, at_s)
            self._row_of[id(link)] = row
            self._next = (place + 1) % self.rows

    def first_start(
        self, chain: ServiceChain, now_s: int, granted: Mapping[int, int] = NOTHING
    ) -> tuple[int, tuple[int, ...]]:
        """When the first queued link starts, and the positions of those that start then, after a change or a start.

        Links have the limits `granted` from `chain.due_s` on.
        """
        self._reach(chain, now_s)
        copy(self.cluster, self._changed, self._branch)
        self._changed_s = self._at_s
        if not chain.queued:
            return NEVER, ()
        rows = [self._row_of[id(link)] for link in chain.queued]
        starts = self.starts(self.ahead)
        starts[rows] = NONE
        copy(self.ahead, self._leaf, self._branch)
        if granted:
            advance(self.ahead, self._leaf, chain.due_s - 1)
        for place, limit_s in granted.items():
            relimit(self.ahead, self._leaf, rows[place], limit_s)
        start_s = start_of(self.ahead, self._leaf, ANY_EXTRA)
        if start_s != NONE:
            advance(self.ahead, self._leaf, start_s)  # others may start in the same second
        for place in granted:
            relimit(self.ahead, self._leaf, rows[place], chain.queued[place].fits_s)
        if start_s == NONE:
            return NEVER, ()
        return start_s, tuple(place for place, row in enumerate(rows) if starts[row] == start_s)

    def would_start(self, chain: ServiceChain, now_s: int, limit_s: int) -> int:
        """When a link of that limit starts that is submitted now, epoch s."""
        self._reach(chain, now_s)
        row = self._ask(self._free(1)[0], limit_s)
        copy(self.ahead, self._leaf, self._branch)
        submit(self.ahead, self._leaf, row, now_s)
        start_s = start_of(self.ahead, self._leaf, row)
        return NEVER if start_s == NONE else start_s

    def nodes_of(self, chain: ServiceChain) -> int:
        """Nodes of a chain's links."""
        return self.nodes

    def observation(self, chain: ServiceChain, now_s: int, limit_s: int, nodes: int | None = None) -> Float32s:
        """The observation before a link of that limit is submitted."""
        self._reach(chain, now_s)
        last, seen = chain.started[-1], np.zeros(len(observe.FEATURES), np.float32)
        row, wait_s = self._ask(self._free(1)[0], limit_s, nodes), last.start_s - last.submit_s
        pair = (last.start_s, wait_s, last.end_s, nodes or self.nodes, limit_s, self.world.user)
        observe_branch(self.cluster, self._branch, now_s, row, pair, seen)
        return seen

    def _reach(self, chain: ServiceChain, now_s: int) -> None:
        """Advance to what may be known at `now_s`: all before it, and the second of the last start."""
        limits_s = self.jobs(self.cluster).limit_s
        for link in chain.started:
            row = self._row_of.get(id(link))
            if row is not None and limits_s[row] != link.limit_s:  # granted since
                self._advance(link.start_s - 1)
                relimit(self.cluster, self._branch, row, link.limit_s)
                relimit(self.ahead, self._leaf, row, link.limit_s)
        self._advance(max(now_s - 1, chain.started[-1].start_s))

    def _advance(self, until_s: int) -> None:
        if until_s > self._at_s:
            advance(self.cluster, self._branch, until_s)
            self._at_s = until_s

    def _free(self, count: int) -> list[int]:
        """The next places without a link that follow one another."""
        taken = {row - self.world.first_extra for row in self._row_of.values()}
        last = self.rows - count
        places = (range(first, first + count) for first in (*range(self._next, last + 1), *range(last + 1)))
        return list(next(some for some in places if taken.isdisjoint(some)))

    def _ask(self, place: int, limit_s: int, nodes: int | None = None) -> int:
        """Let a row beyond the trace have that limit and number of nodes, and return it."""
        row = self.world.first_extra + place
        for cluster in (self.cluster, self.ahead):
            jobs = self.jobs(cluster)
            jobs.limit_s[row] = jobs.run_s[row] = limit_s
            self.world.resize(cluster, row, nodes or self.nodes)
        return row


class FlatChainCluster(InjectedCluster):
    """The flat pool, with futures: those of the pairs injected into it (`models.provisioning.futures.injected`)."""

    def __init__(
        self, build: Build, nodes: int, limit_s: int, longest_s: int, rows: int, workload: Workload, owners: Owners
    ) -> None:
        """workload, owners: of the trace."""
        super().__init__(build, nodes, limit_s, longest_s, rows)
        self._workload, self._owners = workload, owners
        cycles = np.append(CYCLES_S, cycles_within(FUTURES, FUTURES))
        arrivals = most_arrivals(workload.submit_s, cycles, HORIZON_S)
        self._room = new_room(self.cluster.knobs, self.cluster.jobs, arrivals)
        self._known_s = NONE  # when the next two were found
        self._end_s: Int64s
        self._known: RunTimeHistory

    def jobs(self, cluster: Any) -> Any:
        """The table of the cluster's jobs."""
        return cluster.jobs

    def starts(self, cluster: Any) -> Int64s:
        """The latest start of each row in a branch of the cluster."""
        starts: Int64s = cluster.starts
        return starts

    def chain(self, number: int) -> ServiceChain:
        """A new chain, the only one from now on, at the start of its first link."""
        self._known_s = NONE
        return super().chain(number)

    def futures(
        self, chain: ServiceChain, now_s: int, limits_s: Sequence[int], horizon_s: int, nodes: int | None = None,
        delay_s: int = 0,
    ) -> Int64s:  # fmt: skip
        """When a link of each limit submitted `delay_s` from now would start in each future, behind the queued ones."""
        self._reach(chain, now_s)
        starts = np.zeros((len(limits_s), FUTURES), np.int64)
        for limit_s, found in zip(limits_s, starts, strict=True):
            self._play(self._branch, self._ask(self._free(1)[0], limit_s, nodes), now_s, horizon_s, found, delay_s)
        return starts

    def queued_futures(self, chain: ServiceChain, now_s: int, horizon_s: int, limit_s: int | None = None) -> Int64s:
        """The same for the last of the queued links, (futures,). limit_s: as if it had this limit from now on."""
        self._reach(chain, now_s)
        link, starts = chain.queued[-1], np.zeros(FUTURES, np.int64)
        row = self._row_of[id(link)]
        copy(self.cluster, self._leaf, self._branch)
        relimit(self.cluster, self._leaf, row, link.fits_s if limit_s is None else limit_s)
        self._play(self._leaf, row, now_s, horizon_s, starts)
        relimit(self.cluster, self._leaf, row, link.fits_s)
        return starts

    def _play(self, branch: Any, row: int, now_s: int, horizon_s: int, out: Int64s, delay_s: int = 0) -> None:
        """Fill `out` with the starts of `row`."""
        jobs, knobs, workload, first = self.cluster.jobs, self.cluster.knobs, self._workload, self.world.first_extra
        for name in ("size", "run_s", "limit_s"):
            getattr(self._room.jobs, name)[first : first + self.rows] = getattr(jobs, name)[first:]
        if self._known_s != now_s:
            self._know(now_s)
        past, last_s = FlatHistory(jobs, self._end_s), now_s + min(horizon_s, HORIZON_S)
        cycles = cycles_within(FUTURES, (now_s - int(workload.submit_s[0])) // DAY_S)
        play_flat_futures(
            jobs, knobs, branch, (first, row), past, self._known, self._owners, self._room, now_s, last_s, cycles,
            out, delay_s,
        )  # fmt: skip
        assert (out >= 0).all(), "more arrived than `most_arrivals` allows"

    def _know(self, now_s: int) -> None:
        """Find the ends and the run times of the jobs of the trace that had ended before `now_s` in the branch."""
        workload, owners = self._workload, self._owners
        start_s, run_s = self.starts(self.cluster)[: len(workload)], np.minimum(workload.run_s, workload.limit_s)
        self._end_s = np.where(start_s >= 0, start_s + run_s, NEVER)
        ended = self._end_s < now_s
        columns = (workload.limit_s, owners.user, owners.name)
        self._known = history(self._end_s[ended], run_s[ended], *(column[ended] for column in columns))
        self._known_s = now_s
