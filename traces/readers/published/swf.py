"""Standard Workload Format 2.2 (Parallel Workloads Archive): one line a job, 18 numbers, -1 for unknown.

For replaying a trace directly; not a format of the lake. Definition: Chapin et al., Benchmarks and Standards for the
Evaluation of Parallel Job Schedulers (JSSPP 1999), and the archive's page on the format.
"""

from __future__ import annotations

import gzip
import itertools
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError

FIELDS = 18
LONGEST_LINE = 1 << 26  # bytes
_JOB, _SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _STATUS = 0, 1, 2, 3, 4, 7, 8, 10
_KEPT = (_JOB, _SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _STATUS)
_BLOCK_LINES = 1 << 16  # read at a time, so that a long trace costs its arrays and not its text


class NotSwfError(InputError):
    """The first line that should be a job is none: the file is of another format."""


@dataclass(frozen=True)
class SwfTrace:
    """The jobs in the file's order, int64 arrays of shape (jobs,). Times in the trace's own seconds."""

    header: dict[str, str]  # comment lines of the form `Name: value`; of several of one name the first
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
        """Processors of the machine by the header's MaxProcs; None where it does not say."""
        value = (self.header.get("MaxProcs", "").split() or [""])[0]
        return int(value) if re.fullmatch("[0-9]{1,18}", value) and int(value) > 0 else None


def read_swf(path: Path) -> SwfTrace:
    """Read a trace, plain or gzip. Raises InputError, with file and line, for a line that is no job.

    It is a NotSwfError where already the first is none.
    """
    header: dict[str, str] = {}
    jobs = _jobs(path, header)
    first = next(jobs, None)
    if first is None:
        raise NotSwfError(f"{path}: no job in it: SWF has one line of {FIELDS} numbers a job")
    try:
        _job(path, *first)
    except InputError as error:
        raise NotSwfError(str(error)) from error
    blocks = [_columns(path, block) for block in _blocks(itertools.chain([first], jobs))]
    job_id, submit, wait, run, allocated, requested, limit, status = np.concatenate(blocks, axis=1)
    return SwfTrace(
        header, job_id, submit, wait, run,
        np.where(requested > 0, requested, allocated), np.where(limit > 0, limit, run), status,
    )  # fmt: skip


def _jobs(path: Path, header: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Number and text of each line that should be a job; comments go into `header`."""
    for number, line in enumerate(_lines(path), 1):
        line = line.strip()
        if line.startswith(";"):
            match = re.match(r";\s*([A-Za-z][A-Za-z ]{0,30}?)\s*:\s*(.*)", line)
            if match:
                header.setdefault(match[1], match[2].strip())
        elif line:
            yield number, line


def _blocks(jobs: Iterator[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    while block := list(itertools.islice(jobs, _BLOCK_LINES)):
        yield block


def _columns(path: Path, block: list[tuple[int, str]]) -> NDArray[np.int64]:
    """The columns of `_KEPT`, shape (8, jobs)."""
    try:
        table = np.loadtxt([line for _number, line in block], dtype=np.float64, comments=None, ndmin=2)
        sound = table.shape[1] == FIELDS and bool((np.abs(table) < 2**53).all())
    except ValueError:
        sound = False
    if not sound:  # line by line, to name the first that is no job
        table = np.asarray([_job(path, number, line) for number, line in block])
    return np.ascontiguousarray(np.rint(table[:, _KEPT]).astype(np.int64).T)


def _job(path: Path, number: int, line: str) -> list[float]:
    parts = line.split()
    if len(parts) != FIELDS:
        raise InputError(f"{path}:{number}: {len(parts)} fields where SWF has {FIELDS}: {line[:60]!r}")
    try:
        values = [float(part) for part in parts]
    except ValueError as error:
        raise InputError(f"{path}:{number}: not a number: {str(error)[:100]}") from error
    if not all(abs(value) < 2**53 for value in values):
        raise InputError(f"{path}:{number}: a number out of range: {line[:60]!r}")
    return values


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:  # once: it may be a pipe
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            stream = gzip.GzipFile(fileobj=file) if packed else file
            for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b"")):
                if len(line) == LONGEST_LINE:
                    raise InputError(f"{path}:{number + 1}: over {LONGEST_LINE >> 20} MiB without a line break")
                text = line.decode("utf-8", errors="replace")
                yield text if number else text.removeprefix("\ufeff")
    except (OSError, EOFError, zlib.error) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{path}: cannot be read: {told}") from error
