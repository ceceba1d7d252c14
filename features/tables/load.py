# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.load.load`."""

from __future__ import annotations

from traces.schema import CLUSTER, FLAG, FLOAT, INT, TEXT, UTC, Column, Table

LOAD = Table(
    "load",
    "One row per day (UTC) from the first submission to the end of the log: arrivals, running jobs and queued jobs",
    (
        CLUSTER,
        Column("day_utc", UTC, "", "start of the day", nullable=False),
        Column("arrivals", INT, "jobs", "jobs submitted", nullable=False),
        Column("users", INT, "users", "users who submitted a job", nullable=False),
        Column(
            "demand_gpu_time_s",
            INT,
            "GPU s",
            "GPU time that the jobs submitted on that day eventually used (service demand); null where unknown",
        ),
        Column("interarrival_mean_s", FLOAT, "s", "mean time since the previous submission; null without one"),
        Column(
            "interarrival_variation",
            FLOAT,
            "",
            "coefficient of variation of that time (standard deviation over mean): 1 for Poisson arrivals, more for bursts",
        ),
        Column("running_mean", FLOAT, "attempts", "mean number of running attempts over the day", nullable=False),
        Column("running_peak", INT, "attempts", "most attempts running at once", nullable=False),
        Column("queued_mean", FLOAT, "jobs", "mean number of eligible jobs in the queue over the day", nullable=False),
        Column("queued_peak", INT, "jobs", "most eligible jobs in the queue at once", nullable=False),
        Column(
            "gpus_held_mean", FLOAT, "GPUs", "mean number of GPUs held over the day; null where no GPU count is known"
        ),
    ),
    key=("cluster", "day_utc"),
)

DRIFT = Table(
    "drift",
    "One row per week and feature: distance between the jobs submitted in a week and those of the previous week that has jobs",
    (
        CLUSTER,
        Column("week_utc", UTC, "", "Monday 00:00 UTC", nullable=False),
        Column(
            "before_utc",
            UTC,
            "",
            "Monday of the previous week that has jobs; more than a week earlier after a gap",
            nullable=False,
        ),
        Column(
            "feature",
            TEXT,
            "",
            "gpus, nodes, limit_s, run_s, limit_used_share (run time over limit), gpu_time_s, wait_s, eligible_wait_s, interarrival_s, hour_of_day, day_of_week, queued_jobs and running_jobs (the number queued and running when the job arrived), user_name, partition, account, qos or state",
            nullable=False,
        ),
        Column("n_before", INT, "jobs", "jobs of the earlier week with a known value", nullable=False),
        Column("n", INT, "jobs", "jobs of this week with a known value", nullable=False),
        Column(
            "psi",
            FLOAT,
            "",
            "population stability index over ten bins with equal shares of the earlier week; for names, one bin each",
            nullable=False,
        ),
        Column("ks", FLOAT, "", "Kolmogorov-Smirnov distance; null for names"),
        Column("ks_p", FLOAT, "", "asymptotic p-value of the Kolmogorov-Smirnov distance; null for names"),
        Column("is_shifted", FLAG, "", "whether psi exceeds 0.25", nullable=False),
    ),
    key=("cluster", "week_utc", "feature"),
)
