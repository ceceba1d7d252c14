"""Reader of the Acme traces (Shanghai AI Laboratory): `trace_seren.csv` (Slurm) and `trace_kalos.csv` (Kubernetes).

Format: README of the public repository InternLM/AcmeTrace (Hu et al., NSDI 2024). Times have an offset. The README
defines `duration` as end - start. But its example rows of Kalos hold end - submission (18 s for a run of 8 s after
10 s in the queue), and `gpu_time` follows. So this reader uses the times and ignores both columns.
"""

from __future__ import annotations

import polars as pl

from traces.readers.csv_lines import offset_time, slurm_state, whole
from traces.readers.published.job_csv import CsvColumn, JobCsv

MIB_IN_GB = 1e9 / 2**20


class Acme(JobCsv):
    """The reader of both files; only Kalos has memory per pod and the times of a failure and a stop."""

    name = "acme"
    header = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state", "submit_time", "start_time",
              "end_time", "duration", "queue", "gpu_time")  # fmt: skip
    fields = (
        CsvColumn("job_id", "job_id", required=True),
        CsvColumn("user_name", "user"),
        CsvColumn("job_name", "type"),  # what kind of work it was: Pretrain, Evaluation, Debug, Other ...
        CsvColumn("requested_nodes", "node_num", whole),
        CsvColumn("requested_gpus", "gpu_num", whole),
        CsvColumn("requested_cpus", "cpu_num", whole),
        CsvColumn("mem_per_pod_gb", "mem_per_pod_GB", whole),
        CsvColumn("state", "state", slurm_state, required=True),
        CsvColumn("submit_utc", "submit_time", offset_time, required=True),
        CsvColumn("start_utc", "start_time", offset_time),
        CsvColumn("end_utc", "end_time", offset_time),
        CsvColumn("fail_utc", "fail_time", offset_time),
        CsvColumn("stop_utc", "stop_time", offset_time),
    )

    def meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert to columns of `jobs`. A job without an end ended when it failed or stopped, unless it still runs."""
        running = pl.col("state") == "RUNNING"
        ended = pl.coalesce("end_utc", pl.min_horizontal("fail_utc", "stop_utc"))
        return rows.with_columns(
            end_utc=pl.when(running).then(None).otherwise(ended),
            job_id_raw=whole(rows["job_id"]),
            requested_mem_mib=(pl.col("mem_per_pod_gb") * pl.col("requested_nodes") * MIB_IN_GB).round().cast(pl.Int64),
        ).drop("mem_per_pod_gb", "fail_utc", "stop_utc")
