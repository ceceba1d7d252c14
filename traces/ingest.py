"""Ingest raw files into the lake: account for every record, and write all files or none.

Each raw file becomes `lake/<cluster>/<start of its digest>/<table>.parquet`. The tables are written to a temporary
folder (`traces.readers.staged`) that is then renamed; its `file.json` records the rules of reading. Ingesting a file
again by the same rules adds nothing. If the rules changed or its folder is damaged, the file replaces its own folder
and nothing else.

Several processes may read at once; they move their results into the lake one at a time.
"""

from __future__ import annotations

import itertools
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from traces.clusters import ClusterSettings
from traces.counted import counted as so_many
from traces.errors import InputError, WorkError
from traces.files.locks import locked
from traces.formats import check_format
from traces.readers.common import RawFile
from traces.readers.registry import READERS
from traces.readers.staged import (
    READINGS,
    FileResult,
    GivenFile,
    Ingestion,
    StagedFile,
    changing,
    described_in,
    has_changed,
    held_already,
    read_steadily,
)
from traces.store import raw_files, staging
from traces.store.connections import first_line
from traces.store.folder import LAKE, DataFolder

HIDDEN = (".", "~")
STANDARD_INPUT = Path("-")
# Calls `read_steadily` for each file, in any order and on any machine; yields (position, result).
EachFile = Callable[[Ingestion, Sequence[GivenFile]], Iterable[tuple[int, StagedFile]]]


def one_by_one(reading: Ingestion, files: Sequence[GivenFile]) -> Iterator[tuple[int, StagedFile]]:
    """Read the files here, in order."""
    for at, given in enumerate(files):
        yield at, read_steadily(reading, given)


def ingest(
    paths: Sequence[Path],
    *,
    cluster: ClusterSettings,
    data: DataFolder,
    format: str = "auto",
    fields: Sequence[str] | None = None,
    delimiter: str | None = None,
    each: EachFile = one_by_one,
) -> list[FileResult]:
    """Read files, the files of folders, or standard input (`-`) into the lake; return a result for each, in order.

    Everything is read, by `each`, before anything is written. A changed file replaces its own older rows.

    Raises InputError for an unreadable path, a named file without a known format or without one valid record, a folder
    without a recognised file, and a job larger than its cluster. Raises WorkError where the lake cannot be written.
    """
    check_format(format)
    if not paths:
        raise InputError("no file given: give files or folders of raw logs")
    data.ensure_writable()
    try:
        staging.sweep(data.root, data.lake)
        with staging.workplace(data.root, data.lake / cluster.name) as place:
            how = RawFile(Path(), cluster, tuple(fields) if fields else None, unescaped(delimiter))
            batch = _Batch(how, Ingestion(format, data.lake / cluster.name, place), data)
            batch.add(paths, each)
            batch.check_sizes()
            batch.commit()
    except (OSError, MemoryError) as error:  # while writing: an unreadable file is an InputError
        raise WorkError(f"nothing was added to {data.lake}; its files are unchanged: {first_line(error)}") from error
    return [staged.result for staged in batch.read]


def current_digests(results: Sequence[FileResult]) -> dict[str, str]:
    """Return the digest of every file that was read, by its absolute path."""
    return {str(Path(r.path).resolve()): r.sha256 for r in results if r.sha256 and Path(r.path).is_file()}


def unescaped(delimiter: str | None) -> str | None:
    r"""Return the delimiter with escapes such as `\t` and `\x1f` decoded. Raises InputError for an empty delimiter."""
    if delimiter is None:
        return None
    text = re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), delimiter).replace("\\t", "\t")
    if not text or "\n" in text or "\r" in text:
        raise InputError(f"--delimiter {delimiter!r}: give at least one character, without line breaks")
    return text


def _files_of(folder: Path) -> list[Path]:
    """Return the files directly in the folder, without hidden ones, sorted by name. Raises InputError if unreadable."""
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith(HIDDEN) and p.name[-1] != "~")
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from error


