"""The comparison itself, on runs small enough to count by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from simulator.slurm.world import NEVER, NONE, SlurmResult, SlurmSettings, SlurmWorld, flat_world, plain_jobs
from tests.simulator.slurm.compare import free_run, one_step, relative


def _world(recorded: list[int]) -> SlurmWorld:
    """One-node jobs submitted at 0 with these recorded starts."""
    count = len(recorded)
    ones = np.ones(count, np.int64)
    jobs = plain_jobs(0 * ones, 100 * ones, 100 * ones, ones, pinned_s=np.array(recorded))
    return flat_world(jobs, count, SlurmSettings())


def _result(starts: list[int]) -> SlurmResult:
    start = np.array(starts, np.int64)
    zero = 0 * start
    return SlurmResult(start, zero, zero, zero, zero, zero > 0, np.arange(len(start) + 1), zero)


def _always(*starts: int):  # type: ignore[no-untyped-def]
    """A simulator with a timetable: each free job starts at its time, or at the step's begin if that is past."""

    def simulate(world: SlurmWorld, free_from: int, until: int) -> SlurmResult:
        pinned = world.jobs.pinned_s
        begun = [
            int(pin) if pin < free_from else max(start, free_from) if max(start, free_from) <= until else NONE
            for pin, start in zip(pinned, starts, strict=True)
        ]
        return _result(begun)

    return simulate


def test_a_simulator_that_starts_each_job_in_time_hits_every_case() -> None:
    steps = one_step(_world([10, 50, 50, 90]), _always(10, 52, 59, 95), tolerance_s=10)
    assert steps.job.tolist() == [0, 1, 2, 3]
    assert steps.simulated_s.tolist() == [10, 52, 59, 95]
    assert steps.share == 1.0


def test_a_late_start_is_a_miss() -> None:
    steps = one_step(_world([10, 50]), _always(10, 60), tolerance_s=10)
    assert steps.hits.tolist() == [True, False]
    assert steps.share == 0.5


def test_a_start_that_the_record_makes_much_later_or_never_is_unmatched() -> None:
    """At 10 the simulator starts all three; the record starts the second 30 s after that, and the third never."""
    steps = one_step(_world([10, 40, NEVER]), _always(10, 10, 10), tolerance_s=10)
    # step at 10: jobs 0, 1, 2 begin, 1 and 2 unmatched; step at 40: 1 and 2 begin, 2 unmatched
    assert (steps.begun, steps.unmatched) == (5, 3)
    assert steps.unmatched_share == 0.6


def test_every_second_instant() -> None:
    steps = one_step(_world([10, 20, 30, 40]), _always(10, 20, 30, 40), tolerance_s=5, every=2)
    assert steps.recorded_s.tolist() == [10, 30]


def test_a_world_without_recorded_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="no job has a recorded start"):
        one_step(_world([NEVER]), _always(0), tolerance_s=10)


def test_waits_of_a_free_run_count_from_eligibility_and_name_what_only_one_side_started() -> None:
    world = _world([100, 200, 300, NEVER])
    eligible = dataclasses.replace(world.jobs, eligible_s=np.array([0, 100, 0, 0]))
    figures = free_run(dataclasses.replace(world, jobs=eligible), _result([110, 210, NONE, 5]))
    assert figures["jobs"] == 2
    assert (figures["recorded_mean_wait_s"], figures["simulated_mean_wait_s"]) == (100, 110)
    assert figures["relative_mean_wait"] == pytest.approx(0.1)
    assert (figures["only_recorded"], figures["only_simulated"]) == (1, 1)


def test_without_any_wait_there_is_no_ratio() -> None:
    assert math.isnan(relative(np.array([1, 2]), np.array([0, 0]))["relative_mean_wait"])
