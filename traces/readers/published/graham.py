"""Reader of Mila's CSV of Slurm records from the Graham cluster (Digital Research Alliance of Canada).

Format: the header of `jobs_graham.csv` in the public repository mila-iqia/slurm-queue-time-pred. It holds only jobs
that were pending at a noon snapshot (`poll_time`), so every wait is above zero. The log suits models of the wait, but
not a replay. Times are local without an offset; `elapsed_time` settles the hour of a clock change.
"""

from __future__ import annotations

import polars as pl

from traces.readers.common import map_unique
from traces.readers.csv_lines import local_time, parse_seconds, slurm_state, whole
from traces.readers.published.job_csv import CsvColumn, JobCsv
from traces.slurm.text import tres_gpus


def gpus(values: pl.Series) -> pl.Series:
    """Return the GPUs of a TRES list; 0 without GPUs."""
    return map_unique(values, lambda tres: tres_gpus(tres) or 0, pl.Int64)[0]


class Graham(JobCsv):
    """The reader of `jobs_graham.csv`."""

    name = "graham"
    header = ("job_unique_id", "partition_id_x", "account_id", "req_cpus", "req_tres", "alloc_nodes", "state",
              "submit_time", "eligible_time", "start_time", "elapsed_time", "end_time", "time_limit_sec")  # fmt: skip
    fields = (
        CsvColumn("job_id", "job_unique_id", required=True),
        CsvColumn("partition", "partition_id_x"),
        CsvColumn("account", "account_id"),
        CsvColumn("requested_cpus", "req_cpus", whole),
        CsvColumn("requested_mem_mib", "req_mem_total", whole),
        CsvColumn("requested_gpus", "req_tres", gpus),
        CsvColumn("requested_nodes", "alloc_nodes", whole),
        CsvColumn("state", "state", slurm_state, required=True),
        CsvColumn("priority", "priority_x", whole),
        CsvColumn("submit_local", "submit_time", local_time, required=True),
        CsvColumn("eligible_local", "eligible_time", local_time),
        CsvColumn("start_local", "start_time", local_time),
        CsvColumn("end_local", "end_time", local_time),
        CsvColumn("elapsed_s", "elapsed_time", parse_seconds),
        CsvColumn("limit_s", "time_limit_sec", parse_seconds),
    )

    def meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert to columns of `jobs`. `elapsed_time` excludes suspended time, so it is the run time."""
        return rows.with_columns(run_s=pl.col("elapsed_s"), job_id_raw=whole(rows["job_id"])).drop("elapsed_s")
