# ruff: noqa: E501  (one table of data: a column a line)
"""Tables of `features.load`."""

from __future__ import annotations

from traces.schema import CLUSTER, FLAG, FLOAT, INT, TEXT, UTC, Column, Table

LOAD = Table(
    "load",
    "One row a day (UTC) from the first submission to the end of the log: what arrived, ran and waited",
    (
        CLUSTER,
        Column("day_utc", UTC, "", "start of the day", nullable=False),
        Column("arrivals", INT, "jobs", "jobs submitted", nullable=False),
        Column("users", INT, "users", "users who submitted one", nullable=False),
        Column(
            "demand_gpu_time_s",
            INT,
            "GPU s",
            "GPU time that the jobs submitted that day took in the end (service demand); null where unknown",
        ),
        Column("interarrival_mean_s", FLOAT, "s", "mean time since the submission before; null without one"),
        Column(
            "interarrival_variation",
            FLOAT,
            "",
            "its standard deviation over its mean: 1 for Poisson arrivals, more for bursts",
        ),
        Column("running_mean", FLOAT, "attempts", "attempts running, mean over the day", nullable=False),
        Column("running_peak", INT, "attempts", "most at once", nullable=False),
        Column("queued_mean", FLOAT, "jobs", "eligible jobs in the queue, mean over the day", nullable=False),
        Column("queued_peak", INT, "jobs", "most at once", nullable=False),
        Column("gpus_held_mean", FLOAT, "GPUs", "GPUs held, mean over the day; null where no GPU count is known"),
    ),
    key=("cluster", "day_utc"),
)

DRIFT = Table(
    "drift",
    "One row a week and feature: how far the jobs submitted in a week differ from those of the week with jobs before it",
    (
        CLUSTER,
        Column("week_utc", UTC, "", "Monday 00:00 UTC", nullable=False),
        Column(
            "before_utc",
            UTC,
            "",
            "Monday of the week that it is compared with, earlier by more than a week after a gap",
            nullable=False,
        ),
        Column(
            "feature",
            TEXT,
            "",
            "gpus, nodes, limit_s, run_s, limit_used_share (run time over limit), gpu_time_s, wait_s, eligible_wait_s, interarrival_s, hour_of_day, day_of_week, queued_jobs and running_jobs (what the job met in the queue and running), user_name, partition, account, qos or state",
            nullable=False,
        ),
        Column("n_before", INT, "jobs", "jobs of the earlier week that know it", nullable=False),
        Column("n", INT, "jobs", "jobs of this week that know it", nullable=False),
        Column(
            "psi",
            FLOAT,
            "",
            "population stability index over ten bins of equal mass of the earlier week (names: one each)",
            nullable=False,
        ),
        Column("ks", FLOAT, "", "Kolmogorov-Smirnov distance; null for names"),
        Column("ks_p", FLOAT, "", "its asymptotic p-value"),
        Column("is_shifted", FLAG, "", "index over 0.25", nullable=False),
    ),
    key=("cluster", "week_utc", "feature"),
)
