"""Job arrays in a cluster's `jobs`: a row a task, in the order in which Slurm takes the tasks."""

from __future__ import annotations

import polars as pl

MOST_TASKS = 4_000_001  # the largest MaxArraySize of a slurm.conf


def one_row_a_task(jobs: pl.DataFrame, pending: pl.Expr | None = None) -> pl.DataFrame:
    """The jobs, a record of several pending tasks of an array (`123_[4-10%2]`) as one row a task, with its number.

    pending: which rows may be such records; None all. A list of tasks that the log cuts short stays one row without a
    number, and so does one of more than MOST_TASKS.
    """
    ranges = pl.col("job_id").str.extract(r"_\[([0-9,\-]+)(?:%\d+)?\]$").str.split(",")
    if pending is not None:
        ranges = pl.when(pending).then(ranges)
    rows = jobs.with_columns(ranges=ranges).explode("ranges", empty_as_null=True)
    low, high = (pl.col("ranges").str.extract(end).cast(pl.Int64, strict=False) for end in (r"^(\d+)", r"(\d+)$"))
    high = pl.when(high - low < MOST_TASKS).then(high)
    tasks = pl.when(high.is_not_null()).then(pl.int_ranges(low, high + 1)).otherwise([None])
    rows = rows.with_columns(task=tasks).explode("task", empty_as_null=True)
    return rows.with_columns(array_task_id=pl.coalesce("task", "array_task_id")).drop("ranges", "task")


def in_order(jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs by `submit_s` and job id, those of an array by task; those without an id (and a tie) by `job_key`.

    (The job id of an array's last task is that of the array, the smallest of all.)
    """
    return jobs.sort("submit_s", pl.coalesce("array_job_id", "job_id_raw"), "array_task_id", "job_id_raw", "job_key")
