"""What every scheduler of the rounds keeps: no GPU twice, gangs whole, everyone ends, the same bytes again."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import numpy as np
import pytest

from simulator.gpu.policies.guided import Guided
from simulator.gpu.registry import SCHEDULERS, scheduler
from simulator.gpu.round_policy import GpuMachine, Placed, RoundPolicy, View
from simulator.gpu.rounds import simulate_rounds
from simulator.gpu.scheduler import RoundScheduler
from tests.simulator.gpu.twins import Between
from tests.simulator.gpu.workloads import ALIKE, MIXED, generated

ROUNDS = {name: found for name in SCHEDULERS if isinstance(found := scheduler(name), RoundScheduler)}
POLICIES: dict[str, Callable[[], RoundPolicy]] = {
    **{name: partial(found.build, {}) for name, found in ROUNDS.items()},
    "gandiva": partial(ROUNDS["gandiva"].build, {"round_s": 300.0}),  # fewer rounds
    "pollux": partial(ROUNDS["pollux"].build, {"round_s": 600.0, "generations": 10.0}),  # fewer searches
    "kubernetes, gang": partial(ROUNDS["kubernetes"].build, {"gang": 1.0}),
    "kubernetes, pack": partial(ROUNDS["kubernetes"].build, {"gang": 1.0, "pack": 1.0}),
    "guided, all": partial(
        ROUNDS["guided"].build,
        {
            "hold_s": 600.0,
            "small_share": 0.2,
            "defragment": 1.0,
            "prerun_s": 120.0,
            "isolate": 1.0,
            "interference": 0.3,
            "pool_nodes": 1.0,
            "no_retry": 1.0,
        },
    ),
}


class Watched(Between):
    """A policy whose every decision is looked at."""

    def __init__(self, policy: RoundPolicy) -> None:
        super().__init__(policy)
        self.unserved = 0  # decisions that left a job waiting though it fitted into free GPUs

    def decide(self, view: View) -> dict[int, Placed]:
        before = deepcopy([(job.number, job.placed, job.left_s) for job in view.jobs])
        wanted = self.policy.decide(view)
        assert before == [(job.number, job.placed, job.left_s) for job in view.jobs], "a policy changes nothing"
        for job in view.jobs:
            held = sum(wanted.get(job.number, {}).values())
            gang = held in (0, job.gpus) or job.elastic
            assert gang or (held == 1 and isinstance(self.policy, Guided)), "a gang is whole"
            assert all(gpus > 0 for gpus in wanted.get(job.number, {}).values())
        free = int(view.machine.gpus.sum()) - sum(sum(placed.values()) for placed in wanted.values())
        self.unserved += any(job.number not in wanted and job.gpus <= free for job in view.jobs)
        return wanted


@pytest.mark.parametrize("machine", [ALIKE, MIXED], ids=["alike", "mixed"])
@pytest.mark.parametrize("name", POLICIES)
def test_contract(name: str, machine: GpuMachine) -> None:
    watched = Watched(POLICIES[name]())
    jobs = generated(120)
    result = simulate_rounds(jobs, machine, watched)
    submit_s = np.array([job.submit_s for job in jobs])
    assert (result.start_s >= submit_s).all() and (result.end_s > result.start_s).all()
    assert (result.lost_gpu_s <= result.gpu_s).all() and (result.ran_s <= result.end_s - result.start_s + 1e-6).all()
    done = np.array([job.left_s for job in jobs])
    assert not done.any()
    again = simulate_rounds(generated(120), machine, POLICIES[name]())
    fields = set(result._fields) - {"gpu_s_by_type"}
    assert all(np.array_equal(getattr(result, field), getattr(again, field)) for field in fields)
    np.testing.assert_allclose(sum(result.gpu_s_by_type.values()), result.gpu_s)
    if name in ("themis", "guided", "kubernetes, gang"):  # those that promise it
        assert watched.unserved == 0


# These lend nodes, run twice, or spread the pods of a job.
@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"lyra", "guided, all", "kubernetes", "kubernetes, gang"}))
def test_a_lone_job_takes_its_own_time(name: str) -> None:
    (job,) = [job for job in generated(40, elastic=0.0) if job.gpus == 16][:1]
    job.submit_s = 0.0
    result = simulate_rounds([job], ALIKE, POLICIES[name]())
    assert result.end_s[0] == pytest.approx(job.run_s) and result.restarts[0] == 0
