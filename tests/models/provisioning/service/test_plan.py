"""The plan of a simulated chain: its moves on given futures, and the futures that it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from agent.chains.plan import CAUTION, ESTIMATES
from features.futures.summary import BEYOND_S
from features.observe import AT, FEATURES
from models.provisioning.futures.table import is_fresh, starts_ahead
from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.protocol import NONE
from models.provisioning.service.chain import Link, Move, ServiceChain, ServiceView, work_of
from models.provisioning.service.links import LinkCluster
from models.provisioning.service.plan import Plan
from models.provisioning.service.rules import KeepAhead
from simulator.recorded.record import NEVER, RecordedTrace
from tests.models.provisioning.pairs.test_recorded import built, parameters
from tests.models.provisioning.service.test_play import P, cut_at, idle, played, starts_of
from tests.simulator.recorded.cases import records
from traces.units import DAY_S, HOUR_S

PLAN = Plan(weight=0.5, decision_s=HOUR_S)


def view(
    waits_h: Callable[[float], list[float]],
    *,
    left_h: float = 6,
    queued: tuple[float, ...] = (),
    queued_waits_h: tuple[float, ...] = (0, 0),
    running: tuple[tuple[float, float], ...] = (),
    limits_h: tuple[float, ...] = (2, 12, 48),
    wanted_left_h: float = 500,
    restart_s: int = 600,
    estimate_h: float | None = None,
    later_waits_h: Callable[[float], list[float]] | None = None,
) -> ServiceView:
    """A view at 100 h of a chain whose links run for the time left. waits_h: waits by limit, with caution.

    later_waits_h: after any delay; None: the same. The start estimate is the longest of the waits, or `estimate_h`.
    """
    now = 100 * HOUR_S
    hours = running or ((80.0, 100 + left_h),)
    started = [Link(48 * HOUR_S, 0, int(a * HOUR_S), int(b * HOUR_S)) for a, b in hours]
    chain = ServiceChain(0, 48 * HOUR_S, started, [Link(int(limit * HOUR_S), now) for limit in queued])

    def futures(limits_s: Any, horizon_s: int, delay_s: int = 0) -> Any:
        of_limit = waits_h if delay_s == 0 or later_waits_h is None else later_waits_h
        return now + delay_s + np.array([of_limit(limit_s / HOUR_S) for limit_s in limits_s]) * HOUR_S / CAUTION

    def estimate(limit_s: int) -> Any:
        seen = np.zeros(len(FEATURES), np.float32)
        longest_h = max(waits_h(limit_s / HOUR_S)) if estimate_h is None else estimate_h
        seen[AT.start_estimate_h] = longest_h / ESTIMATES
        return seen

    return ServiceView(
        now_s=now,
        chain=chain,
        running=chain.running(now),
        limits_s=tuple(int(limit * HOUR_S) for limit in limits_h),
        wanted_left_s=int(wanted_left_h * HOUR_S),
        restart_s=restart_s,
        nodes=4,
        observe=estimate,
        futures=futures,
        queued_futures=lambda horizon_s: now + np.array(queued_waits_h) * HOUR_S,
        would_start=lambda limit_s: 0,
    )


def submitted_h(move: Move) -> list[float]:
    return [limit_s / HOUR_S for limit_s in move.submit]


def test_where_nothing_waits_it_submits_at_the_end_and_not_before() -> None:
    idle_queue = lambda limit_h: [0.0, 0.0]  # noqa: E731
    waits = PLAN.act(view(idle_queue, left_h=3))
    assert waits.submit == () and waits.again_s == 101.5 * HOUR_S  # half of the three hours later
    assert submitted_h(PLAN.act(view(idle_queue, left_h=0))) == [48]


def test_where_waits_exceed_the_time_left_it_submits_at_once() -> None:
    assert submitted_h(PLAN.act(view(lambda limit_h: [7.0, 9.0]))) == [48]


def test_the_start_estimate_is_one_more_future() -> None:
    """No future has a wait; by limits the link waits for ten hours, and a restart is cheap against that."""
    no_wait = lambda limit_h: [0.0] * 16  # noqa: E731
    assert submitted_h(PLAN.act(view(no_wait, estimate_h=10.0))) == [48]
    assert PLAN.act(view(no_wait, estimate_h=0.0)).submit == ()


def test_a_shorter_link_that_starts_in_time_is_better_than_a_long_wait() -> None:
    """Two days of waiting for 48 h lose half of the time; 12 h lose a restart in twelve hours."""
    found = PLAN.act(view(lambda limit_h: [48.0, 48.0] if limit_h > 12 else [6.0, 6.0]))
    assert submitted_h(found) == [12]
    alike = PLAN.act(view(lambda limit_h: [6.2, 6.2] if limit_h > 12 else [6.0, 6.0]))
    assert submitted_h(alike) == [48]


def test_where_a_hole_closes_before_a_short_link_is_needed_the_long_one_is_submitted_now() -> None:
    """Two hours fit now and not later; later all limits wait for 30 h, 48 h now for 20 with 8 h left."""
    now: Callable[[float], list[float]] = lambda limit_h: [0.0] if limit_h == 2 else [20.0]  # noqa: E731
    found = partial(view, now, left_h=8, limits_h=(2, 48), estimate_h=0.0)
    assert PLAN.act(found()).submit == (), "as if the hole stayed"
    assert submitted_h(PLAN.act(found(later_waits_h=lambda limit_h: [30.0]))) == [48]


def test_fewer_nodes_are_asked_for_where_the_wait_for_all_loses_more() -> None:
    """Four nodes start after 90 h, two at once: at half the speed 48 h lose 24, against 90 of 138."""
    of_nodes = replace(PLAN, least_share=0.5)
    found = view(lambda limit_h: [90.0], left_h=0)
    assert found.futures is not None
    long, soon = found.futures, np.full((1, 1), found.now_s)
    fewer = replace(
        found,
        futures=lambda limits_s, horizon_s, nodes=4, delay_s=0: (
            long(limits_s, horizon_s, delay_s) if nodes == 4 else soon + delay_s
        ),
        observe=lambda limit_s, nodes=4: found.observe(limit_s) * (nodes == 4),
    )
    move = of_nodes.act(fewer)
    assert submitted_h(move) == [48] and (move.shape.nodes, move.shape.share, move.shape.speed) == (2, 0.5, 0.5)
    assert PLAN.act(fewer).shape.nodes is None, "it is not elastic"
    assert of_nodes.act(view(lambda limit_h: [40.0], left_h=0)).shape.nodes is None


def test_it_hands_over_to_the_link_that_runs_longest() -> None:
    found = PLAN.act(view(lambda limit_h: [0.0], running=((60, 101), (99, 147))))
    assert found == Move(end=(0,))


def test_it_queues_a_second_link_where_the_first_will_not_do() -> None:
    """The queued link covers 6 h + 2 h; a second one would wait for 9 h, and no third is queued."""
    slow = lambda limit_h: [9.0, 9.0]  # noqa: E731
    asked = view(slow, queued=(2,), queued_waits_h=(6, 6))
    assert submitted_h(PLAN.act(asked)) == [48]
    assert PLAN.act(view(lambda limit_h: [6.5, 6.5], queued=(2,), queued_waits_h=(6, 6))).submit == ()
    assert PLAN.act(view(slow, queued=(2, 2))) == Move(again_s=NEVER)


def test_it_submits_nothing_once_the_links_known_finish_the_work() -> None:
    assert submitted_h(PLAN.act(view(lambda limit_h: [7.0], wanted_left_h=6 + 3))) == [48]
    assert PLAN.act(view(lambda limit_h: [7.0], wanted_left_h=6)) == Move(again_s=106 * HOUR_S)
    queued = PLAN.act(view(lambda limit_h: [70.0], queued=(12,), wanted_left_h=6 + 12))
    assert queued == Move(again_s=NEVER)


def test_all_at_once_submits_no_link_for_the_hours_of_an_interruption() -> None:
    """A link of 48 h is queued; an hour ago the last one ended, and 48 h of work are left."""
    assert KeepAhead(None).act(view(lambda limit_h: [0.0], left_h=-1, queued=(48,), wanted_left_h=48)).submit == ()
    assert KeepAhead(None).act(view(lambda limit_h: [0.0], left_h=-1, queued=(48,), wanted_left_h=49)).submit != ()


def test_a_limit_that_restarts_eat_up_is_not_asked_for() -> None:
    """12 h would start at once, 48 h after 48 h; a restart takes five hours."""
    waits = lambda limit_h: [48.0] if limit_h > 12 else [0.0]  # noqa: E731
    assert submitted_h(PLAN.act(view(waits, left_h=0, restart_s=5 * HOUR_S))) == [48]
    assert submitted_h(PLAN.act(view(waits, left_h=0, restart_s=HOUR_S))) == [12]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=records())
def test_the_futures_of_a_link_are_those_of_the_pair_table(case: tuple[RecordedTrace, Any]) -> None:
    """Start for start, at each decision for which the table plays them anew."""
    record = cut_at(case[0], 600)
    assume(bool(record.ran.any()))
    of = Predecessors(np.flatnonzero(record.ran)[:1], np.array([NONE]))
    table = built(record, parameters(), of=of)
    start_s, end_s = int(table.predecessor_start_s[0]), int(table.predecessor_end_s[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: parameters())
        expected = starts_ahead(table, record, of)
        running = Link(600, start_s, start_s, end_s)
        chain, cluster = ServiceChain(0, 600, [running]), LinkCluster(record, of, 8)
        for k in np.flatnonzero(is_fresh(table)).tolist():
            now = int(table.decision_s[k])
            (found,) = cluster.futures(chain, now, [600], end_s - now + BEYOND_S)
            assert found.tolist() == expected[k].tolist()


def test_queued_links_have_their_places_in_futures() -> None:
    """One job a user: a second link starts after the first queued one has run; the first after the running one."""
    fitted = parameters(max_jobs=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: fitted)
        cluster = LinkCluster(idle(), P, 8)
        running, waiting = Link(1000, 40, 100, 1100), Link(500, 200)
        chain = ServiceChain(0, 1000, [running], [waiting])
        (second,) = cluster.futures(chain, 300, [1000], 10_000)
        first = cluster.queued_futures(chain, 300, 10_000)
    assert set(first.tolist()) == {1101} and set(second.tolist()) == {1602}


def test_a_week_in_which_the_user_has_no_job_has_room_for_its_links() -> None:
    """The user of the chain has the last number, and the jobs around the week are those of others."""
    later_s = 30 * DAY_S
    record = replace(idle(), user=np.array([0, 2, 1]), submit_s=np.array([0, 40, later_s]))
    record = replace(record, start_s=np.array([0, 100, later_s]), end_s=np.array([30, 1100, later_s + 10]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: parameters())
        cluster = LinkCluster(record, P, 8)
        running = Link(1000, later_s, later_s, later_s + 1000)
        cluster.anchor(ServiceChain(0, 1000, [running]), later_s + 500, [running], [])
    assert cluster.branches[1].state.user_jobs.tolist() == [0, 0, 1]


def test_a_link_that_does_less_work_than_it_lasts_is_followed_by_another() -> None:
    """A restart takes three decisions, so at its first decision the second link seems to last."""
    ((chain,),) = played(idle(), P, [Plan(0.5, 50)], parameters(), wanted_s=1880, restart_s=150, decision_s=50)
    assert work_of(chain.started, 1880, 150).is_finished and len(chain.started) == 3


def test_a_planned_chain_loses_nothing_on_an_idle_cluster() -> None:
    """Links of 1,000 s follow each other."""
    plan = Plan(0.5, 250)
    ((chain,),) = played(idle(), P, [plan], parameters(), wanted_s=2500)
    assert starts_of(chain) == [100, 1101, 2102]
    assert [link.limit_s for link in chain.started] == [1000, 1000, 1000]
