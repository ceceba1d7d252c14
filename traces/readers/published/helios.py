"""Helios (SenseTime): `cluster_log.csv`, a Slurm cluster's jobs.

Format: README of the public repository S-Lab-System-Group/HeliosData (Hu et al., SC 2021). Local times without an
offset; `duration` is end - start. Slurm of 2020 prints a job that was cancelled before it ran with start = end.
"""

from __future__ import annotations

import polars as pl

from traces.readers.csv_lines import local_time, seconds, slurm_state, whole
from traces.readers.published.job_csv import Field, JobCsv


class Helios(JobCsv):
    """The reader of `cluster_log.csv`."""

    name = "helios"
    header = ("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time",
              "end_time", "duration", "queue")  # fmt: skip
    fields = (
        Field("job_id", "job_id", required=True),
        Field("user_name", "user"),
        Field("partition", "vc"),
        Field("requested_gpus", "gpu_num", whole),
        Field("requested_cpus", "cpu_num", whole),
        Field("requested_nodes", "node_num", whole),
        Field("state", "state", slurm_state, required=True),
        Field("submit_local", "submit_time", local_time, required=True),
        Field("start_local", "start_time", local_time),
        Field("end_local", "end_time", local_time),
        Field("elapsed_s", "duration", seconds),
    )

    def meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Jobs as they are; a cancelled one of no length never ran."""
        never = (pl.col("state") == "CANCELLED") & (pl.col("start_utc") == pl.col("end_utc"))
        return rows.with_columns(
            start_utc=pl.when(never).then(None).otherwise(pl.col("start_utc")),
            job_id_raw=whole(rows["job_id"]),
        ).drop("elapsed_s")
