"""Describe the GPUs that a training script gets: what `emulated_gpu` needs of a profile, as plain values for JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simulator.gpu.profiles.batches import BatchCosts, read_batches
from simulator.gpu.profiles.gpemu import is_gpemu, read_gpemu
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.profiles.scaling import packed_share
from simulator.gpu.profiles.table import profiles_of
from traces.counted import counted
from traces.errors import InputError
from traces.visible import visible

_SIZE = re.compile(r"-(\d+)GB$")  # in the names of NVIDIA's GPUs


@dataclass(frozen=True)
class EmulatedPlacement:
    """The GPUs to emulate. `local_batch`: samples per GPU of a step that names no batch; None: the profile's."""

    model: str
    gpu_type: str
    gpus: int = 1
    nodes: int = 1
    local_batch: float | None = None
    gpu_memory_gib: float | None = None  # None: by the name of the type, else without a limit


def describe(profiles: str, place: EmulatedPlacement) -> dict[str, Any]:
    """Return the values that `EmulatedGpu` takes, at normal speed, shared with no other process and met by no worker.

    `profiles` is `published`, a file or folder (`profiles.table`), or GPEmu's folder (`profiles.gpemu`). Raises
    InputError for a model, GPU type or placement that does not exist.
    """
    if not 1 <= place.nodes <= place.gpus:
        raise InputError(f"{counted(place.gpus, 'GPU')} on {counted(place.nodes, 'node')}: each node has at least one")
    profile, others, costs = _measured(profiles, place)
    steps = profile.steps[place.gpu_type]
    shares = {
        name: packed_share(profile, other, place.gpu_type, place.gpus) if place.nodes == 1 else 0.0
        for name, other in others.items()
    }
    size = _SIZE.search(place.gpu_type)
    gib = float(size[1]) if size and place.gpu_memory_gib is None else place.gpu_memory_gib
    return {
        "model": place.model,
        "gpu_type": place.gpu_type,
        "gpus": place.gpus,
        "nodes": place.nodes,
        "local_batch": profile.local_batch if place.local_batch is None else place.local_batch,
        "steps": [
            [float(batch), *steps.at(place.nodes, place.gpus, float(batch))] for batch in np.unique(steps.points[:, 2])
        ],
        "is_measured": bool((steps.points[:, :2] == (place.nodes, place.gpus)).all(axis=1).any()),
        "memory": [list(row) for row in costs.memory_mib.items()],
        "transfer": [list(row) for row in costs.transfer_s.items()],
        "memory_mib": None if gib is None else 1024.0 * gib,
        "packed": {name: 1.0 / share for name, share in shares.items() if share > 0.0},
        "speed": 1.0,
        "share": None,
        "meet": None,
    }


def emulation_summary(emulation: dict[str, Any]) -> str:
    """Return one line for a person: what is emulated, and what the profile does not say."""
    batches = [f"{row[0]:g}" for row in emulation["steps"]]
    unknown = [what for what in ("memory", "transfer") if not emulation[what]]
    parts = [
        f"emulating {emulation['model']} on {emulation['gpus']} {emulation['gpu_type']} of "
        f"{counted(emulation['nodes'], 'node')}, {emulation['speed']:g} times as fast",
        f"steps measured at {' to '.join(dict.fromkeys((batches[0], batches[-1])))} samples per GPU",
        "" if emulation["is_measured"] else "this placement was not measured: its steps follow from the nearest ones",
        f"not profiled: {' and '.join(unknown)}" if unknown else "",
        "" if emulation["memory_mib"] else "no limit of memory (--gpu-memory-gib sets one)",
    ]
    return "; ".join(part for part in parts if part)


def _measured(profiles: str, place: EmulatedPlacement) -> tuple[Profile, dict[str, Profile], BatchCosts]:
    """Return the model's profile, all profiles of the same source, and the model's costs by batch."""
    if is_gpemu(Path(profiles)):
        profile, costs = read_gpemu(Path(profiles), place.model, place.gpu_type)
        return profile, {}, costs
    known = profiles_of(profiles)
    if place.model not in known:
        raise InputError(f"no profile of model '{visible(place.model)[:60]}'; there are: {', '.join(known) or 'none'}")
    types = known[place.model].steps
    if place.gpu_type not in types:
        wrong = visible(place.gpu_type)[:60]
        raise InputError(f"{place.model} was not measured on GPU type '{wrong}'; it was on: {', '.join(types)}")
    costs_of = read_batches(Path(profiles)) if profiles != "published" else {}
    return known[place.model], known, costs_of.get((place.model, place.gpu_type), BatchCosts({}, {}))
