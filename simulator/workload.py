"""The jobs of a trace as arrays, the input of every scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from simulator.array_tasks import one_row_a_task, sort_tasks
from traces.arrays import Int64s
from traces.readers.published.swf import SwfTrace


@dataclass(frozen=True)
class Workload:
    """The jobs in order of (submit_s, job_id); arrays of shape (jobs,) and dtype int64.

    `size` is in units of the cluster's capacity: whole nodes, or processors of a flat pool. `limit_s` is the user's
    wall-clock limit, else that of the partition, never 0.
    """

    job_id: Int64s
    submit_s: Int64s  # epoch seconds (or the trace's own, SWF)
    size: Int64s  # nodes or processors, >= 1
    run_s: Int64s  # recorded run time, s
    limit_s: Int64s  # requested wall-clock limit, s
    start_s: Int64s  # recorded start, s; -1 if the log holds none (never read by a scheduler)

    def __len__(self) -> int:
        return len(self.job_id)

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Workload:
        """Return the jobs at `index` (positions or mask), in their order."""
        return Workload(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Replay:
    """The results of a replay of a workload."""

    scheduler: str
    starts: Int64s  # (jobs,) s, -1 for a job that never started
    run_s: Int64s  # (jobs,) run time from the start, s
    wall_s: float  # time of the compiled kernel alone, s
    notes: dict[str, Any] = field(default_factory=dict)  # further results of the scheduler, by name


def workload_of(jobs: pl.DataFrame, *, default_limit_s: int) -> tuple[Workload, pl.Series]:
    """Return the jobs of a cluster that ran, in whole nodes, and their job keys in the same order.

    `jobs` has columns of `schema.JOBS`. Kept are jobs with a submission, a start and a positive run time, and jobs that
    the optional column `is_open` marks as not ended, which run to their limit. The size is the nodes held, else the
    nodes requested, else 1. A job without a limit gets `default_limit_s`. Jobs are sorted by submission, then by
    job_id_raw if every job has one, else by job_key, with job ids numbered from 1. Tasks of an array are in the order
    of their numbers.
    """
    seconds = {name: pl.col(f"{name}_utc").dt.epoch("s").alias(f"{name}_s") for name in ("submit", "start")}
    positive = [pl.when(pl.col(name) > 0).then(pl.col(name)) for name in ("allocated_nodes", "requested_nodes")]
    limit = pl.when(pl.col("limit_s") > 0).then(pl.col("limit_s")).otherwise(default_limit_s)
    is_open = pl.col("is_open") if "is_open" in jobs.columns else pl.lit(False)
    kept = jobs.filter(
        pl.col("submit_utc").is_not_null() & (is_open | (pl.col("start_utc").is_not_null() & (pl.col("run_s") > 0)))
    )
    ran = one_row_a_task(kept, pl.col("start_utc").is_null()).select(
        "job_key",
        "array_job_id",
        "array_task_id",
        pl.coalesce("job_id_raw", "array_job_id").alias("job_id_raw"),
        pl.when(is_open).then(limit).otherwise("run_s").alias("run_s"),
        seconds["submit"],
        seconds["start"].fill_null(-1),
        pl.coalesce(*positive, pl.lit(1)).alias("size"),
        limit.alias("limit_s"),
    )
    if ran["job_id_raw"].null_count():
        ran = ran.sort("submit_s", "job_key").with_columns(pl.int_range(1, pl.len() + 1).alias("job_id_raw"))
    else:
        ran = sort_tasks(ran)
    columns = ("job_id_raw", "submit_s", "size", "run_s", "limit_s", "start_s")
    arrays = (ran[name].cast(pl.Int64).to_numpy() for name in columns)
    return Workload(*arrays), ran["job_key"]


def left_out(jobs: pl.DataFrame) -> dict[str, int]:
    """Count the rows of a jobs table that `workload_of` leaves out, by reason; a row counts under its first reason."""
    reasons = {
        "no submission time": pl.col("submit_utc").is_null(),
        "never started": pl.col("start_utc").is_null(),
        "no end yet": pl.col("run_s").is_null(),
        "run time not positive": (pl.col("run_s") <= 0).fill_null(False),
    }
    return _count({name: jobs.select(mask).to_series().to_numpy() for name, mask in reasons.items()})


def from_swf(trace: SwfTrace) -> tuple[Workload, dict[str, int]]:
    """Return the jobs of an SWF trace that ran, in order of (submit_s, job_id), and the left-out jobs by reason.

    Left out are partial executions of a job that also has a line for the whole (status 2 to 4, by the format's
    definition), jobs with unknown run time (-1) or processors, and jobs submitted before the trace begins. Jobs of any
    other status with a run time are kept, because a job cancelled while it ran held its processors. A limit that is
    unknown or 0 becomes the run time, at least 1 s. Lines of equal (submit, job id) keep the file's order.
    """
    partial = (trace.status >= 2) & (trace.status <= 4)
    reasons = {
        "partial execution": partial & np.isin(trace.job_id, trace.job_id[~partial]),
        "run time unknown": trace.run_s < 0,
        "processors unknown": trace.processors <= 0,
        "submitted before the trace begins": trace.submit_s < 0,
    }
    kept = np.flatnonzero(~np.logical_or.reduce(list(reasons.values())))
    kept = kept[np.lexsort((trace.job_id[kept], trace.submit_s[kept]))]
    submit, wait, run = trace.submit_s[kept], trace.wait_s[kept], trace.run_s[kept]
    limit = np.maximum(np.where(trace.limit_s[kept] > 0, trace.limit_s[kept], run), 1)
    start = np.where(wait >= 0, submit + wait, -1)
    return Workload(trace.job_id[kept], submit, trace.processors[kept], run, limit, start), _count(reasons)


def _count(reasons: dict[str, NDArray[np.bool_]]) -> dict[str, int]:
    """Count the jobs under each reason and no earlier one; reasons without jobs are not listed."""
    counts = {}
    taken: NDArray[np.bool_] = np.zeros(len(next(iter(reasons.values()))), bool)
    for name, mask in reasons.items():
        if excluded := int(np.count_nonzero(mask & ~taken)):
            counts[name] = excluded
        taken |= mask
    return counts


def peak_in_use(workload: Workload) -> int:
    """Return the most units that recorded jobs held at once, at least the largest job's; 0 if no start is recorded.

    Within a second, jobs end before others start.
    """
    ran = workload.take(workload.start_s >= 0)
    if not len(ran):
        return 0
    times = np.concatenate([ran.start_s, ran.start_s + ran.run_s])
    change = np.concatenate([ran.size, -ran.size])
    order = np.lexsort((change, times))
    return max(int(np.cumsum(change[order]).max()), int(workload.size.max()))
