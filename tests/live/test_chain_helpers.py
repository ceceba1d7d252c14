"""What the helpers of a chain's training script read from a real Slurm of each version."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.live.slurm import OWN, Slurm

pytestmark = pytest.mark.live

ASKED = "from baton_chain import Link; print(Link().time_left_s())"


def time_left_s(slurm: Slurm, job: str, **environment: str) -> float:
    """The time left, s, as a process of the job sees it."""
    path = str(REPOSITORY / "examples" / "chain")
    env = slurm.env | {"SLURM_JOB_ID": job, "PYTHONPATH": path} | environment
    return float(subprocess.check_output([sys.executable, "-c", ASKED], env=env, text=True, timeout=60))


def test_a_job_sees_the_time_left_of_its_limit(slurm: Slurm) -> None:
    said = slurm.folder / "end"
    job = slurm.sbatch("--time=5", script=f"echo $SLURM_JOB_END_TIME > {said}; sleep 100")
    slurm.wait(60, lambda: said.exists() and said.read_text().endswith("\n"), "the job")
    try:
        by_squeue = time_left_s(slurm, job)
        assert 240 < by_squeue <= 300
        end_s = said.read_text().strip()
        assert bool(end_s) == (slurm.version != OWN), "SLURM_JOB_END_TIME is set since Slurm 23.02"
        if end_s:
            assert time_left_s(slurm, job, SLURM_JOB_END_TIME=end_s) == pytest.approx(by_squeue, abs=5)
    finally:
        slurm.run("scancel", job)
