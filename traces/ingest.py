"""Ingest raw files into the lake: choose a reader, account for every record, and write all files or none.

Each raw file becomes `lake/<cluster>/<start of its digest>/<table>.parquet`. The tables are written to a temporary
folder that is then renamed; its `file.json` records the rules of reading. Ingesting a file again by the same rules adds
nothing. If the rules changed or its folder is damaged, the file replaces its own folder and nothing else.

Several processes may read at once; they move their results into the lake one at a time. A file that changes while it
is read is read again, so that the rows under a digest come from the bytes with that digest.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from traces import schema
from traces.cache.closure import code_digest
from traces.cache.digests import digest as digest_of
from traces.clusters import ClusterSettings
from traces.counted import counted as so_many
from traces.errors import InputError, WorkError
from traces.files.locks import locked
from traces.formats import check_format
from traces.generated import is_generated
from traces.progress import say
from traces.readers import registry
from traces.readers.common import Parsed, RawFile, Reader, rejects_frame
from traces.readers.registry import READERS, reader_for
from traces.store import raw_files, staging
from traces.store.connections import first_line
from traces.store.file_tables import FileTables
from traces.store.folder import LAKE, DataFolder
from traces.store.raw_files import DIGEST_CHARACTERS
from traces.visible import storable

HIDDEN = (".", "~")
READINGS = 3  # attempts to read a file that keeps changing
STANDARD_INPUT = Path("-")


@dataclass(frozen=True)
class FileResult:
    """The result of reading one file; `rows` = allocations + steps + samples + duplicates + rejects.

    `slow` counts the lines that could not be read in bulk. `first_reject` names the first rejected line and the reason.
    For a file of a folder in no known format, `skipped_reason` is set and all counts are 0.
    """

    path: str
    format: str
    rows: int = 0
    allocations: int = 0
    steps: int = 0
    samples: int = 0
    duplicates: int = 0
    rejects: int = 0
    jobs: int = 0
    attempts: int = 0
    sha256: str = ""
    seconds: float = 0.0
    slow: int = 0
    first_reject: str = ""
    skipped_reason: str | None = None


def ingest(
    paths: Sequence[Path],
    *,
    cluster: ClusterSettings,
    data: DataFolder,
    format: str = "auto",
    fields: Sequence[str] | None = None,
    delimiter: str | None = None,
) -> list[FileResult]:
    """Read files, the files of folders, or standard input (`-`) into the lake; return a result for each, in order.

    Everything is read before anything is written. A changed file replaces its own older rows.

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
            batch = _Batch(how, format, data, place)
            for path in paths:
                batch.add(path)
            batch.check_sizes()
            batch.commit()
    except (OSError, MemoryError) as error:  # while writing: an unreadable file is an InputError
        raise WorkError(f"nothing was added to {data.lake}; its files are unchanged: {first_line(error)}") from error
    return [file_read.result for file_read in batch.read]


def current_digests(results: Sequence[FileResult]) -> dict[str, str]:
    """Return the digest of every file that was read, by its absolute path."""
    return {str(Path(r.path).resolve()): r.sha256 for r in results if r.sha256 and Path(r.path).is_file()}


def _spooled(path: Path, source: Path) -> Path:
    """Copy standard input or a pipe to a file: it can be read only once, and the digest is needed before reading."""
    with (
        path.open("wb") as spool,
        nullcontext(sys.stdin.buffer) if source == STANDARD_INPUT else source.open("rb") as s,
    ):
        shutil.copyfileobj(s, spool, 1 << 20)
    return path


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


@dataclass(frozen=True)
class _Read:
    """The result of reading one file, and the file's state when reading began.

    `temporary` is the folder of its rows; None if they are in the lake already. `final` is their place in the lake;
    None if the file was skipped.
    """

    raw: RawFile
    named: bool
    state: tuple[int, ...] | None
    result: FileResult
    rules: str = ""
    final: Path | None = None
    temporary: Path | None = None


