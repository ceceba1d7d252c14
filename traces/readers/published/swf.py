"""Parser of the Standard Workload Format 2.2 (Parallel Workloads Archive): one line a job, 18 numbers, -1 for unknown.

`blocks` parses the text. `read_swf` returns the trace as arrays for a replay; `swf_jobs` makes rows of the lake. A
replay needs the whole trace, so for it the first invalid line is an error. The lake takes valid lines and keeps the
others as rejects. Definition: Chapin et al., Benchmarks and Standards for the Evaluation of Parallel Job Schedulers
(JSSPP 1999), and the archive's page on the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from traces.errors import InputError
from traces.readers.raw_text import EXACT, UNREADABLE, numbered_lines, unpacked

COLUMNS = (
    "job", "submit", "wait", "run", "allocated", "cpu_time", "used_memory", "requested", "limit", "memory", "status",
    "user", "group", "executable", "queue", "partition", "preceding", "think",
)  # fmt: skip
_KEPT = ("job", "submit", "wait", "run", "allocated", "requested", "limit", "status")  # for a replay
_BLOCK_BYTES = 1 << 23  # of text at a time, so that the text of a long trace is never in memory at once
_HEADER = re.compile(r";\s*([A-Za-z][A-Za-z ]{0,30}?)\s*:\s*(\S.*)")


class NotSwfError(InputError):
    """The first line that should be a job is invalid: the file has another format."""


@dataclass(frozen=True)
class SwfBlock:
    """Consecutive lines of a file that should be jobs, without comments and blank lines."""

    lines: pl.DataFrame  # line (its number, from 1), raw (its text)
    numbers: pl.DataFrame  # COLUMNS as whole numbers, Int64; meaningless where `wrong` is not null
    wrong: pl.Series  # why the line is not a job; null for a job


def blocks(stream: IO[bytes], path: Path, header: dict[str, str]) -> Iterator[SwfBlock]:
    """Yield the lines of an SWF text, some MB at a time; comments of the form `; Name: value` are added to `header`.

    The first of several comments with one name counts. Numbers with decimals are rounded, halves to the even neighbour.
    A byte order mark is skipped.
    """
    for lines in numbered_lines(stream, 1, path, _BLOCK_BYTES):
        if lines["line"].first() == 1:
            lines = lines.with_columns(pl.col("raw").str.strip_prefix("\ufeff"))
        comment = lines["raw"].str.strip_chars().str.starts_with(";")
        for text in lines["raw"].filter(comment):
            if match := _HEADER.match(text.strip()):
                header.setdefault(match[1], match[2].rstrip())
        jobs = lines.filter(~comment)
        if len(jobs):
            yield SwfBlock(jobs, *_numbers(jobs["raw"]))


def _numbers(raw: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """Parse lines into (COLUMNS as whole numbers, why a line is not a job)."""
    parts = raw.str.extract_all(r"\S+")
    fields = parts.list.len()
    read = pl.DataFrame([
        parts.list.get(at, null_on_oob=True).cast(pl.Float64, strict=False).alias(name)
        for at, name in enumerate(COLUMNS)
    ])  # fmt: skip
    whole = read.select(pl.all().round().cast(pl.Int64, strict=False))
    in_range = (pl.all().abs() < EXACT).all(ignore_nulls=False)
    if (fields == len(COLUMNS)).all() and all(read.select(in_range).row(0)):  # fast path for valid files
        return whole, pl.Series("wrong", [None], dtype=pl.String).new_from_index(0, len(raw))
    return whole, _reasons(read, fields)


def _reasons(read: pl.DataFrame, fields: pl.Series) -> pl.Series:
    """Return why each line is not a job, or null. `read` holds COLUMNS as floats, `fields` the number of words."""
    of_numbers = pl.all_horizontal(pl.all().is_not_nan().fill_null(False))
    in_range = pl.all_horizontal(pl.all().abs() < EXACT)
    return read.select(
        pl.when(pl.lit(fields) != len(COLUMNS)).then(pl.format(f"{{}} fields, but SWF has {len(COLUMNS)}", fields))
        .when(~of_numbers).then(pl.lit("not a number"))
        .when(~in_range).then(pl.lit("a number out of range"))
        .alias("wrong")
    )["wrong"]  # fmt: skip


def first_word(header: dict[str, str], name: str) -> str:
    """Return the first word of a header comment's value; '' where the file has no such comment."""
    return header[name].split()[0] if name in header else ""


@dataclass(frozen=True)
class SwfTrace:
    """The jobs of an SWF file in file order, as int64 arrays of shape (jobs,). Times in the trace's own seconds."""

    header: dict[str, str]  # comments of the form `Name: value`; the first of several with one name
    job_id: NDArray[np.int64]
    submit_s: NDArray[np.int64]
    wait_s: NDArray[np.int64]  # -1 unknown
    run_s: NDArray[np.int64]  # -1 unknown
    processors: NDArray[np.int64]  # requested, else allocated; -1 where neither is known
    limit_s: NDArray[np.int64]  # requested time, else the run time; -1 where neither is known
    status: NDArray[np.int64]  # 0 failed, 1 completed, 2 to 4 a partial execution, 5 cancelled, -1 unknown

    def __len__(self) -> int:
        return len(self.job_id)

    @property
    def max_procs(self) -> int | None:
        """Return the machine's processors from the header's MaxProcs; None without a valid one."""
        value = first_word(self.header, "MaxProcs")
        return int(value) if re.fullmatch("[0-9]{1,18}", value) and int(value) > 0 else None


def read_swf(path: Path) -> SwfTrace:
    """Read a trace, compressed or not, for a replay.

    Raises InputError, with file and line, for an invalid line. Raises NotSwfError if the first line is invalid or the
    file has no job.
    """
    header: dict[str, str] = {}
    parts: list[NDArray[np.int64]] = []
    try:
        with unpacked(path) as stream:
            for block in blocks(stream, path, header):
                _refuse(path, block, first=not parts)
                parts.append(block.numbers.select(_KEPT).to_numpy().T)
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{path}: cannot be read: {reason}") from error
    if not parts:
        raise NotSwfError(f"{path}: holds no jobs: SWF has one line of {len(COLUMNS)} numbers per job")
    job_id, submit, wait, run, allocated, requested, limit, status = np.concatenate(parts, axis=1)
    return SwfTrace(
        header, job_id, submit, wait, run,
        np.where(requested > 0, requested, allocated), np.where(limit > 0, limit, run), status,
    )  # fmt: skip


def _refuse(path: Path, block: SwfBlock, *, first: bool) -> None:
    """Raise InputError for the first invalid line of the block; NotSwfError if it is the file's first line."""
    wrong = block.wrong.is_not_null().arg_max()
    if wrong is None or block.wrong[wrong] is None:
        return
    line, raw = block.lines.row(wrong)
    kind = NotSwfError if first and wrong == 0 else InputError
    raise kind(f"{path}:{line}: {block.wrong[wrong]}: {raw.strip()[:60]!r}")
