"""What the keeper takes over of a job: from the queue, from the accounting, and where no source knows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.chains import keeper
from agent.chains.keeper import Advice, Cancel, Submit
from agent.chains.look import ChainView, LookedUpJob, absorb
from agent.chains.state import MISSING
from agent.slurm.queue import SqueueJob
from tests.agent.chains.test_keeper import RUNS, attempt, rules, state_of
from tests.agent.fake_slurm import START_S

INTENDED = attempt(1)
NAME = INTENDED.name


def job(**changes: Any) -> SqueueJob:
    """The job of INTENDED, pending."""
    pending = SqueueJob(
        "7", NAME, "me", "", "gpu", "", "PENDING", "Priority", 1, 7200, START_S + 5, None, None, 0, 0, ""
    )
    return replace(pending, **changes)


def seen(before: Any, later_s: int = 60, **sight: Any) -> Any:
    """The one attempt after a look."""
    return absorb(state_of(before), ChainView(START_S + later_s, **sight)).attempts[0]


def test_a_job_that_was_found_by_its_name_has_an_id_and_can_be_cancelled() -> None:
    """As when sbatch's answer never came."""
    found = seen(replace(INTENDED, looks=2), jobs=(job(),))
    assert found == replace(INTENDED, job_id="7", submit_s=START_S + 5, reason="Priority")
    over = attempt(1, job_id="6", how="COMPLETED")
    late = replace(found, link=2, name="train-00000000-2.1")
    _, actions = keeper.act(rules(), state_of(over, late), START_S + 60)
    assert actions == (Cancel(late.name),)


def test_a_requeued_job_has_neither_start_nor_end() -> None:
    estimate = job(start_s=START_S + 9000, end_s=START_S + 16200, restarts=1, reason="BeginTime")
    again = seen(attempt(1, **RUNS), jobs=(estimate,))
    assert (again.is_pending, again.start_s, again.end_s, again.reason) == (True, None, None, "BeginTime")


def test_a_job_that_runs_ends_by_its_limit_as_it_is_in_the_queue() -> None:
    runs = seen(INTENDED, jobs=(job(state="RUNNING", start_s=START_S + 30, limit_s=3600),))
    assert (runs.is_running, runs.start_s, runs.end_s, runs.reason) == (True, START_S + 30, START_S + 3630, "")
    completes = seen(runs, jobs=(job(state="COMPLETING", start_s=None),))
    assert not completes.is_running and completes.is_alive and completes.start_s == START_S + 30


def test_a_job_that_is_out_of_sight_gets_no_successor_before_its_end_is_known() -> None:
    """It has left the queue and nobody could be asked: it may run on, or have failed."""
    unseen = seen(attempt(1, **RUNS), later_s=7000)
    assert unseen.reason == MISSING and not unseen.is_running and unseen.looks == 0
    after, actions = keeper.act(rules(), state_of(unseen), START_S + 7190, Advice(submit=True))
    assert actions == () and len(after.attempts) == 1


IN_ACCOUNTING = LookedUpJob("7", "RUNNING", None, None, None, None)


@pytest.mark.parametrize(
    ("found", "cycle_s", "later_s", "most"),
    [(None, 60, 9000, 3), (IN_ACCOUNTING, 60, 9000, 15), (None, 60, 7200, 3), (None, 60, 7199, 90),
     (None, 60, 6000, 90), (None, 10, 6000, 540), (None, 600, 6000, 9), (None, 3600, 6000, 3),
     (IN_ACCOUNTING, 60, 6000, 90), (IN_ACCOUNTING, 600, 6000, 15)],
)  # fmt: skip
def test_a_job_that_no_source_knows_is_lost_after_few_looks_but_until_its_limit_only_after_90_minutes(
    found: LookedUpJob | None, cycle_s: float, later_s: int, most: int
) -> None:
    """It ended by its limit, or before this instant where that comes first. Until then it may run, as in an outage."""
    short = seen(replace(attempt(1, **RUNS), looks=most - 2), later_s, found={NAME: found}, cycle_s=cycle_s)
    assert short.how == "" and short.looks == most - 1
    lost = seen(short, later_s, found={NAME: found}, cycle_s=cycle_s)
    assert (lost.how, lost.end_s) == ("LOST", START_S + min(later_s, 7200))


@pytest.mark.parametrize(("later_s", "how"), [(179, ""), (180, "ABSENT")])
def test_what_never_became_a_job_is_absent_once_slurm_has_settled(later_s: int, how: str) -> None:
    assert seen(replace(INTENDED, looks=9), later_s, found={NAME: None}).how == how


def test_what_the_accounting_says_of_an_end_is_taken_over() -> None:
    found = LookedUpJob("8", "FAILED", 85, START_S + 1, START_S + 40, START_S + 900)
    ended = seen(replace(INTENDED, reason="x"), 1000, found={NAME: found}, more=frozenset({1}))
    assert ended == replace(
        INTENDED, job_id="8", submit_s=START_S + 1, start_s=START_S + 40, end_s=START_S + 900, is_pending=False,
        how="FAILED", exit_status=85, has_more=True,
    )  # fmt: skip
    untold = replace(found, submit_s=None, end_s=None)
    again = seen(attempt(1, submit_s=START_S + 2), 1000, found={NAME: untold})
    assert (again.submit_s, again.end_s, again.has_more) == (START_S + 2, START_S + 1000, False)


@pytest.mark.parametrize(("left_s", "blind_s", "is_due"), [(121, 1799, False), (120, 0, True), (5000, 1800, True)])
def test_a_blind_agent_queues_the_successor_for_the_end_in_time(left_s: int, blind_s: float, is_due: bool) -> None:
    """The last cycle that may come in time, or half an hour without a look."""
    after, actions = keeper.act_blind(rules(), state_of(attempt(1, **RUNS)), START_S + 7200 - left_s, blind_s)
    assert actions == ((Submit("train-00000000-2.1"),) if is_due else ())
    assert [one.after for one in after.attempts[1:]] == ["afterany:7"] * is_due


@pytest.mark.parametrize(("refusals", "pause_s"), [(1, 60), (2, 120), (3, 240), (4, 480), (5, 600), (9, 600)])
def test_pauses_between_refused_submissions_double_up_to_ten_minutes(refusals: int, pause_s: int) -> None:
    refused = [attempt(1, number, how="REFUSED") for number in range(1, refusals + 1)]
    for later_s, count in ((pause_s - 1, 0), (pause_s, 1)):
        assert len(keeper.act(rules(), state_of(*refused), START_S + later_s)[1]) == count
