"""What is remembered of jobs that started and ended, job by job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.memory import AccountedJobs, Memory
from agent.slurm.accounting import AccountingRecords, PastJob
from agent.slurm.queue import Queue
from features.observe import RECENT
from traces.units import DAY_S

NOW_S = 1_700_000_000
JOB = PastJob("7", "me", "gpu", 2, 3600, NOW_S - 5000, NOW_S - 4000, NOW_S - 2200)


def recent(*jobs: PastJob) -> AccountedJobs:
    memory = Memory()
    memory.learn(AccountingRecords(jobs))
    return memory.recent(NOW_S, lambda partition: partition == "gpu")


def test_a_job_that_ran_is_its_start_wait_nodes_and_use_of_its_limit() -> None:
    found = recent(JOB, replace(JOB, id="8", partition="far"))
    assert [values.tolist() for values in found] == [
        [NOW_S - 4000], [1000], [2], [0.5], [NOW_S - 5000], [7200],
    ]  # fmt: skip


def test_times_that_run_backwards_are_none_at_all() -> None:
    """The clocks of a cluster's nodes differ by seconds."""
    found = recent(replace(JOB, start_s=JOB.submit_s - 3, end_s=JOB.submit_s - 5))
    assert (found.recent_wait_s.tolist(), found.ended_use.tolist()) == ([0], [0.0])


@pytest.mark.parametrize(("age_s", "is_arrived"), [(-1, False), (0, True), (DAY_S, True), (DAY_S + 1, False)])
def test_who_came_within_a_day_has_arrived(age_s: int, is_arrived: bool) -> None:
    assert len(recent(replace(JOB, submit_s=NOW_S - age_s)).arrived_submit_s) == is_arrived


def test_the_last_to_start_and_to_end_are_kept_in_order_of_time_then_id() -> None:
    """A job that has not started did not wait, and one that runs has not ended."""
    jobs = [replace(JOB, id=str(number), nodes=number) for number in range(RECENT + 5, 0, -1)]
    first = replace(JOB, id="999", nodes=999, start_s=NOW_S - 4001, end_s=NOW_S - 1, limit_s=4000)
    waits, runs = replace(JOB, id="998", start_s=None, end_s=None), replace(JOB, id="997", nodes=997, end_s=None)
    found = recent(first, *jobs, waits, runs)
    assert found.recent_nodes.tolist() == [*range(7, RECENT + 6), 997]
    assert found.ended_use.tolist() == [*[0.5] * (RECENT - 1), 1.0]


def test_a_past_is_known_after_a_day_of_looking_on_or_by_the_accounting() -> None:
    memory = Memory()
    assert not memory.knows_past(NOW_S)
    memory.follow(Queue(NOW_S, (), frozenset()))
    assert not memory.knows_past(NOW_S + DAY_S - 1) and memory.knows_past(NOW_S + DAY_S)
    asked = Memory()
    asked.learn(AccountingRecords(()))
    assert asked.knows_past(NOW_S)


@pytest.mark.parametrize(
    ("start_s", "limit_s", "use"),
    [
        (NOW_S - 3600, 7200, 4200 / 7200),  # half way between looks at NOW_S and 1,200 s later
        (NOW_S - 3600, 3700, 1.0),  # its limit came first
        (NOW_S + 900, 3600, 0.0),  # it started after the half
    ],
)
def test_a_job_that_is_gone_ended_between_the_looks(start_s: int, limit_s: int, use: float) -> None:
    memory = Memory()
    memory.follow(Queue(NOW_S, (), frozenset()))
    memory.learn(AccountingRecords((replace(JOB, start_s=start_s, limit_s=limit_s, end_s=None),)))
    memory.follow(Queue(NOW_S + 1200, (), frozenset()))
    assert memory.recent(NOW_S + 1200, lambda partition: True).ended_use.tolist() == [pytest.approx(use)]


def test_who_ended_and_came_over_a_day_ago_is_forgotten_unless_among_the_last() -> None:
    """Of RECENT + 1 that started and ended alike, the first is; one that was cancelled in the queue too."""
    old = replace(JOB, submit_s=NOW_S - DAY_S)
    jobs = [replace(old, id=str(number), nodes=number) for number in range(1, RECENT + 2)]
    memory = Memory()
    memory.learn(AccountingRecords((*jobs, replace(old, id="999", start_s=None, end_s=NOW_S - 9))))
    for now_s, count in ((NOW_S, RECENT + 2), (NOW_S + 1, RECENT)):
        memory.follow(Queue(now_s, (), frozenset()))
        assert len(memory._jobs) == count
    assert memory.recent(NOW_S, lambda partition: True).recent_nodes.tolist() == list(range(2, RECENT + 2))
