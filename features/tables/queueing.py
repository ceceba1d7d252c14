# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.queueing`."""

from __future__ import annotations

from features.tables.common import SIZE_BUCKET
from traces.schema import CLUSTER, FLAG, FLOAT, INT, JOB_KEY, TEXT, UTC, Column, Table

QUEUEING_DELAY = Table(
    "queueing_delay",
    "One row a job: how long it waited and for what; wait_s is the sum of the eleven causes from held_s to unknown_s (docs/decisions/0041), each second counted once, for the first cause that applied",
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
        Column(
            "ran",
            FLAG,
            "",
            "the log holds its start, or a time that it ran; where the dump prints no start at all: its state tells that it ran",
            nullable=False,
        ),
        Column(
            "wait_s",
            INT,
            "s",
            "first start minus submission, also of a job that was requeued; null for a job that never ran",
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
            "part of the wait before the job was eligible (dependency, hold, begin time); where the log has no eligible time but the scheduler's reason names a hold, the time in which it would have fitted. This and the next ten add up to the wait; null without a wait, or with one under 0 (a clock change)",
        ),
        Column(
            "dependency_s",
            INT,
            "s",
            "then, eligible, until a job of the same user and name ended just before the start, where such jobs ran one at a time though it would have fitted: likely a dependency that the log does not name",
        ),
        Column(
            "own_jobs_s",
            INT,
            "s",
            "likewise where the user's jobs ran a fixed number at a time, or all on one node: behind the user's own jobs, by choice or by a node asked for by name",
        ),
        Column(
            "array_limit_s",
            INT,
            "s",
            "likewise where tasks of the job's array ran a fixed number at a time, or the scheduler's reason says JobArrayTaskLimit",
        ),
        Column(
            "own_limit_s",
            INT,
            "s",
            "else while its user or group would have been over a limit: a quota of the settings, a limit on users that the record shows (at least three stopped there with a job waiting that would have fitted, and hardly any went beyond), or one that the scheduler's reason names",
        ),
        Column(
            "cluster_full_s",
            INT,
            "s",
            "else while too little was free on the nodes that it may use (pool_nodes, all of them in service or not), however placed: nobody could have started it",
        ),
        Column(
            "nodes_down_s",
            INT,
            "s",
            "else while it would have fitted only on nodes out of service: nodes on which nothing ran for three days or ever, or where the scheduler's reason says so",
        ),
        Column(
            "fragmented_s",
            INT,
            "s",
            "else while enough was free in sum, but not on so many nodes with its share of GPUs, CPUs and memory free; 0 where cause_basis is not placements, as then it cannot be seen",
        ),
        Column(
            "reservation_s",
            INT,
            "s",
            "else while it would have fitted, and for three hours or more its partition started nothing, or had half of its nodes free and started fewer jobs than waited, though ten jobs of five users would have fitted (a reservation or maintenance), or where the scheduler's reason says so",
        ),
        Column(
            "behind_s",
            INT,
            "s",
            "else while it would have fitted and other users' jobs of its partition were ahead of it (eligible earlier) or started before it did: priority, a reservation for a wide job, backfill",
        ),
        Column(
            "unknown_s",
            INT,
            "s",
            "the rest: it would have fitted and the log shows nobody before it (licences, features of nodes, the scheduler's pace), or it waited before the log's first start",
        ),
        Column(
            "main_cause",
            TEXT,
            "",
            "the largest of these: 'held', 'likely dependency', 'own jobs', 'array limit', 'own limit', 'cluster full', 'nodes down', 'fragmented', 'reservation', 'behind others' or 'unknown' (of equals the first); null without a wait",
        ),
        Column(
            "own_limit",
            TEXT,
            "",
            "the limits that took own_limit_s and where they are from: given, inferred, or the scheduler's reason",
        ),
        Column(
            "evidence",
            TEXT,
            "",
            "what dependency_s, own_jobs_s or array_limit_s is inferred from; null where they are 0 or the scheduler's reason says it",
        ),
        Column(
            "pool_nodes",
            INT,
            "nodes",
            "nodes that the job could use: of its partition where the log or the machine list names them, else of the cluster; null where nothing says them",
        ),
        Column(
            "pool_known_by",
            TEXT,
            "",
            "how that number is known: 'declared', 'in the machine list', 'seen in use' or 'in use at the peak'",
        ),
        Column(
            "cause_basis",
            TEXT,
            "",
            "what shows whether it fitted: 'placements' (each node of its partition by itself), else counts over the whole cluster: 'GPU counts', 'CPU counts', 'node counts' or, where not even those are known, 'job counts'; null without a wait",
        ),
        Column(
            "abandoned_wait_s",
            INT,
            "s",
            "time in the queue of a job that never ran, until it was cancelled, or the log ends with it pending; null for one that ran, and where the log does not tell",
        ),
        Column(
            "gpu_time_s",
            INT,
            "GPU s",
            "GPUs held times the time they were held, over all attempts, until the log's end where one still runs; the log's own figure where it has no start",
        ),
        Column(
            "unit_time_s",
            INT,
            "unit s",
            "the same of the resource that the cluster is about (table `resources`): GPU, core, GiB or node seconds; null where its runs do not say it",
        ),
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
            "as the Philly study splits it: eligible time waited while the group's GPUs in use + this job's were over the quota, given or inferred; null without a quota",
        ),
        Column(
            "fragmentation_delay_s",
            INT,
            "s",
            "as the Philly study splits it: the rest of the eligible wait, whatever it was spent on; null without a quota",
        ),
        Column(
            "philly_cause",
            TEXT,
            "",
            "as the Philly study splits it: 'fair share' or 'fragmentation', whichever is larger (a tie is fragmentation); null without a quota or a wait",
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
            "all, size_bucket, partition, user_name, hour_of_week, state, week or month",
            nullable=False,
        ),
        Column(
            "value",
            TEXT,
            "",
            "its value (of submission in the cluster's zone: hour_of_week, 0 is Monday 00:00; week, its Monday, as 2023-02-06; month, as 2023-02); null where the log does not tell",
        ),
        Column("jobs", INT, "jobs", "jobs whose start and submit time the log holds", nullable=False),
        Column("never_ran", INT, "jobs", "jobs that never ran", nullable=False),
        Column("wait_mean_s", FLOAT, "s", "mean wait"),
        Column("wait_p50_s", FLOAT, "s", "median wait (percentiles interpolate linearly)"),
        Column("wait_p90_s", FLOAT, "s", "90th percentile"),
        Column("wait_p95_s", FLOAT, "s", "95th percentile"),
        Column("wait_p99_s", FLOAT, "s", "99th percentile"),
        Column("over_10min_share", FLOAT, "", "share of those jobs that waited over 10 minutes"),
        Column(
            "wait_gpu_time_weighted_s", FLOAT, "s", "mean wait weighted by GPU time; null where no GPU time is known"
        ),
        Column("eligible_wait_mean_s", FLOAT, "s", "mean wait since the job was eligible"),
        Column("eligible_wait_p50_s", FLOAT, "s", "median"),
        Column("eligible_wait_p90_s", FLOAT, "s", "90th percentile"),
        Column("eligible_wait_p95_s", FLOAT, "s", "95th percentile"),
        Column("eligible_wait_p99_s", FLOAT, "s", "99th percentile"),
        Column("wait_total_s", INT, "s", "sum of the waits", nullable=False),
        Column(
            "held_s",
            INT,
            "s",
            "of the waits, before the jobs were eligible (this and the next ten as in queueing_delay: they add up to the sum of the waits, but for waits under 0; null where no job has a wait)",
        ),
        Column("dependency_s", INT, "s", "likely dependencies"),
        Column("own_jobs_s", INT, "s", "behind jobs of the same user"),
        Column("array_limit_s", INT, "s", "at the limit of their array"),
        Column("own_limit_s", INT, "s", "at a limit of their user or group"),
        Column("cluster_full_s", INT, "s", "while the nodes that they may use were too full for them"),
        Column("nodes_down_s", INT, "s", "while they would have fitted only on nodes out of service"),
        Column("fragmented_s", INT, "s", "while enough was free, in no place that fitted"),
        Column("reservation_s", INT, "s", "while they would have fitted and nothing started"),
        Column("behind_s", INT, "s", "while they would have fitted, behind others"),
        Column("unknown_s", INT, "s", "while they would have fitted, for no reason that the log shows"),
        Column(
            "abandoned_wait_total_s", INT, "s", "sum of the time in the queue of jobs that never ran", nullable=False
        ),
        Column(
            "fair_share_delay_s",
            INT,
            "s",
            "sum of the fair-share delays, as the Philly study splits it; null without a quota",
        ),
        Column(
            "fragmentation_delay_s",
            INT,
            "s",
            "sum of the fragmentation delays, as the Philly study splits it; null without a quota",
        ),
        Column("fair_share_jobs", INT, "jobs", "jobs that waited mostly for their group's quota; null without a quota"),
        Column(
            "fragmentation_jobs",
            INT,
            "jobs",
            "jobs that waited mostly for GPUs in the right places; null without a quota",
        ),
    ),
    key=("cluster", "dimension", "value"),
)

