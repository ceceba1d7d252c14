"""Chains in a simulated cluster: against the slow twin, which replays everything at every change, and against pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.futures.summary import BEYOND_S, FUTURES
from features.observe import AT
from models.provisioning.futures.injected import Owners, injected_starts_ahead
from models.provisioning.futures.table import is_fresh
from models.provisioning.pairs.injected import build_pairs
from models.provisioning.protocol import PairTable
from models.provisioning.service.chain import Link, Move, ServiceChain, ServiceView
from models.provisioning.service.injected import FlatChainCluster, InjectedCluster
from models.provisioning.service.plan import Plan
from models.provisioning.service.play import Service, play_injected
from models.provisioning.service.timing import TimingOracle
from simulator.cluster import plain
from simulator.names import SCHEDULERS, SLURM
from simulator.recorded.record import NEVER
from simulator.slurm.inputs.jobs import flat
from simulator.workload import Workload
from tests.models.provisioning.service.plain import PlainLink, PlainLinkTimes, play_links
from tests.models.provisioning.service.test_play import Scripted, scripts
from tests.simulator.flat.cases import small_cases, workload
from tests.twins import flat as flat_twin
from tests.twins.slurm import clock as slurm_twin
from traces.errors import InputError
from traces.units import DAY_S

LIMIT_S, DECISION_S, RESTART_S = 960, 120, 0
SERVICE = Service(4 * LIMIT_S, RESTART_S, DECISION_S, (240, 600, LIMIT_S))
ROWS = 8  # of links: used again and again
MOST_S = 6 * LIMIT_S  # of a chain, in the twin


def cluster_of(jobs: Workload, scheduler: str, capacity: int, nodes: int, rows: int = ROWS) -> InjectedCluster:
    build = plain(jobs, scheduler=scheduler, capacity=capacity)
    if scheduler == SLURM:
        return InjectedCluster(build, nodes, LIMIT_S, LIMIT_S, rows)
    owners = Owners(jobs.job_id % 3, jobs.job_id % 2)
    return FlatChainCluster(build, nodes, LIMIT_S, LIMIT_S, rows, jobs, owners)


def times_of(chain: ServiceChain, until_s: int = NEVER) -> list[PlainLinkTimes]:
    return [(one.limit_s, one.submit_s, one.start_s, one.end_s) for one in chain.started if one.start_s <= until_s]


@dataclass
class Replays:
    """Replays the trace with all links of a chain, as ordinary jobs, from its beginning at every change."""

    jobs: Workload
    scheduler: str
    capacity: int
    nodes: int

    def __post_init__(self) -> None:
        self.links: list[PlainLink] = []
        self.asked_s: list[int] = []  # the limits with which links wait
        self.cancel_s: dict[int, int] = {}  # by place in `links`
        self.due_s = NEVER  # when links start next, without a change of their limits

    def first(self, submit_s: int) -> PlainLink:
        self.links.append(PlainLink(LIMIT_S, submit_s, NEVER, NEVER))
        self.asked_s.append(LIMIT_S)
        (start_s,) = self.starts({})
        self.links[0].start_s, self.links[0].end_s = start_s, start_s + LIMIT_S
        return self.links[0]

    def first_links(
        self, running: object, queued: Sequence[PlainLink], now: int, granted: Mapping[int, int]
    ) -> tuple[int, list[PlainLink]]:
        for link in queued:
            if link not in self.links:
                self.links.append(link)
                self.asked_s.append(link.placed_s)
        for place, link in enumerate(self.links):
            if link.start_s == NEVER and link not in queued:
                self.cancel_s.setdefault(place, now)
        starts = self.starts({id(queued[place]): (self.due_s, limit_s) for place, limit_s in granted.items()})
        for link, start_s in zip(self.links, starts, strict=True):
            assert link.start_s in (start_s, NEVER), "a change never alters what has happened"
        coming = {id(link): start_s for link, start_s in zip(self.links, starts, strict=True)}
        due_s = min((coming[id(link)] for link in queued), default=NEVER)
        self.due_s = self.due_s if granted else due_s
        return due_s, [link for link in queued if coming[id(link)] == due_s]

    def starts(self, limit_from: Mapping[int, tuple[int, int]]) -> list[int]:
        """The start of each link in a whole replay. limit_from: by id of a queued link, a second and its limit then."""
        count = len(self.jobs)
        given = {id(link): (link.start_s, link.limit_s) for link in self.links if link.start_s < NEVER}
        given |= limit_from
        run_s = [link.limit_s if link.start_s == NEVER else link.end_s - link.start_s for link in self.links]
        columns: tuple[Any, ...] = (
            np.arange(count + 1, count + 1 + len(self.links)), [link.submit_s for link in self.links],
            [link.nodes or self.nodes for link in self.links], run_s, self.asked_s, [-1] * len(self.links),
        )  # fmt: skip
        names = list(Workload.__dataclass_fields__)
        both = [np.append(getattr(self.jobs, name), more) for name, more in zip(names, columns, strict=True)]
        order = np.argsort(both[1], kind="stable")
        row = np.argsort(order)[count:].tolist()
        whole = Workload(*(column[order].astype(np.int64) for column in both))
        cancel_s = {row[place]: at_s for place, at_s in self.cancel_s.items()}
        limits = {row[place]: given[id(link)] for place, link in enumerate(self.links) if id(link) in given}
        if self.scheduler == SLURM:
            world = flat(whole, self.capacity)
            of_job = np.array([cancel_s.get(job, NEVER) for job in range(len(whole))])
            world = replace(world, jobs=replace(world.jobs, cancel_s=of_job))
            found = slurm_twin.simulate(world, limit_from=limits).start_s.tolist()
        else:
            found = flat_twin.simulate(
                whole, scheduler=self.scheduler, capacity=self.capacity, kill_at_limit=True, cancel_s=cancel_s,
                limit_from=limits,
            )  # fmt: skip
        return [int(found[one]) if found[one] >= 0 else NEVER for one in row]


TWINS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
any_case = given(case=small_cases(scale=60), script=scripts, data=st.data())


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@TWINS
@any_case
def test_every_start_is_that_of_the_twin(
    scheduler: str, case: tuple[Workload, int], script: Any, data: st.DataObject
) -> None:
    check_starts(scheduler, case, script, data)


@settings(TWINS, max_examples=10)  # its twin is slow
@any_case
def test_under_slurm_every_start_is_that_of_the_twin(
    case: tuple[Workload, int], script: Any, data: st.DataObject
) -> None:
    check_starts(SLURM, case, script, data)


def check_starts(scheduler: str, case: tuple[Workload, int], script: Any, data: st.DataObject) -> None:
    """Links of several limits, also with a least one, and sizes; several queued, some cancelled or ended.

    Two players after each other, two chains.
    """
    jobs, capacity = case
    nodes = data.draw(st.integers(1, capacity), label="nodes")
    submits_s = np.sort(data.draw(st.lists(st.integers(0, 900), min_size=2, max_size=2), label="submits"))
    script = [([60 * (limit_s // 60) for limit_s in limits], cancel, end) for limits, cancel, end in script]
    # 137 s: the first decision is a second after the start. Mirage submits at whole minutes, as decisions are made.
    decision_s = data.draw(st.sampled_from([DECISION_S] if scheduler == "mirage" else [DECISION_S, 137]), label="every")
    least_s = data.draw(st.sampled_from([None, 120, 180]), label="least")
    fewer = data.draw(st.integers(1, nodes), label="nodes of later links")
    cluster = cluster_of(jobs, scheduler, capacity, nodes, rows=4 * ROWS)
    for submit_s in submits_s:
        twin = Replays(jobs, scheduler, capacity, nodes)
        _equal_the_twin(cluster, twin, script, submit_s, decision_s, least_s, fewer)


def _equal_the_twin(
    cluster: InjectedCluster, twin: Replays, script: Any, submit_s: int, decision_s: int,
    least_s: int | None = None, nodes: int | None = None,
) -> None:  # fmt: skip
    players = [Scripted(script, least_s, nodes), Scripted(script[::-1], least_s)]
    played = play_injected(cluster, np.array([submit_s]), players, replace(SERVICE, decision_s=decision_s))
    for player, (chain,) in zip(players, played, strict=True):
        until_s = player.seen[-1].now_s
        replays, actions = replace(twin), Scripted(player.script).actions
        expected = play_links(
            replays.first(submit_s), replays.first_links, actions, decision_s, until_s, least_s, SERVICE.limits_s,
            player.nodes,
        )  # fmt: skip
        assert times_of(chain, until_s) == expected


def test_a_link_that_waits_for_long_is_never_taken_for_a_later_one() -> None:
    """Shorter links overtake one of 600 s, until all rows have been used."""
    jobs = workload([(0, 1, 5, 10)])
    _equal_the_twin(cluster_of(jobs, "sjf", 1, 1), Replays(jobs, "sjf", 1, 1), [([180, 600], 2, 0)], 10, DECISION_S)


def test_two_links_of_one_second_have_rows_that_follow_one_another() -> None:
    """Of eight rows, the first belongs to the link that runs until 970 s and the third to one of 120 s that waits."""
    cluster = cluster_of(workload([(0, 1, 5, 10)]), "fifo", 1, 1)
    cluster.begin(10)
    chain = cluster.chain(0)
    waits, gone = Link(120, 100), [Link(60, 100)]
    chain.queued = [*gone, waits]
    cluster.change(chain, 100, chain.queued, ())
    for at_s in (200, 300, 400):
        pair = [Link(60, at_s), Link(60, at_s)]
        chain.queued = [waits, *pair]
        cluster.change(chain, at_s, pair, gone)
        gone = pair
    assert cluster.would_start(chain, 500, 60) == 970 + 120 + 60 + 60


@dataclass
class SubmitAt:
    """Submits one link of the user's own limit at an instant, and keeps what it saw then."""

    at_s: int
    seen: Any = None
    futures: Any = None

    def act(self, view: ServiceView) -> Move:
        if view.chain.queued or len(view.chain.started) > 1:
            return Move(again_s=NEVER)
        if view.now_s < self.at_s:
            return Move(again_s=self.at_s)
        self.seen = view.observe(LIMIT_S)
        if view.futures is not None:
            (self.futures,) = view.futures([LIMIT_S], view.left_s + BEYOND_S)
        return Move(submit=(LIMIT_S,))


