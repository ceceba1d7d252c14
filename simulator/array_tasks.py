"""Job arrays in a cluster's `jobs`: one row per task, in the order in which Slurm takes the tasks."""

from __future__ import annotations

import polars as pl

MOST_TASKS = 4_000_001  # the largest MaxArraySize of a slurm.conf


def one_row_a_task(jobs: pl.DataFrame, pending: pl.Expr | None = None) -> pl.DataFrame:
    """Split each record of several pending array tasks (`123_[4-10%2]`) into one row per task, with its number.

    `pending` selects the rows that may be such records; None means all. A truncated list of tasks stays one row without
    a number, as does a list of more than MOST_TASKS.
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


def sort_tasks(jobs: pl.DataFrame) -> pl.DataFrame:
    """Sort the jobs by `submit_s` and job id, array tasks by number; jobs without an id and ties by `job_key`.

    (The last task of an array has the array's own job id, the smallest of all.)
    """
    return jobs.sort("submit_s", pl.coalesce("array_job_id", "job_id_raw"), "array_task_id", "job_id_raw", "job_key")
