# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.resources.accounting`."""

from __future__ import annotations

from traces.schema import CLUSTER, FLOAT, INT, TEXT, UTC, Column, Table

USAGE_BY = Table(
    "usage_by",
    "Jobs, time held and efficiency by one dimension at a time. An attempt that still runs holds its resources until the log's end",
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
            "value of that dimension (untrusted text, escape before display): 'all' for the whole cluster, YYYY-MM for 'month', the account for 'account month'; null where the log names none",
        ),
        Column(
            "month_utc",
            UTC,
            "",
            "first day of the month, for 'month' and 'account month'. Jobs count in the month of their submission, or of their start where the submission is unknown; time counts in the month in which it is held",
        ),
        Column("jobs", INT, "jobs", "number of jobs", nullable=False),
        Column("ran", INT, "jobs", "jobs that ran", nullable=False),
        Column("wait_total_s", INT, "s", "sum of the waits of the jobs that started", nullable=False),
        Column("gpu_time_s", INT, "GPU s", "GPUs held times the time held; null where no GPU count is known"),
        Column("core_time_s", INT, "CPU s", "CPUs held times the time held; null where no CPU count is known"),
        Column(
            "memory_time_gib_s",
            INT,
            "GiB s",
            "memory held times the time held, rounded down; null where no memory is known",
        ),
        Column(
            "node_time_s",
            INT,
            "node s",
            "nodes held times the time held; a job on a part of a node counts the whole node",
        ),
        Column(
            "unit",
            TEXT,
            "",
            "unit of the cluster's binding resource (see `resources`): 'GPU', 'core', 'GiB' (memory) or 'node'",
            nullable=False,
        ),
        Column(
            "share",
            FLOAT,
            "",
            "share of all time held of the binding resource in the log; for 'account month', of the time held in that month",
        ),
        Column(
            "completed_share",
            FLOAT,
            "",
            "share of its time held of the binding resource that went to jobs that ended COMPLETED; jobs without a known final state are left out",
        ),
        Column(
            "failed_share",
            FLOAT,
            "",
            "the same share for jobs that ended FAILED, OUT_OF_MEMORY, NODE_FAIL or BOOT_FAIL",
        ),
        Column("cancelled_share", FLOAT, "", "the same share for jobs that ended CANCELLED"),
        Column("timeout_share", FLOAT, "", "the same share for jobs that ended TIMEOUT or DEADLINE"),
        Column(
            "cpu_used_share",
            FLOAT,
            "",
            "CPU time used by the steps over CPU time held, for attempts that ended and record it; above 1 where a CPU runs several threads",
        ),
        Column("cpu_measured", INT, "attempts", "attempts in cpu_used_share", nullable=False),
        Column("cpu_measured_s", INT, "CPU s", "CPU time held by the attempts in cpu_used_share", nullable=False),
        Column(
            "memory_used_share",
            FLOAT,
            "",
            "largest resident set over memory held, weighted by time held, for attempts that ended and record it. A lower bound where several tasks ran, as the log holds the largest resident set of a single task",
        ),
        Column("memory_measured", INT, "attempts", "attempts in memory_used_share", nullable=False),
        Column(
            "gpu_used_share",
            FLOAT,
            "",
            "GPU time used by the steps (`steps.gpu_percent` times run time) over GPU time held, for attempts that ended and record it. Each step counts with the last reading that Slurm keeps, not with a mean over time",
        ),
        Column("gpu_measured", INT, "attempts", "attempts in gpu_used_share", nullable=False),
        Column("gpu_measured_s", INT, "GPU s", "GPU time held by the attempts in gpu_used_share", nullable=False),
    ),
    key=("cluster", "dimension", "value", "month_utc"),
)

NODE_UTILIZATION = Table(
    "node_utilization",
    "One row per node that is listed or ran a job: how much of it jobs held. Empty where the log does not name the nodes of its jobs",
    (
        CLUSTER,
        Column("node", TEXT, "", "node name: untrusted text, escape before display", nullable=False),
        Column("first_utc", UTC, "", "first start of a job on the node; null where none ran"),
        Column("last_utc", UTC, "", "last end of a job on the node"),
        Column(
            "shown_s",
            INT,
            "s",
            "time over which the shares are taken: for a node of the machine list, from the log's first start to its last end; for any other node, from first_utc to last_utc",
            nullable=False,
        ),
        Column("jobs", INT, "jobs", "jobs that ran on the node", nullable=False),
        Column("busy_s", INT, "s", "time with at least one job", nullable=False),
        Column("busy_share", FLOAT, "", "busy_s over shown_s"),
        Column(
            "gpu_share",
            FLOAT,
            "",
            "mean share of its GPUs that was held, over shown_s; null where either count is unknown",
        ),
        Column(
            "core_share",
            FLOAT,
            "",
            "mean share of its CPUs that was held, over shown_s; we assume that a job of several nodes holds the same number on each",
        ),
        Column("memory_share", FLOAT, "", "mean share of its memory that was held, over shown_s"),
        Column(
            "gpus",
            INT,
            "GPUs",
            "GPUs in the node: the declared number, else the listed one, and at least the most held at once",
        ),
        Column("cpus", INT, "CPUs", "CPUs in the node, from the same sources"),
        Column("mem_mib", INT, "MiB", "memory in the node, from the same sources"),
        Column("gpu_type", TEXT, "", "GPU model according to the machine list"),
        Column("state", TEXT, "", "state in the machine list, as printed; null where the list has none"),
    ),
    key=("cluster", "node"),
)
