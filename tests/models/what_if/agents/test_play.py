"""Agents in one simulated cluster: equal to a replay of what they submitted, caps, and what a window shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.provisioning.service.chain import Link, Move, ServiceChain, ServiceView
from models.provisioning.service.figures import MEASURES
from models.provisioning.service.play import Service
from models.provisioning.service.rules import KeepAhead, SubmitAtEnd
from models.study.windows import Window
from models.what_if.agents.answer import _rows, _use, _World, groups_of, share_of
from models.what_if.agents.live import LinkOwner, LiveCluster
from models.what_if.agents.play import NO_CAP, AgentChain, LinkCap, play_agents
from models.what_if.recorded.scene import Stretch
from simulator.recorded.branch import new_cluster
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.free import anchored_starts, follow_to, given_by
from simulator.recorded.parameters import jobs_of
from simulator.recorded.record import NEVER, RecordedTrace, events
from simulator.recorded.state import RecordedRules
from tests.simulator.recorded.cases import NODES, records
from tests.simulator.recorded.test_anchored import recorded
from traces.arrays import Int64s

RULES = RecordedRules(NODES, 0, 0, NEVER, NEVER, 0, 0)
FROM_S, UNTIL_S = 1000, 5000
SERVICE = Service(3000, 50, 100, (200, 600, 1500))


def stretch(record: RecordedTrace, rules: RecordedRules = RULES) -> Stretch:
    """The whole record, replayed from FROM_S on."""
    cluster = new_cluster(record, events(record), jobs_of(record, None), rules)
    shown = follow_to(cluster, [FROM_S], UNTIL_S + HORIZON_S)
    return Stretch(FROM_S, UNTIL_S, np.arange(len(record)), None, rules, shown)


@dataclass
class Whim:
    """Does what was drawn for each decision; decides again at every instant."""

    drawn: Sequence[int]
    done: int = 0

    def act(self, view: ServiceView) -> Move:
        """Submit, cancel, end, wait."""
        self.done += 1
        move = self.drawn[self.done % len(self.drawn)]
        submit = (view.limits_s[move % 3],) if move < 6 and len(view.chain.queued) < 3 else ()
        cancel = (len(view.chain.queued) - 1,) if move == 6 and view.chain.queued else ()
        end = (0,) if move == 7 and view.running else ()
        return Move(submit=submit, cancel=cancel, end=end)


@dataclass
class Watching(LiveCluster):
    """Keeps what was submitted, and when it was cancelled or ended."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: list[tuple[LinkOwner, Link]] = []
        self.rows: list[int] = []  # their order within a second
        self.gone_s: dict[int, int] = {}

    def submit(self, owner: LinkOwner, link: Link) -> None:
        """Keep the link."""
        self.seen.append((owner, link))
        super().submit(owner, link)
        self.rows.append(self.row_of[id(link)])

    def cancel(self, link: Link) -> None:
        """Keep the instant."""
        self.gone_s[id(link)] = self.now_s
        super().cancel(link)


def agents(record: RecordedTrace, rows: Sequence[int]) -> list[AgentChain]:
    """A chain for each of those rows, with its submission and limit."""
    return [
        AgentChain(LinkOwner(record, row), int(record.submit_s[row]), ServiceChain(at, int(record.limit_s[row]), []))
        for at, row in enumerate(rows)
    ]


def replayed(record: RecordedTrace, cluster: Watching, absent: Sequence[int], rules: RecordedRules) -> Int64s:
    """The starts of the record's jobs and then of the links if all were jobs of one log, replayed in one piece."""
    rows = [
        (int(record.submit_s[row]), 0, row, int(record.start_s[row]), int(record.end_s[row]), int(record.size[row]),
         int(record.limit_s[row]), int(record.user[row]))
        for row in range(len(record))
    ]  # fmt: skip
    for at, (owner, link) in enumerate(cluster.seen):
        end_s = link.end_s if link.start_s < NEVER else cluster.gone_s.get(id(link), NEVER - 1)
        rows.append((link.submit_s, 1, cluster.rows[at], link.start_s, end_s, owner.nodes, link.limit_s, owner.user))
    order = sorted(range(len(rows)), key=lambda at: rows[at][:3])
    columns = np.array([rows[at] for at in order], np.int64).T.copy()
    submit_s, _, _, start_s, end_s, size, limit_s, user = columns
    zero, keys = np.zeros(len(rows), np.int64), [str(at) for at in order]
    made = RecordedTrace(submit_s, start_s, end_s, size, limit_s, user, zero, keys)
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows))
    shown = stretch(record, rules).shown
    held = zero.copy()
    held[place[: len(record)]] = shown.held
    given = given_by(made, held, shown.usable)
    given.present[place[list(absent)]] = 0
    anchor = shown.anchors[0]
    anchors = [anchor._replace(running=place[anchor.running], pending=place[anchor.pending])]
    found = anchored_starts(given, anchors, jobs_of(made, None), rules, int(submit_s[-1]) + 1)
    return found[place]