def crowded(scheduler: str) -> tuple[Workload, Owners, InjectedCluster, PairTable]:
    """Sixty jobs of ten minutes on four nodes, and pairs of two nodes among them."""
    rng = np.random.default_rng(3)
    rows = zip(rng.integers(0, 200, 60) * 60, rng.integers(1, 4, 60), [600] * 60, [1200] * 60, strict=True)
    jobs = workload([(int(one), int(size), run, limit) for one, size, run, limit in rows])
    owners = Owners(jobs.job_id % 3, jobs.job_id % 2)
    build = plain(jobs, scheduler=scheduler, capacity=4)
    submits_s = np.array([1800, 3000])
    table = build_pairs(build, submits_s=submits_s, pair_nodes=2, limit_s=LIMIT_S, decision_s=DECISION_S)
    return jobs, owners, cluster_of(jobs, scheduler, 4, 2), table


@pytest.mark.parametrize("scheduler", [*SCHEDULERS, SLURM])
def test_the_first_handover_is_that_of_the_injected_pair(scheduler: str) -> None:
    """Of one queued link with the user's own limit: what is seen, its futures, and its start."""
    jobs, owners, cluster, table = crowded(scheduler)
    ahead = None
    if scheduler != SLURM:
        ahead = injected_starts_ahead(table, jobs, owners, scheduler=scheduler, capacity=4, futures=FUTURES)
    waits = set()
    for pair, submit_s in enumerate(table.submit_s):
        decisions = np.arange(table.offset[pair] + 1, table.offset[pair + 1])
        players = [SubmitAt(int(table.decision_s[k])) for k in decisions]
        chains = play_injected(cluster, np.array([submit_s]), players, SERVICE)
        for k, player, (chain,) in zip(decisions, players, chains, strict=True):
            first, second = chain.started[:2]
            assert (first.start_s, first.end_s) == (table.predecessor_start_s[pair], table.predecessor_end_s[pair])
            assert (second.submit_s, second.start_s) == (table.decision_s[k], table.successor_start_s[k])
            assert player.seen.tolist() == table.observations[k].tolist()
            waits.add(second.start_s - second.submit_s)
            if ahead is not None and is_fresh(table)[k]:
                assert player.futures.tolist() == ahead[k].tolist()
    assert len(waits) > 3


