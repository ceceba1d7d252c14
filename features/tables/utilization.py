# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.utilization`."""

from __future__ import annotations

from features.tables.common import ATTEMPT, CAPACITY_SOURCE, GPU_BUCKET
from traces.schema import CLUSTER, FLAG, FLOAT, INT, JOB_KEY, TEXT, UTC, Column, Table

RESOURCES = Table(
    "resources",
    "One row for the cluster and one a partition: the resource that it is about, and how much it has of each",
    (
        CLUSTER,
        Column("scope", TEXT, "", "'cluster' or 'partition'", nullable=False),
        Column("partition", TEXT, "", "the partition; null for the cluster"),
        Column(
            "resource",
            TEXT,
            "",
            "'GPU', 'core', 'memory' or 'node': shares and capacity are of this one",
            nullable=False,
        ),
        Column("why", TEXT, "", "why it is this one", nullable=False),
        Column("is_declared", FLAG, "", "declared in clusters.toml, not inferred", nullable=False),
        Column(
            "known_by",
            TEXT,
            "",
            "how the number of nodes is known: 'declared', 'in the machine list', 'seen in use' (jobs ran on them) or 'in use at the peak'",
            nullable=False,
        ),
        Column("nodes", INT, "nodes", "nodes; null where nothing says them"),
        Column("gpus", INT, "GPUs", "GPUs, node by node where nodes are named"),
        Column("cpus", INT, "CPUs", "CPUs, likewise"),
        Column("mem_mib", INT, "MiB", "memory, likewise"),
        Column(
            "since_utc",
            UTC,
            "",
            "from when on the log shows all that ran: the first start, but in a dump of the jobs that ended within some days the first end; shares are of the time from then on",
        ),
        Column("until_utc", UTC, "", "last end of a job, or the log's end where one still runs"),
        Column(
            "contradictions",
            TEXT,
            "",
            "what the log contradicts of the declared or listed machine: the larger number counts; null where nothing",
        ),
    ),
    key=("cluster", "scope", "partition"),
)

UTILIZATION_ALLOCATED = Table(
    "utilization_allocated",
    "One row an hour, scope and resource: how much of it is held by jobs",
    (
        CLUSTER,
        Column("hour_utc", UTC, "", "start of the hour", nullable=False),
        Column("scope", TEXT, "", "'cluster', or 'partition' (hours in which it holds something)", nullable=False),
        Column("partition", TEXT, "", "the partition; null for the cluster, and for jobs of no known partition"),
        Column("unit", TEXT, "", "'GPU', 'core', 'GiB' (memory) or 'node'", nullable=False),
        Column(
            "is_binding",
            FLAG,
            "",
            "the resource that the cluster or partition is about, see `resources`",
            nullable=False,
        ),
        Column("allocated_s", INT, "unit s", "units held, integrated over the hour", nullable=False),
        Column(
            "capacity_s",
            INT,
            "unit s",
            "units of the cluster or partition, integrated over the part of the hour in which the log shows all that ran (since_utc to until_utc of `resources`); null for an hour that begins before since_utc though jobs ran then",
        ),
        Column("allocated_share", FLOAT, "", "allocated_s over capacity_s"),
        CAPACITY_SOURCE,
    ),
    key=("cluster", "hour_utc", "scope", "partition", "unit"),
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
        Column(
            "repeated_samples",
            INT,
            "samples",
            "further readings of a GPU-minute already counted (the later one stands)",
            nullable=False,
        ),
        Column("utilization_mean_percent", FLOAT, "%", "mean over GPU-minutes; null where all were offline"),
        Column("utilization_p50_percent", FLOAT, "%", "median"),
        Column("utilization_p90_percent", FLOAT, "%", "90th percentile"),
        Column("utilization_p95_percent", FLOAT, "%", "95th percentile"),
        Column(
            "idle_node_minutes",
            INT,
            "minutes",
            "node-minutes in which every GPU counted read exactly 0",
            nullable=False,
        ),
        Column("idle_samples", INT, "samples", "GPU-minutes in those: online, held and idle", nullable=False),
        Column("idle_share", FLOAT, "", "idle node-minutes of those with a GPU online; null without one"),
        Column(
            "cpu_mean_percent",
            FLOAT,
            "%",
            "mean CPU utilization of its nodes while it ran, others' work included; null without CPU samples",
        ),
        Column("cpu_p95_percent", FLOAT, "%", "95th percentile"),
        Column(
            "memory_mean_percent",
            FLOAT,
            "%",
            "mean share of its nodes' memory in use while it ran; null without samples",
        ),
        Column("memory_p95_percent", FLOAT, "%", "95th percentile"),
    ),
    key=("cluster", "job_key", "attempt"),
)

