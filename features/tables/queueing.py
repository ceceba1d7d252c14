# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.queueing`."""

from __future__ import annotations

from features.tables.common import SIZE_BUCKET
from traces.schema import CLUSTER, FLAG, FLOAT, INT, JOB_KEY, TEXT, UTC, Column, Table

QUEUEING_DELAY = Table(
    "queueing_delay",
    "One row per job: its wait, and the causes of the wait. wait_s is the sum of the eleven causes from held_s to unknown_s (docs/decisions/0041); each second counts once, for the first cause that applies",
    (
        CLUSTER,
        JOB_KEY,
        Column("submit_utc", UTC, "", "submission"),
        Column("user_name", TEXT, "", "user: untrusted text, escape before display"),
        Column("partition", TEXT, "", "Slurm partition, or Philly virtual cluster"),
        Column("state", TEXT, "", "final state", nullable=False),
        Column("gpus", INT, "GPUs", "GPUs requested, else held, else whole nodes x GPUs per node from the settings"),
        Column("nodes", INT, "nodes", "nodes requested, else held"),
        SIZE_BUCKET,
        Column(
            "ran",
            FLAG,
            "",
            "whether the job ran: the log holds its start or a run time, or, where the dump prints no starts at all, its state shows that it ran",
            nullable=False,
        ),
        Column(
            "wait_s",
            INT,
            "s",
            "first start minus submission, also for a requeued job; null for a job that never ran",
        ),
        Column(
            "eligible_wait_s",
            INT,
            "s",
            "first start minus eligible time (submission where the log has none); null for a job that never ran",
        ),
        Column(
            "held_s",
            INT,
            "s",
            "part of the wait before the job was eligible (dependency, hold, begin time). Where the log has no eligible time but the scheduler's reason names a hold: the time during which the job would have fitted. held_s and the next ten columns add up to wait_s; all are null without a wait or with a negative one (a clock change)",
        ),
        Column(
            "dependency_s",
            INT,
            "s",
            "part of the eligible wait that is likely a dependency which the log does not name: the time until a job of the same user and name ended just before this job's start, where such jobs ran one at a time although this one would have fitted",
        ),
        Column(
            "own_jobs_s",
            INT,
            "s",
            "part of the eligible wait behind the user's own jobs, where these ran a fixed number at a time or all on one node: by the user's choice, or because a node was requested by name",
        ),
        Column(
            "array_limit_s",
            INT,
            "s",
            "part of the eligible wait for the job array's own limit: tasks of the array ran a fixed number at a time, or the scheduler's reason is JobArrayTaskLimit",
        ),
        Column(
            "own_limit_s",
            INT,
            "s",
            "time during which the job would have put its user or group over a limit: a quota from the settings, a limit on users inferred from the record (at least three users stopped there while a job of theirs that would have fitted waited, and hardly any went beyond), or a limit that the scheduler's reason names. Each cause from here on excludes the ones above it",
        ),
        Column(
            "cluster_full_s",
            INT,
            "s",
            "time during which too little was free on the nodes that the job may use (pool_nodes, in service or not), so that no placement was possible",
        ),
        Column(
            "nodes_down_s",
            INT,
            "s",
            "time during which the job would have fitted only on nodes that were out of service: nodes on which nothing ran for three days or ever, or as the scheduler's reason says",
        ),
        Column(
            "fragmented_s",
            INT,
            "s",
            "time during which enough was free in total, but too few nodes had the job's share of GPUs, CPUs and memory free; 0 where cause_basis is not 'placements', because fragmentation is then not observable",
        ),
        Column(
            "reservation_s",
            INT,
            "s",
            "time during which the job would have fitted but its partition appears closed (a reservation or maintenance): for three hours or more it started nothing, or had half of its nodes free and started fewer jobs than waited, although ten jobs of five users would have fitted; or as the scheduler's reason says",
        ),
        Column(
            "behind_s",
            INT,
            "s",
            "time during which the job would have fitted but other users' jobs of its partition were ahead of it (eligible earlier) or started first: priority, a reservation for a wide job, or backfill",
        ),
        Column(
            "unknown_s",
            INT,
            "s",
            "the rest of the wait: the job would have fitted and the log shows no job before it (licences, node features, the scheduler's pace), or it waited before the log's first start",
        ),
        Column(
            "main_cause",
            TEXT,
            "",
            "the largest cause: 'held', 'likely dependency', 'own jobs', 'array limit', 'own limit', 'cluster full', 'nodes down', 'fragmented', 'reservation', 'behind others' or 'unknown' (the first one in a tie); null without a wait",
        ),
        Column(
            "own_limit",
            TEXT,
            "",
            "the limits behind own_limit_s and their source: given, inferred, or the scheduler's reason",
        ),
        Column(
            "evidence",
            TEXT,
            "",
            "observation from which dependency_s, own_jobs_s or array_limit_s is inferred; null where all are 0 or the scheduler's reason states the cause",
        ),
        Column(
            "pool_nodes",
            INT,
            "nodes",
            "nodes that the job could use: those of its partition where the log or the machine list names them, else those of the cluster; null where the number is unknown",
        ),
        Column(
            "pool_known_by",
            TEXT,
            "",
            "source of pool_nodes: 'declared', 'in the machine list', 'seen in use' or 'in use at the peak'",
        ),
        Column(
            "cause_basis",
            TEXT,
            "",
            "data from which we decide whether the job fitted: 'placements' (each node of its partition separately), else counts over the whole cluster: 'GPU counts', 'CPU counts', 'node counts' or, where none of these is known, 'job counts'; null without a wait",
        ),
        Column(
            "abandoned_wait_s",
            INT,
            "s",
            "time in the queue of a job that never ran, until it was cancelled or the log ended; null for a job that ran, and where the log does not record it",
        ),
        Column(
            "gpu_time_s",
            INT,
            "GPU s",
            "GPUs held times the time held, over all attempts, until the log's end for an attempt that still runs; the log's own figure for an attempt without a start",
        ),
        Column(
            "unit_time_s",
            INT,
            "unit s",
            "time held of the cluster's binding resource (table `resources`): GPU, core, GiB or node seconds; null where the job's attempts do not record it",
        ),
        Column(
            "group_name",
            TEXT,
            "",
            "account or partition whose quota the job counts against; null where the log has neither",
        ),
        Column("quota_gpus", INT, "GPUs", "quota of that group; null where none is given or can be inferred"),
        Column(
            "quota_source",
            TEXT,
            "",
            "'given' (in the settings) or 'inferred' (99th percentile of the group's use over its busy time); null without a quota",
        ),
        Column(
            "fair_share_delay_s",
            INT,
            "s",
            "fair-share delay as in the Philly study: eligible wait during which the group's GPUs in use plus this job's exceeded the quota; null without a quota",
        ),
        Column(
            "fragmentation_delay_s",
            INT,
            "s",
            "fragmentation delay as in the Philly study: the rest of the eligible wait, whatever its cause; null without a quota",
        ),
        Column(
            "philly_cause",
            TEXT,
            "",
            "the larger of the two delays of the Philly study: 'fair share' or 'fragmentation' (the latter in a tie); null without a quota or a wait",
        ),
    ),
    key=("cluster", "job_key"),
)

