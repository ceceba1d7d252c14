"""The eleven causes of waits against plain loops: second by second, node by node, and that they add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from features.causes import node_changes, room
from features.causes.waits import CAUSES, MAIN_CAUSES
from features.resources import in_service, usage
from tests.features.causes.causes_twin import Counts, Job, Log, Nodes, Pending, causes
from tests.features.toy import job, random_jobs
from tests.features.waits import delays, on, seconds, spent

SIZE = {"gpus": 4, "cpus": 3}  # of each listed or declared node
MACHINE_LIST = dict.fromkeys(range(5), (SIZE["gpus"], SIZE["cpus"]))


@st.composite
def logs(draw: st.DrawFn) -> tuple[Log, bool]:
    """A log and whether it says CPUs. Waits are far too short for own jobs, limits and closed queues to be inferred."""
    knows_cpus, partitions = draw(st.booleans()), draw(st.sampled_from(("p", "pq")))
    jobs = []
    for _ in range(draw(st.integers(1, 9))):
        submit = draw(st.integers(0, 60))
        eligible = submit + draw(st.integers(0, 30))
        start = eligible + draw(st.integers(0, 60))
        jobs.append(
            Job(
                submit, eligible, start, start + draw(st.integers(0, 60)), draw(st.integers(0, 4)),
                draw(st.integers(1, 3)) if knows_cpus else 0,
                tuple(draw(st.permutations(range(4)))[: draw(st.integers(1, 3))]),
                draw(st.sampled_from(partitions)), draw(st.sampled_from(("ann", "bob", "eve", None))),
            )
        )  # fmt: skip
    assume(any(row.end > row.start for row in jobs))
    log = Log(
        jobs,
        draw(st.sampled_from((None, Pending(partitions[0])))),
        draw(st.sampled_from(({}, MACHINE_LIST if knows_cpus else {}))),
        draw(st.sampled_from((3, 9))),
        draw(st.sampled_from((15, 60, 10**6))),
        draw(st.sampled_from((1, 3, 10))),
    )
    return log, knows_cpus


def as_rows(log: Log, knows_cpus: bool) -> list[dict[str, Any]]:
    """The log as rows of jobs, in its order, which decides between jobs that were eligible at the same second."""
    rows = []
    for i, one in enumerate(log.jobs):
        nodes, gpus, cpus = one.asks
        asked = {"requested_cpus": cpus, "allocated_cpus": cpus, "nodes": nodes} if knows_cpus else {"nodes": nodes}
        of = {"partition": one.partition, "user_name": one.user, "eligible": one.eligible}
        rows.append(job(str(i), one.submit, one.start, one.end, gpus, **of, **asked))
    if log.pending:
        rows.append(job("pending", 0, None, None, 1, state="PENDING", partition=log.pending.partition))
    return rows


def check(got: dict[str, dict[str, Any]], log: Log, machine: Nodes | Counts, knows_cpus: bool) -> None:
    for i, expected in enumerate(causes(log, machine, knows_cpus)):
        row = got[str(i)]
        assert spent(row) == dict(expected)
        assert expected.total() == row["wait_s"]


@settings(max_examples=100, deadline=None)
@given(logs())
def test_causes_are_those_of_a_second_by_second_loop(of: tuple[Log, bool]) -> None:
    log, knows_cpus = of
    placed = [row for i, one in enumerate(log.jobs) for row in on(str(i), *(f"n{n}" for n in one.on), gpus=one.gpus)]
    listed = [{"node": f"n{n}", "gpus": gpus, "cpus": cpus} for n, (gpus, cpus) in log.listed.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_changes, "WINDOW_S", log.window)
        patch.setattr(usage, "ENDS", log.ends)
        got = delays(as_rows(log, knows_cpus), placed, nodes=listed, quotas={"p": log.quota})
    check(got, log, Nodes(log), knows_cpus)


@settings(max_examples=100, deadline=None)
@given(logs(), st.booleans(), st.sampled_from((20, 32, 45, 60)), st.integers(1, 3))
def test_causes_by_counts_are_those_of_a_second_by_second_loop(
    of: tuple[Log, bool], is_declared: bool, day: int, pressed: int
) -> None:
    log, knows_cpus = of
    known = {"nodes": 5, **{f"{name}_per_node": size for name, size in SIZE.items()}} if is_declared else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(usage, "ENDS", log.ends)
        patch.setattr(in_service, "DAY_S", day)
        patch.setattr(in_service, "PRESSED", pressed)
        got = delays(as_rows(log, knows_cpus), quotas={"p": log.quota}, declared=known)
    declared = (5, 5 * SIZE["gpus"], 5 * SIZE["cpus"]) if is_declared else (0, 0, 0)
    check(got, log, Counts(log, declared, day, pressed), knows_cpus)


@settings(max_examples=60, deadline=None)
@given(random_jobs(most=9), st.booleans(), st.sampled_from(({}, {"vc-a": 4})))
def test_causes_add_up_to_the_wait(rows: list[dict[str, Any]], whole_nodes: bool, quotas: dict[str, int]) -> None:
    known: dict[str, Any] = {"nodes": 3, "gpus_per_node": 4} if whole_nodes else {}
    for row in delays(rows, quotas=quotas, declared=known).values():
        if row["wait_s"] is None or row["wait_s"] < 0:
            assert all(row[name] is None for name in (*CAUSES, "main_cause"))
            continue
        assert sum(seconds(row)) == row["wait_s"] and min(seconds(row)) >= 0
        names = {MAIN_CAUSES[name] for name in CAUSES if row[name] == max(seconds(row)) > 0}
        assert row["main_cause"] in names or (row["main_cause"] is None and row["wait_s"] == 0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 2), *(st.integers(-3, 3) for _ in range(3))), max_size=12),
    st.tuples(*(st.integers(0, 9) for _ in range(3))),
    st.tuples(*(st.integers(0, 4) for _ in range(3))),
    st.integers(1, 3),
)
def test_room_is_that_of_a_loop(
    changes: list[tuple[Any, ...]], asked: tuple[int, ...], need: tuple[int, ...], nodes: int
) -> None:
    free, is_large = [[4, 4, 9], [2, 4, 3], [0, 4, 1]], [True, False, True]
    expected = []
    for i in range(len(changes) + 1):
        now = [row[:] for row in free]
        for is_left_out, place, *taken in changes[:i]:
            if not is_left_out:
                now[place] = [was - more for was, more in zip(now[place], taken, strict=True)]
        of_large = [sum(column) for column in zip(now[0], now[2], strict=True)]
        is_enough = all(has >= total for has, total in zip(of_large, asked, strict=True))
        fitting = sum(all(has >= one for has, one in zip(row, need, strict=True)) for row in now)
        expected.append(is_enough + 2 * (fitting >= nodes))
    is_left_out, place = (
        np.array([row[0] for row in changes], np.bool_),
        np.array([row[1] for row in changes], np.int32),
    )
    taken_of = np.array([row[2:] for row in changes], np.int32).reshape(-1, 3)
    found = np.zeros(len(changes) + 1, np.uint8)
    room.room_after_each(
        place, taken_of, is_left_out, np.array(free, np.int64), np.array(is_large), np.array(asked, np.int64),
        np.array(need, np.int64), nodes, found,
    )  # fmt: skip
    assert found.tolist() == expected
