"""The compiled kernel and its plain twin start every job in the same second."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.flat.replay import simulate
from simulator.names import SCHEDULERS
from simulator.workload import Workload
from tests.simulator.flat.cases import SETTINGS, random_workload, small_cases, workload
from tests.twins import flat as reference

# Seconds for the event-driven ones; around the tick (60 s) and the slot (600 s) for mirage.
CASES = st.one_of(small_cases(), small_cases(scale=59), small_cases(scale=600))


@pytest.mark.parametrize("knobs", SETTINGS, ids=lambda knobs: "-".join(map(str, knobs.values())))
@settings(max_examples=150, deadline=None)
@given(case=CASES)
def test_kernel_equals_twin(knobs: dict[str, Any], case: tuple[Workload, int]) -> None:
    jobs, capacity = case
    assert simulate(jobs, capacity=capacity, **knobs).tolist() == reference.simulate(jobs, capacity=capacity, **knobs)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("pass_", ["event", "instant"])
def test_kernel_equals_twin_on_a_congested_trace(scheduler: str, pass_: str) -> None:
    jobs = random_workload(seed=3, jobs=150, capacity=24, load=1.1)
    knobs: dict[str, Any] = {"scheduler": scheduler, "capacity": 24, "pass_": pass_}
    assert simulate(jobs, **knobs).tolist() == reference.simulate(jobs, **knobs)


@given(case=small_cases(scale=1200))
@settings(max_examples=100, deadline=None)
def test_jobs_longer_than_the_window(case: tuple[Workload, int]) -> None:
    """A limit beyond 48 h holds the window's rest only."""
    jobs, capacity = case
    days = Workload(jobs.job_id, jobs.submit_s, jobs.size, jobs.run_s, jobs.limit_s * 50, jobs.start_s)
    knobs: dict[str, Any] = {"scheduler": "mirage", "capacity": capacity}
    assert simulate(days, **knobs).tolist() == reference.simulate(days, **knobs)


def test_a_queue_longer_than_the_first_room_is_served() -> None:
    """10,000 jobs at once: the state has to grow twice, and first come first served has a closed form."""
    count = 10_000
    rows = [(5, 1, 2, 2)] * count
    starts = simulate(workload(rows), scheduler="easy", capacity=4)
    assert starts.tolist() == [5 + 2 * (i // 4) for i in range(count)]


_WITHOUT_JIT = """
from numba import config
assert config.DISABLE_JIT
from tests.twins import flat as reference
from simulator.flat.replay import simulate
from tests.simulator.flat.cases import SETTINGS, random_workload
jobs = random_workload(seed=5, jobs=40, capacity=12, load=1.2)
for knobs in SETTINGS:
    assert simulate(jobs, capacity=12, **knobs).tolist() == reference.simulate(jobs, capacity=12, **knobs), knobs
print("equal")
"""


def test_the_kernels_source_means_the_same_uncompiled() -> None:
    """With the JIT off numpy checks every index, which compiled code does not."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_JIT],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "equal\n", done.stderr
