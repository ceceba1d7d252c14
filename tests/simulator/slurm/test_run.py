"""A run that tells how far it is: the slices that it is cut into change nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.slurm import run as running
from simulator.slurm import world as w
from simulator.slurm.compiled.state import NOW
from simulator.slurm.inputs.prepare import prepared
from tests.simulator.slurm.test_twin import COMPARED
from tests.simulator.slurm.worlds import crowded_world, worlds


@pytest.fixture(autouse=True, scope="module")
def tiny_slices() -> Iterator[None]:
    """Slices of one second, never longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "_FIRST_SLICE_S", 1)
        patch.setattr(running, "_LEAST_S", 0.0)
        yield


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(), until=st.sampled_from([0, 61, 300, 1000, w.NEVER]))
def test_slices_change_nothing(world: w.SlurmWorld, until: int) -> None:
    heard: list[int] = []
    whole, _ = running.run_timed(world, until=until)
    sliced, _ = running.run_timed(world, until=until, on_progress=heard.append)
    for name in (*COMPARED, "by_backfill"):
        np.testing.assert_array_equal(getattr(sliced, name), getattr(whole, name), err_msg=name)
    assert all(0 <= count <= len(world.jobs) for count in heard)


def test_the_jobs_that_no_longer_wait_are_counted() -> None:
    """In a crowded world without requeues the count only rises, to all jobs."""
    world = crowded_world(5)
    heard: list[int] = []
    running.run_timed(world, on_progress=heard.append)
    assert len(heard) > 10 and heard == sorted(heard)
    assert heard[0] < heard[len(heard) // 2] < heard[-1] == len(world.jobs)


def test_a_run_up_to_a_second_stands_at_that_second() -> None:
    ready = running.advanced(prepared(crowded_world(5)), 777, lambda _: None)
    assert ready.state.scalars[NOW] == 777
