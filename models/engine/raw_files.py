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

BYTE_S = 3e-8  # rough time for each stored byte
MOST_PROCESSES = 4  # each holds rows of one file


def files_on_engine(root: Path) -> EachFile:
    """Return the function that reads the files of an ingest as tasks of the engine of the data folder `root`."""

    def each(reading: Ingestion, files: Sequence[GivenFile]) -> Iterator[tuple[int, StagedFile]]:
        sizes = [given.raw.path.stat().st_size if given.raw.path.is_file() else 0 for given in files]
        tasks = [
            Task(f"the reading of {given.raw.path}", given, f"up to {1 << size.bit_length()} bytes")
            for given, size in zip(files, sizes, strict=True)
        ]
        yield from engine_of(root)(Work(read_steadily, tasks, reading, about_s=BYTE_S * sum(sizes)), MOST_PROCESSES)

    return each
