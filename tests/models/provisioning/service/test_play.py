"""Chains of a wanted service: against the twin, and by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.policies.reactive import Reactive
from models.provisioning.protocol import NONE, no_pairs
from models.provisioning.service.chain import Link, LinkShape, Move, ServiceChain, ServiceView, work_of
from models.provisioning.service.play import Service, play_services
from models.provisioning.service.rules import KeepAhead, SubmitAtEnd
from models.provisioning.service.timing import TimedPlayer, TimingOracle
from simulator.recorded.calibration.judge import ALL
from simulator.recorded.parameters import Parameters, jobs_of, rules_of
from simulator.recorded.record import NEVER, RecordedTrace
from tests.models.provisioning.pairs.test_recorded import parameters, predecessors
from tests.models.provisioning.service.plain import play_oracle_plainly, play_plainly
from tests.simulator.recorded.cases import records, twins
from traces.units import HOUR_S

DECISION_S = 250
RUN_S = 600
DECISIONS = 20  # of a script
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ARTIFACT, _ = Reactive().fit(no_pairs(), 0)


def played(record: RecordedTrace, of: Predecessors, players: Sequence[Any], fitted: Parameters, **service: Any) -> Any:
    asked = {"wanted_s": 3000, "restart_s": 0, "decision_s": DECISION_S, "limits_s": (RUN_S, 1000), **service}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: fitted)
        return play_services(record, of, players, Service(**asked))


def starts_of(chain: ServiceChain) -> list[int]:
    return [link.start_s for link in chain.started]


def cut_at(record: RecordedTrace, run_s: int) -> RecordedTrace:
    """The record, in which every job that ran was cut by a limit of `run_s`."""
    ends = np.where(record.ran, record.start_s + run_s, record.end_s)
    limits = np.where(record.ran, run_s, record.limit_s)
    return RecordedTrace(
        record.submit_s, record.start_s, ends, record.size, limits, record.user, record.priority, record.job_key
    )


def keys_of(record: RecordedTrace, row: int, slope: float | None) -> Callable[[int], int]:
    """The twin's priority of a link in place of `row`, by its submission."""
    first_s = int(record.submit_s[0])

    def key_at(submit_s: int) -> int:
        if slope is None:
            return first_s - submit_s
        return int(HOUR_S * record.priority[row] + np.rint(-slope * (submit_s - first_s)))

    return key_at


@SLOW
@given(case=records(), lead_s=st.sampled_from([250, 500]), slope=st.sampled_from([None, 500.0]))
def test_a_policy_of_timing_starts_every_link_when_the_twin_does(
    case: tuple[RecordedTrace, Any], lead_s: int, slope: float | None
) -> None:
    """An artifact, the reactive rule and the oracle; chains side by side, each without its user's next job."""
    record, links = cut_at(case[0], RUN_S), 4
    of, fitted = predecessors(record), parameters(points_per_hour=slope)
    assume(len(of.row) > 0)
    players = [TimedPlayer(ARTIFACT, lead_s / HOUR_S + 1e-6), SubmitAtEnd(), TimingOracle()]
    found = played(record, of, players, fitted, wanted_s=links * RUN_S)
    logged, rules = twins(record, jobs_of(record, slope)), rules_of(fitted, ALL)
    for number, (row, next_row) in enumerate(zip(of.row.tolist(), of.next_row.tolist(), strict=True)):
        early, reactive, oracle = (
            [(link.limit_s, link.submit_s, link.start_s, link.end_s) for link in of_player[number].started[:links]]
            for of_player in found
        )
        key_at = keys_of(record, row, slope)
        for expected, least_s in ((early, lead_s), (reactive, 0)):

            def act(decision: int, queued: int, running: int, left_s: int, least_s: int = least_s) -> Any:
                return ([RUN_S] if not queued and left_s <= least_s else []), [], []

            until_s = expected[-1][2]
            assert play_plainly(logged, row, next_row, rules, key_at, act, DECISION_S, until_s) == expected
        assert play_oracle_plainly(logged, row, next_row, rules, key_at, DECISION_S, links) == oracle


