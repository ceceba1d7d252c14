"""Acme (Shanghai AI Laboratory): `trace_seren.csv` (Slurm) and `trace_kalos.csv` (Kubernetes).

Format: README of the public repository InternLM/AcmeTrace (Hu et al., NSDI 2024). Times carry their offset. The README
says that `duration` is end - start; the rows of Kalos that it prints hold end - submission (18 s for a run of 8 s after
10 s in the queue), and `gpu_time` with it. So the times decide, and both columns are left aside.
"""

from __future__ import annotations

import polars as pl

from traces.readers.csv_lines import offset_time, slurm_state, whole
from traces.readers.published.job_csv import Field, JobCsv

MIB_IN_GB = 1e9 / 2**20


class Acme(JobCsv):
    """The reader of both files; Kalos has memory a pod, and the times of a failure and of a stop."""

    name = "acme"
    header = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state", "submit_time", "start_time",
              "end_time", "duration", "queue", "gpu_time")  # fmt: skip
    fields = (
        Field("job_id", "job_id", required=True),
        Field("user_name", "user"),
        Field("job_name", "type"),  # what kind of work it was: Pretrain, Evaluation, Debug, Other ...
        Field("requested_nodes", "node_num", whole),
        Field("requested_gpus", "gpu_num", whole),
        Field("requested_cpus", "cpu_num", whole),
        Field("mem_per_pod_gb", "mem_per_pod_GB", whole),
        Field("state", "state", slurm_state, required=True),
        Field("submit_utc", "submit_time", offset_time, required=True),
        Field("start_utc", "start_time", offset_time),
        Field("end_utc", "end_time", offset_time),
        Field("fail_utc", "fail_time", offset_time),
        Field("stop_utc", "stop_time", offset_time),
    )

    def meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A job without an end ended when it failed or was stopped, unless it was still running at the snapshot."""
        running = pl.col("state") == "RUNNING"
        ended = pl.coalesce("end_utc", pl.min_horizontal("fail_utc", "stop_utc"))
        return rows.with_columns(
            end_utc=pl.when(running).then(None).otherwise(ended),
            job_id_raw=whole(rows["job_id"]),
            requested_mem_mib=(pl.col("mem_per_pod_gb") * pl.col("requested_nodes") * MIB_IN_GB).round().cast(pl.Int64),
        ).drop("mem_per_pod_gb", "fail_utc", "stop_utc")
