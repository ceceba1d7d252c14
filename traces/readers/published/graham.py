"""Mila's CSV of the Slurm records of the Graham cluster (Digital Research Alliance of Canada).

Format: the header of `jobs_graham.csv` in the public repository mila-iqia/slurm-queue-time-pred. Only jobs that were
pending at a noon snapshot (`poll_time`) are in it, so every wait is above zero: good for models of the wait, not a
workload to replay. Times are local and have no offset; `elapsed_time` settles the hour of a clock change.
"""

from __future__ import annotations

import polars as pl

from traces.readers.common import map_unique
from traces.readers.csv_lines import local_time, seconds, slurm_state, whole
from traces.readers.published.job_csv import Field, JobCsv
from traces.slurm.text import tres_gpus


def gpus(values: pl.Series) -> pl.Series:
    """GPUs of a TRES list; 0 where it names none."""
    return map_unique(values, lambda tres: tres_gpus(tres) or 0, pl.Int64)[0]


class Graham(JobCsv):
    """The reader of `jobs_graham.csv`."""

    name = "graham"
    header = ("job_unique_id", "partition_id_x", "account_id", "req_cpus", "req_tres", "alloc_nodes", "state",
              "submit_time", "eligible_time", "start_time", "elapsed_time", "end_time", "time_limit_sec")  # fmt: skip
    fields = (
        Field("job_id", "job_unique_id", required=True),
        Field("partition", "partition_id_x"),
        Field("account", "account_id"),
        Field("requested_cpus", "req_cpus", whole),
        Field("requested_mem_mib", "req_mem_total", whole),
        Field("requested_gpus", "req_tres", gpus),
        Field("requested_nodes", "alloc_nodes", whole),
        Field("state", "state", slurm_state, required=True),
        Field("priority", "priority_x", whole),
        Field("submit_local", "submit_time", local_time, required=True),
        Field("eligible_local", "eligible_time", local_time),
        Field("start_local", "start_time", local_time),
        Field("end_local", "end_time", local_time),
        Field("elapsed_s", "elapsed_time", seconds),
        Field("limit_s", "time_limit_sec", seconds),
    )

    def meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Jobs as they are: `elapsed_time` leaves suspended time out, so it is the run time."""
        return rows.with_columns(run_s=pl.col("elapsed_s"), job_id_raw=whole(rows["job_id"])).drop("elapsed_s")
