"""The files of Pollux's authors, converted to a folder of profiles and to jobs, from `../shared/references/gpu`.

Their measurements are those of Sia's authors on T4 (cluster `aws`), without its slowdown.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from simulator.gpu.profiles.profile import Profile
from simulator.gpu.round_policy import GpuJob, GpuMachine
from tests.simulator.gpu import sia_files

MACHINE = GpuMachine(np.full(16, 4), ["aws"] * 16, "aws")
RESTART_S = 30.0
MOST_LOCAL = {"yolov3": 8.0}  # samples a GPU, where the authors stop short of their measurements
RIGID = "ncf"  # the model that Pollux's simulator keeps on one GPU, with the batch that its users ask for


def profiles(folder: Path) -> dict[str, Profile]:
    """Write the profiles to `folder` and read them."""
    every = sia_files.models()
    settings = [(name, row["init_batch"], row["max_batch"], 1.0, RESTART_S) for name, row in every.items()]
    table = [
        row
        for row in sia_files.rows("sia_profiles.csv.gz")
        if row["cluster"] == "aws"
        and row["model"] in every
        and float(row["local_batch"]) <= MOST_LOCAL.get(row["model"], np.inf)
    ]
    return sia_files.written(folder, settings, table)


def published(policy: str, workload: int) -> list[dict[str, str]]:
    """Return the authors' results for a workload, 1 to 8."""
    every = sia_files.rows("pollux_published.csv.gz")
    return [row for row in every if row["policy"] == policy and row["workload"] == f"workload-{workload}"]


def jobs(policy: str, workload: int, known: dict[str, Profile]) -> list[GpuJob]:
    """Return the jobs: under `tiresias` with the batch that their users ask for, under `pollux` free to choose it."""
    work = {name: float(row["total_progress"]) for name, row in sia_files.models().items()}
    found = []
    for number, row in enumerate(published(policy, workload)):
        is_fixed = policy != "pollux" or row["model"] == RIGID
        found.append(
            GpuJob(
                number,
                float(row["submit_s"]),
                int(row["gpus_asked"]),
                3600.0,
                model=known[row["model"]],
                elastic=policy == "pollux",
                work=work[row["model"]],
                batch=float(row["batch_asked"]) if is_fixed else None,
                most=1 if policy == "pollux" and row["model"] == RIGID else None,
            )
        )
    return found