@settings(max_examples=150, deadline=None)
@given(records(), st.lists(st.integers(0, 9), min_size=2), st.sampled_from([1, 2, NEVER]), st.integers(1, 3))
def test_the_play_equals_a_replay_of_what_the_agents_submitted(
    drawn: tuple[RecordedTrace, Any], moves: list[int], max_jobs: int, count: int
) -> None:
    """Of all links and other jobs, start for start; links that were cancelled or ended among them."""
    record, _ = drawn
    rules = RULES._replace(max_jobs=max_jobs)
    absent = np.flatnonzero(record.ran & (record.submit_s >= FROM_S))[:count]
    cluster = Watching(record, stretch(record, rules), absent, 64)
    chains = agents(record, absent.tolist())
    play_agents(cluster, chains, Whim(moves), SERVICE, UNTIL_S + HORIZON_S)
    found = replayed(record, cluster, absent.tolist(), rules)
    simulated = (record.submit_s >= FROM_S) & ~np.isin(np.arange(len(record)), absent)
    starts = cluster.starts[: len(record)]
    assert starts[simulated].tolist() == found[: len(record)][simulated].tolist()
    links = [link for _, link in cluster.seen]
    begun = [place for place, link in enumerate(links) if link.start_s < NEVER]
    assert [links[place].start_s for place in begun] == [int(found[len(record) + place]) for place in begun]


@pytest.mark.parametrize("cap", [LinkCap(1), LinkCap(None, 0.25)])
@settings(max_examples=25, deadline=None)
@given(drawn=records(), moves=st.lists(st.integers(0, 5), min_size=2))
def test_a_cap_bounds_the_links_queued_ahead(cap: LinkCap, drawn: tuple[RecordedTrace, Any], moves: list[int]) -> None:
    """At each submission; only a chain of which nothing runs or waits may go beyond it."""
    record, _ = drawn
    absent = np.flatnonzero(record.ran & (record.submit_s >= FROM_S))[:2]
    chains = agents(record, absent.tolist())

    class Bounded(LiveCluster):
        def submit(self, owner: LinkOwner, link: Link) -> None:
            """Check the links that wait before this one."""
            of_user = sum(len(one.chain.queued) for one in chains if one.owner.user == owner.user)
            links, pending = sum(len(one.chain.queued) for one in chains), self.queue_length()
            (own,) = (one.chain for one in chains if one.owner is owner)
            is_idle = not own.queued and not any(began.end_s > link.submit_s for began in own.started)
            assert is_idle or cap.allows(of_user, links, pending)
            super().submit(owner, link)

    cluster = Bounded(record, stretch(record), absent, 64)
    play_agents(cluster, chains, Whim(moves), SERVICE, UNTIL_S + HORIZON_S, cap)
    assert not any(one.chain.queued for one in chains if one.is_over)


def test_what_a_cap_allows() -> None:
    """One link beside nine other jobs is a tenth of the queue; the first link is always allowed."""
    user, tenth = LinkCap(1), LinkCap(None, 0.1)
    assert user.allows(0, 5, 9) and not user.allows(1, 1, 9) and NO_CAP.allows(99, 99, 99)
    assert tenth.allows(0, 0, 9) and not tenth.allows(0, 1, 9) and tenth.allows(0, 1, 19) and tenth.allows(0, 0, 0)


LONG = recorded(  # six nodes; each job has a user of its own
    [(1000, 1000, 2000, 6, 1000), (1100, 2000, 3000, 6, 1000), (1200, 3000, 4000, 6, 1000), (1300, 4000, 4100, 6, 200)]
)


def test_a_reactive_chain_waits_for_the_others_and_they_for_it() -> None:
    """A chain of 2,000 s in links of 1,000 s in place of the first two jobs: its second link is last in the queue."""
    service = Service(2000, 0, 100, (1000,))
    chains = agents(LONG, [0])
    cluster = LiveCluster(LONG, stretch(LONG), np.array([0, 1]), 8)
    play_agents(cluster, chains, SubmitAtEnd(), service, 20_000)
    ((first, second),) = (one.chain.started for one in chains)
    assert (first.start_s, first.end_s, second.submit_s, second.start_s) == (1000, 2000, 2000, 3100)
    assert cluster.starts[2:4].tolist() == [2000, 3000] and chains[0].is_over


