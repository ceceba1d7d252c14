# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.failures.failures`."""

from __future__ import annotations

from features.tables.common import ATTEMPT, SIZE_BUCKET
from traces.schema import CLUSTER, FLAG, FLOAT, INT, JOB_KEY, TEXT, UTC, Column, Table

FAILURES = Table(
    "failures",
    "One row per attempt that ended badly (FAILED, OUT_OF_MEMORY, TIMEOUT, NODE_FAIL, BOOT_FAIL, DEADLINE, PREEMPTED, REQUEUED)",
    (
        CLUSTER,
        JOB_KEY,
        ATTEMPT,
        Column("user_name", TEXT, "", "user: untrusted text, escape before display"),
        Column("partition", TEXT, "", "Slurm partition, or Philly virtual cluster"),
        Column(
            "state",
            TEXT,
            "",
            "state in which the attempt ended; FAILED for a Philly attempt that was followed by another, which may have been preempted",
            nullable=False,
        ),
        Column("exit_code", INT, "", "exit status"),
        Column(
            "exit_signal",
            INT,
            "",
            "signal that ended it, 0 for none; a shell reports signal s of its child as exit status 128 + s",
        ),
        Column(
            "reason",
            TEXT,
            "",
            "class of the failure, from the state, else the log signature, else the signal, else the exit status. Where none of them gives a class: 'failed or preempted' for an attempt that was run again (Philly's log gives attempts no status), else 'no signature'",
            nullable=False,
        ),
        Column(
            "category",
            TEXT,
            "",
            "most likely origin of the cause: user, engine (framework and CUDA), infrastructure, scheduler or unknown",
            nullable=False,
        ),
        Column(
            "reason_source",
            TEXT,
            "",
            "source of the reason: state, log, signal, exit status, none, or 'exit status, 128 assumed': 9 that may be 137, where the log prints exit statuses without 128",
            nullable=False,
        ),
        Column(
            "is_hopeless",
            FLAG,
            "",
            "whether a retry of the same job is hopeless: a hopeless log signature, or exit status 2, 126 or 127, except a 127 that may be 255",
            nullable=False,
        ),
        Column("gpus", INT, "GPUs", "GPUs held"),
        SIZE_BUCKET,
        Column("end_utc", UTC, "", "when it failed"),
        Column("runtime_to_failure_s", INT, "s", "time run until it failed"),
        Column("retries_after", INT, "attempts", "later attempts of the same job", nullable=False),
        Column("job_state", TEXT, "", "state in which the job ended after all attempts", nullable=False),
        Column("gpu_time_lost_s", INT, "GPU s", "GPUs held times the time held"),
        Column(
            "unit_time_lost_s",
            INT,
            "s",
            "time held of the cluster's binding resource: GPU s, core s, GiB s or node s",
        ),
    ),
    key=("cluster", "job_key", "attempt"),
)

FAILURES_BY = Table(
    "failures_by",
    "Ends of attempts by one dimension at a time. Shares are relative to all jobs that ran and to all their GPU time",
    (
        CLUSTER,
        Column(
            "dimension",
            TEXT,
            "",
            "state (every state, good ends included), or reason, category, size_bucket or user_name (bad ends only)",
            nullable=False,
        ),
        Column("value", TEXT, "", "value of the dimension; null where the log does not record it"),
        Column("jobs", INT, "jobs", "jobs with such an attempt (by state: jobs that ended in it)", nullable=False),
        Column("attempts", INT, "attempts", "such attempts", nullable=False),
        Column("users", INT, "users", "users with such an attempt", nullable=False),
        Column("repetition_per_job", FLOAT, "attempts", "such attempts per job that has one", nullable=False),
        Column(
            "repetition_per_user", FLOAT, "attempts", "such attempts per user who has one; null where no user is named"
        ),
        Column("jobs_share", FLOAT, "", "jobs over all jobs that ran"),
        Column("gpu_time_s", INT, "GPU s", "GPU time of such attempts; null where no GPU count is known"),
        Column("gpu_time_share", FLOAT, "", "gpu_time_s over the GPU time of all attempts"),
        Column("unit_time_s", INT, "s", "time held of the cluster's binding resource; null where unknown"),
        Column("unit_time_share", FLOAT, "", "unit_time_s over the same time of all attempts"),
        Column(
            "runtime_p50_s",
            FLOAT,
            "s",
            "median run time of such attempts; for failed attempts, the run time to failure",
        ),
        Column("runtime_p90_s", FLOAT, "s", "90th percentile of the run times"),
        Column("runtime_p95_s", FLOAT, "s", "95th percentile of the run times"),
        Column("runtime_total_s", INT, "s", "sum of the run times", nullable=False),
        Column("runtime_share", FLOAT, "", "runtime_total_s over its sum for the dimension; null where that sum is 0"),
    ),
    key=("cluster", "dimension", "value"),
)

RETRIES = Table(
    "retries",
    "Retries: for all jobs, and by size of the first attempt",
    (
        CLUSTER,
        Column("dimension", TEXT, "", "all or size_bucket", nullable=False),
        Column("value", TEXT, "", "value of the dimension; null where the log does not record it"),
        Column("jobs", INT, "jobs", "jobs that ran", nullable=False),
        Column("attempts", INT, "attempts", "attempts of these jobs", nullable=False),
        Column("attempts_mean", FLOAT, "attempts", "mean attempts per job", nullable=False),
        Column("attempts_most", INT, "attempts", "most attempts of any job", nullable=False),
        Column("retried_jobs", INT, "jobs", "jobs with more than one attempt", nullable=False),
        Column("retried_share", FLOAT, "", "retried_jobs over jobs", nullable=False),
        Column("recovered_jobs", INT, "jobs", "retried jobs that completed in the end", nullable=False),
        Column(
            "retry_unit_time_s",
            INT,
            "s",
            "time held of the cluster's binding resource by all attempts after the first: GPU s, core s, GiB s or node s; null where unknown",
        ),
    ),
    key=("cluster", "dimension", "value"),
)

FAILURE_SAVINGS = Table(
    "failure_savings",
    "Savings and costs of two rules on this log, as time of the cluster's binding resource (GPU s, core s, GiB s or node s). No row where the held amount is unknown or a rule applies to no job",
    (
        CLUSTER,
        Column(
            "rule",
            TEXT,
            "",
            "'pre-run on one GPU' (every job with more GPUs first runs for limit_s on one; only on clusters whose binding resource is the GPU) or 'no retry of hopeless errors'",
            nullable=False,
        ),
        Column("limit_s", INT, "s", "length of the pre-run; null for the other rule"),
        Column(
            "reason",
            TEXT,
            "",
            "reason of the failure at which the rule stops a job; null for all reasons, and for pre-runs",
        ),
        Column("jobs", INT, "jobs", "jobs to which the rule applies", nullable=False),
        Column(
            "attempts_avoided",
            INT,
            "attempts",
            "attempts that the rule would have kept from running at full size",
            nullable=False,
        ),
        Column("time_saved_s", INT, "s", "time held by these attempts", nullable=False),
        Column("time_cost_s", INT, "s", "time held by the pre-runs", nullable=False),
        Column(
            "time_net_s",
            INT,
            "s",
            "time_saved_s minus time_cost_s; negative where the rule does not pay",
            nullable=False,
        ),
        Column(
            "jobs_stopped_wrongly",
            INT,
            "jobs",
            "stopped jobs that completed in the log, in a later attempt or as a whole",
            nullable=False,
        ),
    ),
    key=("cluster", "rule", "limit_s", "reason"),
)
