"""Typed rows of a dump, kept on disk until it is read completely, when it is known which ids have several records.

A dump is folded into jobs a block at a time. The few ids with several records (requeues, resizes, reused ids, records
printed twice) may be anywhere in the dump. They are folded separately, in buckets that fit in memory. Memory holds only
an 8-byte hash of each record. Ids with the same hash go to the same bucket, where their texts distinguish them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
BUCKET_ROWS = 100_000  # approximate number of allocation records that are folded at once


@dataclass
class SpilledBatch:
    """One block's rows in the spill: its number, which names its files, and the hashes of the keys."""

    number: int
    allocations: Hashes  # (allocations,) of the id
    steps: Hashes  # (steps,) of id, step and submission
    first: int = 0  # number of the block's first line in the file, from 1


@dataclass
class Spill:
    """The folder of rows that wait to be folded."""

    folder: Path
    batches: list[SpilledBatch] = field(default_factory=list)

    def put(self, number: int, rows: pl.DataFrame, kept: pl.Series) -> SpilledBatch:
        """Write the kept rows of one block; threads may call this at once with different numbers."""
        is_step = rows["step_id"].is_not_null()
        allocations = rows.filter(kept & ~is_step)
        steps = rows.select(STEP_COLUMNS).filter(kept & is_step)
        allocations.write_ipc_stream(self._file("allocations", number))
        steps.write_ipc_stream(self._file("steps", number))
        key = steps.select(pl.struct("base", "step_id", "submit_utc").hash()).to_series()
        return SpilledBatch(number, allocations["base"].hash().to_numpy(), key.to_numpy())

    def _file(self, kind: str, number: int, bucket: int | str = "all") -> Path:
        return self.folder / f"{kind}-{bucket}-{number}.arrow"

    def _read(self, batch: SpilledBatch) -> tuple[pl.DataFrame, pl.DataFrame]:
        frames = []
        for kind in ("allocations", "steps"):
            path = self._file(kind, batch.number)
            frames.append(pl.read_ipc_stream(path).with_columns(pl.col("line") + batch.first))
            path.unlink()
        return frames[0], frames[1]

    def folds(self) -> Iterator[tuple[pl.DataFrame, pl.DataFrame, bool]]:
        """Yield (allocations, steps, whether every id is unique) in portions that can be folded independently."""
        if len(self.batches) == 1:
            yield *self._read(self.batches[0]), False
            return
        ids, count = _doubled([batch.allocations for batch in self.batches])
        step_keys, step_count = _doubled([batch.steps for batch in self.batches])
        buckets = 1 + (count + step_count // 4) // BUCKET_ROWS
        for batch in self.batches:
            allocations, steps = self._read(batch)
            apart = _among(batch.allocations, ids)
            owner = steps["base"].hash().to_numpy()
            steps_apart = _among(owner, ids) | _among(batch.steps, step_keys)
            for kind, frame, which, hashes in (
                ("allocations", allocations, apart, batch.allocations),
                ("steps", steps, steps_apart, owner),
            ):
                if which.any():
                    self._apart(kind, batch.number, frame.filter(which), hashes[which] % np.uint64(buckets))
            yield allocations.filter(~apart), steps.filter(~steps_apart), True
        for bucket in range(buckets):
            yield self._bucket("allocations", bucket, allocations), self._bucket("steps", bucket, steps), False

    def _apart(self, kind: str, number: int, frame: pl.DataFrame, bucket: Hashes) -> None:
        for which in np.unique(bucket).tolist():
            frame.filter(bucket == which).write_ipc_stream(self._file(kind, number, which))

    def _bucket(self, kind: str, bucket: int, like: pl.DataFrame) -> pl.DataFrame:
        frames = [like.clear()]
        for batch in self.batches:
            path = self._file(kind, batch.number, bucket)
            if path.exists():
                frames.append(pl.read_ipc_stream(path))
                path.unlink()
        return pl.concat(frames)


GPU_COLUMNS = ("gpu_percent", "gpu_max_percent", "gpu_mem_max_kib")
STEP_COLUMNS = (
    "line", "base", "step_id", "job_name", "state", "submit_utc", "start_utc", "end_utc", "run_s", "allocated_cpus",
    "max_rss_kib", "cpu_time_s", "exit_code", "exit_signal", "ran", "sluid", *GPU_COLUMNS,
)  # fmt: skip


def _doubled(hashes: Sequence[Hashes]) -> tuple[Hashes, int]:
    """Return (the sorted values that occur more than once; the total number of their occurrences)."""
    parts, count = [], 0
    for top in range(16):  # a sixteenth at a time, to avoid a second copy of all hashes
        part = np.concatenate([h[h >> np.uint64(60) == top] for h in hashes])
        part.sort()
        doubled = np.flatnonzero(part[1:] == part[:-1])
        values = np.unique(part[doubled])
        count += len(doubled) + len(values)
        parts.append(values)
    return np.concatenate(parts), count


def _among(hashes: Hashes, doubled: Hashes) -> NDArray[np.bool_]:
    """Return which of the hashes are among the sorted values."""
    if len(doubled) == 0:
        return np.zeros(len(hashes), dtype=np.bool_)
    at = np.minimum(np.searchsorted(doubled, hashes), len(doubled) - 1)
    result: NDArray[np.bool_] = doubled[at] == hashes
    return result