QUOTA_SENSITIVITY = Table(
    "quota_sensitivity",
    "One row a quantile from which quotas are inferred: how the split of the waiting depends on it; a single row where every quota is given, none without quotas",
    (
        CLUSTER,
        Column(
            "quantile",
            FLOAT,
            "",
            "of each group's use over its busy time, taken as its quota; null where all are given",
        ),
        Column("quota_source", TEXT, "", "'inferred' (some or all), or 'given'", nullable=False),
        Column("is_default", FLAG, "", "the quantile that queueing_delay uses"),
        Column("quota_gpus", INT, "GPUs", "sum of the quotas of groups with a wait to split", nullable=False),
        Column("jobs", INT, "jobs", "jobs with a split", nullable=False),
        Column("fair_share_delay_s", INT, "s", "sum of the fair-share delays", nullable=False),
        Column("fragmentation_delay_s", INT, "s", "sum of the fragmentation delays", nullable=False),
        Column("fair_share_delay_share", FLOAT, "", "fair-share delay over both; null where nothing waited"),
        Column("fair_share_jobs", INT, "jobs", "jobs that waited mostly for their group's quota", nullable=False),
        Column(
            "fragmentation_jobs", INT, "jobs", "jobs that waited mostly for GPUs in the right places", nullable=False
        ),
    ),
    key=("cluster", "quantile"),
)

