"""Chains of jobs in the recorded cluster: a policy decides when each link submits the next.

The first link replaces a recorded job that was cut by its limit. It has that job's start, number of nodes and user.
Every link runs for its whole limit. The recorded job and its user's actual next job are removed from the record.

At a decision instant the cluster is the recorded one without these two jobs, plus the links that run then. The links
hold nodes and count against their user's limits. When the policy submits the next link, it starts by the forked form,
and the policy decides again from its start on. Every decision is thus anchored to the record, as those of
`models.provisioning.pairs.recorded` are. The links' delay of other jobs is not carried from one decision to the next.

A policy that looks ahead (`features.futures`) decides on futures of what is seen then. The running links are among the
running jobs, until their limits. Futures are played as often as for a table of pairs
(`models.provisioning.futures.table`).

The oracle simulates every decision of a link and takes the one of least interruption + overlap; of equal ones, the
earliest. It begins to decide about the next link when the link before has ended.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from agent.artifact import Artifact
from agent.chains.decide import uses_futures
from features import observe
from features.futures.arrivals import cycles_s
from features.futures.run_times import RunTimeHistory
from features.futures.summary import BEYOND_S, FUTURES, summary
from models.provisioning.futures.recorded import (
    FuturesWorkspace,
    futures_workspace,
    history_of,
    most_arrivals,
    play_futures,
)
from models.provisioning.futures.table import is_due
from models.provisioning.pairs.injected import write_observation
from models.provisioning.pairs.recorded import Predecessors, decision_instants, week_of, week_world
from simulator.cluster import NONE, advance, copy, place_of, start_of, submit, visible_state
from simulator.compiled import njit
from simulator.recorded.branch import RecordedBranch, RecordedCluster
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.record import RecordedTrace
from simulator.recorded.stand_in import stand_in
from simulator.recorded.world import Extra
from traces.arrays import Float32s, Int64s
from traces.counted import counted
from traces.progress import Progress, say

_Due: TypeAlias = "tuple[int, int, _Chain]"  # a decision: its instant, the chain's place among all, the chain

CYCLES_S = cycles_s(FUTURES)
SAMPLE = 64  # decisions timed to estimate the duration of all
NOTHING_YET = (int(np.iinfo(np.int64).max), NONE, NONE)


@dataclass(frozen=True)
class Player:
    """The decider of a set of chains: an artifact at one setting, or (None) the oracle."""

    artifact: Artifact | None
    setting: float | None = None  # None: the artifact's own

    @property
    def looks_ahead(self) -> bool:
        """Whether it also decides on futures."""
        return self.artifact is not None and uses_futures(self.artifact)

    def submits(self, observation: Float32s) -> bool:
        """Whether it submits now. observation: the artifact's features."""
        return self.artifact is not None and bool(self.artifact.decide(observation[None], self.setting)[0])


@njit
def _look(
    cluster: RecordedCluster,
    branches: tuple[RecordedBranch, RecordedBranch],
    now: int,
    first: int,
    link_start_s: Int64s,
    out: Int64s,
    pair: tuple[int, int, int, int, int, int],
    observation: Float32s,
) -> None:
    """Observe the cluster at `now`, when links first, first + 1, ... run since link_start_s (rising, (links so far,)).

    The second branch is then ready for the next link's submission. pair: as `write_observation` takes it.
    """
    followed, leaf = branches
    advance(cluster, followed, now - 1)
    copy(cluster, leaf, followed)
    stand_in(cluster, leaf, followed, now, first, link_start_s, out)
    place = place_of(cluster, leaf, first + len(link_start_s), now)
    write_observation(observation, visible_state(cluster, leaf, now), now, pair, place)


@njit
def _start(cluster: RecordedCluster, leaf: RecordedBranch, link: int, now: int) -> int:
    """When the link starts if it is submitted at `now`, in the branch that `_look` prepared."""
    submit(cluster, leaf, link, now)
    start = start_of(cluster, leaf, link)
    return now + HORIZON_S if start == NONE else start


