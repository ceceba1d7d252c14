"""Retries, and the savings of two rules in time held: a pre-run on one GPU, and no retry of hopeless errors.

Jeon et al., ATC'19, section 5, advise both rules. We count what the log shows. A pre-run would have met every failure
of the program that came within its length at full size. A job stopped at its first hopeless failure does not run again.
We also count the costs: the pre-runs themselves, and jobs that are stopped wrongly.
"""

from __future__ import annotations

import polars as pl

from features.resources.capacity import Resource
from features.tables.failures import FAILURE_SAVINGS, RETRIES
from features.trace import shaped

PRE_RUNS_S = (60, 300, 600, 1800, 3600)
SHOWS_ON_ONE_GPU = ("user", "engine")  # failures of the program rather than of machines


def known_sum(column: str) -> pl.Expr:
    """Sum of a column; null if every value is null."""
    return pl.when(pl.col(column).count() > 0).then(pl.col(column).sum())


def retries(ended: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Count retries, by size of the first attempt. `ended`: attempts that ran, see `features.failures.failures`."""
    held = pl.col("unit_time_lost_s")
    jobs = (
        ended.select("job_key", "attempt", "size_bucket", "job_state", "unit_time_lost_s")
        .sort("attempt")
        .group_by("job_key", maintain_order=True)
        .agg(
            pl.col("size_bucket").first(),
            pl.len().alias("attempts"),
            (pl.col("job_state") == "COMPLETED").last().alias("completed"),
            held.slice(1).sum().alias("later_s"),
            held.count().alias("known"),
        )
    )
    again = pl.col("attempts") > 1
    parts = [
        jobs.with_columns(pl.lit("all").alias("all"))
        .group_by(pl.col(by).alias("value"))
        .agg(
            pl.len().alias("jobs"),
            pl.col("attempts").sum(),
            pl.col("attempts").mean().alias("attempts_mean"),
            pl.col("attempts").max().alias("attempts_most"),
            again.sum().alias("retried_jobs"),
            again.mean().alias("retried_share"),
            (again & pl.col("completed")).sum().alias("recovered_jobs"),
            pl.when(pl.col("known").sum() > 0).then(pl.col("later_s").sum()).alias("retry_unit_time_s"),
        )
        .with_columns(pl.col("value").cast(pl.String), pl.lit(cluster).alias("cluster"), pl.lit(by).alias("dimension"))
        .sort("value")
        for by in ("all", "size_bucket")
    ]
    return shaped(pl.concat(parts), RETRIES)


_READ = (
    "job_key", "attempt", "gpus", "state", "job_state", "runtime_to_failure_s", "unit_time_lost_s", "is_failure",
    "is_hopeless", "category", "reason",
)  # fmt: skip


def savings(ended: pl.DataFrame, cluster: str, resource: Resource) -> pl.DataFrame:
    """Compute the time of the binding resource that each rule saves and costs; pre-runs only where that is GPUs.

    There is no row where the amount held is unknown.
    """
    known = ended.select(_READ).drop_nulls(["unit_time_lost_s", "runtime_to_failure_s"])
    pre_runs = [_pre_run(known, limit) for limit in PRE_RUNS_S] if resource == "GPU" else []
    parts = [*pre_runs, _no_retry(known)]
    rows = pl.concat(parts, how="diagonal_relaxed").filter(pl.col("jobs") > 0)
    net = pl.col("time_saved_s") - pl.col("time_cost_s")
    return shaped(rows.with_columns(pl.lit(cluster).alias("cluster"), net.alias("time_net_s")), FAILURE_SAVINGS)


def _pre_run(ended: pl.DataFrame, limit_s: int) -> pl.DataFrame:
    """Apply the first rule: every job with several GPUs first runs for `limit_s` on one."""
    run, gpus = pl.col("runtime_to_failure_s"), pl.col("gpus")
    met = (
        pl.col("is_failure") & (run <= limit_s) & pl.col("category").is_in(SHOWS_ON_ONE_GPU)
        & (pl.col("state") != "TIMEOUT")
    )  # fmt: skip
    return ended.filter((pl.col("attempt") == 0) & (gpus > 1)).select(
        pl.lit("pre-run on one GPU").alias("rule"),
        pl.lit(limit_s, pl.Int64).alias("limit_s"),
        pl.lit(None, pl.String).alias("reason"),
        pl.len().cast(pl.Int64).alias("jobs"),
        met.sum().cast(pl.Int64).alias("attempts_avoided"),
        pl.col("unit_time_lost_s").filter(met).sum().alias("time_saved_s"),
        run.clip(0, limit_s).sum().alias("time_cost_s"),
        pl.lit(0, pl.Int64).alias("jobs_stopped_wrongly"),
    )


def _no_retry(ended: pl.DataFrame) -> pl.DataFrame:
    """Apply the second rule: a job stops at its first hopeless failure. Rows by reason of that failure, and for all."""
    stops = (
        ended.filter(pl.col("is_failure") & pl.col("is_hopeless"))
        .sort("attempt")
        .group_by("job_key", maintain_order=True)
        .agg(pl.col("attempt").first().alias("stopped_at"), pl.col("reason").first().cast(pl.String).alias("why"))
    )
    later = ended.join(stops, on="job_key").filter(pl.col("attempt") > pl.col("stopped_at"))
    completed = (pl.col("state") == "COMPLETED") | (pl.col("job_state") == "COMPLETED")
    jobs = later.group_by("job_key", "why").agg(
        pl.len().alias("attempts_avoided"),
        pl.col("unit_time_lost_s").sum().alias("time_saved_s"),
        completed.any().alias("wrong"),
    )
    every = pl.concat([jobs, jobs.with_columns(pl.lit(None, pl.String).alias("why"))])
    return (
        every.group_by(pl.col("why").alias("reason"))
        .agg(
            pl.len().cast(pl.Int64).alias("jobs"),
            pl.col("attempts_avoided").sum().cast(pl.Int64),
            pl.col("time_saved_s").sum(),
            pl.col("wrong").sum().cast(pl.Int64).alias("jobs_stopped_wrongly"),
        )
        .with_columns(
            pl.lit("no retry of hopeless errors").alias("rule"),
            pl.lit(None, pl.Int64).alias("limit_s"),
            pl.lit(0, pl.Int64).alias("time_cost_s"),
        )
        .sort("reason", nulls_last=False)
    )
