# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.fragmentation`."""

from __future__ import annotations

from features.tables.common import ATTEMPT, CAPACITY_SOURCE, GPU_BUCKET
from traces.schema import CLUSTER, FLOAT, INT, JOB_KEY, TEXT, UTC, Column, Table

FRAGMENTATION = Table(
    "fragmentation",
    "One row per instant of a regular grid (10 minutes, coarser for very long logs): free resources, and how much of them is usable. An attempt without a recorded end is assumed to end when one of its GPUs is next allocated, else with the log",
    (
        CLUSTER,
        Column("time_utc", UTC, "", "instant; the row describes the state at this instant", nullable=False),
        Column(
            "basis",
            TEXT,
            "",
            "'placements', or 'node counts' where the log names no nodes and we assume that every job holds whole nodes",
            nullable=False,
        ),
        CAPACITY_SOURCE,
        Column("capacity_nodes", INT, "nodes", "nodes of the cluster"),
        Column(
            "busy_nodes",
            INT,
            "nodes",
            "nodes on which a job runs; null where jobs share nodes that the log does not name",
        ),
        Column("empty_nodes", INT, "nodes", "nodes on which no job runs; null where busy_nodes is"),
        Column("empty_node_share", FLOAT, "", "empty_nodes over capacity_nodes"),
        Column("capacity_gpus", INT, "GPUs", "GPUs of the cluster; null where no GPU count is known"),
        Column("busy_gpus", INT, "GPUs", "GPUs held"),
        Column("free_gpus", INT, "GPUs", "GPUs not held"),
        Column(
            "largest_node_gpus",
            INT,
            "GPUs",
            "GPUs of the largest job that could start on one node: the most free GPUs of any node",
        ),
        Column("largest_gang_nodes", INT, "nodes", "nodes of the largest job that could start on whole nodes"),
        Column(
            "largest_gang_gpus",
            INT,
            "GPUs",
            "GPUs of the largest job that could start on whole nodes: all GPUs of the empty nodes",
        ),
        Column("pending_jobs", INT, "jobs", "eligible jobs in the queue", nullable=False),
        Column("pending_gpus", INT, "GPUs", "GPUs requested by the pending jobs"),
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
            "the same share for a job drawn from the queue at that instant; null with an empty queue",
        ),
    ),
    key=("cluster", "time_utc"),
)

PLACEMENT_SPREAD = Table(
    "placement_spread",
    "One row per attempt that ran: nodes used, compared with the fewest possible",
    (
        CLUSTER,
        JOB_KEY,
        ATTEMPT,
        Column("start_utc", UTC, "", "start"),
        Column("gpus", INT, "GPUs", "GPUs held"),
        GPU_BUCKET,
        Column("nodes", INT, "nodes", "nodes used, from the placements where the log has them"),
        Column(
            "fewest_nodes",
            INT,
            "nodes",
            "fewest nodes that hold as many GPUs, chosen among the nodes on which jobs of its partition ran, each with its own number of GPUs",
        ),
        Column("excess_nodes", INT, "nodes", "nodes minus fewest_nodes; null where GPUs or nodes are unknown"),
        Column("basis", TEXT, "", "'placements' or 'node counts'", nullable=False),
        Column(
            "shared_share",
            FLOAT,
            "",
            "share of its node-seconds during which another attempt ran on the node (colocation); null without placements or run time",
        ),
    ),
    key=("cluster", "job_key", "attempt"),
)

EMPTY_NODES = Table(
    "empty_nodes",
    "Share of empty nodes by utilization: the instants of `fragmentation`, grouped by tenths of the GPUs in use (of the nodes in use where no GPU count is known)",
    (
        CLUSTER,
        Column(
            "utilization_from",
            FLOAT,
            "",
            "lower end of the tenth: share in use from here up to 0.1 more; the last group holds exactly 1",
            nullable=False,
        ),
        Column("unit", TEXT, "", "'GPU' or 'node'", nullable=False),
        Column("instants", INT, "instants", "instants in that tenth", nullable=False),
        Column("empty_node_share_mean", FLOAT, "", "mean share of nodes on which no job runs", nullable=False),
        Column("empty_node_share_p50", FLOAT, "", "median share", nullable=False),
        Column(
            "largest_gang_share_mean",
            FLOAT,
            "",
            "mean share of the free GPUs that are on empty nodes; null with no GPU free",
        ),
        Column("unusable_free_share_mean", FLOAT, "", "mean of unusable_free_share; null without placements"),
    ),
    key=("cluster", "utilization_from"),
)

LOCALITY = Table(
    "locality",
    "Waits by locality of the first placement, measured as nodes used beyond the fewest that hold the job's GPUs",
    (
        CLUSTER,
        GPU_BUCKET,
        Column("excess_nodes", INT, "nodes", "nodes beyond the fewest: 0, 1, 2, or 3 for 3 and more", nullable=False),
        Column("jobs", INT, "jobs", "jobs that started", nullable=False),
        Column("wait_mean_s", FLOAT, "s", "mean eligible wait", nullable=False),
        Column("wait_p50_s", FLOAT, "s", "median eligible wait", nullable=False),
        Column("wait_p90_s", FLOAT, "s", "90th percentile of the eligible waits", nullable=False),
        Column("wait_p95_s", FLOAT, "s", "95th percentile of the eligible waits", nullable=False),
        Column("run_p50_s", FLOAT, "s", "median run time"),
        Column("shared_share", FLOAT, "", "mean share of the jobs' node-seconds shared with another attempt"),
    ),
    key=("cluster", "size_bucket", "excess_nodes"),
)