QUEUEING_BY = Table(
    "queueing_by",
    "Waits by one dimension at a time. A job that never ran counts only in `never_ran`",
    (
        CLUSTER,
        Column(
            "dimension",
            TEXT,
            "",
            "all, size_bucket, partition, user_name, hour_of_week, state, week or month",
            nullable=False,
        ),
        Column(
            "value",
            TEXT,
            "",
            "value of the dimension. Times are those of submission in the cluster's time zone: hour_of_week counts from Monday 00:00 as 0; week is its Monday, as 2023-02-06; month as 2023-02. Null where the log does not record it",
        ),
        Column("jobs", INT, "jobs", "jobs with a known start and submission", nullable=False),
        Column("never_ran", INT, "jobs", "jobs that never ran", nullable=False),
        Column("wait_mean_s", FLOAT, "s", "mean wait"),
        Column("wait_p50_s", FLOAT, "s", "median wait (percentiles interpolate linearly)"),
        Column("wait_p90_s", FLOAT, "s", "90th percentile of the waits"),
        Column("wait_p95_s", FLOAT, "s", "95th percentile of the waits"),
        Column("wait_p99_s", FLOAT, "s", "99th percentile of the waits"),
        Column("over_10min_share", FLOAT, "", "share of these jobs that waited over 10 minutes"),
        Column(
            "wait_gpu_time_weighted_s", FLOAT, "s", "mean wait weighted by GPU time; null where no GPU time is known"
        ),
        Column("eligible_wait_mean_s", FLOAT, "s", "mean wait from the time the job was eligible"),
        Column("eligible_wait_p50_s", FLOAT, "s", "median of the eligible waits"),
        Column("eligible_wait_p90_s", FLOAT, "s", "90th percentile of the eligible waits"),
        Column("eligible_wait_p95_s", FLOAT, "s", "95th percentile of the eligible waits"),
        Column("eligible_wait_p99_s", FLOAT, "s", "99th percentile of the eligible waits"),
        Column("wait_total_s", INT, "s", "sum of the waits", nullable=False),
        Column(
            "held_s",
            INT,
            "s",
            "wait before the jobs were eligible. This and the next ten columns are sums of those of `queueing_delay`; they add up to wait_total_s except for negative waits; null where no job has a wait",
        ),
        Column("dependency_s", INT, "s", "wait for likely dependencies"),
        Column("own_jobs_s", INT, "s", "wait behind jobs of the same user"),
        Column("array_limit_s", INT, "s", "wait at the limit of the job array"),
        Column("own_limit_s", INT, "s", "wait at a limit of the user or group"),
        Column("cluster_full_s", INT, "s", "wait while too little was free on the nodes that the jobs may use"),
        Column("nodes_down_s", INT, "s", "wait while the jobs would have fitted only on nodes out of service"),
        Column(
            "fragmented_s", INT, "s", "wait while enough was free in total, but not in the shape that the jobs need"
        ),
        Column("reservation_s", INT, "s", "wait while the jobs would have fitted but their partition appears closed"),
        Column("behind_s", INT, "s", "wait while the jobs would have fitted, behind other users' jobs"),
        Column("unknown_s", INT, "s", "wait while the jobs would have fitted, for no reason that the log shows"),
        Column(
            "abandoned_wait_total_s", INT, "s", "sum of the time in the queue of jobs that never ran", nullable=False
        ),
        Column(
            "fair_share_delay_s",
            INT,
            "s",
            "sum of the fair-share delays as in the Philly study; null without a quota",
        ),
        Column(
            "fragmentation_delay_s",
            INT,
            "s",
            "sum of the fragmentation delays as in the Philly study; null without a quota",
        ),
        Column("fair_share_jobs", INT, "jobs", "jobs whose philly_cause is fair share; null without a quota"),
        Column(
            "fragmentation_jobs",
            INT,
            "jobs",
            "jobs whose philly_cause is fragmentation; null without a quota",
        ),
    ),
    key=("cluster", "dimension", "value"),
)