@dataclass
class Scripted:
    """Does what is written for each decision, as far as it can."""

    script: list[tuple[list[int], int, int]]  # limits to submit; position to cancel and to end, or -1
    least_s: int | None = None  # that links may get
    nodes: int | None = None  # of links
    speed: float = 1.0
    asked: int = 0
    seen: list[ServiceView] = field(default_factory=list)

    def actions(self, decision: int, queued: int, running: int, left_s: int) -> tuple[list[int], list[int], list[int]]:
        limits, cancel, end = self.script[decision % len(self.script)]
        if queued + running + len(limits) > 8:
            limits = []
        return limits, [cancel] if 0 <= cancel < queued else [], [end] if 0 <= end < running else []

    def act(self, view: ServiceView) -> Move:
        if self.asked == DECISIONS:
            return Move(again_s=NEVER)
        self.seen.append(view)
        submit, cancel, end = self.actions(self.asked, len(view.chain.queued), len(view.running), view.left_s)
        self.asked += 1
        return Move(
            tuple(submit), tuple(cancel), tuple(end), shape=LinkShape(self.least_s, self.nodes, 1.0, self.speed)
        )


scripts = st.lists(
    st.tuples(st.lists(st.sampled_from([200, 600, 1000]), max_size=2), st.integers(-4, 2), st.integers(-8, 1)),
    min_size=1,
    max_size=6,
)


@SLOW
@given(
    case=records(), script=scripts, most_jobs=st.sampled_from([1, 2, 3, None]), slope=st.sampled_from([None, 500.0]),
    least_s=st.sampled_from([None, 200]), nodes=st.sampled_from([None, 1, 3]),
)  # fmt: skip
def test_every_start_is_that_of_the_twin(
    case: tuple[RecordedTrace, Any], script: Any, most_jobs: int | None, slope: float | None, least_s: int | None,
    nodes: int | None,
) -> None:  # fmt: skip
    """Links of several limits, also with a least one, and sizes; queued, cancelled or ended, under users' limits."""
    record = case[0]
    fitted = parameters(max_jobs=most_jobs, points_per_hour=slope)
    of = predecessors(record)
    of = Predecessors(of.row[:1], of.next_row[:1])
    assume(len(of.row) > 0)
    player, listed_s = Scripted(script, least_s, nodes), (400, RUN_S, 1000)
    ((chain,),) = played(record, of, [player], fitted, wanted_s=2500, limits_s=listed_s)
    row = int(of.row[0])
    logged = twins(record, jobs_of(record, slope))
    rules = rules_of(fitted, ALL)
    until_s = player.seen[-1].now_s
    key_at, actions = keys_of(record, row, slope), Scripted(script).actions
    next_row = int(of.next_row[0])
    expected = play_plainly(
        logged, row, next_row, rules, key_at, actions, DECISION_S, until_s, least_s, listed_s, nodes
    )
    found = [
        (link.limit_s, link.submit_s, link.start_s, link.end_s) for link in chain.started if link.start_s <= until_s
    ]
    assert found == expected


def link(start_s: int, end_s: int) -> Link:
    return Link(end_s - start_s, start_s, start_s, end_s)


def test_work_goes_on_in_the_link_that_started_first() -> None:
    """Links of 100 s at 0, 80 and 250; a restart costs 10 s; the second serves from 100, the third after 70 s."""
    links = [link(0, 100), link(80, 180), link(250, 350)]
    done = work_of(links, 1000, 10)
    assert (done.done_s, done.until_s, done.is_finished) == (100 + 70 + 90, 350, False)
    assert (done.interruptions, done.restarts, done.restart_s, done.held_s) == (((180, 250),), 2, 20, 300)
    finished = work_of(links, 185, 10)  # 15 s of work are left for the third, after its restart
    assert (finished.until_s, finished.is_finished, finished.held_s) == (250 + 10 + 15, True, 200 + 25)