@pytest.mark.parametrize("scheduler", ["mirage", SLURM])
def test_the_oracle_takes_the_best_moment_of_the_pair(scheduler: str) -> None:
    """It chooses at the end, and the link may have started before."""
    _, _, cluster, table = crowded(scheduler)
    ((chain, other),) = play_injected(cluster, table.submit_s, [TimingOracle()], SERVICE)
    for pair, (_, second) in enumerate([chain.started[:2], other.started[:2]]):
        rows = slice(table.offset[pair] + 1, table.offset[pair + 1])
        gaps_s = np.abs(table.successor_start_s[rows] - table.predecessor_end_s[pair])
        assert abs(second.start_s - table.predecessor_end_s[pair]) == gaps_s.min()
        k = table.offset[pair] + 1 + int(np.argmin(gaps_s))
        assert (second.submit_s, second.start_s) == (table.decision_s[k], table.successor_start_s[k])


def test_what_the_oracle_chooses_may_lie_in_the_past() -> None:
    """A link of the first decisions has a node at 900 s; later ones wait for a job of 500 s that takes both nodes."""
    jobs = workload([(0, 1, 900, 900), (500, 2, 900, 900)])
    cluster = cluster_of(jobs, "easy", 2, 1)
    ((chain,),) = play_injected(cluster, np.array([10]), [TimingOracle()], SERVICE)
    assert times_of(chain)[1] == (LIMIT_S, 130, 900, 900 + LIMIT_S)
    chain = cluster.chain(0)
    assert cluster.would_start(chain, 970, LIMIT_S) > 970
    chain.queued = [Link(LIMIT_S, 130)]
    cluster.change(chain, 130, chain.queued, ())
    assert cluster.first_start(chain, 130) == (900, (0,))