QUOTA_SENSITIVITY = Table(
    "quota_sensitivity",
    "Sensitivity of the Philly study's split to the quantile from which quotas are inferred, one row per quantile. A single row where every quota is given; empty without quotas",
    (
        CLUSTER,
        Column(
            "quantile",
            FLOAT,
            "",
            "quantile of each group's use over its busy time that serves as its quota; null where all quotas are given",
        ),
        Column("quota_source", TEXT, "", "'inferred' (some or all quotas) or 'given'", nullable=False),
        Column("is_default", FLAG, "", "whether `queueing_delay` uses this quantile"),
        Column("quota_gpus", INT, "GPUs", "sum of the quotas of groups with a wait to split", nullable=False),
        Column("jobs", INT, "jobs", "jobs with a fair-share and a fragmentation delay", nullable=False),
        Column("fair_share_delay_s", INT, "s", "sum of the fair-share delays", nullable=False),
        Column("fragmentation_delay_s", INT, "s", "sum of the fragmentation delays", nullable=False),
        Column(
            "fair_share_delay_share",
            FLOAT,
            "",
            "fair-share delay over the sum of both delays; null where nothing waited",
        ),
        Column("fair_share_jobs", INT, "jobs", "jobs whose philly_cause is fair share", nullable=False),
        Column("fragmentation_jobs", INT, "jobs", "jobs whose philly_cause is fragmentation", nullable=False),
    ),
    key=("cluster", "quantile"),
)

START_ORDER = Table(
    "start_order",
    "One row per job that started: whether it overtook a job of its queue that had been eligible longer",
    (
        CLUSTER,
        JOB_KEY,
        Column("partition", TEXT, "", "Slurm partition, or Philly virtual cluster: the queue"),
        Column("start_utc", UTC, "", "first start", nullable=False),
        Column(
            "demand",
            INT,
            "",
            "amount requested, else held, of the cluster's binding resource: GPUs, cores, MiB or nodes",
        ),
        SIZE_BUCKET,
        Column(
            "is_out_of_order",
            FLAG,
            "",
            "whether a job of its queue that was eligible earlier still waited after this start",
            nullable=False,
        ),
        Column(
            "smallest_overtaken",
            INT,
            "",
            "smallest demand among the overtaken jobs; null where there is none or it is unknown",
        ),
        Column(
            "is_harmless",
            FLAG,
            "",
            "whether the start is out of order without harm: by count of that resource, no overtaken job would have fitted during this job's run, had this job not run. Null for a start in order, and where the demand or the cluster's size is unknown",
        ),
    ),
    key=("cluster", "job_key"),
)

START_ORDER_BY = Table(
    "start_order_by",
    "Starts out of order by one dimension at a time",
    (
        CLUSTER,
        Column("dimension", TEXT, "", "all, partition or size_bucket", nullable=False),
        Column("value", TEXT, "", "value of the dimension; null where the log does not record it"),
        Column("starts", INT, "jobs", "jobs that started", nullable=False),
        Column("out_of_order", INT, "jobs", "starts out of order", nullable=False),
        Column("out_of_order_share", FLOAT, "", "out_of_order over starts", nullable=False),
        Column(
            "harmless",
            INT,
            "jobs",
            "starts out of order that are harmless by count of the cluster's binding resource (a lower bound); null where the demand or the cluster's size is unknown",
        ),
        Column("harmless_share", FLOAT, "", "harmless starts over the starts out of order with known harm"),
    ),
    key=("cluster", "dimension", "value"),
)
