# ruff: noqa: E501  (one table of data: a column a line)
"""The derived tables of the analytics: names, types, units and meanings, declared as `traces.schema` does it."""

from __future__ import annotations

from traces.schema import CLUSTER, FLAG, FLOAT, INT, JOB_KEY, TEXT, UTC, Column, Table

ATTEMPT = Column("attempt", INT, "", "as in attempts: 0-based, in time order", nullable=False)
SIZE_BUCKET = Column("size_bucket", TEXT, "", "GPUs as 0, 1, 2-4, 5-8 or >8; null where the log does not tell")
CAPACITY_SOURCE = Column(
    "capacity_source",
    TEXT,
    "",
    "'settings', 'machine list' (raised to the peak in use where that is more), or 'peak in use'",
    nullable=False,
)

QUEUEING_DELAY = Table(
    "queueing_delay",
    "One row a job: how long it waited and for what; wait_s = held_s + fair_share_delay_s + fragmentation_delay_s where the split is known",
    (
        CLUSTER,
        JOB_KEY,
        Column("submit_utc", UTC, "", "submission"),
        Column("user_name", TEXT, "", "user: hostile until escaped"),
        Column("partition", TEXT, "", "Slurm partition, or Philly virtual cluster"),
        Column("state", TEXT, "", "final state", nullable=False),
        Column("gpus", INT, "GPUs", "GPUs asked for, else held, else whole nodes x GPUs a node of the settings"),
        Column("nodes", INT, "nodes", "nodes asked for, else held"),
        SIZE_BUCKET,
        Column("ran", FLAG, "", "the job started", nullable=False),
        Column("wait_s", INT, "s", "first start minus submission; null for a job that never ran"),
        Column(
            "eligible_wait_s",
            INT,
            "s",
            "first start minus eligible time (submission where the log has none); null for a job that never ran",
        ),
        Column("held_s", INT, "s", "part of the wait before the job was eligible (dependency, hold, begin time)"),
        Column(
            "abandoned_wait_s",
            INT,
            "s",
            "time in the queue of a job that never ran, until it was cancelled, or the log ends with it pending; null for one that ran, and where the log does not tell",
        ),
        Column("gpu_time_s", INT, "GPU s", "GPUs times time run, for weighting"),
        Column(
            "group_name", TEXT, "", "account or partition whose quota it counts against; null where the log has neither"
        ),
        Column("quota_gpus", INT, "GPUs", "quota of that group; null where there is none to infer"),
        Column(
            "quota_source",
            TEXT,
            "",
            "'given' in the settings, or 'inferred' as the 99th percentile of the group's use over its busy time; null without a quota",
        ),
        Column(
            "fair_share_delay_s",
            INT,
            "s",
            "eligible time waited while the group's GPUs in use + this job's were over the quota; null without a quota",
        ),
        Column("fragmentation_delay_s", INT, "s", "the rest of the eligible wait; null without a quota"),
        Column(
            "resource_delay_s",
            INT,
            "s",
            "eligible wait (with a quota: the part of the fragmentation delay) while the whole cluster had too few GPUs free, however placed",
        ),
        Column(
            "cause",
            TEXT,
            "",
            "'fair share' or 'fragmentation', whichever is larger (a tie is fragmentation); null without a quota or a wait",
        ),
    ),
    key=("cluster", "job_key"),
)