def test_a_link_that_ends_before_it_could_take_over_never_serves() -> None:
    done = work_of([link(0, 100), link(20, 60), link(100, 104)], 1000, 10)
    assert (done.done_s, done.restarts, done.restart_s, done.held_s) == (100, 1, 4, 144)


def test_links_on_fewer_nodes_do_less_work_and_hold_less() -> None:
    """A link of half the speed on a quarter of the nodes serves for 100 s, another of the same for the rest of 30 s."""
    slow = LinkShape(nodes=1, share=0.25, speed=0.5)
    links = [link(0, 100), replace(link(100, 200), shape=slow), replace(link(200, 300), shape=slow)]
    done = work_of(links, 180, 0)
    assert (done.done_s, done.until_s, done.slow_s, done.held_s) == (180, 260, 50 + 30, 260)
    assert done.node_s == 100 + 0.25 * 160 and done.is_finished
    assert work_of(links, 1000, 10).done_s == 100 + 45 + 45


def idle() -> RecordedTrace:
    """Six nodes of which P of user 0 has one, from 100 to 1100; nobody else is there until 60,000."""
    columns = {
        "submit_s": (0, 40, 60_000), "start_s": (0, 100, 60_000), "end_s": (30, 1100, 60_010), "size": (6, 1, 1),
        "limit_s": (100, 1000, 100), "user": (2, 0, 2), "priority": (0, 0, 0),
    }  # fmt: skip
    return RecordedTrace(
        **{name: np.array(column, np.int64) for name, column in columns.items()}, job_key=["wide", "p", "last"]
    )


P = Predecessors(np.array([1]), np.array([NONE]))


def test_a_reactive_chain_starts_a_second_after_each_end() -> None:
    """Without anybody else; 2,500 s of work take three links."""
    ((reactive,),) = played(idle(), P, [SubmitAtEnd()], parameters(), wanted_s=2500)
    assert starts_of(reactive) == [100, 1101, 2102]


def test_links_have_the_priority_of_the_job_that_the_first_one_replaces() -> None:
    """Also where the usual priority is none: 500 points are an hour of waiting, so the job before has to let it go."""
    columns = {
        "submit_s": (0, 10, 40, 600, 60_000), "start_s": (0, 31, 100, 1200, 60_000),
        "end_s": (30, 60, 1100, 2200, 60_010), "size": (6, 1, 6, 6, 1), "limit_s": (100, 100, 1000, 1000, 100),
        "user": (2, 2, 0, 1, 2), "priority": (0, 0, 500, 0, 0),
    }  # fmt: skip
    arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
    record = RecordedTrace(**arrays, job_key=["wide", "small", "p", "other", "last"])
    of = Predecessors(np.array([2]), np.array([NONE]))
    ((chain,),) = played(record, of, [SubmitAtEnd()], parameters(), wanted_s=1900)
    assert starts_of(chain) == [100, 1101]


def test_two_ahead_keeps_three_links_and_all_at_once_as_many_as_the_work_takes() -> None:
    """On an idle cluster they start at once, and again when they end; three at a time, and four in all at 3,500 s."""
    two, every = played(idle(), P, [KeepAhead(2), KeepAhead(None)], parameters(max_jobs=None), wanted_s=3500)
    assert starts_of(two[0]) == [100, 351, 351, 1352, 1352, 1603, 2604, 2604, 2855]
    assert two[0].most_queued == 2
    assert starts_of(every[0])[:4] == [100, 351, 351, 351] and every[0].most_queued == 3


def test_a_limit_of_running_jobs_keeps_queued_links_waiting() -> None:
    (two,) = played(idle(), P, [KeepAhead(2)], parameters(max_jobs=1), wanted_s=2500)
    assert starts_of(two[0]) == [100, 1101, 2102] and two[0].most_queued == 2