@dataclass
class _Batch:
    """The files of one call of `ingest`: either all of them go into the lake or none."""

    how: RawFile  # without a path: the settings for reading each file
    format: str
    data: DataFolder
    place: Path
    read: list[_Read] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def add(self, path: Path) -> None:
        """Read a file, the files of a folder, or standard input. Raises the same InputErrors as `ingest`."""
        if not path.is_dir():
            raw = replace(self.how, path=path)
            if path == STANDARD_INPUT or path.is_fifo():
                self.place.mkdir(parents=True, exist_ok=True)
                spool = self.place / f"given-{next(self.numbers)}"
                raw = replace(raw, path=_spooled(spool, path), shown=str(path))
            self.read.append(self._steady(raw, named=True))
            return
        first = len(self.read)
        for file in _files_of(path):
            self.read.append(self._steady(replace(self.how, path=file), named=False))
        from_folder = self.read[first:]
        if all(file_read.result.skipped_reason is not None for file_read in from_folder):
            what = (
                "; ".join(
                    f"{file_read.raw.path.name}: {file_read.result.skipped_reason}" for file_read in from_folder[:3]
                )
                or "it is empty"
            )
            raise InputError(f"{path}: no file in this folder has a known format ({', '.join(READERS)}): {what}")

    def check_sizes(self) -> None:
        """Raise InputError for a job that ran on more nodes than the cluster's settings declare for any date."""
        cluster = self.how.settings
        if cluster.nodes is None:
            return
        declared = max(cluster.nodes, *(nodes for _, nodes in cluster.nodes_by_date), 0)
        for file_read in self.read:
            folder = file_read.temporary or file_read.final
            if folder is None or not (folder / "jobs.parquet").is_file():
                continue
            jobs = pl.scan_parquet(folder / "jobs.parquet", glob=False)
            ran = jobs.filter((pl.col("run_s") > 0) & (pl.col("allocated_nodes") > declared))
            largest = ran.sort("allocated_nodes", "line", descending=[True, False]).head(1).collect()
            for job in largest.iter_rows(named=True):
                raise InputError(
                    f"{file_read.result.path}:{job['line']}: job {job['job_id']!r} ran on "
                    f"{so_many(job['allocated_nodes'], 'node')}, but cluster {cluster.name!r} has {declared}; "
                    "correct nodes in clusters.toml, or give --nodes"
                )

    def commit(self) -> None:
        """Move every folder into the lake, and remove the folders of earlier contents of the same files.

        Another process may have written newer rows of a file to the lake meanwhile; such a file is read again.
        """
        for _ in range(READINGS):
            with locked(self.data.root, LAKE):
                stale = [number for number, file_read in enumerate(self.read) if self._is_stale(file_read)]
                if not stale:
                    for file_read in self.read:
                        if file_read.temporary is not None and file_read.final is not None:
                            staging.publish(file_read.temporary, file_read.final)
                    self._forget_older()
                    return
            for number in stale:
                if (older := self.read[number].temporary) is not None:
                    shutil.rmtree(older, ignore_errors=True)
                self.read[number] = self._steady(self.read[number].raw, named=self.read[number].named)
        raise _changing(self.read[stale[0]].raw)

    def _is_stale(self, file_read: _Read) -> bool:
        if file_read.final is None:
            return False
        return _has_changed(file_read.raw.path, file_read.state) or (
            file_read.temporary is None and not self.held(file_read.final, file_read.rules)
        )

    def held(self, final: Path, rules: str, *, thorough: bool = False) -> dict[str, Any] | None:
        """Return `file.json` of an undamaged folder in the lake or this batch that was written by those rules."""
        for folder in (final, *(file_read.temporary for file_read in self.read if file_read.final == final)):
            described = None if folder is None else raw_files.read(folder)
            if folder is None or described is None or described["fingerprint"] != rules:
                continue
            if raw_files.damage(folder, thorough=thorough) is None:
                return described
        return None

    def _forget_older(self) -> None:
        results = [file_read.result for file_read in self.read]
        digests, kept = current_digests(results), {r.sha256 for r in results}
        staging.retire(self.data.lake / self.how.settings.name, digests, kept, self.place)

    def _steady(self, raw: RawFile, *, named: bool) -> _Read:
        """Read a file, and again if it changes meanwhile. Raises InputError if it is unusable and was named."""
        for _ in range(READINGS):
            state = _state(raw.path)
            temporary = self.place / str(next(self.numbers))
            try:
                file_read = _stage(raw, self, state, temporary, named=named)
            except Exception:  # a file that changes may break a reader in any way
                if not _has_changed(raw.path, state):
                    raise
            else:
                if file_read.temporary is None:
                    shutil.rmtree(temporary, ignore_errors=True)
                if not _has_changed(raw.path, state):
                    return file_read
            shutil.rmtree(temporary, ignore_errors=True)
            say(f"{raw.shown or raw.path} changed while it was being read: reading it again")
        if named:
            raise _changing(raw)
        return _Read(raw, named, None, FileResult(str(raw.path), "none", skipped_reason=_CHANGING))


