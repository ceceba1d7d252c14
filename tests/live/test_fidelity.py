"""The `slurm` scheduler against a real Slurm on a fast clock: 100 jobs, or the whole workload with BATON_LIVE=full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simulator.slurm.run import run
from tests.conftest import skip_or_fail
from tests.live import figures, recording
from tests.live.fidelity import Stage, record
from tests.live.fidelity_workload import FULL, SHORT, generate
from tests.live.slurm import OWN, missing
from tests.simulator.slurm.compare import free_run

pytestmark = pytest.mark.live


def test_the_simulator_starts_what_a_real_slurm_starts(version: str, tmp_path: Path) -> None:
    """One recording, compared step by step and as a whole; the limits leave room for a disturbed machine."""
    reason = missing(clock=True, version=version)
    if reason:
        skip_or_fail("slurm" if version == OWN else f"slurm-{version}", reason)
    full = os.environ.get("BATON_LIVE") == "full"
    record(tmp_path, generate(FULL if full else SHORT), Stage(version=version), keep_log=True)

    jobs = recording.read(tmp_path)
    world = recording.world(tmp_path, jobs)
    steps = figures.steps(world)
    whole = free_run(world, run(world))

    said = f"one step: {steps.share:.1%} of {len(steps.job)}, too early {steps.unmatched_share:.1%}"
    print(f"\nSlurm {version}, {said}; free run: {whole}")
    assert len(jobs) >= (1000 if full else 95)
    assert steps.share >= (0.95 if full else 0.90)  # of 100 cases, five more miss by chance alone
    assert steps.unmatched_share <= 0.10
    assert whole["only_recorded"] == 0
    assert whole["spearman"] >= (0.93 if full else 0.70)  # most waits of the short form are within one interval
