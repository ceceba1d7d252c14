"""One compiled future against its plain twin, on random small clusters; and what it may not read."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.futures import plain
from simulator.marks import NO_ROOM
from simulator.recorded.forked import OUT_S
from simulator.recorded.future import (
    CYCLE_S,
    ENTERS_S,
    LAST_S,
    MOMENT,
    NOW_S,
    OWN_NAME,
    OWN_USER,
    ROWS,
    STEP_S,
    USABLE,
    USABLE_YET,
    WATCHED,
    Ageing,
    RecordedHistory,
    clear,
    new_room,
    start_in_future,
)
from simulator.recorded.record import NEVER, NONE
from simulator.recorded.state import RecordedRules, begin, enter

AT, CYCLE, LONGEST = 100_000, 3000, 40_000
AGEING = Ageing(-0.5, 0)
sizes, limits_s, users = st.integers(1, 5), st.sampled_from([200, 900, 3000]), st.integers(0, 2)
runs_s = st.sampled_from([60, 150, 700, 2500])


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Who pends, runs and came before on six nodes; the last pending job is watched, and may come later."""
    job = st.fixed_dictionaries({"nodes": sizes, "limit_s": limits_s, "user": users, "run_s": runs_s})
    pending = draw(st.lists(job, min_size=1, max_size=7))
    for one in pending:
        one["key"] = draw(st.integers(-60_000, -40_000))
        one["held_s"] = draw(st.sampled_from([0, 0, 0, 400, 9000]))
    running, free = [], 6
    for one in draw(st.lists(job, max_size=4)):
        if one["nodes"] <= free:
            free -= one["nodes"]
            running.append({**one, "elapsed_s": draw(st.integers(1, 250))})
    came = [{**one, "ago_s": draw(st.integers(1, 2 * CYCLE))} for one in draw(st.lists(job, max_size=6))]
    came.sort(key=lambda one: -one["ago_s"])
    out = draw(st.sampled_from([0, 0, 2]))
    rules = {"max_jobs": draw(st.sampled_from([1, 2, NEVER])), "max_nodes": draw(st.sampled_from([3, NEVER]))}
    return {
        "later_s": draw(st.sampled_from([0, 0, 1, 500, 2000, 20_000])),
        "pending": pending,
        "running": running,
        "came": came,
        "out": out,
        "siblings": draw(st.integers(0, 1)),
        **rules,
    }


def compiled(case: dict[str, Any], rows: int = 400) -> int:
    came, pending, running = case["came"], case["pending"], case["running"]
    pending[-1]["held_s"] = 0
    submit_s = np.array([AT - one["ago_s"] for one in came], np.int64)
    columns = [np.array([one[name] for one in came], np.int64) for name in ("run_s", "nodes", "limit_s", "user")]
    run_s, nodes, limit_s, user = columns
    past = RecordedHistory(
        submit_s, submit_s - 10_000, submit_s - 10_000 + run_s, nodes, limit_s, user, 0 * user, 0 * user
    )
    room = new_room(rows, 3, past)
    clear(room.state)
    moment = np.zeros(MOMENT, np.int64)
    for row, one in enumerate(pending + running):
        room.jobs.size[row], room.jobs.limit_s[row], room.jobs.user[row] = one["nodes"], one["limit_s"], one["user"]
        room.run_s[row] = one["run_s"]
    for row, one in enumerate(pending):
        room.state.key[row] = one["key"]
        if row < len(pending) - 1 or not case["later_s"]:
            enter(room.state, row)
    for row, one in enumerate(pending):
        room.state.held[row], room.release_s[row] = int(one["held_s"] > 0), AT + one["held_s"]
    for row, one in enumerate(running, len(pending)):
        start_s = AT - one["elapsed_s"]
        begin(room.jobs, room.state, row, start_s, start_s + one["elapsed_s"] + one["run_s"])
    count = len(pending) + len(running)
    values = {
        NOW_S: AT, CYCLE_S: CYCLE, LAST_S: AT + LONGEST, USABLE: 6, USABLE_YET: 6 - case["out"], OWN_USER: NONE,
        OWN_NAME: NONE, WATCHED: len(pending) - 1, ROWS: count, ENTERS_S: AT + case["later_s"],
    }  # fmt: skip
    for place, value in values.items():
        moment[place] = value
    rules = RecordedRules(6, 0, 0, case["max_jobs"], case["max_nodes"], 0, case["siblings"])
    return int(start_in_future(past, AGEING, rules, room, moment))


