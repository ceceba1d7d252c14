"""Reader of the Helios trace (SenseTime): `cluster_log.csv`, the jobs of a Slurm cluster.

Format: README of the public repository S-Lab-System-Group/HeliosData (Hu et al., SC 2021). Times are local without an
offset; `duration` is end - start. Slurm of 2020 prints start = end for a job that was cancelled before it ran.
"""

from __future__ import annotations

import polars as pl

from traces.readers.csv_lines import local_time, parse_seconds, slurm_state, whole
from traces.readers.published.job_csv import CsvColumn, JobCsv


class Helios(JobCsv):
    """The reader of `cluster_log.csv`."""

    name = "helios"
    header = ("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time",
              "end_time", "duration", "queue")  # fmt: skip
    fields = (
        CsvColumn("job_id", "job_id", required=True),
        CsvColumn("user_name", "user"),
        CsvColumn("partition", "vc"),
        CsvColumn("requested_gpus", "gpu_num", whole),
        CsvColumn("requested_cpus", "cpu_num", whole),
        CsvColumn("requested_nodes", "node_num", whole),
        CsvColumn("state", "state", slurm_state, required=True),
        CsvColumn("submit_local", "submit_time", local_time, required=True),
        CsvColumn("start_local", "start_time", local_time),
        CsvColumn("end_local", "end_time", local_time),
        CsvColumn("elapsed_s", "duration", parse_seconds),
    )

    def meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert to columns of `jobs`. A cancelled job with start = end never ran."""
        never = (pl.col("state") == "CANCELLED") & (pl.col("start_utc") == pl.col("end_utc"))
        return rows.with_columns(
            start_utc=pl.when(never).then(None).otherwise(pl.col("start_utc")),
            job_id_raw=whole(rows["job_id"]),
        ).drop("elapsed_s")
