"""Reader of the derived CSV of Philly's jobs: submission, run time summed over attempts, GPUs and virtual cluster.

Format: the header of `philly.csv` in public simulators that use Microsoft's trace. It has no ids, starts or end states.
So the line identifies a job, its wait is unknown and its state UNKNOWN. Equal lines are different jobs (65 in the
public file, most with one GPU: a sweep submits several in one second).
"""

from __future__ import annotations

import polars as pl

from traces.readers.csv_lines import local_time, parse_seconds, whole
from traces.readers.published.job_csv import CsvColumn, JobCsv


class DerivedJobs(JobCsv):
    """The reader of `philly.csv`."""

    name = "philly-derived"
    header = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
    has_ids = False
    fields = (
        CsvColumn("submit_local", "timestamp", local_time, required=True),
        CsvColumn("run_s", "duration", parse_seconds, required=True),
        CsvColumn("requested_gpus", "num_gpus", whole, required=True),
        CsvColumn("gpu_time_s", "gpu_time", parse_seconds),
        CsvColumn("partition", "cluster"),
    )

    def meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert to columns of `jobs`, with unknown starts and ends."""
        return rows.with_columns(state=pl.lit("UNKNOWN"))