def by_hand(case: dict[str, Any]) -> int:
    pending = [
        plain.FutureJob(one["nodes"], one["limit_s"], one["user"], one["key"], row, one["run_s"],
                        is_held=one["held_s"] > 0, release_s=AT + one["held_s"])
        for row, one in enumerate(case["pending"])
    ]  # fmt: skip
    pending[-1].is_held = False
    running = [
        plain.FutureJob(one["nodes"], one["limit_s"], one["user"], 0, 50 + row, one["elapsed_s"] + one["run_s"],
                  start_s=AT - one["elapsed_s"])
        for row, one in enumerate(case["running"])
    ]  # fmt: skip
    arriving, row = [], 100
    for turn in range(1, 2 + LONGEST // CYCLE):
        for one in case["came"]:
            if one["ago_s"] <= CYCLE:
                at_s = AT - one["ago_s"] + turn * CYCLE
                key = int(np.rint(-0.5 * at_s))
                arriving.append(
                    plain.FutureJob(one["nodes"], one["limit_s"], one["user"], key, row, one["run_s"], submit_s=at_s)
                )
                row += 1
    limits = plain.FutureUserLimits(case["max_jobs"], case["max_nodes"], bool(case["siblings"]))
    usable = plain.Usable(6 - case["out"], 6)
    watched = pending[-1]
    if case["later_s"]:
        watched.submit_s = AT + case["later_s"]
        pending, arriving = pending[:-1], sorted([watched, *arriving], key=lambda job: job.submit_s)
    start_s = plain.start_in_plain_future(pending, running, arriving, watched, limits, usable, AT, AT + LONGEST)
    assert start_s is not None
    return start_s


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_a_future_equals_its_twin(case: dict[str, Any]) -> None:
    assert compiled(case) == by_hand(case)


def job(**changes: Any) -> dict[str, Any]:
    return {
        "nodes": 2,
        "limit_s": 900,
        "user": 0,
        "run_s": 700,
        "key": -50_000,
        "held_s": 0,
        "elapsed_s": 100,
        **changes,
    }


def case(**changes: Any) -> dict[str, Any]:
    return {
        "later_s": 0,
        "pending": [job()],
        "running": [],
        "came": [],
        "out": 0,
        "siblings": 1,
        "max_jobs": NEVER,
        "max_nodes": NEVER,
    } | changes


def test_a_job_that_fits_starts_a_second_after_its_submission() -> None:
    assert compiled(case()) == by_hand(case()) == AT + 1


def test_a_job_that_is_submitted_later_finds_the_hole_closed() -> None:
    """A job of all nodes is due in 1000 s: one of 900 s fits before it now, and not 500 s later."""
    full = [job(nodes=4, run_s=2900, limit_s=1100)]
    now = case(running=full, pending=[job(nodes=6, key=0), job()])
    assert compiled(now) == by_hand(now) == AT + 1
    later = now | {"later_s": 500}
    assert compiled(later) == by_hand(later) > AT + 2900


def test_a_job_that_waits_for_a_held_one_keeps_its_nodes_idle() -> None:
    """User 1's second job waits for its held first one; its four nodes stay its own, so that two are left for three."""
    held = [job(user=1, nodes=4, key=0, held_s=5000), job(user=1, nodes=4, key=-1), job(nodes=3)]
    waits = case(pending=held)
    assert compiled(waits) == by_hand(waits) > AT + 5000
    free = case(pending=held, siblings=0)
    assert compiled(free) == by_hand(free) > AT + 1


def test_nodes_that_are_out_come_back() -> None:
    wide = case(pending=[job(nodes=6)], out=2)
    assert compiled(wide) == by_hand(wide) == AT + OUT_S + 1


def test_a_future_that_does_not_fit_the_memory_says_so() -> None:
    full = case(pending=[job(nodes=6)], running=[job(run_s=30_000)], came=[{**job(), "ago_s": 5}] * 3)
    assert compiled(full, rows=4) == NO_ROOM
    assert compiled(full) == by_hand(full)


def test_passes_keep_apart() -> None:
    """The node is free a second after the end of the first job; that falls within STEP_S of the pass before."""
    early = case(pending=[job(nodes=5)], running=[job(run_s=20), job(nodes=1, run_s=10)])
    assert compiled(early) == by_hand(early)
    assert (compiled(early) - AT - 1) % STEP_S == 0