START_ORDER = Table(
    "start_order",
    "One row a job that started: whether it overtook one of its queue that had been eligible longer",
    (
        CLUSTER,
        JOB_KEY,
        Column("partition", TEXT, "", "Slurm partition, or Philly virtual cluster: the queue"),
        Column("start_utc", UTC, "", "first start", nullable=False),
        Column(
            "demand",
            INT,
            "",
            "what it asked for, else held, of the resource that the cluster is about: GPUs, cores, MiB or nodes",
        ),
        SIZE_BUCKET,
        Column(
            "is_out_of_order",
            FLAG,
            "",
            "a job of its queue that was eligible earlier still waited after this start",
            nullable=False,
        ),
        Column("smallest_overtaken", INT, "", "least demand among the overtaken; null where none or unknown"),
        Column(
            "is_harmless",
            FLAG,
            "",
            "out of order, and no overtaken job would have fitted by count of that resource while this one ran had it not; null for a start in order and where demand or size are unknown",
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
        Column("value", TEXT, "", "its value; null where the log does not tell"),
        Column("starts", INT, "jobs", "jobs that started", nullable=False),
        Column("out_of_order", INT, "jobs", "of these, out of order", nullable=False),
        Column("out_of_order_share", FLOAT, "", "out of order over starts", nullable=False),
        Column(
            "harmless",
            INT,
            "jobs",
            "of those out of order, harmless by count of the cluster's resource (a lower bound); null where demand or size are unknown",
        ),
        Column("harmless_share", FLOAT, "", "of the starts out of order of which it is known"),
    ),
    key=("cluster", "dimension", "value"),
)
