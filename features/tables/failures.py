# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.failures`."""

from __future__ import annotations

from features.tables.common import ATTEMPT, SIZE_BUCKET
from traces.schema import CLUSTER, FLAG, FLOAT, INT, JOB_KEY, TEXT, UTC, Column, Table

FAILURES = Table(
    "failures",
    "One row an attempt that ended badly (FAILED, OUT_OF_MEMORY, TIMEOUT, NODE_FAIL, BOOT_FAIL, DEADLINE, PREEMPTED, REQUEUED)",
    (
        CLUSTER,
        JOB_KEY,
        ATTEMPT,
        Column("user_name", TEXT, "", "user: hostile until escaped"),
        Column("partition", TEXT, "", "Slurm partition, or Philly virtual cluster"),
        Column(
            "state",
            TEXT,
            "",
            "state that the attempt ended in; FAILED for a Philly attempt that another follows, which may have been preempted",
            nullable=False,
        ),
        Column("exit_code", INT, "", "exit status"),
        Column(
            "exit_signal", INT, "", "signal; 0 for none. A shell reports signal s of its child as exit status 128 + s"
        ),
        Column(
            "reason",
            TEXT,
            "",
            "class by state, then log signature, signal and exit status; 'failed or preempted' where none of them tells of an attempt that was run again (Philly's log gives attempts no status), else 'no signature'",
            nullable=False,
        ),
        Column(
            "category",
            TEXT,
            "",
            "where the cause most likely lies: user, engine (framework and CUDA), infrastructure, scheduler or unknown",
            nullable=False,
        ),
        Column("reason_source", TEXT, "", "what told: state, log, signal, exit status or none", nullable=False),
        Column(
            "is_hopeless",
            FLAG,
            "",
            "it makes no sense to run the same again: a hopeless log signature, or exit status 2, 126 or 127",
            nullable=False,
        ),
        Column("gpus", INT, "GPUs", "GPUs held"),
        SIZE_BUCKET,
        Column("end_utc", UTC, "", "when it failed"),
        Column("runtime_to_failure_s", INT, "s", "time run until it failed"),
        Column("retries_after", INT, "attempts", "later attempts of the same job", nullable=False),
        Column("job_state", TEXT, "", "state that the job ended in after all attempts", nullable=False),
        Column("gpu_time_lost_s", INT, "GPU s", "GPUs held times the time they were held"),
        Column(
            "unit_time_lost_s",
            INT,
            "s",
            "time held of the resource that the cluster is about: GPU s, core s, GiB s or node s",
        ),
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
            "state (every state, good ends too), reason, category, size_bucket or user_name (bad ends alone)",
            nullable=False,
        ),
        Column("value", TEXT, "", "its value; null where the log does not tell"),
        Column("jobs", INT, "jobs", "jobs with such an attempt (by state: jobs that ended in it)", nullable=False),
        Column("attempts", INT, "attempts", "such attempts", nullable=False),
        Column("users", INT, "users", "users with such an attempt", nullable=False),
        Column("repetition_per_job", FLOAT, "attempts", "such attempts a job with one", nullable=False),
        Column("repetition_per_user", FLOAT, "attempts", "such attempts a user with one; null where no user is named"),
        Column("jobs_share", FLOAT, "", "of all jobs that ran"),
        Column("gpu_time_s", INT, "GPU s", "GPU time of such attempts; null where no GPU count is known"),
        Column("gpu_time_share", FLOAT, "", "of the GPU time of all attempts"),
        Column(
            "unit_time_s", INT, "s", "time held of the resource that the cluster is about; null where it is not known"
        ),
        Column("unit_time_share", FLOAT, "", "of that time of all attempts"),
        Column(
            "runtime_p50_s", FLOAT, "s", "median time run of such attempts: the runtime to failure where they failed"
        ),
        Column("runtime_p90_s", FLOAT, "s", "90th percentile"),
        Column("runtime_p95_s", FLOAT, "s", "95th percentile"),
        Column("runtime_total_s", INT, "s", "sum of the time run", nullable=False),
        Column("runtime_share", FLOAT, "", "of the sum over all rows of the dimension; null where nothing ran on"),
    ),
    key=("cluster", "dimension", "value"),
)

RETRIES = Table(
    "retries",
    "How often jobs ran again: in all and by size of the first attempt",
    (
        CLUSTER,
        Column("dimension", TEXT, "", "all or size_bucket", nullable=False),
        Column("value", TEXT, "", "its value; null where the log does not tell"),
        Column("jobs", INT, "jobs", "jobs that ran", nullable=False),
        Column("attempts", INT, "attempts", "their attempts", nullable=False),
        Column("attempts_mean", FLOAT, "attempts", "attempts a job", nullable=False),
        Column("attempts_most", INT, "attempts", "most attempts of any job", nullable=False),
        Column("retried_jobs", INT, "jobs", "jobs with more than one", nullable=False),
        Column("retried_share", FLOAT, "", "of the jobs that ran", nullable=False),
        Column("recovered_jobs", INT, "jobs", "retried jobs that completed in the end", nullable=False),
        Column(
            "retry_unit_time_s",
            INT,
            "s",
            "time that all attempts after the first held of the resource that the cluster is about: GPU s, core s, GiB s or node s; null where it is not known",
        ),
    ),
    key=("cluster", "dimension", "value"),
)

FAILURE_SAVINGS = Table(
    "failure_savings",
    "What two rules would have saved on this log, and what they would have cost, as time of the resource that the cluster is about (GPU s, core s, GiB s or node s); no row where what was held is not known or a rule meets no job",
    (
        CLUSTER,
        Column(
            "rule",
            TEXT,
            "",
            "'pre-run on one GPU' of limit_s of every job with more GPUs, on clusters that are about GPUs, or 'no retry of hopeless errors'",
            nullable=False,
        ),
        Column("limit_s", INT, "s", "length of the pre-run; null for the other rule"),
        Column(
            "reason",
            TEXT,
            "",
            "reason of the failure at which a job would have been stopped; null for all reasons, and for pre-runs",
        ),
        Column("jobs", INT, "jobs", "jobs that the rule touches", nullable=False),
        Column("attempts_avoided", INT, "attempts", "attempts that would not have run at full size", nullable=False),
        Column("time_saved_s", INT, "s", "time held by these attempts", nullable=False),
        Column("time_cost_s", INT, "s", "time held by the pre-runs", nullable=False),
        Column("time_net_s", INT, "s", "saved minus cost: negative where the rule does not pay", nullable=False),
        Column(
            "jobs_stopped_wrongly",
            INT,
            "jobs",
            "jobs of which a later attempt, or the job itself, completed",
            nullable=False,
        ),
    ),
    key=("cluster", "rule", "limit_s", "reason"),
)
