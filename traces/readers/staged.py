"""Read one raw file into a temporary folder of the lake; `traces.ingest` moves the folder to its place.

A file that changes while it is read is read again, so that the rows under a digest come from the bytes with that
digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from traces import schema
from traces.cache.closure import code_digest
from traces.cache.digests import digest as digest_of
from traces.counted import counted as so_many
from traces.errors import InputError
from traces.generated import is_generated
from traces.progress import say
from traces.readers import registry
from traces.readers.common import Parsed, RawFile, Reader, rejects_frame
from traces.readers.registry import reader_for
from traces.store import raw_files
from traces.store.file_tables import FileTables
from traces.store.raw_files import DIGEST_CHARACTERS
from traces.visible import storable

READINGS = 3  # attempts to read a file that keeps changing
_CHANGING = f"another program is writing to it: it changed during each of {READINGS} readings"


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


class Ingestion(NamedTuple):
    """What the files of one call of `traces.ingest.ingest` have in common."""

    format: str
    lake: Path  # of the cluster
    place: Path  # of temporary folders


@dataclass(frozen=True)
class GivenFile:
    """A file to read. `named`: the user named it and not only its folder, so that it must be usable."""

    raw: RawFile
    named: bool
    number: int
    """Names its temporary folder, unlike that of any other."""
    given_s: float
    """Epoch, rising from file to file: of two node lists, the later one counts."""


@dataclass(frozen=True)
class StagedFile:
    """The result of reading one file, and the file's state when reading began.

    `temporary` is the folder of its rows; None if they are in the lake already. `final` is their place in the lake;
    None if the file was skipped.
    """

    given: GivenFile
    state: tuple[int, ...] | None
    result: FileResult
    rules: str = ""
    final: Path | None = None
    temporary: Path | None = None


def read_steadily(reading: Ingestion, given: GivenFile) -> StagedFile:
    """Read a file, and again if it changes meanwhile. Raises InputError if it is unusable and was named."""
    raw, temporary = given.raw, reading.place / str(given.number)
    for _ in range(READINGS):
        state = _state(raw.path)
        try:
            staged = _stage(reading, given, state, temporary)
        except Exception:  # a file that changes may break a reader in any way
            if not has_changed(raw.path, state):
                raise
        else:
            if staged.temporary is None:
                shutil.rmtree(temporary, ignore_errors=True)
            if not has_changed(raw.path, state):
                return staged
        shutil.rmtree(temporary, ignore_errors=True)
        say(f"{raw.shown or raw.path} changed while it was being read: reading it again")
    if given.named:
        raise changing(raw)
    return StagedFile(given, None, FileResult(str(raw.path), "none", skipped_reason=_CHANGING))


def held_already(path: str, result: dict[str, Any], seconds: float) -> FileResult:
    """Return the result for a file whose rows are there; `result` is of the file with the same content."""
    rows, seconds = int(result["rows"]), round(seconds, 4)
    return FileResult(
        path, str(result["format"]), rows=rows, duplicates=rows, sha256=str(result["sha256"]), seconds=seconds
    )


def described_in(folder: Path, rules: str, *, thorough: bool = False) -> dict[str, Any] | None:
    """Return `file.json` of the folder if it is undamaged and was written by those rules."""
    described = raw_files.read(folder)
    if (
        described is None
        or described["fingerprint"] != rules
        or raw_files.damage(folder, thorough=thorough) is not None
    ):
        return None
    return described


def _stage(reading: Ingestion, given: GivenFile, state: tuple[int, ...] | None, temporary: Path) -> StagedFile:
    """Read one file into a temporary folder of the lake. A file that is skipped gets a result with the reason."""
    raw, began = given.raw, time.perf_counter()
    path, kind = raw.shown or str(raw.path), "none"
    try:
        if not given.named and not raw.path.is_file():
            is_folder = raw.path.is_dir()
            raise InputError("a folder: name it to read its files" if is_folder else "not a regular file")
        reader = reader_for(raw, reading.format)
        kind = reader.name
        digest, size = _digest(raw.path)
        rules = fingerprint(reader, raw)
        final = reading.lake / digest[:DIGEST_CHARACTERS]
        if (known := described_in(final, rules, thorough=True)) is not None:
            result = held_already(path, known["result"], time.perf_counter() - began)
            return StagedFile(given, state, result, rules, final)
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
        if given.named:
            raise InputError(str(error).replace(str(raw.path), path)) from error
        return StagedFile(given, state, FileResult(path, kind, skipped_reason=_without_path(error, raw.path)))
    described = {"schema_version": schema.SCHEMA_VERSION, "fingerprint": rules, "sha256": digest, "path": path}
    described["source"] = raw.shown or str(raw.path.resolve())
    described["ingested_s"] = given.given_s
    raw_files.write(temporary, {**described, "result": asdict(result)})
    return StagedFile(given, state, result, rules, final, temporary)


def changing(raw: RawFile) -> InputError:
    """Return the error for a file that another program keeps changing."""
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


def has_changed(path: Path, state: tuple[int, ...] | None) -> bool:
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
