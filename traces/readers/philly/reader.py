"""Readers of the five files of Microsoft's Philly trace: the job log here, the CSV files in `samples`.

Format: README of the public repository msr-fiddle/philly-traces. A job is one allocation; its scheduling attempts are
its runs. Times are local to the cluster (America/Los_Angeles) without an offset. The reader accepts the defects that
the README names: jobs without attempts, times null or 'None', a last attempt without an end (still running).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from traces.errors import InputError
from traces.readers.common import Parsed, RawFile, Reject
from traces.readers.philly.columns import DUCKDB, Columns, columns_of, pieces, read_piece
from traces.readers.philly.entries import entries, job_of, tables_of
from traces.readers.philly.json_list import json_batches
from traces.readers.philly.samples import CpuUtilization, GpuUtilization, MachineList, MemoryUtilization
from traces.readers.raw_text import UNREADABLE
from traces.store.file_tables import FileTables

__all__ = ["CpuUtilization", "GpuUtilization", "JobLog", "MachineList", "MemoryUtilization"]

BATCH_ENTRIES = 50_000
AHEAD = 1  # batches computed ahead of the writer
_SEEN = ["job_key", "attempts", "end_utc", "line"]


class JobLog:
    """The reader of `cluster_job_log`: a JSON list of jobs."""

    name = "philly-jobs"
    version = 3

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the file is a JSON list of objects with Philly's keys."""
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
        return start.startswith(b"[") and b'"jobid"' in head and (b'"attempts"' in head or b'"vc"' in head)

    def read(self, file: RawFile) -> Parsed:
        """Read all jobs and write them to the file's folder in batches. Raises InputError where the file holds none.

        DuckDB parses the list. If it rejects the list, the list is read again in pieces, so that an error affects only
        its own entry.
        """
        source = _batches
        older = pl.Series([], dtype=pl.Int64)
        try:
            parsed, seen = self._read(file, source(file), older)
        except InputError:
            source = _pieces
            parsed, seen = self._read(file, source(file), older)
        older = superseded(seen)
        if len(older):  # rare: a log with two records of a job is read again, without the older ones
            parsed, _ = self._read(file, source(file), older)
        if parsed.records == 0:
            raise InputError(f"{file.path}: the JSON list holds no job")
        return parsed

    def _read(self, file: RawFile, source: Iterator[Columns | bytes], older: pl.Series) -> tuple[Parsed, pl.DataFrame]:
        """Return the result of reading the file, and (hash of the key, attempts, end, line) of its jobs.

        `older` are the lines of records that a newer record of the same job supersedes; they count as duplicates.
        """
        parsed, seen = Parsed(duplicates=len(older)), []
        assert file.folder is not None
        same = {"cluster": file.settings.name, "sha256": file.sha256, "path": str(file.path)}
        with FileTables(file.folder, **same) as tables:
            for batch in source:
                frames = rows_of(parsed, batch, ZoneInfo(file.settings.timezone))
                if len(older):
                    frames = {name: f.filter(~f["line"].is_in(older.to_list())) for name, f in frames.items()}
                seen.append(frames["jobs"].select(pl.col("job_key").hash(), *_SEEN[1:]))
                parsed.jobs += len(frames["jobs"])
                parsed.attempts += len(frames["attempts"])
                frames["placements"] = frames["placements"].drop("line")
                for name, frame in frames.items():
                    tables.write(name, frame)
        parsed.allocations = parsed.jobs
        return parsed, pl.concat(seen) if seen else pl.DataFrame(schema=dict.fromkeys(_SEEN, pl.Int64))


def _batches(file: RawFile) -> Iterator[Columns | bytes]:
    """Yield the log's columns as DuckDB reads them. Raises InputError, possibly after some batches, for a bad list."""
    compression = "gzip" if file.is_gzip() else "uncompressed"
    frames = json_batches(file.path, DUCKDB, BATCH_ENTRIES, compression)
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[Future[Columns]] = deque()
        for frame in frames:
            waiting.append(pool.submit(_columns, file, frame))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)


def _columns(file: RawFile, frame: pl.DataFrame) -> Columns:
    """Return the rows of a batch. Raises InputError where it does not clearly match the schema."""
    for name in ("user", "vc", "jobid"):  # DuckDB converts an object in place of a text to its JSON
        if frame[name].str.contains(r"^[{\[]").any():
            raise InputError(f"{file.path}: an object in place of a text in {name}")
    try:
        return columns_of(frame, file.settings.timezone)
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise InputError(f"{file.path}: {error}") from error


def _pieces(file: RawFile) -> Iterator[Columns | bytes]:
    """Yield the log in pieces: the columns of a piece if it is JSON of the schema, else its bytes."""
    try:
        with file.open() as stream:
            for piece in pieces(stream):
                yield read_piece(piece, file.settings.timezone) or piece
    except UNREADABLE as error:
        raise InputError(f"{file.path}: cannot be read: {error}: is the file whole?") from error


def rows_of(parsed: Parsed, batch: Columns | bytes, zone: ZoneInfo) -> dict[str, pl.DataFrame]:
    """Return the rows of a batch, with `line` counted from the start of the file; read the slow entries one by one."""
    before = parsed.records
    if isinstance(batch, bytes):
        one_by_one = [(at, entry, broken) for at, (entry, broken) in enumerate(entries(batch))]
        parsed.records += len(one_by_one)
    else:
        one_by_one = [(at, entry, None) for at, entry in batch.slow_entries]
        parsed.records += batch.entries
    slow = []
    for at, entry, broken in one_by_one:
        try:
            if broken:
                raise ValueError(broken)
            slow.append(job_of(before + at + 1, entry, zone))
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, ValueError) else "the entry is nested too deep"
            parsed.rejects.append(Reject(before + at + 1, why, _raw(entry)))
    frames = tables_of(slow)
    if isinstance(batch, bytes):
        return frames
    fast = {"jobs": batch.jobs, "attempts": batch.attempts, "placements": batch.placements}
    fast = {name: frame.with_columns(pl.col("line") + before) for name, frame in fast.items()}
    return {
        name: pl.concat([frame, frames[name].select(frame.columns)]) if slow else frame for name, frame in fast.items()
    }


def _raw(entry: Any) -> str:
    """Return the text of an entry; '' where it is nested too deep."""
    if isinstance(entry, str):
        return entry
    try:
        return json.dumps(entry)
    except RecursionError:
        return ""


def superseded(seen: pl.DataFrame) -> pl.Series:
    """Return the lines of records that a newer record of the job replaces.

    A record is newer if it has more attempts, then a later end, then a later line.
    """
    several = seen.filter(seen["job_key"].is_duplicated()).sort("attempts", "end_utc", "line", nulls_last=False)
    newest = several.unique("job_key", keep="last")
    return several.join(newest, on="line", how="anti")["line"]
