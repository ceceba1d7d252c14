# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.resources.utilization`."""

from __future__ import annotations

from features.tables.common import ATTEMPT, CAPACITY_SOURCE, GPU_BUCKET
from traces.schema import CLUSTER, FLAG, FLOAT, INT, JOB_KEY, TEXT, UTC, Column, Table

RESOURCES = Table(
    "resources",
    "One row for the cluster and one per partition: its binding resource and its capacity",
    (
        CLUSTER,
        Column("scope", TEXT, "", "'cluster' or 'partition'", nullable=False),
        Column("partition", TEXT, "", "the partition; null for the cluster"),
        Column(
            "resource",
            TEXT,
            "",
            "binding resource: 'GPU', 'core', 'memory' or 'node'. Shares and capacity refer to it",
            nullable=False,
        ),
        Column("why", TEXT, "", "reason why this is the binding resource", nullable=False),
        Column(
            "is_declared",
            FLAG,
            "",
            "whether the resource is declared in clusters.toml rather than inferred",
            nullable=False,
        ),
        Column(
            "known_by",
            TEXT,
            "",
            "source of the number of nodes: 'declared', 'in the machine list', 'seen in use' (jobs ran on them) or 'in use at the peak'",
            nullable=False,
        ),
        Column("nodes", INT, "nodes", "nodes; null where unknown"),
        Column("gpus", INT, "GPUs", "GPUs, summed over the nodes where nodes are named"),
        Column("cpus", INT, "CPUs", "CPUs, summed over the nodes where nodes are named"),
        Column("mem_mib", INT, "MiB", "memory, summed over the nodes where nodes are named"),
        Column(
            "since_utc",
            UTC,
            "",
            "instant from which the log shows everything that ran: the first start, or the first end in a dump of the jobs that ended within some days. Shares refer to the time from then on",
        ),
        Column("until_utc", UTC, "", "last end of a job, or the log's end where a job still runs"),
        Column(
            "contradictions",
            TEXT,
            "",
            "points where the log contradicts the declared or listed machine, in which case the larger number counts; null without contradictions",
        ),
    ),
    key=("cluster", "scope", "partition"),
)

UTILIZATION_ALLOCATED = Table(
    "utilization_allocated",
    "One row per hour, scope and resource: the amount held by jobs",
    (
        CLUSTER,
        Column("hour_utc", UTC, "", "start of the hour", nullable=False),
        Column(
            "scope",
            TEXT,
            "",
            "'cluster', or 'partition' (only hours in which the partition holds something)",
            nullable=False,
        ),
        Column("partition", TEXT, "", "the partition; null for the cluster and for jobs without a known partition"),
        Column("unit", TEXT, "", "'GPU', 'core', 'GiB' (memory) or 'node'", nullable=False),
        Column(
            "is_binding",
            FLAG,
            "",
            "whether this is the binding resource of the cluster or partition, see `resources`",
            nullable=False,
        ),
        Column("allocated_s", INT, "unit s", "units held, integrated over the hour", nullable=False),
        Column(
            "capacity_s",
            INT,
            "unit s",
            "capacity of the cluster or partition, integrated over the part of the hour in which the log shows everything that ran (since_utc to until_utc of `resources`); null for an hour that begins before since_utc although jobs ran then",
        ),
        Column("allocated_share", FLOAT, "", "allocated_s over capacity_s"),
        CAPACITY_SOURCE,
    ),
    key=("cluster", "hour_utc", "scope", "partition", "unit"),
)

UTILIZATION_MEASURED = Table(
    "utilization_measured",
    "One row per attempt with GPU samples: utilization of its GPUs from its start to its end",
    (
        CLUSTER,
        JOB_KEY,
        ATTEMPT,
        Column(
            "attribution",
            TEXT,
            "",
            "'gpu' (samples of the GPUs that the attempt held) or 'node' (samples of all GPUs of its nodes, where the log names no GPU)",
            nullable=False,
        ),
        Column("samples", INT, "samples", "GPU-minutes measured", nullable=False),
        Column(
            "offline_samples",
            INT,
            "samples",
            "GPU-minutes with the GPU offline; they count in no other column",
            nullable=False,
        ),
        Column("node_minutes", INT, "minutes", "node-minutes with a sample", nullable=False),
        Column(
            "shared_node_minutes",
            INT,
            "minutes",
            "node-minutes with a sample and with another attempt on the node",
            nullable=False,
        ),
        Column(
            "online_node_minutes", INT, "minutes", "node-minutes with a sample and with a GPU online", nullable=False
        ),
        Column(
            "repeated_samples",
            INT,
            "samples",
            "repeated readings of a GPU-minute that is already counted; the later reading is used",
            nullable=False,
        ),
        Column(
            "utilization_mean_percent", FLOAT, "%", "mean utilization over GPU-minutes; null where all were offline"
        ),
        Column("utilization_p50_percent", FLOAT, "%", "median utilization over GPU-minutes"),
        Column("utilization_p90_percent", FLOAT, "%", "90th percentile of the utilization over GPU-minutes"),
        Column("utilization_p95_percent", FLOAT, "%", "95th percentile of the utilization over GPU-minutes"),
        Column(
            "idle_node_minutes",
            INT,
            "minutes",
            "node-minutes in which every counted GPU read exactly 0",
            nullable=False,
        ),
        Column(
            "idle_samples", INT, "samples", "GPU-minutes in idle_node_minutes: online, held and idle", nullable=False
        ),
        Column("idle_share", FLOAT, "", "idle_node_minutes over online_node_minutes; null where no GPU was online"),
        Column(
            "cpu_mean_percent",
            FLOAT,
            "%",
            "mean CPU utilization of its nodes while it ran, including the work of other jobs; null without CPU samples",
        ),
        Column("cpu_p95_percent", FLOAT, "%", "95th percentile of the CPU utilization"),
        Column(
            "memory_mean_percent",
            FLOAT,
            "%",
            "mean share of its nodes' memory in use while it ran; null without memory samples",
        ),
        Column("memory_p95_percent", FLOAT, "%", "95th percentile of the memory use"),
    ),
    key=("cluster", "job_key", "attempt"),
)

