"""Lyra equals its plain twin, decision by decision.

On 40 random instances for each setting of its switches: 24 gangs of up to 8 GPUs, most with profiles and some elastic,
on two to four nodes of 2 to 8 GPUs of one or two types, and half as many nodes that inference lends and takes back.
"""

from __future__ import annotations

import pytest

from simulator.gpu.policies.lyra import Lyra
from tests.simulator.gpu.twins import assert_equal, instance
from tests.twins.gpu import lyra


@pytest.mark.parametrize(("loans", "grows"), [(True, True), (False, True), (True, False)])
def test_equal_to_the_plain_twin(loans: bool, grows: bool) -> None:
    reclaimed = grown = 0
    for seed in range(40):
        machine, jobs = instance(seed, 24, ("T4",) if seed % 2 else ("T4", "A100"))
        servers = round(0.5 * len(machine.gpus))
        whole = Lyra(0.5).extended(machine)
        assert len(whole.gpus) == len(machine.gpus) + servers

        def in_use(now_s: float, servers: int = servers) -> int:
            return int(now_s // 1500.0) % (servers + 1)

        pause_s = None if seed % 3 else 2.0
        engine = Lyra(0.5, in_use, 300.0, 2.0, loans, grows, pause_s=pause_s)
        plain = lyra.PlainLyra(whole, servers, in_use, 300.0, 2.0, loans, grows, pause_s)
        run = assert_equal(machine, jobs, engine, plain)
        assert engine.reclaimed_jobs == plain.reclaimed
        reclaimed += plain.reclaimed
        asked = {job.number: job.gpus for job in jobs}
        grown += sum(sum(placed.values()) > asked[n] for one in run.decisions for n, placed in one.placed.items())
    assert (reclaimed > 0) == loans
    assert (grown > 0) == grows