QUEUEING_BY = Table(
    "queueing_by",
    "Waits by one dimension at a time; a job that never ran counts in `never_ran` alone",
    (
        CLUSTER,
        Column(
            "dimension",
            TEXT,
            "",
            "all, size_bucket, partition, user_name, hour_of_week, state or month",
            nullable=False,
        ),
        Column(
            "value",
            TEXT,
            "",
            "its value (hour_of_week: 0 is Monday 00:00, of submission in the cluster's zone; month: 2023-02); null where the log does not tell",
        ),
        Column("jobs", INT, "jobs", "jobs that started and have a submit time", nullable=False),
        Column("never_ran", INT, "jobs", "jobs that never started", nullable=False),
        Column("wait_mean_s", FLOAT, "s", "mean wait"),
        Column("wait_p50_s", FLOAT, "s", "median wait (percentiles interpolate linearly)"),
        Column("wait_p90_s", FLOAT, "s", "90th percentile"),
        Column("wait_p95_s", FLOAT, "s", "95th percentile"),
        Column("wait_p99_s", FLOAT, "s", "99th percentile"),
        Column("over_10min_share", FLOAT, "", "share of those jobs that waited over 10 minutes"),
        Column(
            "wait_gpu_time_weighted_s", FLOAT, "s", "mean wait weighted by GPU time; null where no GPU time is known"
        ),
        Column("wait_total_s", INT, "s", "sum of the waits", nullable=False),
        Column("fair_share_delay_s", INT, "s", "sum of the fair-share delays; null without a quota"),
        Column("fragmentation_delay_s", INT, "s", "sum of the fragmentation delays; null without a quota"),
        Column(
            "resource_delay_s",
            INT,
            "s",
            "sum of the times in which the whole cluster had too few GPUs free (see queueing_delay)",
        ),
    ),
    key=("cluster", "dimension", "value"),
)

FRAGMENTATION = Table(
    "fragmentation",
    "One row an instant of a regular grid (10 minutes, coarser for very long logs): what is free, and how much of it is of use. An attempt with no recorded end ends when one of its GPUs is next given out, else with the log",
    (
        CLUSTER,
        Column("time_utc", UTC, "", "instant; the row holds the state at it", nullable=False),
        Column(
            "basis",
            TEXT,
            "",
            "'placements', or 'node counts': the log names no nodes and every job is taken to hold whole ones",
            nullable=False,
        ),
        CAPACITY_SOURCE,
        Column("capacity_nodes", INT, "nodes", "nodes of the cluster"),
        Column("busy_nodes", INT, "nodes", "nodes on which a job runs", nullable=False),
        Column("empty_nodes", INT, "nodes", "nodes on which none does"),
        Column("empty_node_share", FLOAT, "", "empty nodes over nodes"),
        Column("capacity_gpus", INT, "GPUs", "GPUs of the cluster; null where no GPU count is known"),
        Column("busy_gpus", INT, "GPUs", "GPUs held"),
        Column("free_gpus", INT, "GPUs", "GPUs not held"),
        Column(
            "largest_node_gpus", INT, "GPUs", "largest job that could start on one node: most GPUs free on any node"
        ),
        Column("largest_gang_nodes", INT, "nodes", "largest job that could start on whole nodes"),
        Column("largest_gang_gpus", INT, "GPUs", "GPUs of that job: all GPUs of the empty nodes"),
        Column("pending_jobs", INT, "jobs", "eligible jobs in the queue", nullable=False),
        Column("pending_gpus", INT, "GPUs", "GPUs that they ask for"),
        Column(
            "unusable_free_share",
            FLOAT,
            "",
            "expected share of the free GPUs that a job drawn from the trace's job mix cannot use, because its node has fewer free than the job asks for on one node (Weng et al., ATC'23, fragmentation measure); null with no GPU free or no placements",
        ),
        Column(
            "unusable_free_share_pending",
            FLOAT,
            "",
            "the same for a job drawn from the queue at that instant; null with an empty queue",
        ),
    ),
    key=("cluster", "time_utc"),
)

PLACEMENT_SPREAD = Table(
    "placement_spread",
    "One row an attempt that ran: nodes used against the fewest possible",
    (
        CLUSTER,
        JOB_KEY,
        ATTEMPT,
        Column("start_utc", UTC, "", "start"),
        Column("gpus", INT, "GPUs", "GPUs held"),
        SIZE_BUCKET,
        Column("nodes", INT, "nodes", "nodes used, from the placements where the log has them"),
        Column(
            "fewest_nodes",
            INT,
            "nodes",
            "fewest nodes that hold as many GPUs: GPUs over the GPUs of the largest node, rounded up",
        ),
        Column("excess_nodes", INT, "nodes", "nodes beyond the fewest; null where GPUs or nodes are unknown"),
        Column("basis", TEXT, "", "'placements' or 'node counts'", nullable=False),
    ),
    key=("cluster", "job_key", "attempt"),
)

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

