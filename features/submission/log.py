"""A cluster's jobs as input of queue-time prediction: the record, each job's request, and the groups it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from features.submission.index import GROUPS
from features.submission.shape import shapes
from simulator.recorded.record import RecordedTrace, record_of
from traces.arrays import Float64s, Int64s

NODES, CPUS = "nodes", "CPUs"
COLUMNS = (
    "job_key", "job_id", "job_id_raw", "array_job_id", "array_task_id", "submit_utc", "start_utc", "end_utc", "run_s",
    "allocated_nodes", "requested_nodes", "requested_cpus", "allocated_cpus", "requested_gpus", "allocated_gpus",
    "requested_mem_mib", "job_name", "user_name", "account", "partition", "qos", "priority", "is_open",
)  # fmt: skip
KNOWN_SHARE = 0.9  # share of jobs with a known node count from which sizes are in nodes
LEAST_SPAN = 0.5  # span of ends over span of submissions, below which the log was selected by end time
AT_ONCE_SHARE = 0.001  # share of jobs that start within 1 min, below which all had to wait


@dataclass(frozen=True)
class SubmissionLog:
    """The jobs of a record, in its order, with what is known of them at their submission; arrays of shape (jobs,).

    `record.size` is in `unit`. A value is "" or 0 where the log does not record it.
    """

    record: RecordedTrace
    unit: str  # NODES or CPUS
    names: dict[str, list[str]]  # user, account, partition, qos of each job
    asked: Float64s  # (jobs, 5) CPUs, GPUs, memory (GiB), priority, 1 for a task of an array

    @property
    def group_codes(self) -> Int64s:
        """Number of each job's user, account ... in each of GROUPS: int64, (jobs, len(GROUPS))."""
        columns = self.group_names
        codes = [np.unique(np.asarray(columns[name], dtype=str), return_inverse=True)[1] for name in GROUPS]
        return np.stack(codes, axis=1).astype(np.int64).reshape(len(self.record), len(GROUPS))

    @property
    def group_names(self) -> dict[str, list[str]]:
        """Name of each job's user, account ... for each of GROUPS."""
        shape_names = [str(shape) for shape in shapes(self.record.size, self.record.limit_s)]
        user_shapes = [f"{user}\n{shape}" for user, shape in zip(self.names["user"], shape_names, strict=True)]
        everybody = [""] * len(shape_names)
        return {**self.names, "shape": shape_names, "user_shape": user_shapes, "everybody": everybody}


def submissions_of(jobs: pl.DataFrame, *, default_limit_s: int) -> SubmissionLog:
    """Build the log of a cluster's canonical `jobs` (COLUMNS, limit_s), in the order of `simulator.recorded.record`.

    Sizes are the requested ones, else the held ones. They are in nodes, or in CPUs where fewer than KNOWN_SHARE of the
    jobs have a known node count.
    """
    unit = NODES if _knows(jobs, "nodes") or not _knows(jobs, "cpus") else CPUS
    part = "nodes" if unit == NODES else "cpus"
    size = pl.coalesce(*(pl.when(pl.col(f"{how}_{part}") > 0).then(pl.col(f"{how}_{part}")) for how in _HOW))
    sized = jobs.with_columns(size.alias("requested_nodes"), pl.lit(None, pl.Int64).alias("allocated_nodes"))
    record = record_of(sized, default_limit_s=default_limit_s)
    described = jobs.unique("job_key", keep="first").select(
        "job_key",
        *(pl.col(column).cast(pl.String).fill_null("").alias(name) for name, column in _NAMES.items()),
        *(
            pl.coalesce(*(pl.when(pl.col(f"{how}_{name}") > 0).then(pl.col(f"{how}_{name}")) for how in _HOW), 0)
            .cast(pl.Float64)
            .alias(f"{name}_asked")
            for name in ("cpus", "gpus")
        ),
        (pl.col("requested_mem_mib").fill_null(0) / 1024.0).alias("mem_gib"),
        pl.col("priority").fill_null(0).cast(pl.Float64).alias("priority"),
        pl.col("array_task_id").is_not_null().cast(pl.Float64).alias("is_array_task"),
    )
    rows = pl.DataFrame({"job_key": record.job_key}, schema={"job_key": pl.String}).join(
        described, on="job_key", how="left", maintain_order="left"
    )
    asked = rows.select("cpus_asked", "gpus_asked", "mem_gib", "priority", "is_array_task").to_numpy()
    names = {name: rows[name].to_list() for name in _NAMES}
    return SubmissionLog(record, unit, names, np.ascontiguousarray(asked, np.float64))


_NAMES = {"user": "user_name", "account": "account", "partition": "partition", "qos": "qos"}
_HOW = ("requested", "allocated")


def _knows(jobs: pl.DataFrame, amount: str) -> bool:
    known = (pl.col(f"requested_{amount}").fill_null(0) > 0) | (pl.col(f"allocated_{amount}").fill_null(0) > 0)
    return len(jobs) == 0 or float(jobs.select(known.mean()).item()) >= KNOWN_SHARE


def why_not_rebuilt(log: SubmissionLog) -> str | None:
    """Explain in one sentence why the queue cannot be rebuilt from the log; None where it can.

    A log that holds only jobs that had to wait, or only jobs that ended within a few days, lacks most of the jobs that
    ran and waited at the same time.
    """
    record = log.record
    ran = record.ran
    if not ran.any():
        return "none of its jobs ran"
    wait_s = (record.start_s - record.submit_s)[ran]
    if np.mean(wait_s < 60) < AT_ONCE_SHARE:
        return "hardly any of its jobs started within a minute, so it holds only jobs that had to wait"
    submits, ends = record.submit_s[ran], record.end_s[ran]
    ends = ends[ends < record.start_s.max(initial=0, where=ran) + 10 * 365 * 86400]
    span_s = np.quantile(submits, 0.99) - np.quantile(submits, 0.01)
    if len(ends) and np.quantile(ends, 0.99) - np.quantile(ends, 0.01) < LEAST_SPAN * span_s:
        return "its jobs were selected by end time, so it lacks jobs that ran at the same time"
    return None
