"""Profiles from files: what a site measured, and the published figures that come with Baton.

Profiles are one CSV of step times, or a folder with `steps.csv` and, if wanted, `models.csv`.

`steps.csv`, a row per measured step:

| column | meaning |
|---|---|
| `model`, `gpu_type` | names |
| `placement` | GPUs on each node: `4`, or `4-4` for two nodes of 4 |
| `local_batch` | samples per GPU, > 0 |
| `step_s` | time of a step, s, > 0 |
| `sync_s` | part of it that synchronises gradients, s; 0 if left out |
| `packed_with` | if given: the model whose job shared all GPUs meanwhile, on one node |

`models.csv`, a row per model, all but `model` may be empty:

| column | meaning |
|---|---|
| `model` | name in `steps.csv` |
| `local_batch` | samples per GPU of a job that does not say its batch; the most measured one |
| `restart_s` | seconds of a checkpoint and a start from it; 30 |
| `noise_scale` | Pollux's gradient noise at the job's own batch; without it a larger batch brings nothing |
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator.gpu.profiles.profile import RESTART_S, Profile, StepTimes
from traces.errors import InputError
from traces.visible import visible

PUBLISHED = Path(__file__).with_name("published")
_STEPS = ("model", "gpu_type", "placement", "local_batch", "step_s")
_MODELS = ("model",)
_OPTIONAL = {"steps": ("sync_s", "packed_with"), "models": ("local_batch", "restart_s", "noise_scale")}
_MOST_SHOWN = 60  # letters of a wrong value that a message shows


class _Step(NamedTuple):
    gpu_type: str
    nodes: int
    gpus: int
    local_batch: float
    step_s: float
    sync_s: float
    packed_with: str


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
    steps: dict[str, list[_Step]] = {}
    for row in _rows(steps_file, _STEPS, _OPTIONAL["steps"]):
        steps.setdefault(row.name("model"), []).append(_step(row))
    if not steps:
        raise InputError(f"{visible(str(steps_file))}: no profile in it; give at least one row below the heading")
    settings: dict[str, _Row] = {}
    for row in _rows(models_file, _MODELS, _OPTIONAL["models"]) if models_file and models_file.exists() else []:
        model = row.name("model")
        if model not in steps:
            raise row.error(f"model {model!r} has no row in steps.csv")
        if model in settings:
            raise row.error(f"model {model!r} is named twice")
        settings[model] = row
    return {model: _profile(model, rows, settings.get(model)) for model, rows in steps.items()}


class _Row(NamedTuple):
    """One row of a file, and where it is."""

    file: Path
    line: int
    values: Mapping[str, str]

    def error(self, reason: str) -> InputError:
        return InputError(f"{visible(str(self.file))}, line {self.line}: {reason}")

    def name(self, column: str) -> str:
        value = self.values[column].strip()
        if not value or visible(value) != value:
            raise self.error(f"{column} {visible(value[:_MOST_SHOWN])!r}: give a name of printable characters")
        return value

    def number(self, column: str, default: float | None = None, least: float = 0.0, above: bool = False) -> float:
        text = self.values.get(column, "").strip()
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (np.isfinite(value) and (value > least if above else value >= least)):
            bound = "above" if above else "of at least"
            raise self.error(f"{column} {visible(text[:_MOST_SHOWN])!r}: give a number {bound} {least:g}")
        return value


def _rows(file: Path, needed: tuple[str, ...], optional: tuple[str, ...]) -> list[_Row]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines)
            heading = [name.strip() for name in next(reader, [])]
            unknown = [name for name in heading if name not in (*needed, *optional)]
            missing = [name for name in needed if name not in heading]
            if unknown or missing:
                what = (
                    f"unknown column {visible(unknown[0])[:_MOST_SHOWN]!r}" if unknown else f"no column {missing[0]!r}"
                )
                known = ", ".join((*needed, *optional))
                raise InputError(f"{visible(str(file))}, line 1: {what}; columns are {known}")
            found = []
            for cells in reader:
                row = _Row(file, reader.line_num, dict(zip(heading, cells, strict=False)))
                if len(cells) != len(heading):
                    raise row.error(f"{len(cells)} values for {len(heading)} columns")
                found.append(row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{visible(str(file))}: profiles cannot be read: {error}") from None
    return found


def _step(row: _Row) -> _Step:
    placement = row.values["placement"].strip()
    parts = placement.split("-")
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= 4096 for part in parts):
        raise row.error(f"placement {visible(placement[:_MOST_SHOWN])!r}: give the GPUs on each node, as in 4-4")
    step_s = row.number("step_s", above=True)
    sync_s = row.number("sync_s", default=0.0)
    if sync_s >= step_s:
        raise row.error(f"sync_s {sync_s:g} is no part of step_s {step_s:g}: it must be smaller")
    packed_with = row.name("packed_with") if row.values.get("packed_with", "").strip() else ""
    if packed_with and len(parts) > 1:
        raise row.error("a packed pair is measured on one node")
    gpus, batch = sum(map(int, parts)), row.number("local_batch", above=True)
    return _Step(row.name("gpu_type"), len(parts), gpus, batch, step_s, sync_s, packed_with)


def _profile(model: str, rows: list[_Step], settings: _Row | None) -> Profile:
    alone = [row for row in rows if not row.packed_with]
    if not alone:
        raise InputError(f"model {model!r} has steps with other models only: add its steps alone")
    batches = Counter(row.local_batch for row in alone)
    usual = max(batches, key=lambda batch: (batches[batch], batch))
    types = {}
    for gpu_type in dict.fromkeys(row.gpu_type for row in alone):
        own = [row for row in alone if row.gpu_type == gpu_type]
        points = np.array([[row.nodes, row.gpus, row.local_batch] for row in own], dtype=np.float64)
        types[gpu_type] = StepTimes(points, np.array([[row.step_s, row.sync_s] for row in own]))
    noise = settings.values.get("noise_scale", "").strip() if settings else ""
    return Profile(
        model=model,
        steps=types,
        local_batch=settings.number("local_batch", usual, above=True) if settings else usual,
        restart_s=settings.number("restart_s", RESTART_S) if settings else RESTART_S,
        noise_scale=settings.number("noise_scale") if settings and noise else None,
        packed={(row.gpu_type, row.packed_with, row.gpus): row.step_s for row in rows if row.packed_with},
    )