@dataclass
class Twice:
    """Submits links of 600 and of 240 s at the first decision; at the next one it looks."""

    starts: list[set[int]] = field(default_factory=list)

    def act(self, view: ServiceView) -> Move:
        if not view.chain.queued:
            return Move(submit=(600, 240)) if len(view.chain.started) == 1 else Move(again_s=NEVER)
        if not self.starts:
            assert view.futures is not None and view.queued_futures is not None
            self.starts = [set(view.queued_futures(DAY_S).tolist()), set(view.futures([240], DAY_S)[0].tolist())]
        return Move(again_s=NEVER)


def test_queued_links_have_their_places_in_futures() -> None:
    """One node, which the first link holds until 970 s, the second for 600 s and the third for 240 s."""
    cluster, player = cluster_of(workload([(0, 1, 5, 10)]), "easy", 1, 1), Twice()
    play_injected(cluster, np.array([10]), [player], SERVICE)
    assert player.starts == [{970 + 600}, {970 + 600 + 240}]


@dataclass
class LooksAt:
    """Looks at futures at an instant, after it has ended the first link at its first decision, or not."""

    at_s: int
    ends: bool
    futures: list[int] = field(default_factory=list)

    def act(self, view: ServiceView) -> Move:
        if view.now_s < self.at_s:
            return Move(end=(0,) if self.ends else (), again_s=self.at_s)
        assert view.futures is not None
        self.futures = view.futures([240], DAY_S)[0].tolist()
        return Move(again_s=NEVER)


def test_what_one_player_did_is_unknown_to_the_next() -> None:
    """The job that waits behind the first link has ended at 850 s if that link is ended, and else says nothing."""
    jobs = workload([(20, 1, 50, 1000), (30, 1, 900, 1000)])
    players = [LooksAt(850, ends) for ends in (True, False, True, False, False)]
    cluster, at_s = cluster_of(jobs, "easy", 1, 1), np.array([10])
    play_injected(cluster, at_s, players[:3], SERVICE)
    play_injected(cluster, at_s, players[3:4], SERVICE)
    play_injected(cluster_of(jobs, "easy", 1, 1), at_s, players[4:], SERVICE)
    assert players[1].futures == players[3].futures == players[4].futures != players[0].futures == players[2].futures


