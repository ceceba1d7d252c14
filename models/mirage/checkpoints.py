"""Networks and where their training stands, as files of numbers: no pickle, resumable, refused where they differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import pack_arrays, unpack_arrays
from models.mirage.snapshots import VERSION
from traces.errors import InputError
from traces.files.whole import whole_file

if TYPE_CHECKING:
    import torch

META = "meta"
WEIGHTS = "weights"
STEP = "step"
MOMENTS = (STEP, "exp_avg", "exp_avg_sq")  # what Adam remembers of each weight
Moments = Mapping[str, NDArray[Any]]


def save(path: Path, network: torch.nn.Module, adam: torch.optim.Adam, meta: Mapping[str, Any]) -> None:
    """One file, replaced as a whole. `meta`, JSON: what the training was made for, and where it stands."""
    remembered = adam.state_dict()["state"].values()
    arrays = {name: _flat(of[name] for of in remembered) for name in MOMENTS}
    text = json.dumps({"state_version": VERSION, **meta}, sort_keys=True)
    arrays |= {WEIGHTS: _flat(network.state_dict().values()), META: np.frombuffer(text.encode(), np.uint8)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        temporary.write_bytes(pack_arrays(arrays))


def load(path: Path, network: torch.nn.Module, made_for: Mapping[str, Any]) -> tuple[dict[str, Any], Moments]:
    """Puts the weights into `network`; returns what `save` was told, and what Adam remembered (`remind`).

    Raises InputError, one line, for a file that is damaged, of another version of the state, or made for another
    value of any of `made_for` (sizes, seed).
    """
    try:
        arrays = unpack_arrays(path.read_bytes())
        meta = json.loads(arrays.pop(META).tobytes())
        wanted = json.loads(json.dumps({"state_version": VERSION, **made_for}))  # as they come back: tuples as lists
        for name, value in wanted.items():
            if meta.get(name) != value:
                raise InputError(
                    f"{path}: a checkpoint of {name} {meta.get(name)!r}; this training has {value!r}: remove the "
                    "file, or train as it was"
                )
        weights = network.state_dict()
        network.load_state_dict(dict(zip(weights, _parts(arrays[WEIGHTS], weights.values()), strict=True)))
        return meta, {name: arrays[name] for name in MOMENTS}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: no whole checkpoint ({' '.join(str(error).split())[:200]}); remove it") from error


def remind(adam: torch.optim.Adam, moments: Moments) -> None:
    """Makes a new Adam remember, of the weights that it was given, what the saved one did."""
    import torch

    given = [weight for group in adam.param_groups for weight in group["params"]]
    parts = {name: _parts(moments[name], given) for name in MOMENTS if name != STEP}
    steps = torch.from_numpy(moments[STEP].copy()).unbind()
    remembered = {i: {STEP: step, **{name: of[i] for name, of in parts.items()}} for i, step in enumerate(steps)}
    adam.load_state_dict({**adam.state_dict(), "state": remembered})


def _flat(tensors: Iterable[torch.Tensor]) -> NDArray[Any]:
    """All of them end to end: a file of few arrays, however many weights there are."""
    return np.concatenate([tensor.cpu().numpy().ravel() for tensor in tensors])


def _parts(flat: NDArray[Any], like: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Such an array in the shapes of `like`. Raises ValueError where it is of another length."""
    import torch

    shapes = [tensor.shape for tensor in like]
    ends = np.cumsum([shape.numel() for shape in shapes])
    if len(flat) != ends[-1]:
        raise ValueError(f"{len(flat)} numbers where there are {ends[-1]} weights")
    parts = np.split(flat, ends[:-1])
    return [torch.from_numpy(part.copy()).reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
