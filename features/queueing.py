"""Waits of jobs and their causes: by `features.causes.waits`, and by the split of the Philly study.

The split follows Jeon et al., ATC'19, section 3.1. Time during which a waiting job would bring its group (virtual
cluster or account) over the group's quota is fair-share delay. All the rest is called fragmentation delay, whether the
cluster is full, free GPUs are scattered, or another job goes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from features.causes.waits import CAUSES, READ_OF_JOBS, READ_OF_RUNS, TIMES, with_causes
from features.resources.capacity import Capacity, capacity
from features.resources.resource import resource_of, unit_time
from features.resources.sizes import asked_amount, size_bucket
from features.resources.usage import (
    Steps,
    asked_gpus,
    asked_nodes,
    from_epoch,
    has_run,
    horizon,
    queue_end,
    runs,
    steps_of,
    with_gpu_time,
    without_runs,
)
from features.tables.queueing import QUEUEING_BY, QUEUEING_DELAY
from features.trace import ASKED, ASKED_OF_OTHERS, Trace, left_join, narrowed, numbered, ordered, read_trace, shaped
from simulator.metrics import NOTICED_WAIT_S
from traces.arrays import Int64s
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store.folder import DataFolder
from traces.store.frames import empty

# Quantile of a group's use over its busy time that serves as its quota: the top 1 % is ignored, as a burst is no quota.
QUOTA_QUANTILE = 0.99
WAITED = (*ASKED, "run_s", "gpu_time_s", "attempts", "trace_sha256")  # columns of jobs that `philly_delay` reads

TABLES: tuple[Table, ...] = (QUEUEING_DELAY, QUEUEING_BY)
DIMENSIONS = ("all", "size_bucket", "partition", "user_name", "hour_of_week", "state", "week", "month")


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables for the cluster of `settings` from the warehouse."""
    others = (*ASKED_OF_OTHERS, "reason", "job_name", "array_job_id", "features_asked", "gpu_type_asked")
    asked = (*WAITED, *others)
    return _tables(
        queueing_delay(read_trace(data, settings.name, jobs=asked, by_node=True, text_keys=True), settings), settings
    )