@pytest.mark.parametrize("scheduler", ["easy", "conservative", SLURM])
def test_a_link_that_can_live_with_less_fills_a_hole(scheduler: str) -> None:
    """A job of two nodes is due at 1,300: a link of 600 s waits for its end, one of at least 200 s gets 240 s."""
    jobs = workload([(0, 1, 1300, 1300), (400, 2, 360, 360)])
    script: Any = [([], -1, -1)] * 3 + [([600], -1, -1)]
    players = [Scripted(script + [([], -1, -1)] * 20, least_s) for least_s in (None, 200)]
    (waits,), (fills,) = play_injected(cluster_of(jobs, scheduler, 2, 1), np.array([10]), players, SERVICE)
    assert waits.started[1].limit_s == 600 and waits.started[1].start_s > 1300
    assert fills.started[1].limit_s == 240 and fills.started[1].start_s < 1300


@dataclass
class LooksAtSizes:
    """At its first decision it looks at what links of two and of one node would meet."""

    seen: list[Any] = field(default_factory=list)

    def act(self, view: ServiceView) -> Move:
        if not self.seen:
            assert view.futures is not None
            self.seen = [set(view.futures([240], DAY_S, nodes)[0].tolist()) for nodes in (None, 1)]
            self.seen += [float(view.observe(240, nodes)[AT.start_estimate_h]) for nodes in (None, 1)]
        return Move(again_s=NEVER)


def test_futures_and_estimates_are_those_of_fewer_nodes() -> None:
    """Three nodes, of which the first link holds two until 970 s: a link of one node starts at once."""
    player = LooksAtSizes()
    play_injected(cluster_of(workload([(0, 1, 5, 10)]), "easy", 3, 2), np.array([10]), [player], SERVICE)
    wide, narrow, wide_h, narrow_h = player.seen
    assert (wide, narrow) == ({970}, {130}) and wide_h > 0 == narrow_h


def test_queued_futures_of_another_limit() -> None:
    """A job of two nodes is due at 1,300. The queued link of 600 s waits for its end; with 240 s it fits before."""
    jobs = workload([(0, 1, 1300, 1300), (400, 2, 360, 360)])
    cluster = cluster_of(jobs, "easy", 2, 1)
    assert isinstance(cluster, FlatChainCluster)
    cluster.begin(10)
    chain = cluster.chain(0)
    chain.queued = [Link(600, 490)]
    cluster.change(chain, 490, chain.queued, ())
    waits, fits, again = (cluster.queued_futures(chain, 500, DAY_S, limit_s) for limit_s in (None, 240, None))
    assert (fits <= waits).all() and (fits < waits).any() and waits.tolist() == again.tolist()


def test_without_futures_a_plan_has_the_own_limit_and_one_queued_link() -> None:
    """Under slurm. With futures the longer of two limits is worth more, and two links are queued."""
    plan, service = Plan(0.5, DECISION_S), replace(SERVICE, restart_s=60, limits_s=(240, 2 * LIMIT_S))
    _, _, slurm, table = crowded(SLURM)
    _, _, easy, _ = crowded("easy")
    ((alone, _),) = play_injected(slurm, table.submit_s, [plan], service)
    ((ahead, _),) = play_injected(easy, table.submit_s, [plan], service)
    assert {one.limit_s for one in alone.started} == {LIMIT_S} and alone.most_queued == 1
    assert {one.limit_s for one in ahead.started} == {LIMIT_S, 2 * LIMIT_S} and ahead.most_queued == 2


def test_links_that_the_cluster_cannot_hold_are_refused() -> None:
    jobs = workload([(0, 1, 1000, 1000)])
    for scheduler in ("easy", SLURM):
        with pytest.raises(
            InputError, match=r"pairs of 5 nodes on a cluster of 4: give --pair-nodes 1 to 4|never starts"
        ):
            cluster_of(jobs, scheduler, 4, 5)
