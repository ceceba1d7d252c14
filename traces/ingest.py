"""Raw files into the lake: which reader reads a file, what became of its records, and writing the whole or nothing.

Each raw file becomes `lake/<cluster>/<start of its digest>/<table>.parquet`, written in a temporary folder that is
renamed, with a `file.json` beside them that says by which rules it was read. A file that is in by the same rules adds
nothing; the same file by other rules, or whose folder is damaged, replaces its own folder and nothing else.

Several processes may read at once; one at a time puts what it has read into the lake. A file that somebody writes to
meanwhile is read again, so that what lies under a digest is what had that digest.
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
READINGS = 3  # of a file that changes meanwhile, before it is given up
STANDARD_INPUT = Path("-")


@dataclass(frozen=True)
class FileResult:
    """What became of one file; `rows` = allocations + steps + samples + duplicates + rejects.

    `slow` counts the lines that did not go through in bulk. `first_reject` says which line was rejected first,
    and why.
    `skipped_reason` is set, and all counts are 0, where a file of a folder is of no known format.
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
    """Read files, the files of folders, or standard input (`-`) into the lake; a result for each, in order.

    Everything is read before anything is written. A file that was changed replaces its own older rows. Raises
    InputError for a path that cannot be read, a named file that is of no known format or of no use, a folder in which
    nothing is recognised, and a job larger than its cluster; WorkError where the lake cannot be written.
    """
    check_format(format)
    if not paths:
        raise InputError("no file named: give files or folders of raw logs")
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
    except (OSError, MemoryError) as error:  # of writing: what cannot be read is an InputError
        raise WorkError(f"not taken into {data.lake}, and what it held stands: {first_line(error)}") from error
    return [file_read.result for file_read in batch.read]


def _spooled(path: Path, source: Path) -> Path:
    """Standard input, or a pipe, as a file: its digest must be known before it is read, and it comes only once."""
    with (
        path.open("wb") as spool,
        nullcontext(sys.stdin.buffer) if source == STANDARD_INPUT else source.open("rb") as s,
    ):
        shutil.copyfileobj(s, spool, 1 << 20)
    return path


def unescaped(delimiter: str | None) -> str | None:
    r"""The delimiter with `\t` and `\x1f` as the characters that they stand for. Raises InputError for a blank one."""
    if delimiter is None:
        return None
    text = re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), delimiter).replace("\\t", "\t")
    if not text or "\n" in text or "\r" in text:
        raise InputError(f"--delimiter {delimiter!r}: give at least one character, and no line break")
    return text


def _files_of(folder: Path) -> list[Path]:
    """The files directly in the folder, without hidden ones, in order of their names.

    Raises InputError where it cannot be read.
    """
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith(HIDDEN) and p.name[-1] != "~")
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from error