UTILIZATION_PERCENTILES = Table(
    "utilization_percentiles",
    "Measured utilization of groups of attempts. A sample counts once for each attempt to which it belongs",
    (
        CLUSTER,
        Column(
            "resource", TEXT, "", "'GPU', 'CPU' or 'memory'; CPU and memory are those of the whole node", nullable=False
        ),
        Column(
            "grouping",
            TEXT,
            "",
            "columns by which attempts are grouped, the others being null: all, size_bucket, state, sharing, size_bucket state, gpus state, gpus nodes or gpus sharing",
            nullable=False,
        ),
        GPU_BUCKET,
        Column("gpus", INT, "GPUs", "GPUs held"),
        Column("state", TEXT, "", "state in which the job ended"),
        Column("nodes", INT, "nodes", "nodes on which the attempt was placed"),
        Column(
            "sharing",
            TEXT,
            "",
            "'shared' for the node-minutes with another attempt on the node, 'dedicated' for the rest",
        ),
        Column("attempts", INT, "attempts", "attempts with samples in this group", nullable=False),
        Column("samples", INT, "samples", "online samples", nullable=False),
        Column("mean_percent", FLOAT, "%", "mean over samples", nullable=False),
        Column("p50_percent", FLOAT, "%", "median over samples (percentiles interpolate linearly)", nullable=False),
        Column("p90_percent", FLOAT, "%", "90th percentile over samples", nullable=False),
        Column("p95_percent", FLOAT, "%", "95th percentile over samples", nullable=False),
    ),
    key=("cluster", "resource", "grouping", "size_bucket", "gpus", "state", "nodes", "sharing"),
)

IDLE_GPU_TIME = Table(
    "idle_gpu_time",
    "GPU time held while every GPU of the attempt on a node read exactly 0, over the measured minutes",
    (
        CLUSTER,
        Column("dimension", TEXT, "", "all, user_name, partition or job_key", nullable=False),
        Column(
            "value",
            TEXT,
            "",
            "value of the dimension; untrusted text, escape before display; null where the log does not record it",
        ),
        Column("attempts", INT, "attempts", "attempts with GPU samples", nullable=False),
        Column("gpu_time_s", INT, "GPU s", "GPU time of these attempts; null where no GPU count is known"),
        Column(
            "measured_gpu_time_s",
            INT,
            "GPU s",
            "part of gpu_time_s with a sample of the GPU online (one minute each)",
            nullable=False,
        ),
        Column("idle_gpu_time_s", INT, "GPU s", "part of measured_gpu_time_s that was idle", nullable=False),
        Column("idle_share", FLOAT, "", "idle_gpu_time_s over measured_gpu_time_s; null where nothing was online"),
    ),
    key=("cluster", "dimension", "value"),
)

ALLOCATED_BY_USER = Table(
    "allocated_by_user",
    "One row per week and user: time held of the cluster's binding resource",
    (
        CLUSTER,
        Column("week_utc", UTC, "", "Monday 00:00 UTC", nullable=False),
        Column("user_name", TEXT, "", "user: untrusted text, escape before display; null where the log names none"),
        Column("unit", TEXT, "", "'GPU', 'core', 'GiB' (memory) or 'node'", nullable=False),
        Column("allocated_s", INT, "unit s", "units held, integrated over the week", nullable=False),
        Column(
            "capacity_s", INT, "unit s", "capacity of the whole cluster over the week, as in `utilization_allocated`"
        ),
        Column("share_of_allocated", FLOAT, "", "share of the time that all users held in that week", nullable=False),
        Column("share_of_capacity", FLOAT, "", "allocated_s over capacity_s"),
    ),
    key=("cluster", "week_utc", "user_name"),
)

UTILIZATION_BY = Table(
    "utilization_by",
    "Attempts that ran, by size and final state of the job, with measured utilization where samples exist",
    (
        CLUSTER,
        GPU_BUCKET,
        Column("state", TEXT, "", "state in which the job ended", nullable=False),
        Column("jobs", INT, "jobs", "number of jobs", nullable=False),
        Column("attempts", INT, "attempts", "number of attempts", nullable=False),
        Column(
            "gpu_time_s",
            INT,
            "GPU s",
            "GPUs held times the time held, until the log's end for an attempt that still runs; its sum over the table equals that of `utilization_allocated`; null where no GPU count is known",
        ),
        Column("gpu_time_share", FLOAT, "", "gpu_time_s over the GPU time of the cluster"),
        Column("measured_attempts", INT, "attempts", "attempts with samples", nullable=False),
        Column("samples", INT, "samples", "GPU-minutes measured", nullable=False),
        Column("utilization_mean_percent", FLOAT, "%", "mean utilization over these GPU-minutes"),
        Column(
            "idle_share",
            FLOAT,
            "",
            "share of the node-minutes with a GPU online in which every counted GPU read exactly 0",
        ),
    ),
    key=("cluster", "size_bucket", "state"),
)