@dataclass
class _Chain:
    """The state of a chain under one player."""

    player: Player
    number: int  # of the chain
    start_s: list[int]  # of its links so far
    wait_s: int  # of the latest link
    instants: Iterator[int]  # decisions of the latest link that are still to come
    best: tuple[int, int, int] = NOTHING_YET  # of the oracle: cost (s), start of the next link, and its submission
    ahead_s: Int64s | None = None  # starts of the next link in the latest futures, epoch s


def play_chains(
    record: RecordedTrace,
    predecessors: Predecessors,
    players: Sequence[Player],
    *,
    links: int,
    limit_s: int,
    decision_s: int,
    fit_span_s: int | None = None,
) -> Int64s:
    """Play all chains; returns the starts of all links, epoch s, (players, chains, links). Each predecessor begins one.

    Rules are fitted every week, as in `models.provisioning.pairs.recorded.build_recorded_pairs`. A link that has not
    started in the simulation after `follow.HORIZON_S` counts as started then.
    """
    row = predecessors.row
    wait_s = record.start_s[row] - record.submit_s[row]
    chains = [
        _Chain(player, number, [int(record.start_s[row[number]])], int(wait_s[number]), iter(()))
        for player in players
        for number in range(len(row))
    ]
    play = _Play(record, predecessors, links, limit_s, decision_s, fit_span_s)
    queue: list[_Due] = []
    for order, chain in enumerate(chains):
        play.go_on(chain, queue, order)
    name = f"{len(row):,} chains of {counted(links, 'link')}, {counted(len(players), 'time')}"
    decisions = len(chains) * (links - 1) * -(-limit_s // decision_s)
    say(f"{name}: at most {decisions:,} decisions, about {_each_s(play, queue) * decisions:.0f} s")
    with Progress(name, len(chains) * (links - 1), "links", stays=False) as progress:
        submitted = 0
        while queue:
            now, order, chain = heapq.heappop(queue)
            submitted += play.decide(chain, now)
            progress.reach(submitted)
            play.go_on(chain, queue, order)
    starts = np.array([chain.start_s for chain in chains], np.int64)
    return starts.reshape(len(players), len(row), links)


def _each_s(play: _Play, queue: Sequence[_Due]) -> float:
    """Median seconds of a decision, over the first SAMPLE; the median ignores time spent compiling or building."""
    seconds = [0.0]
    for now, _, chain in sorted(queue, key=lambda due: due[:2])[:SAMPLE]:
        began = time.thread_time()
        play.decide(replace(chain, start_s=list(chain.start_s)), now)
        seconds.append(time.thread_time() - began)
    play.begin_again()
    return float(np.median(seconds))


class _Play:
    """The record, week by week, in which the chains are played. Decisions come in order of time."""

    def __init__(
        self,
        record: RecordedTrace,
        predecessors: Predecessors,
        links: int,
        limit_s: int,
        decision_s: int,
        fit_span_s: int | None,
    ) -> None:
        self.record, self.predecessors, self.links = record, predecessors, links
        self.limit_s, self.decision_s, self.fit_span_s = limit_s, decision_s, fit_span_s
        self.observation = np.zeros(len(observe.FEATURES), np.float32)
        self._workspace: FuturesWorkspace | None = None  # of the week, once futures are played in it
        self.begin_again()

    def begin_again(self) -> None:
        """Forget the week: the next decision may lie before the last one."""
        self.week_s = NONE

    def go_on(self, chain: _Chain, queue: list[_Due], order: int) -> None:
        """Put the chain's next decision into the queue; do nothing once its last link runs."""
        if len(chain.start_s) < self.links:
            now = next(chain.instants, NONE)
            if now == NONE:
                chain.instants, chain.best = self._instants(chain), NOTHING_YET
                now = next(chain.instants)
            heapq.heappush(queue, (now, order, chain))

    def _instants(self, chain: _Chain) -> Iterator[int]:
        """The decision instants of the chain's last link; the oracle has none before the end of the link before."""
        start_s = chain.start_s[-1]
        instants, _ = decision_instants(np.array([start_s]), np.array([start_s + self.limit_s]), self.decision_s)
        if chain.player.artifact is None and len(chain.start_s) > 1:
            instants = instants[instants >= chain.start_s[-2] + self.limit_s]
        return iter(instants.tolist())

    def decide(self, chain: _Chain, now: int) -> bool:
        """Make one decision of a chain; returns whether its next link is settled."""
        self._turn_to(now)
        player, start_s = chain.player, chain.start_s
        end_s = start_s[-1] + self.limit_s
        row = self.predecessors.row[chain.number]
        first = self.first_extra + chain.number * self.links
        pair = (start_s[-1], chain.wait_s, end_s, self.record.size[row], self.limit_s, self.record.user[row])
        removed = self.removed[chain.number]
        _look(self.cluster, self.branches, now, first, np.array(start_s, np.int64), removed, pair, self.observation)
        seen = self.observation
        if player.looks_ahead:
            seen = np.append(seen, self._ahead(chain, now, end_s))
        if player.artifact is not None and not player.submits(seen):
            return False
        following_s = int(_start(self.cluster, self.branches[1], first + len(start_s), now))
        chain.best = min(chain.best, (abs(following_s - end_s), following_s, now))
        if player.artifact is None and now < end_s:
            return False
        _, following_s, submit_s = chain.best
        chain.start_s.append(following_s)
        chain.wait_s, chain.instants, chain.ahead_s = following_s - submit_s, iter(()), None
        return True

    def _ahead(self, chain: _Chain, now: int, end_s: int) -> Float32s:
        """Summarise the futures at `now` (`features.futures.summary`), in the branch that `_look` prepared."""
        if chain.ahead_s is None or is_due(np.array([end_s - now]))[0]:
            chain.ahead_s = self._played(chain, now, end_s)
        chain.ahead_s = np.maximum(chain.ahead_s, now)
        seen: Float32s = summary(chain.ahead_s[None], np.array([now]), np.array([end_s]))[0]
        return seen

    def _played(self, chain: _Chain, now: int, end_s: int) -> Int64s:
        """When the next link would start in each future, if it were submitted now."""
        record, row = self.record, int(self.predecessors.row[chain.number])
        if self._workspace is None:
            most = most_arrivals(record.submit_s, CYCLES_S, self.limit_s + BEYOND_S)
            self._workspace = futures_workspace(record, self._known, self.world, self.place, most)
        for removed in (row, int(self.predecessors.next_row[chain.number])):
            if removed != NONE:  # if it arrives again in a future, it runs as the links do
                self._workspace.room.drawn_s[removed] = self.limit_s
        name = record.name[row] if len(record.name) else NONE
        columns = (now, record.size[row], self.limit_s, record.user[row], name, record.priority[row])
        submission = np.array([*columns, end_s - now + BEYOND_S, NONE, NONE, NONE], np.int64)
        starts = np.zeros(FUTURES, np.int64)
        play_futures(self._workspace, self.branches[1], submission, CYCLES_S, starts)
        return starts

    @cached_property
    def _known(self) -> RunTimeHistory:
        return history_of(self.record)

    def _turn_to(self, now: int) -> None:
        """Build the world of the week of `now`. Decisions come in order of time, so each week is built once."""
        week_s = int(week_of(np.array([now]))[0])
        if week_s == self.week_s:
            return
        row, record = self.predecessors.row, self.record
        columns = (record.size[row], np.full(len(row), self.limit_s), record.user[row], record.priority[row])
        extra = Extra(*(np.repeat(column, self.links) for column in columns))
        self.world, self.place = world, place = week_world(record, week_s, extra, self.fit_span_s)
        self._workspace = None
        rows = np.stack([row, self.predecessors.next_row], axis=1)
        self.week_s, self.first_extra = week_s, world.first_extra
        self.cluster: Any = world.clusters[0]
        self.branches = world.branch(0, observe.RECENT), world.branch(0, observe.RECENT)
        self.removed = np.where(rows == NONE, NONE, place[rows])