@dataclass
class _Batch:
    """The files of one call of `ingest`: either all of them go into the lake or none."""

    how: RawFile  # without a path: the settings for reading each file
    reading: Ingestion
    data: DataFolder
    read: list[StagedFile] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def add(self, paths: Sequence[Path], each: EachFile) -> None:
        """Read files, the files of folders, or standard input. Raises the same InputErrors as `ingest`."""
        folders: dict[Path, slice] = {}
        files: list[GivenFile] = []
        for path in paths:
            if path.is_dir():
                first = len(files)
                files += [self._given(replace(self.how, path=file), named=False) for file in _files_of(path)]
                folders[path] = slice(first, len(files))
            else:
                files.append(self._given(self._spooled(path), named=True))
        staged = dict(each(self.reading, files))
        for at in range(len(files)):
            self.read.append(self._without_copy(staged[at]))
        for folder, its_files in folders.items():
            _check_known(folder, self.read[its_files])

    def _given(self, raw: RawFile, *, named: bool) -> GivenFile:
        """Of two node lists, the later one counts: also after one of a machine whose clock is ahead."""
        number = next(self.numbers)
        return GivenFile(raw, named, number, max(time.time(), self.newest_list_s + (number + 1) / 1000))

    @cached_property
    def newest_list_s(self) -> float:
        """When the newest node list that the lake has of the cluster was given, s since 1970."""
        return raw_files.newest_list_s(self.reading.lake)

    def _spooled(self, path: Path) -> RawFile:
        """Copy standard input or a pipe to a file: it can be read only once, and its digest is needed first."""
        if path != STANDARD_INPUT and not path.is_fifo():
            return replace(self.how, path=path)
        self.reading.place.mkdir(parents=True, exist_ok=True)
        copy = self.reading.place / f"given-{next(self.numbers)}"
        with (
            copy.open("wb") as spool,
            nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else path.open("rb") as source,
        ):
            shutil.copyfileobj(source, spool, 1 << 20)
        return replace(self.how, path=copy, shown=str(path))

    def _without_copy(self, staged: StagedFile) -> StagedFile:
        """Return the file without its folder if an earlier one of the batch has the same content and rules."""
        same = (one for one in self.read if one.temporary and (one.final, one.rules) == (staged.final, staged.rules))
        first = next(same, None)
        if first is None or staged.temporary is None:
            return staged
        shutil.rmtree(staged.temporary, ignore_errors=True)
        result = held_already(staged.result.path, asdict(first.result), staged.result.seconds)
        return replace(staged, result=result, temporary=None)

    def check_sizes(self) -> None:
        """Raise InputError for a job that ran on more nodes than the cluster's settings declare for any date."""
        cluster = self.how.settings
        if cluster.nodes is None:
            return
        declared = max(cluster.nodes, *(nodes for _, nodes in cluster.nodes_by_date), 0)
        for staged in self.read:
            folder = staged.temporary or staged.final
            if folder is None or not (folder / "jobs.parquet").is_file():
                continue
            jobs = pl.scan_parquet(folder / "jobs.parquet", glob=False)
            ran = jobs.filter((pl.col("run_s") > 0) & (pl.col("allocated_nodes") > declared))
            largest = ran.sort("allocated_nodes", "line", descending=[True, False]).head(1).collect()
            for job in largest.iter_rows(named=True):
                raise InputError(
                    f"{staged.result.path}:{job['line']}: job {job['job_id']!r} ran on "
                    f"{so_many(job['allocated_nodes'], 'node')}, but cluster {cluster.name!r} has {declared}; "
                    "correct nodes in clusters.toml, or give --nodes"
                )

    def commit(self) -> None:
        """Move every folder into the lake, and remove the folders of earlier contents of the same files.

        Another process may have written newer rows of a file to the lake meanwhile; such a file is read again.
        """
        for _ in range(READINGS):
            with locked(self.data.root, LAKE):
                stale = [number for number, staged in enumerate(self.read) if self._is_stale(staged)]
                if not stale:
                    for staged in self.read:
                        if staged.temporary is not None and staged.final is not None:
                            staging.publish(staged.temporary, staged.final)
                    self._forget_older()
                    return
            for number in stale:
                if (older := self.read[number].temporary) is not None:
                    shutil.rmtree(older, ignore_errors=True)
                given = self.read[number].given
                self.read[number] = read_steadily(self.reading, self._given(given.raw, named=given.named))
        raise changing(self.read[stale[0]].given.raw)

    def _is_stale(self, staged: StagedFile) -> bool:
        """Return whether the file changed since it was read, or its rows are neither in the lake nor in this batch."""
        if staged.final is None:
            return False
        if has_changed(staged.given.raw.path, staged.state):
            return True
        rows = (staged.final, *(one.temporary for one in self.read if one.final == staged.final and one.temporary))
        return staged.temporary is None and not any(described_in(folder, staged.rules) for folder in rows)

    def _forget_older(self) -> None:
        results = [staged.result for staged in self.read]
        digests, kept = current_digests(results), {r.sha256 for r in results}
        staging.retire(self.data.lake / self.how.settings.name, digests, kept, self.reading.place)


def _check_known(folder: Path, files: Sequence[StagedFile]) -> None:
    """Raise InputError for a folder none of whose files has a known format."""
    if all(staged.result.skipped_reason is not None for staged in files):
        what = (
            "; ".join(f"{one.given.raw.path.name}: {one.result.skipped_reason}" for one in files[:3]) or "it is empty"
        )
        raise InputError(f"{folder}: no file in this folder has a known format ({', '.join(READERS)}): {what}")