UTILIZATION_ALLOCATED = Table(
    "utilization_allocated",
    "One row an hour and scope: how much of the cluster is held by jobs",
    (
        CLUSTER,
        Column("hour_utc", UTC, "", "start of the hour", nullable=False),
        Column("scope", TEXT, "", "'cluster', or 'partition' (hours in which it holds something)", nullable=False),
        Column("partition", TEXT, "", "the partition; null for the cluster, and for jobs of no known partition"),
        Column("unit", TEXT, "", "'GPU', or 'node' where no GPU count is known", nullable=False),
        Column("allocated_s", INT, "unit s", "units held, integrated over the hour", nullable=False),
        Column(
            "capacity_s",
            INT,
            "unit s",
            "units of the whole cluster, integrated over the hour; the first and last hour in full",
        ),
        Column(
            "allocated_share",
            FLOAT,
            "",
            "allocated_s over capacity_s; over 1 where the settings say less than was in use",
        ),
        CAPACITY_SOURCE,
    ),
    key=("cluster", "hour_utc", "scope", "partition"),
)

UTILIZATION_MEASURED = Table(
    "utilization_measured",
    "One row an attempt with GPU samples: what its GPUs did from its start up to its end",
    (
        CLUSTER,
        JOB_KEY,
        ATTEMPT,
        Column(
            "attribution",
            TEXT,
            "",
            "'gpu': samples of the GPUs that it held; 'node': all GPUs of its nodes, where the log names no GPU",
            nullable=False,
        ),
        Column("samples", INT, "samples", "GPU-minutes measured", nullable=False),
        Column(
            "offline_samples", INT, "samples", "GPU-minutes with the GPU offline, counted in no figure", nullable=False
        ),
        Column("node_minutes", INT, "minutes", "node-minutes with a sample", nullable=False),
        Column("shared_node_minutes", INT, "minutes", "of these, with another attempt on the node", nullable=False),
        Column("online_node_minutes", INT, "minutes", "of the node-minutes, with a GPU online", nullable=False),
        Column("utilization_mean_percent", FLOAT, "%", "mean over GPU-minutes; null where all were offline"),
        Column("utilization_p50_percent", FLOAT, "%", "median"),
        Column("utilization_p95_percent", FLOAT, "%", "95th percentile"),
        Column(
            "idle_node_minutes",
            INT,
            "minutes",
            "node-minutes in which every GPU counted read exactly 0",
            nullable=False,
        ),
        Column("idle_share", FLOAT, "", "of the node-minutes with a GPU online; null without one"),
    ),
    key=("cluster", "job_key", "attempt"),
)

UTILIZATION_BY = Table(
    "utilization_by",
    "Attempts that ran by size and final state of the job, with measured utilization where there are samples",
    (
        CLUSTER,
        SIZE_BUCKET,
        Column("state", TEXT, "", "state that the job ended in", nullable=False),
        Column("jobs", INT, "jobs", "jobs", nullable=False),
        Column("attempts", INT, "attempts", "attempts", nullable=False),
        Column("gpu_time_s", INT, "GPU s", "GPU time; null where no GPU count is known"),
        Column("gpu_time_share", FLOAT, "", "of the GPU time of the cluster"),
        Column("measured_attempts", INT, "attempts", "attempts with samples", nullable=False),
        Column("samples", INT, "samples", "GPU-minutes measured", nullable=False),
        Column("utilization_mean_percent", FLOAT, "%", "mean over these GPU-minutes"),
        Column("idle_share", FLOAT, "", "of the node-minutes with a GPU online: every GPU counted read exactly 0"),
    ),
    key=("cluster", "size_bucket", "state"),
)
