"""Read raw log files as tasks of an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.engine.engines import engine_of
from models.engine.work import Task, Work
from traces.readers.staged import GivenFile, Ingestion, StagedFile, read_steadily

if TYPE_CHECKING:
    from traces.ingest import EachFile

BYTE_S = 3e-8  # rough time for each byte of text
PACKED = {".gz": 8, ".zst": 8}  # bytes of text, roughly, for each byte of a compressed file
MOST_PROCESSES = 4  # each holds rows of one file


def files_on_engine(root: Path) -> EachFile:
    """Return the function that reads the files of an ingest as tasks of the engine of the data folder `root`."""

    def each(reading: Ingestion, files: Sequence[GivenFile]) -> Iterator[tuple[int, StagedFile]]:
        sizes = [_text_bytes(given.raw.path) for given in files]
        tasks = [
            Task(f"the reading of {given.raw.path}", given, f"up to {1 << size.bit_length()} bytes")
            for given, size in zip(files, sizes, strict=True)
        ]
        yield from engine_of(root)(Work(read_steadily, tasks, reading, about_s=BYTE_S * sum(sizes)), MOST_PROCESSES)

    return each


def _text_bytes(path: Path) -> int:
    """Return roughly how many bytes of text the file holds; 0 for a pipe."""
    return path.stat().st_size * PACKED.get(path.suffix, 1) if path.is_file() else 0
