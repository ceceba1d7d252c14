"""The compiled `slurm` scheduler and its plain twin agree in every start, end, state, reason, restart and node."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.slurm import world as w
from simulator.slurm.run import run
from tests.simulator.slurm.worlds import FEATURES, crowded_world, random_world, wide_world
from tests.twins.slurm import clock as reference

COMPARED = ("state", "reason", "start_s", "end_s", "restarts", "placement_first", "placement")


def assert_equal(world: w.SlurmWorld, **window: Any) -> w.SlurmResult:
    compiled, plain = run(world, **window), reference.simulate(world, **window)
    for name in COMPARED:
        np.testing.assert_array_equal(getattr(compiled, name), getattr(plain, name), err_msg=name)
    started = plain.start_s != w.NONE
    np.testing.assert_array_equal(compiled.by_backfill[started], plain.by_backfill[started], err_msg="by_backfill")
    return plain


@pytest.mark.parametrize("feature", FEATURES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1))
def test_kernel_equals_twin_with_a_feature(feature: str, seed: int) -> None:
    assert_equal(random_world(seed, {feature}))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1), features=st.sets(st.sampled_from(FEATURES), max_size=6))
def test_kernel_equals_twin_with_features_mixed(seed: int, features: set[str]) -> None:
    assert_equal(random_world(seed, features))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1))
def test_kernel_equals_twin_where_many_wait(seed: int) -> None:
    assert_equal(crowded_world(seed))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1))
def test_kernel_equals_twin_on_many_nodes(seed: int) -> None:
    assert_equal(wide_world(seed))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1), second=st.integers(0, 400), length=st.integers(0, 200))
def test_replays_that_are_freed_at_an_instant(seed: int, second: int, length: int) -> None:
    """Free from a second on: what started before is pinned to what it did, so nothing before may change."""
    world = random_world(seed, {"gpus", "partitions"})
    whole = reference.simulate(world)
    pinned = np.where(whole.start_s != w.NONE, whole.start_s, w.NEVER)
    lengths = np.where(whole.start_s != w.NONE, np.diff(whole.placement_first), 0)
    world = replace(
        world,
        jobs=replace(world.jobs, pinned_s=pinned),
        pinned_first=np.concatenate([[0], np.cumsum(lengths)]),
        pinned_nodes=whole.placement[whole.placement != w.NONE],
    )
    result = assert_equal(world, free_from=second, until=second + length)
    before = pinned < second
    np.testing.assert_array_equal(result.start_s[before], whole.start_s[before])


def test_the_worlds_are_busy_ones() -> None:
    """Backfill, preemption, requeues, timeouts and every reason do occur in the worlds that the tests compare."""
    states, reasons, backfilled, requeued = set(), set(), 0, 0
    for seed in range(150):
        result = reference.simulate(random_world(seed, set(np.random.default_rng(seed).choice(FEATURES, 3))))
        states |= set(result.state.tolist())
        reasons |= set(result.reason.tolist())
        backfilled += int(result.by_backfill.sum())
        requeued += int(result.restarts.sum())
    assert states >= {w.PENDING, w.COMPLETED, w.FAILED, w.TIMEOUT, w.CANCELLED, w.PREEMPTED, w.UNPLACEABLE}
    assert reasons == set(range(len(w.REASONS)))
    assert backfilled > 50 and requeued > 0


_WITHOUT_JIT = """
import numpy as np
from numba import config
assert config.DISABLE_JIT
from tests.simulator.slurm.test_twin import assert_equal
from tests.simulator.slurm.worlds import FEATURES, random_world
np.seterr(over="raise")
for seed in range(60):
    chosen = np.random.default_rng(seed).choice(FEATURES, 4, replace=False).tolist()
    assert_equal(random_world(seed, set(chosen)))
print("equal")
"""


def test_the_kernels_source_means_the_same_uncompiled() -> None:
    """With the JIT off numpy checks every index and every sum, which compiled code does not."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_JIT],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout == "equal\n", done.stderr