def _stage(raw: RawFile, batch: _Batch, state: tuple[int, ...] | None, temporary: Path, *, named: bool) -> _Read:
    """Read one file into a temporary folder of the lake. A file that is skipped gets a result with the reason."""
    began = time.perf_counter()
    path, kind = raw.shown or str(raw.path), "none"
    try:
        if not named and not raw.path.is_file():
            is_folder = raw.path.is_dir()
            raise InputError("a folder: name it to read its files" if is_folder else "not a regular file")
        reader = reader_for(raw, batch.format)
        kind = reader.name
        digest, size = _digest(raw.path)
        rules = fingerprint(reader, raw)
        final = batch.data.lake / raw.settings.name / digest[:DIGEST_CHARACTERS]
        if (known := batch.held(final, rules, thorough=True)) is not None:
            n, seconds = int(known["result"]["rows"]), time.perf_counter() - began
            result = FileResult(path, reader.name, rows=n, duplicates=n, sha256=digest, seconds=seconds)
            return _Read(raw, named, state, result, rules, final)
        temporary.mkdir(parents=True)
        with FileTables(temporary, cluster=raw.settings.name, sha256=digest, path=path) as tables:
            parsed = reader.read(replace(raw, folder=temporary, sha256=digest, tables=tables))
            if parsed.records == len(parsed.rejects) + parsed.rejected:
                first = f": line {parsed.rejects[0].line}: {parsed.rejects[0].reason}" if parsed.rejects else ""
                raise InputError(f"{raw.path}: no record could be read as {reader.name}{first}")
            result = _result(path, reader, parsed, digest, time.perf_counter() - began)
            _write(tables, raw, reader, parsed, result, size)
        if result.rejects:
            result = replace(result, first_reject=_first_reject(temporary / "rejects.parquet"))
    except InputError as error:
        if named:
            raise InputError(str(error).replace(str(raw.path), path)) from error
        return _Read(raw, named, state, FileResult(path, kind, skipped_reason=_without_path(error, raw.path)))
    described = {"schema_version": schema.SCHEMA_VERSION, "fingerprint": rules, "sha256": digest, "path": path}
    described["source"] = raw.shown or str(raw.path.resolve())
    described["ingested_s"] = time.time()  # epoch seconds: the later of two node lists counts
    raw_files.write(temporary, {**described, "result": asdict(result)})
    return _Read(raw, named, state, result, rules, final, temporary)


_CHANGING = f"another program is writing to it: it changed during each of {READINGS} readings"


def _changing(raw: RawFile) -> InputError:
    return InputError(f"{raw.shown or raw.path}: {_CHANGING}; give a copy of the file")


def _state(path: Path) -> tuple[int, ...] | None:
    """Return device, inode, size and times of the file, which change when it is written or replaced. None: no file."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:  # NFS asks the server only when a file is opened
            status = os.fstat(stream.fileno())
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _has_changed(path: Path, state: tuple[int, ...] | None) -> bool:
    """Return whether the file changed since that state. A deleted file counts as unchanged: it was read before."""
    return (present := _state(path)) is not None and present != state


def _without_path(error: InputError, path: Path) -> str:
    """Return the message without the path, for output that names the path already."""
    return re.sub(r"^(\d+): ", r"line \1: ", str(error).removeprefix(f"{path}: ").removeprefix(f"{path}:"))


def _digest(path: Path) -> tuple[str, int]:
    """Return (sha256, size in bytes) of the stored file. Raises InputError where it cannot be read."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
            return digest.hexdigest(), stream.tell()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def fingerprint(reader: Reader, raw: RawFile) -> str:
    """Return a digest of the rules of reading a file: the reader's code, and every setting that changes its rows."""
    module = type(reader).__module__
    rules = {
        "reader": reader.name,
        "code": code_digest(module, __name__, but=(registry.__name__,)),  # leaves out the other readers
        "timezone": raw.settings.timezone,
        "gpus_per_node": raw.settings.gpus_per_node,
        "fields": raw.fields,
        "delimiter": raw.delimiter,
    }
    return digest_of(rules)[:DIGEST_CHARACTERS]


def _result(path: str, reader: Reader, parsed: Parsed, digest: str, seconds: float) -> FileResult:
    rejects = len(parsed.rejects) + parsed.rejected
    counted = parsed.allocations + parsed.steps + parsed.samples + parsed.duplicates + rejects
    if counted != parsed.records:
        raise AssertionError(f"{path}: {so_many(parsed.records, 'record')} read, but {counted} accounted for: {parsed}")
    return FileResult(
        path, reader.name, parsed.records, parsed.allocations, parsed.steps, parsed.samples, parsed.duplicates,
        rejects, parsed.jobs, parsed.attempts, digest, round(seconds, 4), parsed.slow,
    )  # fmt: skip


def _first_reject(rejects: Path) -> str:
    """Return the number of the first rejected line and the reason."""
    first = pl.scan_parquet(rejects).select("line", "reason").bottom_k(1, by="line").collect().row(0, named=True)
    return f"line {first['line']}: {first['reason']}"


def _write(tables: FileTables, raw: RawFile, reader: Reader, parsed: Parsed, result: FileResult, size: int) -> None:
    """Write the tables that the reader returned, and the file's row of `trace_files`."""
    for name, frame in {**parsed.tables, "rejects": rejects_frame(parsed.rejects)}.items():
        tables.write(name, frame)
    counts = {k: v for k, v in asdict(result).items() if k in schema.TRACE_FILES.names}
    row = {
        **counts, "path": storable(result.path), "records": result.rows, "bytes": size, "superseded": 0,
        "timezone": raw.settings.timezone, "reader_version": reader.version,
        "is_generated": is_generated(Path(raw.shown or raw.path), result.sha256),
    }  # fmt: skip
    tables.write("trace_files", pl.DataFrame([row]))
