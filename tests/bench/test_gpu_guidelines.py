"""The drawn attempts of the benchmark of guidelines follow the study's table and keep the recorded jobs."""

from __future__ import annotations

import numpy as np
import pytest

from bench.gpu_guidelines import FAILURES, GUIDELINES, STUDY_JOBS, drawn_attempts
from features.failures.signatures import signatures
from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.gpu.registry import check
from simulator.gpu.run import simulate


@pytest.fixture(scope="module")
def jobs() -> GpuJobs:
    rng = np.random.default_rng(0)
    gpus = rng.choice([1, 2, 4, 8, 16], size=20_000, p=[0.8, 0.05, 0.05, 0.08, 0.02])
    return of_arrays(np.sort(rng.uniform(0, 1e6, 20_000)), gpus, np.exp(rng.normal(7.0, 2.0, 20_000)).round() + 1.0)


def test_as_many_jobs_fail_as_in_the_study(jobs: GpuJobs) -> None:
    _, failed = drawn_attempts(jobs, 0)
    for one in FAILURES:
        assert failed[one.reason] == pytest.approx(one.jobs * len(jobs) / STUDY_JOBS, abs=2), one.reason


def test_attempts_are_parts_of_the_recorded_run_times(jobs: GpuJobs) -> None:
    drawn, failed = drawn_attempts(jobs, 0)
    assert drawn.fails_s is not None and drawn.hopeless_s is not None
    np.testing.assert_array_equal(drawn.run_s, jobs.run_s)
    failing, hopeless = ~np.isnan(drawn.fails_s), ~np.isnan(drawn.hopeless_s)
    for values, mask in ((drawn.fails_s, failing), (drawn.hopeless_s, hopeless)):
        tries = jobs.run_s[mask] / values[mask]
        np.testing.assert_allclose(tries, tries.round())
    known = {rule.reason: rule for rule in signatures(None)}
    on_one = sum(failed[name] for name in failed if known[name].category in ("user", "engine"))
    assert failing.sum() == on_one < sum(failed.values())
    assert hopeless.sum() < sum(failed[name] for name in failed if known[name].is_hopeless), "some are tried once"
    assert (drawn.hopeless_s[hopeless] < jobs.run_s[hopeless]).all()


def test_another_seed_is_another_draw(jobs: GpuJobs) -> None:
    first, again, other = (drawn_attempts(jobs, seed)[0].fails_s for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first is not None and other is not None and not np.array_equal(first, other, equal_nan=True)


@pytest.mark.parametrize("name", GUIDELINES)
def test_each_guideline_is_a_setting_of_guided_that_changes_something(jobs: GpuJobs, name: str) -> None:
    check("guided", GUIDELINES[name])
    drawn, _ = drawn_attempts(jobs, 0)
    few = drawn.take(np.arange(0, len(drawn), 40))
    none, own = (
        simulate(of_nodes(np.full(4, 8)), few, "guided", {"interference": 0.34, **settings}).result.end_s
        for settings in ({}, GUIDELINES[name])
    )
    assert np.array_equal(none, own) == (name == "none")
