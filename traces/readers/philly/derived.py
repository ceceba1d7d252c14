"""The derived CSV of Philly's jobs: submission, run time summed over attempts, GPUs and virtual cluster.

Format: the header of `philly.csv` in public simulators that use Microsoft's trace. It holds neither ids nor starts nor
how a job ended: a job is known by its line, its wait is unknown and its state UNKNOWN. Equal lines are different jobs
(65 in the public file, most of one GPU: a sweep submits several in one second).
"""

from __future__ import annotations

import polars as pl

from traces.readers.csv_lines import local_time, seconds, whole
from traces.readers.published.job_csv import Field, JobCsv


class DerivedJobs(JobCsv):
    """The reader of `philly.csv`."""

    name = "philly-derived"
    header = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
    has_ids = False
    fields = (
        Field("submit_local", "timestamp", local_time, required=True),
        Field("run_s", "duration", seconds, required=True),
        Field("requested_gpus", "num_gpus", whole, required=True),
        Field("gpu_time_s", "gpu_time", seconds),
        Field("partition", "cluster"),
    )

    def meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Jobs of unknown start and end."""
        return rows.with_columns(state=pl.lit("UNKNOWN"))
