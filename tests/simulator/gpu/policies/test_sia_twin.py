"""Sia equals its plain twin, decision by decision, and each of its answers is one of the best.

On 15 random instances: 10 gangs of up to 8 GPUs, most with profiles and some elastic, on one to four nodes of 2 to 8
GPUs of one or two types, restarts of what the model costs.
"""

from __future__ import annotations

from simulator.gpu.policies.sia import Sia
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu.twins import Noted, assert_equal, instance
from tests.twins.gpu import sia


def test_equal_to_the_plain_twin() -> None:
    grown = stopped = 0
    for seed in range(15):
        round_s = 60.0 if seed % 14 == 0 else 360.0  # shorter and longer than most restarts
        kinds = ("T4",) if seed % 2 else ("T4", "A100")
        machine, jobs = instance(seed, 10, kinds)
        noted = Noted(Sia(round_s))
        simulate_rounds(instance(seed, 10, kinds)[1], machine, noted)
        answers = [decision.placed for decision in noted.decisions]
        run = assert_equal(machine, jobs, Sia(round_s), sia.PlainSia(machine, round_s, 4, answers))
        asked = {job.number: job.gpus for job in jobs}
        grown += sum(sum(p.values()) > asked[n] for one in run.decisions for n, p in one.placed.items())
        stopped += sum(job.preemptions for job in run.jobs)
    assert grown > 0 and stopped > 0
