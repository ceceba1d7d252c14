"""Training on emulated GPUs under a real Slurm, which allocates emulated GPUs of its own."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.live.slurm import Cluster, Slurm

pytestmark = [pytest.mark.live, pytest.mark.slow]

TRAIN = str(REPOSITORY / "examples/emulated_training.py")
PROFILES = "model,gpu_type,placement,local_batch,step_s\nnet,a100,2,8,0.2\n"
COSTS = "model,gpu_type,local_batch,memory_mib\nnet,a100,8,3000\nnet,a100,16,50000\n"


def test_jobs_train_save_run_out_of_memory_and_meet(tmp_path: Path) -> None:
    """On the GPUs that Slurm gave, a job resumes and ends, one has too large a batch, two tasks meet at each step."""
    (tmp_path / "steps.csv").write_text(PROFILES)
    (tmp_path / "batches.csv").write_text(COSTS)
    (tmp_path / "half.json").write_text('{"step": 30}')
    baton = shlex.join(
        ["env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", "pipelines.entry", "emulate", "--model", "net",
         "--gpu-type", "a100", "--gpu-memory-gib", "40", "--profiles", str(tmp_path), "--speed", "50"]
    )  # fmt: skip
    python = f"{shlex.quote(sys.executable)} {shlex.quote(TRAIN)}"
    scripts = {
        "ends": f"{baton} --gpus $SLURM_GPUS_ON_NODE -- {python} half.json --steps 50",
        "too large": f"{baton} --gpus $SLURM_GPUS_ON_NODE -- {python} large.json --batch 16",
        "meet": f"srun --ntasks=2 --gpus=2 {baton} --gpus 2 --meet meet.$SLURM_JOB_ID -- "
        f"sh -c {shlex.quote(f'exec {python} task$SLURM_PROCID.json --steps 10')}",
    }
    with Slurm.running(Cluster(nodes=1)) as slurm:
        jobs = {
            slurm.sbatch("--gres=gpu:a100:2", f"--chdir={tmp_path}", f"--output={tmp_path}/{name}.out", "--ntasks=2",
                         "--time=5", script=script): name
            for name, script in scripts.items()
        }  # fmt: skip
        slurm.wait(120, lambda: not slurm.run("squeue", "-h").strip(), "the jobs to end", every=0.3)
        slurm.wait(30, lambda: len(ended(slurm)) == 3, "the accounting")
        states = {jobs[job]: state for job, state in ended(slurm).items()}
    said = {name: (tmp_path / f"{name}.out").read_text() for name in scripts}
    assert states == {"ends": "COMPLETED", "too large": "FAILED", "meet": "COMPLETED"}, said
    assert json.loads((tmp_path / "half.json").read_text()) == {"step": 50}
    assert "starts at step 30" in said["ends"] and "on 2 a100" in said["ends"]
    assert "memory of each GPU: 3,000 MiB" in said["ends"]
    assert "EmulatedOutOfMemory: emulated a100 out of memory: net needs 50,000 MiB" in said["too large"]
    assert not (tmp_path / "large.json").exists()
    assert [json.loads((tmp_path / f"task{rank}.json").read_text())["step"] for rank in (0, 1)] == [10, 10]
    assert {path.name: path.read_text() for path in tmp_path.glob("meet.*/*")} == {"0.steps": "10", "1.steps": "10"}


def ended(slurm: Slurm) -> dict[str, str]:
    """State by job, of jobs whose end is accounted."""
    lines = slurm.run("sacct", "-a", "-X", "-n", "-P", "--format=JobID,State,End", "-S", "now-1day").splitlines()
    return {job: state for job, state, end in (line.split("|") for line in lines) if end != "Unknown"}
