"""Read the profiles that GPEmu's authors published, from a copy of their folder `profiled_data`.

GPEmu: Wang et al., PVLDB; `github.com/mengwanguc/gpemu`, commit b787ef2, which names no licence: Baton ships none of
its files. Of a model MODEL on a GPU type TYPE, both as their folders are named, we read:

| file | columns | read as |
|---|---|---|
| `time/compute/forward/TYPE/MODEL/time_by_batch_size.csv` | `Batch_Size`, `Time_In_SECONDS` | step time, first part |
| `time/compute/backward/TYPE/MODEL/time_by_batch_size.csv` | the same | step time, second part, added |
| `time/transfer/TYPE/MODEL/data_transfer_time_by_batch_size.csv` | the same | `transfer_s` |
| `memory/TYPE/MODEL/memory.csv` | `batch_size`, `peak`, `persistent` | `memory_mib` is `peak`, MiB of PyTorch |

The last two may be absent. Their steps have no optimizer and no synchronisation, and were measured on one GPU. The
files hold a row for every batch size up to 256; some of the rows are the authors' regression and not a measurement.
Their regression models (`*.pkl`) and `persistent` are not used.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from simulator.gpu.profiles.batches import BatchCosts, by_batch
from simulator.gpu.profiles.profile import Profile, StepTimes
from traces.errors import InputError
from traces.files.csv_rows import csv_rows
from traces.visible import visible

_BATCH, _TIME = "Batch_Size", "Time_In_SECONDS"


def is_gpemu(folder: Path) -> bool:
    """Whether a folder is a copy of GPEmu's `profiled_data`."""
    return (folder / "time/compute").is_dir()


def read_gpemu(folder: Path, model: str, gpu_type: str) -> tuple[Profile, BatchCosts]:
    """Read one model on one GPU type. A job that declares no batch has the largest, as in GPEmu (256).

    Raises InputError for a model or type that the folder lacks, with those that it has, and for a wrong file.
    """
    forward, backward = folder / "time/compute/forward", folder / "time/compute/backward"
    _check("GPU type", gpu_type, forward, folder)
    _check("model", model, forward / gpu_type, folder)
    first, second = (_times(part / gpu_type / model / "time_by_batch_size.csv") for part in (forward, backward))
    batches = sorted(first.keys() & second.keys())
    if not batches:
        raise InputError(f"{visible(str(folder))}: no batch size of {model} has a forward and a backward time")
    points = np.array([[1, 1, batch] for batch in batches], dtype=np.float64)
    seconds = np.array([[first[batch] + second[batch], 0.0] for batch in batches])
    transfer = folder / "time/transfer" / gpu_type / model / "data_transfer_time_by_batch_size.csv"
    memory = folder / "memory" / gpu_type / model / "memory.csv"
    costs = BatchCosts(
        by_batch(csv_rows(memory, ("batch_size", "peak"), ("persistent",)), "batch_size", "peak")
        if memory.exists()
        else {},
        _times(transfer) if transfer.exists() else {},
    )
    return Profile(model, {gpu_type: StepTimes(points, seconds)}, max(batches)), costs


def _times(file: Path) -> dict[float, float]:
    return by_batch(csv_rows(file, (_BATCH, _TIME), ()), _BATCH, _TIME)


def _check(what: str, name: str, within: Path, folder: Path) -> None:
    """Raise InputError if no folder of that name lies in `within`."""
    known = sorted(path.name for path in within.iterdir() if path.is_dir()) if within.is_dir() else []
    if name not in known:
        listed = visible(", ".join(known)) or "none"
        raise InputError(f"{visible(str(folder))}: no {what} '{visible(name)[:60]}'; there are: {listed}")
