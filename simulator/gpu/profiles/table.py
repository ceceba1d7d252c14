"""Profiles from files: what a site measured, and the published figures that come with Baton.

Profiles are one CSV of step times, or a folder with `steps.csv` and, if wanted, `models.csv` and `statistics.csv`.

`steps.csv`, a row per measured step:

| column | meaning |
|---|---|
| `model`, `gpu_type` | names |
| `placement` | GPUs on each node: `4`, or `4-4` for two nodes of 4 |
| `local_batch` | samples per GPU, > 0 |
| `step_s` | time of a step, s, > 0 |
| `sync_s` | part of it that synchronises gradients, s; 0 if left out |
| `packed_with` | if given: the model whose job shared all GPUs meanwhile, on one node |
| `stages` | GPUs of a replica, whose layers are divided between them; one number a model and type; 1 |
| `jobs`, `gpu_h` | ignored: `baton profile-template` writes there how much the log uses the placement |

`models.csv`, a row per model, all but `model` may be empty:

| column | meaning |
|---|---|
| `model` | name in `steps.csv` |
| `local_batch` | samples per GPU of a job that does not declare its batch; the most measured one |
| `restart_s` | seconds of a checkpoint and a start from it; 30 |
| `noise_scale` | Pollux's gradient noise at the job's own batch; without it a larger batch brings nothing |
| `batch` | the model's own batch over all GPUs, in whose steps work is counted; the smallest of `statistics.csv` |
| `most_batch` | largest batch over all GPUs; the largest of `statistics.csv` |
| `slowdown` | seconds of a real job per second of its measured steps; 1 |

`statistics.csv`, a row per model, batch and epoch. With it, jobs that declare their work progress by goodput:

| column | meaning |
|---|---|
| `model` | name in `steps.csv` |
| `batch` | samples of a step over all GPUs |
| `epoch` | 0, 1, ...; each batch has the same epochs |
| `progress` | steps of the own batch that are done at the end of the epoch; the least of the batches counts |
| `grad_sqr`, `grad_var` | square and variance of the gradient in that epoch |

A folder may also have `batches.csv` with memory and transfer times for emulated GPUs (`batches`).
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator.gpu.profiles.profile import RESTART_S, Placement, Profile, StepTimes, rotated
from simulator.gpu.profiles.statistics import Statistics
from traces.counted import counted
from traces.errors import InputError
from traces.files.csv_rows import CsvRow, csv_rows
from traces.visible import visible

PUBLISHED = Path(__file__).with_name("published")
_STEPS = ("model", "gpu_type", "placement", "local_batch", "step_s")
_STEPS_TOO = ("sync_s", "packed_with", "stages", "jobs", "gpu_h")
_MODELS_TOO = ("local_batch", "restart_s", "noise_scale", "batch", "most_batch", "slowdown")
_STATISTICS = ("model", "batch", "epoch", "progress", "grad_sqr", "grad_var")


class _Step(NamedTuple):
    gpu_type: str
    placement: Placement
    local_batch: float
    step_s: float
    sync_s: float
    packed_with: str
    stages: int


@cache
def published() -> dict[str, Profile]:
    """Return the profiles that come with Baton, by model. `published/README.md` cites the source of each figure."""
    return read_profiles(PUBLISHED)


def profiles_of(name: str) -> dict[str, Profile]:
    """Return what a user asks for: `none`, `published`, or a path. Raises InputError as `read_profiles`."""
    if name == "none":
        return {}
    return published() if name == "published" else read_profiles(Path(name))


def content_of(name: str) -> tuple[bytes, ...]:
    """Return the content of the files behind `profiles_of(name)`, by which a changed file is noticed."""
    path = PUBLISHED if name == "published" else Path(name)
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    return () if name == "none" else tuple(file.read_bytes() for file in files if file.is_file())


def read_profiles(path: Path) -> dict[str, Profile]:
    """Read profiles, by model, in the order of the file.

    Raises InputError with file, line and reason for the first row that is wrong, and for a path without profiles.
    """
    steps_file, models_file = (path / "steps.csv", path / "models.csv") if path.is_dir() else (path, None)
    statistics_file = path / "statistics.csv" if path.is_dir() else None
    steps: dict[str, list[_Step]] = {}
    for row in csv_rows(steps_file, _STEPS, _STEPS_TOO):
        of_model = steps.setdefault(row.name("model"), [])
        of_model.append(_step(row))
        stages = next(each.stages for each in of_model if each.gpu_type == of_model[-1].gpu_type)
        if stages != of_model[-1].stages:
            raise row.error(f"stages {of_model[-1].stages} on a type where the model has {stages} in another row")
    if not steps:
        raise InputError(f"{visible(str(steps_file))}: no profile in it; give at least one row below the heading")
    settings: dict[str, CsvRow] = {}
    for row in csv_rows(models_file, ("model",), _MODELS_TOO) if models_file and models_file.exists() else []:
        model = row.name("model")
        if model not in steps:
            raise row.error(f"model {model!r} has no row in steps.csv")
        if model in settings:
            raise row.error(f"model {model!r} is named twice")
        settings[model] = row
    measured: dict[str, list[CsvRow]] = {}
    for row in csv_rows(statistics_file, _STATISTICS, ()) if statistics_file and statistics_file.exists() else []:
        if row.name("model") not in steps:
            raise row.error(f"model {row.name('model')!r} has no row in steps.csv")
        measured.setdefault(row.name("model"), []).append(row)
    return {model: _profile(model, rows, settings.get(model), measured.get(model, [])) for model, rows in steps.items()}


def _step(row: CsvRow) -> _Step:
    placement = row.text("placement")
    parts = placement.split("-")
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= 4096 for part in parts):
        raise row.error(f"placement {visible(placement)[:40]!r}: give the GPUs on each node, as in 4-4")
    step_s = row.number("step_s", above=True)
    sync_s = row.number("sync_s") if row.text("sync_s") else 0.0
    if sync_s >= step_s:
        raise row.error(f"sync_s {sync_s:g} is no part of step_s {step_s:g}: it must be smaller")
    packed_with = row.name("packed_with") if row.text("packed_with") else ""
    if packed_with and len(parts) > 1:
        raise row.error("a packed pair is measured on one node")
    batch = row.number("local_batch", above=True)
    placed = rotated(tuple(map(int, parts)))
    stages = int(row.number("stages", 1.0, whole=True)) if row.text("stages") else 1
    if sum(placed) % stages:
        raise row.error(f"placement {placement} holds no whole number of replicas of {counted(stages, 'GPU')}")
    return _Step(row.name("gpu_type"), placed, batch, step_s, sync_s, packed_with, stages)


def _statistics(rows: list[CsvRow]) -> Statistics:
    found: dict[float, dict[float, tuple[float, float, float]]] = {}
    for row in rows:
        of_batch = found.setdefault(row.number("batch", above=True), {})
        epoch = row.number("epoch", whole=True)
        if epoch != len(of_batch):
            raise row.error(f"epoch {epoch:g} of batch {row.text('batch')}: epoch {len(of_batch)} is expected here")
        before = of_batch[epoch - 1.0][0] if of_batch else 0.0
        progress = row.number("progress", before, above=True)
        of_batch[epoch] = (progress, row.number("grad_sqr"), row.number("grad_var"))
    counts = {len(of_batch) for of_batch in found.values()}
    if len(counts) > 1:
        raise rows[-1].error(f"{min(counts)} epochs of one batch and {max(counts)} of another: give all the same")
    table = np.array([list(found[batch].values()) for batch in sorted(found)])  # (batches, epochs, 3)
    return Statistics(np.array(sorted(found)), table[:, :, 0].min(axis=0), table[:, :, 1:].transpose(1, 0, 2))


def _profile(model: str, rows: list[_Step], settings: CsvRow | None, measured: list[CsvRow]) -> Profile:
    alone = [row for row in rows if not row.packed_with]
    if not alone:
        raise InputError(f"model {model!r} has steps with other models only: add its steps alone")
    batches = Counter(row.local_batch for row in alone)
    usual = max(batches, key=lambda batch: (batches[batch], batch))
    types = {}
    for gpu_type in dict.fromkeys(row.gpu_type for row in alone):
        own = [row for row in alone if row.gpu_type == gpu_type]
        points = [[len(row.placement), sum(row.placement), row.local_batch] for row in own]
        seconds = np.array([[row.step_s, row.sync_s] for row in own])
        placements = tuple(row.placement for row in own)
        types[gpu_type] = StepTimes(np.array(points, dtype=np.float64), seconds, placements, own[0].stages)

    def setting(column: str, above: bool = False) -> float | None:
        return settings.number(column, above=above) if settings is not None and settings.text(column) else None

    restart_s, local_batch = setting("restart_s"), setting("local_batch", above=True)
    return Profile(
        model=model,
        steps=types,
        local_batch=usual if local_batch is None else local_batch,
        restart_s=RESTART_S if restart_s is None else restart_s,
        noise_scale=setting("noise_scale"),
        packed={(row.gpu_type, row.packed_with, sum(row.placement)): row.step_s for row in rows if row.packed_with},
        statistics=_statistics(measured) if measured else None,
        batch=setting("batch", above=True),
        most_batch=setting("most_batch", above=True),
        slowdown=setting("slowdown", above=True) or 1.0,
    )
