"""Gandiva equals its plain twin, decision by decision.

Slices are those of the whole cluster. On 40 random instances for each setting of its switches: 24 gangs of up to 8
GPUs, most with profiles and some elastic, on one to four nodes of 2 to 8 GPUs of one or two types, restarts of 2 s or
the model's.
"""

from __future__ import annotations

import pytest

from simulator.gpu.policies.gandiva import Gandiva
from tests.simulator.gpu.twins import assert_equal, instance
from tests.twins.gpu import gandiva


@pytest.mark.parametrize(
    ("slices", "migrates", "grows", "tries"),
    [
        (True, True, True, True),
        (False, True, True, True),
        (True, False, True, True),
        (True, True, False, True),
        (True, True, True, False),
    ],
)
def test_equal_to_the_plain_twin(slices: bool, migrates: bool, grows: bool, tries: bool) -> None:
    pairs = grown = stopped = 0
    for seed in range(40):
        machine, jobs = instance(seed, 24, ("T4",) if seed % 2 else ("T4", "A100"))
        round_s, pause_s = (300.0, None) if seed % 3 else (60.0, 2.0)  # a slice is longer than any restart
        found = (round_s, pause_s, 1.2, slices, migrates, grows)
        run = assert_equal(
            machine, jobs, Gandiva(*found, tries=tries, per_server=False), gandiva.PlainGandiva(machine, *found, tries)
        )
        asked = {job.number: job.gpus for job in jobs}
        ended = {job.number: job.end for job in run.jobs}
        for before, after in zip(run.decisions, run.decisions[1:], strict=False):
            pairs += len(before.guests)
            grown += sum(sum(placed.values()) > asked[number] for number, placed in before.placed.items())
            gone = [number for number in before.placed if number not in after.placed and ended[number] > after.now_s]
            stopped += sum(number not in before.guests for number in gone)
    assert pairs > 0
    assert (grown > 0) == grows
    assert (stopped > 0) == slices, "without slices who has GPUs of its own runs to its end"