def test_a_link_that_is_handed_over_frees_its_nodes() -> None:
    """One job a user: the second link, submitted at 350, starts a second after the first is ended at 600."""
    player = Scripted([([1000], -1, -1), ([], -1, 0)] + [([], -1, -1)] * 20)
    ((chain,),) = played(idle(), P, [player], parameters(max_jobs=1), wanted_s=1200)
    assert [(one.start_s, one.end_s) for one in chain.started[:2]] == [(100, 600), (601, 1601)]
    assert work_of(chain.started, 1200, 0).interruptions == ((600, 601),)


def test_a_link_that_can_live_with_less_fills_a_hole() -> None:
    """The other user's six nodes are due at 1,700: a link of 1,000 s waits for them, one of at least 200 s gets 400."""
    columns = {
        "submit_s": (0, 40, 41, 300, 60_000), "start_s": (0, 100, 100, 1701, 60_000),
        "end_s": (30, 1100, 1700, 2700, 60_010), "size": (6, 1, 4, 6, 1), "limit_s": (100, 1000, 1600, 1000, 100),
        "user": (2, 0, 1, 1, 2), "priority": (0, 0, 0, 9000, 0),
    }  # fmt: skip
    arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
    record = RecordedTrace(**arrays, job_key=["wide", "p", "other", "next", "last"])
    script: Any = [([], -1, -1)] * 3 + [([1000], -1, -1)] + [([], -1, -1)] * 20
    players = [Scripted(script, least_s) for least_s in (None, 200)]
    (waits,), (fills,) = played(record, P, players, parameters(), wanted_s=1200, limits_s=(200, 400, 1000))
    assert [(one.limit_s, one.start_s) for one in (waits.started[1], fills.started[1])] == [(1000, 2701), (400, 1101)]


def test_a_link_on_fewer_nodes_starts_beside_others() -> None:
    """Four of six nodes are taken until 60,000; a link of four waits for that, one of two does not."""
    record = idle()
    columns = {name: getattr(record, name).copy() for name in ("submit_s", "start_s", "end_s", "size", "limit_s")}
    columns["size"][1], columns["limit_s"][0] = 4, 100
    more = {"submit_s": 1050, "start_s": 1101, "end_s": 60_000, "size": 3, "limit_s": 58_899}
    arrays = {name: np.insert(column, 2, more[name]) for name, column in columns.items()}
    record = RecordedTrace(
        **arrays, user=np.array([2, 0, 1, 2]), priority=np.zeros(4, np.int64), job_key=["wide", "p", "long", "last"]
    )
    script: Any = [([], -1, -1)] * 3 + [([1000], -1, -1)] + [([], -1, -1)] * 20
    players = [Scripted(script, nodes=nodes) for nodes in (None, 2)]
    (waits,), (fits,) = played(record, P, players, parameters(), wanted_s=1900)
    assert starts_of(waits)[1] == 60_001 and starts_of(fits)[1] == 1101


def test_a_player_that_hands_over_ends_the_older_link() -> None:
    """Both submit 500 s before the end, at 600; the link that starts at 601 is seen at 851, its next decision."""
    players = [TimedPlayer(ARTIFACT, 500 / HOUR_S + 1e-6, hands_over=hands_over) for hands_over in (False, True)]
    (keeps,), (hands,) = played(idle(), P, players, parameters(), wanted_s=1500)
    assert (keeps.started[0].end_s, hands.started[0].end_s) == (1100, 851)
    assert starts_of(keeps)[:2] == starts_of(hands)[:2] == [100, 601]


def test_a_chosen_start_may_lie_before_the_decision() -> None:
    """The oracle chooses at the end, and what it chose had started a second after 850."""
    (oracle,) = played(idle(), P, [TimingOracle()], parameters(), decision_s=333, wanted_s=1900)
    starts = [link.start_s for link in oracle[0].started]
    assert starts[:2] == [100, 1101]


def test_a_player_that_never_acts_ends_with_its_first_link() -> None:
    ((chain,),) = played(idle(), P, [Scripted([([], -1, -1)])], parameters(), wanted_s=5000)
    assert starts_of(chain) == [100] and work_of(chain.started, 5000, 0).done_s == 1000
