"""Memory and transfer times by batch size, which emulated GPUs need and the replay of a trace does not.

A folder of profiles (`table`) may have a third file, `batches.csv`, a row per model, GPU type and batch size:

| column | meaning |
|---|---|
| `model`, `gpu_type` | names, as in `steps.csv` |
| `local_batch` | samples per GPU, > 0 |
| `memory_mib` | most memory of each GPU during a step, MiB; may be empty |
| `transfer_s` | time to copy the batch from the host to the GPU, s; may be empty |
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from traces.files.csv_rows import CsvRow, csv_rows

_COLUMNS = ("model", "gpu_type", "local_batch")
_OPTIONAL = ("memory_mib", "transfer_s")


class BatchCosts(NamedTuple):
    """What was measured of one model on one GPU type: values by samples per GPU, in ascending order."""

    memory_mib: dict[float, float]
    transfer_s: dict[float, float]


def read_batches(folder: Path) -> dict[tuple[str, str], BatchCosts]:
    """Read `batches.csv` of a folder, by model and GPU type. Without that file the result is empty.

    Raises InputError with file, line and reason for the first row that is wrong.
    """
    file = folder / "batches.csv"
    rows: dict[tuple[str, str], list[CsvRow]] = {}
    for row in csv_rows(file, _COLUMNS, _OPTIONAL) if file.exists() else []:
        rows.setdefault((row.name("model"), row.name("gpu_type")), []).append(row)
    return {
        name: BatchCosts(*(by_batch(own, "local_batch", column) for column in _OPTIONAL)) for name, own in rows.items()
    }


def by_batch(rows: list[CsvRow], batch: str, column: str) -> dict[float, float]:
    """Return the values of a column that are given, by the value of the column `batch`, in ascending order.

    Raises InputError for a batch or value that is not above 0, and for a batch that appears twice.
    """
    found: dict[float, float] = {}
    for row in rows:
        if not row.text(column):
            continue
        samples = row.number(batch, above=True)
        if samples in found:
            raise row.error(f"{batch} {samples:g} appears twice")
        found[samples] = row.number(column, above=True)
    return dict(sorted(found.items()))
