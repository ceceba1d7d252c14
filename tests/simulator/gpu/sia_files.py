"""The files of Sia's authors, converted to a folder of profiles and to jobs, from `../shared/references/gpu`."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from simulator.gpu.profiles.profile import Profile
from simulator.gpu.profiles.table import read_profiles
from simulator.gpu.round_policy import GpuJob

FOLDER = Path(__file__).resolve().parents[3].parent / "shared" / "references" / "gpu"
CLUSTERS = ("aws", "dgx-ext", "rtx")  # T4, A100 and RTX 2080 Ti; GPU types keep these names
# Seconds of a restart in the policy's restart factor (sia-simulator/sia.py). Jobs pay those of sia_models.csv.
FACTOR_S = {"bert": 120, "cifar10": 30, "ncf": 30, "imagenet": 250, "deepspeech2": 25, "yolov3": 45}
SETTINGS = ("model", "batch", "most_batch", "slowdown", "restart_s")
STATISTICS = ("model", "batch", "epoch", "progress", "grad_sqr", "grad_var")


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a file; skip the test if the folder is not there."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"the authors' results are not there: {path}")
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return list(csv.DictReader(lines))


def models() -> dict[str, dict[str, str]]:
    """Return the row of each model."""
    return {row["model"]: row for row in rows("sia_models.csv")}


def profiles(folder: Path) -> dict[str, Profile]:
    """Write the profiles to `folder` and read them."""
    every = models()
    settings = [
        (name, row["init_batch"], row["max_batch"], row["slowdown"], FACTOR_S[name]) for name, row in every.items()
    ]
    table = [row for row in rows("sia_profiles.csv.gz") if row["cluster"] in CLUSTERS and row["model"] in every]
    return written(folder, settings, table)


def written(
    folder: Path, settings: Sequence[tuple[object, ...]], table: Sequence[dict[str, str]]
) -> dict[str, Profile]:
    """Write profiles to `folder` and read them: rows of `SETTINGS`, and rows of sia_profiles.csv.gz."""
    placed = {(row["model"], row["cluster"], row["nodes"], row["gpus"]) for row in table if row["placement"]}
    steps = []
    for row in table:
        nodes, gpus = int(row["nodes"]), int(row["gpus"])
        if row["placement"]:
            placement = "-".join(row["placement"])
        elif (row["model"], row["cluster"], row["nodes"], row["gpus"]) in placed:
            continue
        else:  # the table `scalability` names no placement
            placement = "-".join(str(gpus // nodes + (node < gpus % nodes)) for node in range(nodes))
        steps.append((row["model"], row["cluster"], placement, row["local_batch"], row["step_s"], row["sync_s"]))
    _write(folder / "steps.csv", ("model", "gpu_type", "placement", "local_batch", "step_s", "sync_s"), steps)
    _write(folder / "models.csv", SETTINGS, settings)
    every = {row[0] for row in settings}
    measured = [tuple(row[column] for column in STATISTICS) for row in rows("sia_statistics.csv.gz")]
    _write(folder / "statistics.csv", STATISTICS, [row for row in measured if row[0] in every])
    return read_profiles(folder)


def jobs(workload: str, known: dict[str, Profile]) -> list[GpuJob]:
    """Return the jobs of a workload: elastic, with a batch that is chosen and that a scheduler counts on as asked."""
    restart_s = {name: float(row["restart_s_charged"]) for name, row in models().items()}
    return [
        GpuJob(
            number,
            float(row["submit_s"]),
            int(row["gpus_asked"]),
            3600.0,
            model=known[row["model"]],
            elastic=True,
            work=float(row["total_progress"]),
            counted_batch=float(row["batch_asked"]),
            restart_s=restart_s[row["model"]],
        )
        for number, row in enumerate(rows(f"jobs_sia_{workload}.csv.gz"))
    ]


def _write(path: Path, heading: tuple[str, ...], table: Sequence[tuple[object, ...]]) -> None:
    with path.open("w", newline="") as lines:
        csv.writer(lines).writerows([heading, *table])
