"""The clock of rounds against arithmetic by hand, and what it does not let a policy do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from simulator.gpu.profiles.scaling import goodput, packed_share
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import NOBODY, GpuJob, GpuMachine, Placed, View, speed
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu.models import MODELS
from traces.errors import InputError, WorkError

MACHINE = GpuMachine(np.array([4, 4]), ["T4", "A100"], "T4")
BERT = MODELS["bert"]


class Script:
    """Does what a function of the instant says."""

    pause_s: float | None = None

    def __init__(self, plan: Callable[[float], dict[int, Placed]], guests: Mapping[int, int] = NOBODY) -> None:
        self.plan, self.round_s, self.all_guests = plan, 10.0, guests
        self.guests: Mapping[int, int] = NOBODY

    def decide(self, view: View) -> dict[int, Placed]:
        there = {job.number for job in view.jobs}
        wanted = {number: placed for number, placed in self.plan(view.now_s).items() if number in there}
        self.guests = {a: b for a, b in self.all_guests.items() if a in wanted and b in there}
        return wanted


def run(
    jobs: list[GpuJob], plan: Callable[[float], dict[int, Placed]], guests: Mapping[int, int] = NOBODY
) -> GpuResult:
    return simulate_rounds(jobs, MACHINE, Script(plan, guests))


def test_a_job_starts_at_a_tick_and_ends_at_its_second() -> None:
    result = run([GpuJob(0, 3.0, 2, 25.0)], lambda now: {0: {0: 2}})
    assert (result.start_s[0], result.end_s[0], result.ran_s[0], result.gpu_s[0]) == (10.0, 35.0, 25.0, 50.0)
    assert result.decisions == 3 and not result.restarts.any()


def test_a_stopped_job_pays_when_it_goes_on() -> None:
    # Runs 0-10, stands 10-30, pays 30 s, works its last 15 s: ends at 75.
    result = run([GpuJob(0, 0.0, 1, 25.0)], lambda now: {} if now in (10.0, 20.0) else {0: {0: 1}})
    assert (result.end_s[0], result.ran_s[0], result.lost_gpu_s[0]) == (75.0, 55.0, 30.0)
    assert (result.restarts[0], result.preemptions[0]) == (1, 1)


def test_free_gpus_are_stranded_while_somebody_waits() -> None:
    # 8 GPUs. 0-10: 6 free, nobody waits. 10-20: job 1 waits beside 6 free. At 20 both run; 0 ends at 25, 1 at 30.
    plan = {0.0: {0: {0: 2}}, 10.0: {0: {0: 2}}, 20.0: {0: {0: 2}, 1: {1: 2}}}
    result = run([GpuJob(0, 0.0, 2, 25.0), GpuJob(1, 5.0, 2, 10.0)], lambda now: plan.get(now, {1: {1: 2}}))
    assert list(result.end_s) == [25.0, 30.0] and result.stranded_gpu_s == 60.0


def test_a_model_pays_its_own_restart_and_a_move_is_no_preemption() -> None:
    result = run([GpuJob(0, 0.0, 1, 25.0, model=BERT)], lambda now: {} if now == 10.0 else {0: {0: 1}})
    assert result.end_s[0] == 20.0 + BERT.restart_s + 15.0
    moved = run([GpuJob(0, 0.0, 1, 25.0)], lambda now: {0: {0: 1}} if now == 0 else {0: {1: 1}})
    assert (moved.end_s[0], moved.restarts[0], moved.preemptions[0]) == (55.0, 1, 0)


def test_work_passes_at_the_speed_of_the_allocation() -> None:
    assert speed(GpuJob(0, 0.0, 4, 1.0), {0: 2}, MACHINE) == 0.5
    job = GpuJob(0, 0.0, 4, 1000.0, model=BERT)
    assert speed(job, {0: 4}, MACHINE) == 1.0
    fast = goodput(BERT, "A100", 4, 1, 4) / goodput(BERT, "T4", 4, 1, 4)
    assert speed(job, {1: 4}, MACHINE) == pytest.approx(fast) and fast > 2.0
    slowest = goodput(BERT, "T4", 4, 2, 4) / goodput(BERT, "T4", 4, 1, 4)
    assert speed(job, {0: 2, 1: 2}, MACHINE) == pytest.approx(slowest) and slowest < 1.0
    assert run([job], lambda now: {0: {1: 4}}).end_s[0] == pytest.approx(1000.0 / fast)


def test_two_on_one_gpu_share_it() -> None:
    jobs = [GpuJob(0, 0.0, 4, 30.0, model=BERT), GpuJob(1, 0.0, 4, 500.0, model=BERT)]
    result = run(jobs, lambda now: {0: {0: 4}, 1: {0: 4}}, guests={1: 0})
    share = packed_share(BERT, BERT, "T4", 4)
    first_s = 30.0 / share
    together_s = np.ceil(first_s / 10.0) * 10.0  # until the next tick the other keeps its packed speed
    assert result.end_s == pytest.approx([first_s, together_s + 500.0 - together_s * share])


def test_a_guest_slows_its_host_and_nobody_else_on_the_node() -> None:
    jobs = [GpuJob(n, 0.0, 1, 30.0, model=BERT) for n in range(5)]
    result = run(jobs, lambda now: {n: {0: 1} for n in range(5)}, guests={4: 0})
    assert list(result.end_s[1:4]) == [30.0, 30.0, 30.0]
    assert list(result.end_s[[0, 4]]) == pytest.approx([30.0 / packed_share(BERT, BERT, "T4", 4)] * 2)


@pytest.mark.parametrize(
    ("guests", "message"),
    [({1: 0}, "packs job 1 with one that is not on its GPUs"), ({2: 0, 3: 0}, "packs three jobs on the same GPUs")],
)
def test_whom_no_policy_may_pack(guests: dict[int, int], message: str) -> None:
    place: dict[int, Placed] = {0: {0: 2}, 1: {0: 1}, 2: {0: 2}, 3: {0: 2}}
    jobs = [GpuJob(n, 0.0, sum(placed.values()), 25.0) for n, placed in place.items()]
    with pytest.raises(WorkError, match=message):
        run(jobs, lambda now: {n: place[n] for n in (0, *guests)}, guests)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda now: {0: {0: 5}}, "gives 5 GPUs of node 0, which has only 4"),
        (lambda now: {0: {0: 3}, 1: {0: 2}}, "gives 5 GPUs of node 0, which has only 4"),
        (lambda now: {}, "job 0 of 2 GPUs is never started"),
    ],
)
def test_what_no_policy_may_do(plan: Callable[[float], dict[int, Placed]], message: str) -> None:
    with pytest.raises(WorkError, match=message):
        run([GpuJob(0, 0.0, 2, 25.0), GpuJob(1, 0.0, 2, 25.0)], plan)


def test_gpus_for_a_job_that_is_not_there() -> None:
    class Careless(Script):
        def decide(self, view: View) -> dict[int, Placed]:
            return {7: {0: 1}}

    with pytest.raises(WorkError, match="gives GPUs to job 7, which is not there"):
        simulate_rounds([GpuJob(0, 0.0, 1, 25.0)], MACHINE, Careless(lambda now: {}))


def test_a_job_wider_than_the_machine_is_named() -> None:
    with pytest.raises(InputError, match="job 4 asks for 9 GPUs, but the cluster has 8"):
        run([GpuJob(4, 0.0, 9, 25.0)], lambda now: {})
