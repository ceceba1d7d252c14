# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.accounting`."""

from __future__ import annotations

from traces.schema import CLUSTER, FLOAT, INT, TEXT, UTC, Column, Table

USAGE_BY = Table(
    "usage_by",
    "Jobs, time held and efficiency along one dimension at a time. Time held counts until the log's end where an attempt still runs",
    (
        CLUSTER,
        Column(
            "dimension",
            TEXT,
            "",
            "'all', 'user_name', 'account', 'partition', 'qos', 'month' or 'account month'",
            nullable=False,
        ),
        Column(
            "value",
            TEXT,
            "",
            "of that dimension: hostile until escaped; 'all' for the whole cluster, YYYY-MM for a month, the account for 'account month'; null where the log names none",
        ),
        Column(
            "month_utc",
            UTC,
            "",
            "first day of the month, of 'month' and 'account month': jobs count in the month of their submission (their start where it is unknown), time in the month in which it is held",
        ),
        Column("jobs", INT, "jobs", "jobs", nullable=False),
        Column("ran", INT, "jobs", "of them, those that ran", nullable=False),
        Column("wait_total_s", INT, "s", "sum of the waits of those that started", nullable=False),
        Column("gpu_time_s", INT, "GPU s", "GPUs held times the time they were held; null where no GPU count is known"),
        Column("core_time_s", INT, "CPU s", "likewise of CPUs"),
        Column("memory_time_gib_s", INT, "GiB s", "likewise of memory, rounded down"),
        Column("node_time_s", INT, "node s", "likewise of nodes; a job on a part of a node counts the whole node"),
        Column(
            "unit",
            TEXT,
            "",
            "'GPU', 'core', 'GiB' (memory) or 'node': the resource that the cluster is about, see `resources`",
            nullable=False,
        ),
        Column(
            "share", FLOAT, "", "of the time held of that resource in the whole log; of a month's in 'account month'"
        ),
        Column(
            "completed_share",
            FLOAT,
            "",
            "of its own time held of that resource by jobs of a known final state: those that ended COMPLETED",
        ),
        Column("failed_share", FLOAT, "", "likewise FAILED, OUT_OF_MEMORY, NODE_FAIL or BOOT_FAIL"),
        Column("cancelled_share", FLOAT, "", "likewise CANCELLED"),
        Column("timeout_share", FLOAT, "", "likewise TIMEOUT or DEADLINE"),
        Column(
            "cpu_used_share",
            FLOAT,
            "",
            "CPU time used by the steps over the CPU time held, of the attempts that ended and record it; over 1 where a CPU runs several threads",
        ),
        Column("cpu_measured", INT, "attempts", "attempts in that share", nullable=False),
        Column("cpu_measured_s", INT, "CPU s", "CPU time that they held", nullable=False),
        Column(
            "memory_used_share",
            FLOAT,
            "",
            "largest resident set over the memory held, weighted by the time held, of the attempts that ended and record it; a lower bound where several tasks ran: the log has the largest of one task",
        ),
        Column("memory_measured", INT, "attempts", "attempts in that share", nullable=False),
    ),
    key=("cluster", "dimension", "value", "month_utc"),
)

NODE_UTILIZATION = Table(
    "node_utilization",
    "One row a node that is listed or on which jobs ran: how much of it they held. No row where the log does not name the nodes of its jobs",
    (
        CLUSTER,
        Column("node", TEXT, "", "node name: hostile until escaped", nullable=False),
        Column("first_utc", UTC, "", "first start of a job on it; null where none ran"),
        Column("last_utc", UTC, "", "last end of a job on it"),
        Column(
            "shown_s",
            INT,
            "s",
            "time over which the shares are taken: of a node of the machine list from the log's first start to its last end, of another one from first_utc to last_utc",
            nullable=False,
        ),
        Column("jobs", INT, "jobs", "jobs that ran on it", nullable=False),
        Column("busy_s", INT, "s", "time with at least one job", nullable=False),
        Column("busy_share", FLOAT, "", "of shown_s"),
        Column("gpu_share", FLOAT, "", "GPUs held over its GPUs, mean over shown_s; null where either is unknown"),
        Column("core_share", FLOAT, "", "likewise CPUs; a job of several nodes is taken to hold as many on each"),
        Column("memory_share", FLOAT, "", "likewise memory"),
        Column("gpus", INT, "GPUs", "GPUs in it: declared, else listed, and at least those held at once"),
        Column("cpus", INT, "CPUs", "CPUs, likewise"),
        Column("mem_mib", INT, "MiB", "memory, likewise"),
        Column("gpu_type", TEXT, "", "model of its GPUs, by the machine list"),
        Column("state", TEXT, "", "state by the machine list, as printed; null where the list has none"),
    ),
    key=("cluster", "node"),
)
