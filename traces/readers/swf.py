"""Standard Workload Format 2.2 (Parallel Workloads Archive): one line a job, 18 numbers, -1 for unknown.

For replaying a trace directly; not a format of the lake. Definition: Chapin et al., Benchmarks and Standards for the
Evaluation of Parallel Job Schedulers (JSSPP 1999), and the archive's page on the format.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError

FIELDS = 18
_JOB, _SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT = 0, 1, 2, 3, 4, 7, 8


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

    def __len__(self) -> int:
        return len(self.job_id)

    @property
    def capacity(self) -> int | None:
        """Processors of the machine by the header (MaxProcs, else MaxNodes); None where it does not say."""
        for name in ("MaxProcs", "MaxNodes"):
            value = self.header.get(name, "").split(" ", 1)[0]
            if value.isdigit() and int(value) > 0:
                return int(value)
        return None


def read_swf(path: Path) -> SwfTrace:
    """Read a trace, plain or gzip. Raises InputError, with file and line, for a line that is no job."""
    header: dict[str, str] = {}
    rows: list[list[float]] = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        line = line.strip()
        if not line:
            continue
        if line.startswith(";"):
            match = re.match(r";\s*([A-Za-z][A-Za-z ]{0,30}?)\s*:\s*(.*)", line)
            if match:
                header.setdefault(match[1], match[2].strip())
            continue
        rows.append(_job(path, number, line))
    if not rows:
        raise InputError(f"{path}: no job in it: SWF has one line of {FIELDS} numbers a job")
    table = np.asarray(rows, dtype=np.float64)
    whole = np.rint(table).astype(np.int64)
    requested, allocated = whole[:, _REQUESTED], whole[:, _ALLOCATED]
    run, limit = whole[:, _RUN], whole[:, _LIMIT]
    return SwfTrace(
        header, whole[:, _JOB], whole[:, _SUBMIT], whole[:, _WAIT], run,
        np.where(requested > 0, requested, allocated), np.where(limit > 0, limit, run),
    )  # fmt: skip


def _job(path: Path, number: int, line: str) -> list[float]:
    parts = line.split()
    if len(parts) != FIELDS:
        raise InputError(f"{path}:{number}: {len(parts)} fields where SWF has {FIELDS}: {line[:60]!r}")
    try:
        values = [float(part) for part in parts]
    except ValueError as error:
        raise InputError(f"{path}:{number}: not a number: {error}") from error
    if not all(abs(value) < 2**53 for value in values):
        raise InputError(f"{path}:{number}: a number out of range: {line[:60]!r}")
    return values


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw).decode("utf-8", errors="replace")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
