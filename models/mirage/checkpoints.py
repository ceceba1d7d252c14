"""Networks and where their training stands, as files of numbers: no pickle, resumable, refused where they differ."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import pack_arrays, unpack_arrays
from models.mirage.networks import Sizes
from models.mirage.snapshots import VERSION
from traces.errors import InputError
from traces.files.whole import whole_file

if TYPE_CHECKING:
    import torch

META = "meta"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what Adam remembers of each weight


@dataclass(frozen=True)
class Place:
    """Where a training stands: so many epochs of that stage are done, in so many seconds all in all."""

    stage: int = 0
    epoch: int = 0
    seconds: float = 0.0


def save(
    path: Path, network: torch.nn.Module, adam: torch.optim.Adam | None, place: Place, sizes: Sizes, seed: int
) -> None:
    """One file, replaced as a whole; without `adam` at the beginning of a stage."""
    arrays: dict[str, NDArray[Any]] = {f"weight/{k}": v.numpy() for k, v in network.state_dict().items()}
    if adam is not None:
        for number, of_weight in adam.state_dict()["state"].items():
            arrays |= {f"adam/{number}/{name}": of_weight[name].numpy() for name in MOMENTS}
    meta = {"state_version": VERSION, "sizes": asdict(sizes), "seed": seed, **asdict(place)}
    arrays[META] = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        temporary.write_bytes(pack_arrays(arrays))


def load(path: Path, network: torch.nn.Module, sizes: Sizes, seed: int) -> tuple[Place, dict[int, dict[str, Any]]]:
    """Puts the weights into `network`; returns the place, and what Adam remembered of each weight.

    Raises InputError, one line, for a file that is damaged, of another version of the state, other sizes or another
    seed.
    """
    import torch

    try:
        arrays = unpack_arrays(path.read_bytes())
        meta = json.loads(arrays.pop(META).tobytes())
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: no whole checkpoint ({' '.join(str(error).split())[:200]}); remove it") from error
    wanted = {"state_version": VERSION, "sizes": asdict(sizes), "seed": seed}
    for name, value in wanted.items():
        if meta.get(name) != value:
            raise InputError(
                f"{path}: a checkpoint of {name} {meta.get(name)!r}; this training has {value!r}: remove the file, or "
                "train as it was"
            )
    weights = {name.removeprefix("weight/"): a for name, a in arrays.items() if name.startswith("weight/")}
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    remembered: dict[int, dict[str, Any]] = {}
    for name, array in arrays.items():
        if name.startswith("adam/"):
            _, number, part = name.split("/")
            remembered.setdefault(int(number), {})[part] = torch.from_numpy(array.copy())
    return Place(int(meta["stage"]), int(meta["epoch"]), float(meta["seconds"])), remembered
