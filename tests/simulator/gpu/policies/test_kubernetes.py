"""Pods of a job one by one or all at once: who holds idle GPUs, who gives up, and what a gang is spared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import of_arrays
from simulator.gpu.policies.guided import Guided
from simulator.gpu.policies.kubernetes import Kubernetes
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import GpuJob, GpuMachine
from simulator.gpu.rounds import simulate_rounds
from simulator.gpu.run import fits
from traces.errors import InputError


def machine(*gpus: int) -> GpuMachine:
    return GpuMachine(np.array(gpus), ["T4"] * len(gpus), "T4")


def run(jobs: list[GpuJob], policy: Kubernetes, *gpus: int) -> GpuResult:
    return simulate_rounds(jobs, machine(*gpus), policy)


def passed_by() -> list[GpuJob]:
    """A job of two pods of 2 GPUs, of which one has a place, and one of three pods of 1, which takes the rest."""
    return [
        GpuJob(0, 0.0, 2, 3000.0, pod_gpus=2),
        GpuJob(1, 60.0, 4, 100.0, pod_gpus=2),
        GpuJob(2, 60.0, 3, 100.0),
    ]


def test_two_jobs_that_hold_what_the_other_lacks_wait_until_one_gives_up() -> None:
    """On nodes of 3 and 3, GPUs 2 taken: job 1 gets a pod on the other node, job 2 both single GPUs; neither runs."""
    alone = Kubernetes(round_s=60.0, timeout_s=600.0)
    result = run(passed_by(), alone, 3, 3)
    # Both give up at 660 s and are there again after 10 s: job 1 comes first again, until job 0 ends at 3,000 s.
    assert alone.timeouts > 2 and result.start_s.tolist()[0] == 0.0
    assert min(result.start_s[1:]) >= 3000.0
    together = Kubernetes(round_s=60.0, gang=True)
    result = run(passed_by(), together, 3, 3)
    assert result.start_s.tolist() == [0.0, 3000.0, 60.0]  # job 2 is whole at once, and passes job 1
    assert (together.timeouts, together.idle_gpu_s) == (0, 0.0)


def test_gpus_held_by_a_job_that_is_not_whole_are_counted_and_given_back_after_the_time_out() -> None:
    """4 GPUs: job 0 has 3 until 300 s; job 1 of 2 holds the fourth from 60 s on, so job 2 of 1 waits too."""
    jobs = [GpuJob(0, 0.0, 3, 300.0), GpuJob(1, 60.0, 2, 100.0), GpuJob(2, 60.0, 1, 100.0)]
    policy = Kubernetes(round_s=60.0, timeout_s=600.0)
    assert run(jobs, policy, 4).start_s.tolist() == [0.0, 300.0, 300.0]
    assert policy.idle_gpu_s == 240.0 and policy.timeouts == 0
    jobs = [GpuJob(0, 0.0, 3, 300.0), GpuJob(1, 60.0, 2, 100.0), GpuJob(2, 60.0, 1, 100.0)]
    policy = Kubernetes(
        round_s=60.0, timeout_s=120.0
    )  # it gives up at 180 s, is back at 190 s, and by then job 2 has the GPU
    assert run(jobs, policy, 4).start_s.tolist() == [0.0, 300.0, 180.0]
    assert policy.idle_gpu_s == 120.0 and policy.timeouts == 1
    assert policy.said()[0].endswith("jobs gave up 1 time after 120 s")
    jobs = [GpuJob(0, 0.0, 3, 300.0), GpuJob(1, 60.0, 2, 100.0), GpuJob(2, 60.0, 1, 100.0)]
    assert run(jobs, Kubernetes(round_s=60.0, gang=True), 4).start_s.tolist() == [0.0, 300.0, 60.0]


def test_the_back_off_doubles() -> None:
    """Job 0 keeps 3 of 4 GPUs for an hour; job 1 of 2 tries, holds for a round, and backs off by 10, 20, 40, ... s."""
    policy = Kubernetes(round_s=10.0, timeout_s=10.0)
    result = run([GpuJob(0, 0.0, 3, 400.0), GpuJob(1, 10.0, 2, 10.0)], policy, 4)
    # holds from 10, 30, 60, 110, 200 and 370 s on for 10 s each; back again 10, 20, 40, 80, 160, 320 s later
    assert policy.timeouts == 6 and policy.idle_gpu_s == 60.0
    assert result.start_s[1] == 700.0


def test_a_pod_lies_on_one_node_and_pods_may_part() -> None:
    """Nodes of 3: a pod of 2 leaves one GPU a node, which a pod of 2 cannot use and two pods of 1 can."""
    jobs = [GpuJob(0, 0.0, 4, 100.0, pod_gpus=2), GpuJob(1, 0.0, 2, 100.0, pod_gpus=2), GpuJob(2, 0.0, 2, 100.0)]
    assert run(jobs, Kubernetes(round_s=60.0, gang=True), 3, 3).start_s.tolist() == [0.0, 120.0, 0.0]
    of_pods = replace(of_arrays(np.zeros(2), np.array([4, 4]), np.ones(2)), pod_gpus=np.array([1, 2]))
    assert fits(of_nodes(np.array([3, 1])), of_pods).tolist() == [True, False]


@pytest.mark.parametrize("seed", range(4))
def test_gangs_of_single_gpus_start_when_a_queue_that_lets_pass_starts_them(seed: int) -> None:
    """Where a pod is one GPU place does not matter: start for start the Philly study's queue, all guidelines off."""
    rng = np.random.default_rng(seed)
    submit, gpus, run_s = np.sort(rng.integers(0, 9000, 60)), rng.integers(1, 9, 60), rng.integers(60, 3000, 60)
    rows = list(zip(submit.tolist(), gpus.tolist(), run_s.tolist(), strict=True))
    made = [[GpuJob(at, float(a), b, float(c)) for at, (a, b, c) in enumerate(rows)] for _ in range(2)]
    together = run(made[0], Kubernetes(round_s=60.0, gang=True), 4, 4, 8)
    assert together.start_s.tolist() == simulate_rounds(made[1], machine(4, 4, 8), Guided()).start_s.tolist()


def test_a_negative_time_out_is_refused() -> None:
    with pytest.raises(InputError, match=r"kubernetes: timeout_s of -1"):
        Kubernetes(timeout_s=-1.0)
