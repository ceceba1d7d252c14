"""A recorded trace for calibration: every job, including jobs cancelled in the queue, and the events in order."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from simulator.array_tasks import one_row_a_task, sort_tasks
from simulator.marks import NONE as NONE
from traces.arrays import Int64s

NEVER = int(np.iinfo(np.int64).max) // 4  # beyond any clock, and additions to it do not overflow
ENDED, SUBMITTED, STARTED, CANCELLED = 0, 1, 2, 3  # kinds of events, in their order within a second


@dataclass(frozen=True)
class RecordedTrace:
    """The recorded jobs in order of `simulator.array_tasks.sort_tasks`; arrays of shape (jobs,) and dtype int64.

    A job that never ran was withdrawn from the queue at `end_s`, and its `start_s` is NEVER.
    """

    submit_s: Int64s  # epoch s
    start_s: Int64s  # epoch s, NEVER for a job cancelled in the queue
    end_s: Int64s  # epoch s; NEVER where the log holds no end
    size: Int64s  # whole nodes, >= 1
    limit_s: Int64s  # wall-clock limit, s
    user: Int64s  # 0 .. users - 1
    priority: Int64s  # as recorded (Slurm's Priority), 0 where the log holds none
    job_key: list[str]
    name: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))  # number of the job's name; empty if unknown

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def ran(self) -> NDArray[np.bool_]:
        """Whether the job started, shape (jobs,)."""
        return self.start_s < NEVER

    @property
    def users(self) -> int:
        """Return the number of users; users are numbered from 0."""
        return int(self.user.max()) + 1 if len(self) else 0

    def take(self, index: NDArray[np.bool_] | Int64s) -> RecordedTrace:
        """Return the jobs of a mask, or of rows in their order; users keep their numbers."""
        columns = {name: getattr(self, name)[index] for name in ARRAYS}
        keys = [self.job_key[row] for row in np.arange(len(self))[index]]
        return RecordedTrace(**columns, job_key=keys, name=self.name[index] if len(self.name) else self.name)


ARRAYS = ("submit_s", "start_s", "end_s", "size", "limit_s", "user", "priority")


def record_of(jobs: pl.DataFrame, *, default_limit_s: int) -> RecordedTrace:
    """Build the record of a cluster's canonical `jobs` (columns of `traces.schema.JOBS`).

    Left out are jobs without a submission, jobs with a start or end before their submission (a clock change), and jobs
    that neither started nor ended unless the optional column `is_open` marks them as pending. The size is the nodes
    held, else the nodes requested, else 1. A job without a limit gets `default_limit_s`.
    """
    seconds = [pl.col(f"{name}_utc").dt.epoch("s").alias(f"{name}_s") for name in ("submit", "start", "end")]
    positive = [pl.when(pl.col(name) > 0).then(pl.col(name)) for name in ("allocated_nodes", "requested_nodes")]
    is_open = pl.col("is_open") if "is_open" in jobs.columns else pl.lit(False)
    started = pl.col("start_s").is_not_null() & (is_open | (pl.col("run_s").fill_null(0) > 0))
    frame = (
        jobs.with_columns(seconds)
        .with_columns(
            pl.when(started).then(pl.col("start_s")).otherwise(NEVER).alias("start_s"),
            pl.col("end_s").fill_null(NEVER),
            pl.coalesce(*positive, pl.lit(1)).alias("size"),
            pl.when(pl.col("limit_s") > 0).then(pl.col("limit_s")).otherwise(default_limit_s).alias("limit_s"),
            pl.col("user_name").fill_null("").rank("dense").cast(pl.Int64).sub(1).alias("user"),
            pl.col("priority").cast(pl.Int64).fill_null(0),
            _name(jobs),
        )
        .filter(
            pl.col("submit_s").is_not_null()
            & (is_open | (pl.min_horizontal("start_s", "end_s") < NEVER))
            & (pl.col("submit_s") <= pl.min_horizontal("start_s", "end_s"))
            & ((pl.col("start_s") == NEVER) | (pl.col("start_s") < pl.col("end_s")))
        )
        .pipe(one_row_a_task, pl.col("start_utc").is_null())
        .pipe(sort_tasks)
    )
    arrays = {name: frame[name].cast(pl.Int64).to_numpy() for name in ARRAYS}
    return RecordedTrace(**arrays, job_key=frame["job_key"].to_list(), name=frame["name"].to_numpy())


def _name(jobs: pl.DataFrame) -> pl.Expr:
    """Return the number of each job's name, int64; 0 for all jobs if the frame has no column `job_name`."""
    if "job_name" not in jobs.columns:
        return pl.lit(0, pl.Int64).alias("name")
    return pl.col("job_name").fill_null("").rank("dense").cast(pl.Int64).sub(1).alias("name")


@dataclass(frozen=True)
class Events:
    """The events of a record by time; within a second ends, submissions, starts, then cancellations.

    `peak[k, i]` is the largest number of busy nodes after any of the events i .. i + 2**k - 1.
    """

    time_s: Int64s  # (events,)
    job: Int64s  # (events,) row of the record
    kind: Int64s  # (events,)
    peak: Int64s  # (levels, events)
    started_at: Int64s  # (jobs,) index of the job's start among the events; the number of events if it has none
    ended_at: Int64s  # (jobs,) the same for its end


def events(record: RecordedTrace) -> Events:
    """Return the events of a record; those at NEVER are left out."""
    rows, ran = np.arange(len(record)), record.ran
    ends = np.where(ran, ENDED, CANCELLED)
    time = np.concatenate([record.end_s, record.submit_s, record.start_s])
    kind = np.concatenate([ends, np.full(len(rows), SUBMITTED), np.full(len(rows), STARTED)]).astype(np.int64)
    job = np.concatenate([rows, rows, rows])
    order = np.lexsort((job, kind, time))
    order = order[time[order] < NEVER]
    time, kind, job = time[order], kind[order], job[order]
    change = np.where(kind == STARTED, record.size[job], np.where(kind == ENDED, -record.size[job], 0))
    where = {}
    for name, wanted in (("started_at", STARTED), ("ended_at", ENDED)):
        at = np.full(len(record), len(time), np.int64)
        positions = np.flatnonzero(kind == wanted)
        at[job[positions]] = positions
        where[name] = at
    return Events(time, job, kind, range_peaks(np.cumsum(change)), **where)


def range_peaks(level: Int64s) -> Int64s:
    """Build a sparse table of range maxima (Bender and Farach-Colton 2000): (levels, len(level)), at least one row."""
    count = len(level)
    table = [level.astype(np.int64)]
    while 2 ** len(table) <= count:
        half = 2 ** (len(table) - 1)
        wider = table[-1].copy()
        wider[: count - half] = np.maximum(table[-1][: count - half], table[-1][half:])
        table.append(wider)
    return np.ascontiguousarray(np.stack(table))
