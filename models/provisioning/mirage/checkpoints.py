"""Save networks and the progress of their training as files of numbers: no pickle, resumable, checked on loading."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agent.model_folder import pack_arrays, unpack_arrays
from models.provisioning.mirage.snapshots import VERSION
from traces.errors import InputError
from traces.files.whole import whole_file

if TYPE_CHECKING:
    import torch

META = "meta"
WEIGHTS = "weights"
STEP = "step"
MOMENTS = (STEP, "exp_avg", "exp_avg_sq")  # Adam's memory of each weight
Moments = Mapping[str, NDArray[Any]]


def save(path: Path, network: torch.nn.Module, adam: torch.optim.Adam, meta: Mapping[str, Any]) -> None:
    """Write one file, replaced as a whole. `meta`, JSON: the settings of the training, and its progress."""
    remembered = adam.state_dict()["state"].values()
    arrays = {name: flat(moments[name] for moments in remembered) for name in MOMENTS}
    text = json.dumps({"state_version": VERSION, **meta}, sort_keys=True)
    arrays |= {WEIGHTS: flat(network.state_dict().values()), META: np.frombuffer(text.encode(), np.uint8)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        temporary.write_bytes(pack_arrays(arrays))


def load(path: Path, network: torch.nn.Module, made_for: Mapping[str, Any]) -> tuple[dict[str, Any], Moments]:
    """Load the weights into `network`; returns the `meta` of `save`, and Adam's memory (for `restore`).

    Raises InputError, one line, for a file that is damaged, of another version of the state, or made for another value
    of any of `made_for` (sizes, seed).
    """
    try:
        arrays = unpack_arrays(path.read_bytes())
        meta = json.loads(arrays.pop(META).tobytes())
        expected = json.loads(
            json.dumps({"state_version": VERSION, **made_for})
        )  # as JSON returns them: tuples as lists
        for name, value in expected.items():
            if meta.get(name) != value:
                raise InputError(
                    f"{path}: a checkpoint of {name} {meta.get(name)!r}; this training has {value!r}: remove the "
                    "file, or train with the earlier value"
                )
        weights = network.state_dict()
        network.load_state_dict(dict(zip(weights, parts(arrays[WEIGHTS], weights.values()), strict=True)))
        return meta, {name: arrays[name] for name in MOMENTS}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: no whole checkpoint ({' '.join(str(error).split())[:200]}); remove it") from error


def restore(adam: torch.optim.Adam, moments: Moments) -> None:
    """Give a new Adam the saved memory of its weights."""
    import torch

    given = [weight for group in adam.param_groups for weight in group["params"]]
    split = {name: parts(moments[name], given) for name in MOMENTS if name != STEP}
    steps = torch.from_numpy(moments[STEP].copy()).unbind()
    remembered = {
        i: {STEP: step, **{name: values[i] for name, values in split.items()}} for i, step in enumerate(steps)
    }
    adam.load_state_dict({**adam.state_dict(), "state": remembered})


def flat(tensors: Iterable[torch.Tensor]) -> NDArray[Any]:
    """Join all tensors end to end, so that a file holds few arrays, however many weights there are."""
    return np.concatenate([tensor.cpu().numpy().ravel() for tensor in tensors])


def parts(flat: NDArray[Any], like: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Split such an array into the shapes of `like`. Raises ValueError if the lengths differ."""
    import torch

    shapes = [tensor.shape for tensor in like]
    ends = np.cumsum([shape.numel() for shape in shapes])
    if len(flat) != ends[-1]:
        raise ValueError(f"{len(flat)} numbers for {ends[-1]} weights")
    each = np.split(flat, ends[:-1])
    return [torch.from_numpy(part.copy()).reshape(shape) for part, shape in zip(each, shapes, strict=True)]