@dataclass(frozen=True)
class _Read:
    """What became of one file, and its state when reading began.

    `temporary` is the folder of its rows; None where they are in the lake already. `final` is where they belong; None
    where the file was skipped.
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

    how: RawFile  # of no path: how each of them is to be read
    format: str
    data: DataFolder
    place: Path
    read: list[_Read] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def add(self, path: Path) -> None:
        """Read a file, the files of a folder, or standard input. Raises InputError as `ingest` does."""
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
            raise InputError(f"{path}: no file in it is of a known format ({', '.join(READERS)}): {what}")

    def check_sizes(self) -> None:
        """Raise InputError for a job that ran on more nodes than the cluster is declared to have had at any date."""
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

        What was read while another process was at the lake may be older than what that has put there: it is read again.
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
        """`file.json` of the folder, in the lake or of this batch, if it was written by those rules and is whole."""
        for folder in (final, *(file_read.temporary for file_read in self.read if file_read.final == final)):
            described = None if folder is None else raw_files.read(folder)
            if folder is None or described is None or described["fingerprint"] != rules:
                continue
            if raw_files.damage(folder, thorough=thorough) is None:
                return described
        return None

    def _forget_older(self) -> None:
        results = [file_read.result for file_read in self.read]
        digests = {str(Path(r.path).resolve()): r.sha256 for r in results if r.sha256 and Path(r.path).is_file()}
        staging.retire(self.data.lake / self.how.settings.name, digests, {r.sha256 for r in results}, self.place)

    def _steady(self, raw: RawFile, *, named: bool) -> _Read:
        """Read a file, again if it changed meanwhile. Raises InputError where it is of no use, and named."""
        for _ in range(READINGS):
            state = _state(raw.path)
            temporary = self.place / str(next(self.numbers))
            try:
                file_read = _stage(raw, self, state, temporary, named=named)
            except Exception:  # whatever half a line here and half a line there has led to
                if not _has_changed(raw.path, state):
                    raise
            else:
                if file_read.temporary is None:
                    shutil.rmtree(temporary, ignore_errors=True)
                if not _has_changed(raw.path, state):
                    return file_read
            shutil.rmtree(temporary, ignore_errors=True)
            say(f"{raw.shown or raw.path} changed while it was read: reading it again")
        if named:
            raise _changing(raw)
        return _Read(raw, named, None, FileResult(str(raw.path), "none", skipped_reason=_CHANGING))


def _stage(raw: RawFile, batch: _Batch, state: tuple[int, ...] | None, temporary: Path, *, named: bool) -> _Read:
    """Read one file into a temporary folder of the lake; a file of no known format gets a result that says why."""
    began = time.perf_counter()
    path, kind = raw.shown or str(raw.path), "none"
    try:
        if not named and not raw.path.is_file():
            is_folder = raw.path.is_dir()
            raise InputError("a folder: name it to have it read" if is_folder else "no regular file, or a link to none")
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
                raise InputError(f"{raw.path}: not one record could be read as {reader.name}{first}")
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
    described["ingested_s"] = time.time()  # since 1970: of two node lists the later one counts
    raw_files.write(temporary, {**described, "result": asdict(result)})
    return _Read(raw, named, state, result, rules, final, temporary)


_CHANGING = f"somebody writes to it: it changed each of the {READINGS} times that it was read"


def _changing(raw: RawFile) -> InputError:
    return InputError(f"{raw.shown or raw.path}: {_CHANGING}; give a copy of it")


def _state(path: Path) -> tuple[int, ...] | None:
    """Device, inode, size and times of the file, which differ once it is written to or replaced. None: no file."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:  # over NFS only to open a file asks the server
            status = os.fstat(stream.fileno())
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _has_changed(path: Path, state: tuple[int, ...] | None) -> bool:
    """Whether the file is another than in that state; one that is gone counts as unchanged, as it was read before."""
    return (present := _state(path)) is not None and present != state


def _without_path(error: InputError, path: Path) -> str:
    """What is wrong with the file, for where its path stands already."""
    return re.sub(r"^(\d+): ", r"line \1: ", str(error).removeprefix(f"{path}: ").removeprefix(f"{path}:"))


def _digest(path: Path) -> tuple[str, int]:
    """(sha256, bytes) of the file as stored. Raises InputError where it cannot be read."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
            return digest.hexdigest(), stream.tell()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def fingerprint(reader: Reader, raw: RawFile) -> str:
    """The rules that a file is read by: the code of the reader, and every setting that changes its rows."""
    module = type(reader).__module__
    rules = {
        "reader": reader.name,
        "code": code_digest(module, __name__, but=(registry.__name__,)),  # the other readers have no part in it
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
        raise AssertionError(f"{path}: {so_many(parsed.records, 'record')}, but {counted} accounted for: {parsed}")
    return FileResult(
        path, reader.name, parsed.records, parsed.allocations, parsed.steps, parsed.samples, parsed.duplicates,
        rejects, parsed.jobs, parsed.attempts, digest, round(seconds, 4), parsed.slow,
    )  # fmt: skip


def _first_reject(rejects: Path) -> str:
    """The first line of the table and why it was rejected."""
    first = pl.scan_parquet(rejects).select("line", "reason").bottom_k(1, by="line").collect().row(0, named=True)
    return f"line {first['line']}: {first['reason']}"


def _write(tables: FileTables, raw: RawFile, reader: Reader, parsed: Parsed, result: FileResult, size: int) -> None:
    """Write the tables that the reader has returned, and the file's own row of `trace_files`."""
    for name, frame in {**parsed.tables, "rejects": rejects_frame(parsed.rejects)}.items():
        tables.write(name, frame)
    counts = {k: v for k, v in asdict(result).items() if k in schema.TRACE_FILES.names}
    row = {
        **counts, "path": storable(result.path), "records": result.rows, "bytes": size, "superseded": 0,
        "timezone": raw.settings.timezone, "reader_version": reader.version,
        "is_generated": is_generated(Path(raw.shown or raw.path), result.sha256),
    }  # fmt: skip
    tables.write("trace_files", pl.DataFrame([row]))