def test_a_chain_that_queues_ahead_goes_before_later_jobs_and_ends_when_its_work_is_done() -> None:
    service = Service(1500, 0, 100, (1000,))
    chains = agents(LONG, [0])
    cluster = LiveCluster(LONG, stretch(LONG), np.array([0, 1]), 8)
    waiting = play_agents(cluster, chains, KeepAhead(1), service, 20_000)
    ((first, second),) = (one.chain.started for one in chains)
    assert (second.submit_s, second.start_s, second.end_s) == (1100, 2000, 2500) and first.end_s == 2000
    assert cluster.starts[2:4].tolist() == [2500, 3500] and waiting.most == 1


def test_a_chain_that_may_not_queue_ahead_submits_when_nothing_of_it_runs() -> None:
    chains = agents(LONG, [0])
    cluster = LiveCluster(LONG, stretch(LONG), np.array([0, 1]), 8)
    play_agents(cluster, chains, KeepAhead(1), Service(1500, 0, 100, (1000,)), 20_000, LinkCap(0))
    assert [link.submit_s for link in chains[0].chain.started] == [1000, 2000]


def test_the_nodes_in_use_are_those_of_the_simulation() -> None:
    """B waits when the window begins; it is recorded to start at 3000, but nothing keeps it from starting at 2000.

    A holds all nodes to 2000, B from then on. The chain's link waits from 1000 on, B to 2000.
    """
    record = recorded([(0, 0, 2000, 6, 2000), (500, 3000, 4000, 6, 1000), (1000, 4000, 5000, 6, 1000)])
    near = stretch(record)
    world = _World(record, near, Service(1000, 0, 100, (1000,)), Window(FROM_S, 2500, 100))
    played = world.play([np.array([2])], SubmitAtEnd(), NO_CAP)
    assert played.start_s[1] == 2000 and played.chains[0].chain.started[0].start_s == 3000
    found = _use(world, record, played, np.array([False, False, True]))
    assert found["utilization"] == 1.0 and found["queued_links"] == 1.0 and found["most_queued_links"] == 1
    assert found["share_of_queue"] == pytest.approx(1500 / (1500 + 1000))
    played.waiting.cancelled.append((500, 2200))
    waits = _use(world, record, played, np.array([False, False, True]))
    assert waits["queued_links"] == pytest.approx((1500 + 1200) / 1500), "1000 to 2200 of the cancelled link"


def test_a_chain_may_queue_as_many_links_as_its_work_takes() -> None:
    """Of 80,000 s of work, 79 links of 1,000 s wait at once."""
    record = recorded([(0, 0, 2000, 6, 2000), (1000, 4000, 5000, 6, 1000)])
    world = _World(record, stretch(record), Service(80_000, 0, 100, (1000,)), Window(FROM_S, 2500, 100))
    played = world.play([np.array([1])], KeepAhead(None), NO_CAP)
    assert played.waiting.most == 79 and played.chains[0].is_over
    more = world.play([np.array([1])], KeepAhead(80), NO_CAP)
    ended_s = more.chains[0].chain.started[-1].end_s
    assert len(more.waiting.cancelled) >= 1 and {at_s for _, at_s in more.waiting.cancelled} == {ended_s}


def test_a_row_of_chains_that_never_start_has_no_losses() -> None:
    """One job holds all nodes for years; the chain and the other job wait."""
    late = 10**9
    jobs = [(0, 0, late, 6, late), (1000, late, late + 10, 6, 1000), (1100, late + 10, late + 20, 6, 1000)]
    record = recorded(jobs)
    world = _World(record, stretch(record), Service(1000, 0, 100, (1000,)), Window(FROM_S, 2500, 100))
    (row,) = _rows(world, [np.array([1])], 1.0, {"reactive": SubmitAtEnd()}, [])
    assert row["unfinished"] == row["chains"] == row["others"]["n"] == row["queued_links"] == 1
    assert np.isnan([row[name] for name in MEASURES]).all()


def test_groups_have_equal_nodes_and_the_wanted_work() -> None:
    mixed = recorded(
        [(0, 0, 500, 1, 500), (10, 10, 600, 2, 600), (20, 20, 520, 1, 500), (30, 30, 600, 2, 600), (40, 40, 90, 1, 90)]
    )
    rows = np.arange(5)
    assert [group.tolist() for group in groups_of(mixed, rows, 1000)] == [[0, 2], [1, 3]]
    assert [group.tolist() for group in groups_of(mixed, rows, 1001)] == [[0, 2, 4], [1, 3]]
    groups = [np.array([k]) for k in range(10)]
    assert [int(group[0]) for group in share_of(groups, 0.3)] == [3, 6, 9] and len(share_of(groups, 1.0)) == 10
    assert len(share_of(groups * 10, 0.29)) == 29