def from_trace(trace: Trace, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables from canonical frames."""
    return _tables(queueing_delay(trace, settings), settings)


def _tables(delays: pl.DataFrame, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    return {QUEUEING_DELAY.name: delays, QUEUEING_BY.name: queueing_by(delays, settings.timezone)}


def queueing_delay(trace: Trace, settings: ClusterSettings) -> pl.DataFrame:
    """Compute the waits by cause, one row per job, in order of submission.

    If the caller keeps no reference to `trace`, as `compute` does, its columns are freed as soon as they are used.
    """
    trace = numbered(trace)
    held = grouped_runs(trace, settings)
    trace = without_runs(trace)
    size = capacity(trace, settings, held)
    jobs = waits_of_jobs(trace, settings, held)
    trace = replace(trace, jobs=trace.jobs.select({*READ_OF_JOBS, *ASKED, *ASKED_OF_OTHERS}))
    jobs = _by_resource(philly_delay(jobs, settings, held, size), trace, settings, held, size)
    trace = replace(trace, jobs=trace.jobs.select(READ_OF_JOBS))
    held = held.select(READ_OF_RUNS)
    jobs = narrowed(jobs, *TIMES)
    jobs = ordered(with_causes(jobs, trace, held, size), "submit_utc", "job_key")
    return shaped(jobs.with_columns(trace.keys.gather(jobs["job_key"]).alias("job_key")), QUEUEING_DELAY)


def _by_resource(
    jobs: pl.DataFrame, trace: Trace, settings: ClusterSettings, held: pl.DataFrame, size: Capacity
) -> pl.DataFrame:
    """Add to `jobs` the request (size_bucket) and the time held (unit_time_s) of the binding resource."""
    resource = resource_of(trace, settings, held, size)
    sizes = size_bucket(asked_amount(resource, settings), resource).cast(pl.Categorical).alias("size_bucket")
    jobs = left_join(jobs, trace.jobs.select("job_key", sizes), "job_key")
    time = held.select("job_key", unit_time(resource).alias("unit_time_s")).drop_nulls()
    return left_join(jobs, time.group_by("job_key").agg(pl.col("unit_time_s").sum()), "job_key")


def grouped_runs(trace: Trace, settings: ClusterSettings) -> pl.DataFrame:
    """Return `usage.runs` with group_name, the account or partition whose quota an attempt counts against."""
    group = group_column(trace.jobs, settings)
    name = pl.lit(None, pl.String) if group is None else pl.col(group)
    return runs(trace, settings).with_columns(name.alias("group_name"))


def philly_delay(
    jobs: pl.DataFrame, settings: ClusterSettings, held: pl.DataFrame, size: Capacity, quantile: float = QUOTA_QUANTILE
) -> pl.DataFrame:
    """Split the wait of each job as the Philly study does.

    A quota that is not given is inferred as that quantile of the group's use. jobs: see `waits_of_jobs`; held: see
    `grouped_runs`; size: of the cluster.
    """
    quotas = _quotas(held, settings, size, quantile)
    table = pl.DataFrame(
        [(name, quota.gpus, quota.source) for name, quota in quotas.items()],
        schema={"group_name": jobs.schema["group_name"], "quota_gpus": pl.Int64, "quota_source": pl.String},
        orient="row",
    ).cast({"quota_source": pl.Categorical})
    jobs = left_join(jobs, table, "group_name")
    return left_join(jobs, _philly_split(jobs, held), "job_key")


def group_column(jobs: pl.DataFrame, settings: ClusterSettings) -> str | None:
    """Choose the column of the groups with quotas: the one with names of settings.quotas, else account, else partition.

    None where the log has neither.
    """
    if settings.quotas:
        names = list(settings.quotas)
        for column in ("account", "partition"):
            if jobs[column].is_in(names).any():
                return column
    return next((column for column in ("account", "partition") if jobs[column].null_count() < jobs.height), None)


def waits_of_jobs(trace: Trace, settings: ClusterSettings, held: pl.DataFrame) -> pl.DataFrame:
    """Compute all columns of a job except its split; it waits, eligible, in [waiting_from, waiting_to), epoch s."""
    until, group = horizon(trace), group_column(trace.jobs, settings)
    nodes = asked_nodes()
    gpus = asked_gpus(settings)
    submit, start = pl.col("submit_utc").dt.epoch("s"), pl.col("start_utc").dt.epoch("s")
    printed = pl.col("eligible_utc").dt.epoch("s")
    # A requeue overwrites the eligible time, which is then after the start.
    eligible_from = pl.when((printed > start).fill_null(False)).then(None).otherwise(printed)
    eligible = pl.coalesce(eligible_from, submit)
    ran = start.is_not_null() | (has_run() & (pl.col("attempts") > 0)).fill_null(False)
    return with_gpu_time(trace.jobs, held).select(
        "cluster", "job_key", "submit_utc", "user_name", "partition", "state", "gpu_time_s",
        gpus.alias("gpus"),
        nodes.alias("nodes"),
        ran.alias("ran"),
        (start - submit).alias("wait_s"),
        (start - eligible).alias("eligible_wait_s"),
        pl.when(~ran).then((queue_end(until) - submit).clip(lower_bound=0)).alias("abandoned_wait_s"),
        (pl.col(group) if group else pl.lit(None, pl.String)).alias("group_name"),
        submit.alias("submit"),
        eligible_from.alias("eligible_from"),
        eligible.alias("waiting_from"),
        start.alias("waiting_to"),
    )  # fmt: skip


@dataclass(frozen=True)
class _Quota:
    gpus: int
    source: str


def _quotas(held: pl.DataFrame, settings: ClusterSettings, size: Capacity, quantile: float) -> dict[str, _Quota]:
    """Collect given quotas, and infer one for every other group; a single group needs no quota, so none is inferred."""
    quotas = {name: _Quota(gpus, "given") for name, gpus in settings.quotas.items()}
    groups = held["group_name"].drop_nulls().n_unique()
    if groups < 2 or size.gpus is None:
        return quotas
    for name, rows in _by_group(held):
        inferred = steps_of(rows, "gpus").quantile(quantile)
        if inferred is not None and name not in quotas:
            quotas[name] = _Quota(inferred, "inferred")
    return quotas


def _by_group(held: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    known = held.select("group_name", "start_epoch", "end_epoch", "gpus").drop_nulls("group_name")
    for (name,), rows in known.group_by("group_name", maintain_order=True):
        yield str(name), rows


def _philly_split(jobs: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """Compute fair_share_delay_s, fragmentation_delay_s and philly_cause of jobs with a start, a GPU and a quota.

    The result is exact and needs no loop over jobs: for one demand, "over the quota" is a 0/1 step function, and its
    time in [a, b) is its integral at b minus that at a. There is one pass per demand and group.
    """
    asked = jobs.select("job_key", "gpus", "group_name", "quota_gpus", "waiting_from", "waiting_to")
    waiting = asked.filter(pl.col("gpus") > 0).drop_nulls(["waiting_from", "waiting_to", "quota_gpus"])
    used_by_group = {name: steps_of(rows, "gpus") for name, rows in _by_group(held)}
    parts = [_part(waiting["job_key"].clear(), np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for (demand, name, quota), rows in waiting.group_by(["gpus", "group_name", "quota_gpus"], maintain_order=True):
        begin = rows["waiting_from"].to_numpy()
        end = np.maximum(begin, rows["waiting_to"].to_numpy())  # a clock change can make a wait negative
        over = _over(used_by_group.get(str(name)), int(str(quota)) - int(str(demand)))
        parts.append(_part(rows["job_key"], end - begin, over.area(end) - over.area(begin)))
    return pl.concat(parts)


def _over(used: Steps | None, room: int) -> Steps:
    """Return 1 while more than `room` GPUs are used, from the epoch on: a demand above the quota is always over it."""
    nothing = Steps(np.zeros(1, np.int64), np.zeros(1, np.int64))
    return (nothing if used is None else from_epoch(used)).above(room)


def _part(keys: pl.Series, total: Int64s, fair: Int64s) -> pl.DataFrame:
    """Build the rows of the split; `total` is the eligible wait."""
    fair_s, other_s = pl.col("fair_share_delay_s"), pl.col("fragmentation_delay_s")
    larger = pl.when(fair_s > other_s).then(pl.lit("fair share")).otherwise(pl.lit("fragmentation"))
    larger = larger.cast(pl.Categorical)
    return pl.DataFrame(
        {
            "job_key": keys,
            "fair_share_delay_s": pl.Series(fair, dtype=pl.Int64),
            "fragmentation_delay_s": pl.Series(total - fair, dtype=pl.Int64),
        }
    ).with_columns(pl.when(fair_s + other_s > 0).then(larger).alias("philly_cause"))


def queueing_by(delays: pl.DataFrame, timezone: str) -> pl.DataFrame:
    """Summarize `queueing_delay` along each of DIMENSIONS."""
    if delays.is_empty():
        return empty(QUEUEING_BY)
    local = pl.col("submit_utc").dt.replace_time_zone("UTC").dt.convert_time_zone(timezone)
    keys = {
        "all": pl.lit("all"),
        "hour_of_week": ((local.dt.weekday().cast(pl.Int64) - 1) * 24 + local.dt.hour()).cast(pl.Int16),
        "week": local.dt.truncate("1w").dt.date(),
        "month": local.dt.strftime("%Y-%m"),
    }
    rows = delays.lazy()  # which groups only the columns that it reads: a third of the memory
    parts = [
        rows.group_by(keys.get(dimension, pl.col(dimension)).alias("value"))
        .agg(pl.col("cluster").first(), *_summary())
        .with_columns(pl.col("value").cast(pl.String), pl.lit(dimension).alias("dimension"))
        .sort("value")
        .collect()
        for dimension in DIMENSIONS
    ]
    return shaped(pl.concat(parts), QUEUEING_BY)


def _summary() -> list[pl.Expr]:
    wait, eligible, weight = pl.col("wait_s"), pl.col("eligible_wait_s"), pl.col("gpu_time_s").cast(pl.Float64)
    weight = pl.when(wait.is_not_null()).then(weight)
    total_weight = weight.sum()
    quantiles = [
        since.quantile(share, interpolation="linear").alias(f"{name}_p{round(share * 100)}_s")
        for name, since in (("wait", wait), ("eligible_wait", eligible))
        for share in (0.5, 0.9, 0.95, 0.99)
    ]
    return [
        wait.count().alias("jobs"),
        (~pl.col("ran")).sum().alias("never_ran"),
        wait.mean().alias("wait_mean_s"),
        *quantiles,
        (wait > NOTICED_WAIT_S).mean().alias("over_10min_share"),
        pl.when(total_weight > 0).then((wait * weight).sum() / total_weight).alias("wait_gpu_time_weighted_s"),
        eligible.mean().alias("eligible_wait_mean_s"),
        wait.sum().alias("wait_total_s"),
        pl.col("abandoned_wait_s").sum().alias("abandoned_wait_total_s"),
        *(
            pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)
            for name in (*CAUSES, "fair_share_delay_s", "fragmentation_delay_s")
        ),
        *(
            pl.when(pl.col("quota_gpus").count() > 0).then((pl.col("philly_cause") == cause).sum()).alias(name)
            for name, cause in (("fair_share_jobs", "fair share"), ("fragmentation_jobs", "fragmentation"))
        ),
    ]
