# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.failures`."""

from __future__ import annotations

from features.tables.common import ATTEMPT, SIZE_BUCKET
from traces.schema import CLUSTER, FLOAT, INT, JOB_KEY, TEXT, UTC, Column, Table

FAILURES = Table(
    "failures",
    "One row an attempt that ended badly (FAILED, OUT_OF_MEMORY, TIMEOUT, NODE_FAIL, BOOT_FAIL, DEADLINE, PREEMPTED, REQUEUED)",
    (
        CLUSTER,
        JOB_KEY,
        ATTEMPT,
        Column("user_name", TEXT, "", "user: hostile until escaped"),
        Column("partition", TEXT, "", "Slurm partition, or Philly virtual cluster"),
        Column("state", TEXT, "", "state that the attempt ended in", nullable=False),
        Column("exit_code", INT, "", "exit status"),
        Column(
            "exit_signal", INT, "", "signal; 0 for none. A shell reports signal s of its child as exit status 128 + s"
        ),
        Column(
            "reason",
            TEXT,
            "",
            "class by state, then signal, then exit status; 'no signature' where the log holds none of them",
            nullable=False,
        ),
        Column(
            "category",
            TEXT,
            "",
            "where the cause most likely lies: user, infrastructure, scheduler or unknown",
            nullable=False,
        ),
        Column("gpus", INT, "GPUs", "GPUs held"),
        SIZE_BUCKET,
        Column("end_utc", UTC, "", "when it failed"),
        Column("runtime_to_failure_s", INT, "s", "time run until it failed"),
        Column("retries_after", INT, "attempts", "later attempts of the same job", nullable=False),
        Column("job_state", TEXT, "", "state that the job ended in after all attempts", nullable=False),
        Column("gpu_time_lost_s", INT, "GPU s", "GPUs times time run of this attempt"),
    ),
    key=("cluster", "job_key", "attempt"),
)

FAILURES_BY = Table(
    "failures_by",
    "Ends of attempts by one dimension at a time; shares are of all jobs that ran and of all their GPU time",
    (
        CLUSTER,
        Column(
            "dimension",
            TEXT,
            "",
            "state (every state, good ends too), reason or size_bucket (bad ends alone)",
            nullable=False,
        ),
        Column("value", TEXT, "", "its value; null where the log does not tell"),
        Column("jobs", INT, "jobs", "jobs with such an attempt (by state: jobs that ended in it)", nullable=False),
        Column("attempts", INT, "attempts", "such attempts", nullable=False),
        Column("users", INT, "users", "users with such an attempt", nullable=False),
        Column("jobs_share", FLOAT, "", "of all jobs that ran"),
        Column("gpu_time_s", INT, "GPU s", "GPU time of such attempts; null where no GPU count is known"),
        Column("gpu_time_share", FLOAT, "", "of the GPU time of all attempts"),
        Column(
            "runtime_p50_s", FLOAT, "s", "median time run of such attempts: the runtime to failure where they failed"
        ),
        Column("runtime_p90_s", FLOAT, "s", "90th percentile"),
        Column("runtime_p95_s", FLOAT, "s", "95th percentile"),
    ),
    key=("cluster", "dimension", "value"),
)