UTILIZATION_PERCENTILES = Table(
    "utilization_percentiles",
    "Measured utilization of groups of attempts, each sample counted once for each attempt that it belongs to",
    (
        CLUSTER,
        Column(
            "resource", TEXT, "", "'GPU', 'CPU' or 'memory'; the last two are those of the whole node", nullable=False
        ),
        Column(
            "grouping",
            TEXT,
            "",
            "columns that tell the groups apart; the others are null: all, size_bucket, state, sharing, size_bucket state, gpus state, gpus nodes or gpus sharing",
            nullable=False,
        ),
        GPU_BUCKET,
        Column("gpus", INT, "GPUs", "GPUs held"),
        Column("state", TEXT, "", "state that the job ended in"),
        Column("nodes", INT, "nodes", "nodes that the attempt was placed on"),
        Column(
            "sharing",
            TEXT,
            "",
            "'shared' for the node-minutes with another attempt on the node, 'dedicated' for the rest",
        ),
        Column("attempts", INT, "attempts", "attempts with such samples", nullable=False),
        Column("samples", INT, "samples", "online samples", nullable=False),
        Column("mean_percent", FLOAT, "%", "mean over samples", nullable=False),
        Column("p50_percent", FLOAT, "%", "median over samples (percentiles interpolate linearly)", nullable=False),
        Column("p90_percent", FLOAT, "%", "90th percentile", nullable=False),
        Column("p95_percent", FLOAT, "%", "95th percentile", nullable=False),
    ),
    key=("cluster", "resource", "grouping", "size_bucket", "gpus", "state", "nodes", "sharing"),
)

IDLE_GPU_TIME = Table(
    "idle_gpu_time",
    "GPU time held while every GPU of the attempt on that node read exactly 0, in the minutes that were measured",
    (
        CLUSTER,
        Column("dimension", TEXT, "", "all, user_name, partition or job_key", nullable=False),
        Column("value", TEXT, "", "its value: hostile until escaped; null where the log does not tell"),
        Column("attempts", INT, "attempts", "attempts with GPU samples", nullable=False),
        Column("gpu_time_s", INT, "GPU s", "GPU time of these attempts; null where no GPU count is known"),
        Column(
            "measured_gpu_time_s",
            INT,
            "GPU s",
            "of it, with a sample of the GPU online (a minute each)",
            nullable=False,
        ),
        Column("idle_gpu_time_s", INT, "GPU s", "of the measured, idle", nullable=False),
        Column("idle_share", FLOAT, "", "idle over measured; null where nothing was online"),
    ),
    key=("cluster", "dimension", "value"),
)

ALLOCATED_BY_USER = Table(
    "allocated_by_user",
    "One row a week and user: what is held of the resource that the cluster is about",
    (
        CLUSTER,
        Column("week_utc", UTC, "", "Monday 00:00 UTC", nullable=False),
        Column("user_name", TEXT, "", "user: hostile until escaped; null where the log names none"),
        Column("unit", TEXT, "", "'GPU', 'core', 'GiB' (memory) or 'node'", nullable=False),
        Column("allocated_s", INT, "unit s", "units held, integrated over the week", nullable=False),
        Column("capacity_s", INT, "unit s", "units of the whole cluster over the week, as in utilization_allocated"),
        Column("share_of_allocated", FLOAT, "", "of what all users held in that week", nullable=False),
        Column("share_of_capacity", FLOAT, "", "of capacity_s"),
    ),
    key=("cluster", "week_utc", "user_name"),
)

UTILIZATION_BY = Table(
    "utilization_by",
    "Attempts that ran by size and final state of the job, with measured utilization where there are samples",
    (
        CLUSTER,
        GPU_BUCKET,
        Column("state", TEXT, "", "state that the job ended in", nullable=False),
        Column("jobs", INT, "jobs", "jobs", nullable=False),
        Column("attempts", INT, "attempts", "attempts", nullable=False),
        Column(
            "gpu_time_s",
            INT,
            "GPU s",
            "GPUs held times the time they were held, until the log's end where an attempt still runs: summed over the table, what utilization_allocated holds; null where no GPU count is known",
        ),
        Column("gpu_time_share", FLOAT, "", "of the GPU time of the cluster"),
        Column("measured_attempts", INT, "attempts", "attempts with samples", nullable=False),
        Column("samples", INT, "samples", "GPU-minutes measured", nullable=False),
        Column("utilization_mean_percent", FLOAT, "%", "mean over these GPU-minutes"),
        Column("idle_share", FLOAT, "", "of the node-minutes with a GPU online: every GPU counted read exactly 0"),
    ),
    key=("cluster", "size_bucket", "state"),
)
