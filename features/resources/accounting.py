"""Accounting of time held and its use: totals by user, account, partition, QOS and month, and use of each node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import polars as pl

from features.resources.capacity import Capacity, Resource, capacity
from features.resources.on_nodes import OnNodes, by_node
from features.resources.resource import UNITS, binding
from features.resources.samples import Fetch
from features.resources.usage import has_run, runs
from features.tables.accounting import NODE_UTILIZATION, USAGE_BY
from features.trace import Trace, moved, read_trace, shaped
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.frames import empty

TABLES: tuple[Table, ...] = (USAGE_BY, NODE_UTILIZATION)
DIMENSIONS = ("all", "user_name", "account", "partition", "qos")
# Column of time held -> the amount that an attempt holds.
TIMES = {"gpu_time_s": "gpu_milli", "core_time_s": "cpus", "memory_time_mib_s": "mem_mib", "node_time_s": "nodes"}
TIME_OF: dict[Resource, str] = dict(zip(("GPU", "core", "memory", "node"), TIMES, strict=True))
ENDS = {
    "completed": ("COMPLETED",),
    "failed": ("FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"),
    "cancelled": ("CANCELLED",),
    "timeout": ("TIMEOUT", "DEADLINE"),
}
READ_MEMORY = "512MB"  # DuckDB's memory limit while the steps are read
# A step belongs to the last attempt that started before it: a requeued job has the steps of all attempts under one key.
STEPS_SQL = """
SELECT a.job_key, a.attempt, sum(s.cpu_time_s) AS cpu_used_s, max(s.max_rss_kib) AS rss_kib,
    sum(s.gpu_percent / 100 * s.run_s) AS gpu_used_s
FROM (
    SELECT job_key, start_utc, run_s, cpu_time_s, max_rss_kib, gpu_percent FROM steps
    WHERE cluster = ? AND start_utc IS NOT NULL
) s
ASOF JOIN (
    SELECT job_key, attempt, start_utc, end_utc FROM attempts WHERE cluster = ? AND start_utc IS NOT NULL
) a ON s.job_key = a.job_key AND s.start_utc >= a.start_utc
WHERE a.end_utc IS NOT NULL GROUP BY ALL
"""
_USED = {"job_key": pl.String, "attempt": pl.Int64, "cpu_used_s": pl.Float64, "rss_kib": pl.Int64,
         "gpu_used_s": pl.Float64}  # fmt: skip


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute both tables for the cluster of `settings` from the warehouse."""
    read = ("qos", "wait_s", "attempts", "run_s", "trace_sha256")
    fetch = partial(warehouse.batches, data, memory=READ_MEMORY)
    return from_trace(read_trace(data, settings.name, jobs=read, by_node=True), settings, fetch)


def from_trace(trace: Trace, settings: ClusterSettings, fetch: Fetch | None = None) -> dict[str, pl.DataFrame]:
    """Compute both tables from canonical frames; `fetch` runs a SELECT on steps and attempts, None without these.

    If the caller keeps no reference to `trace`, as `compute` does, its columns are freed as soon as they are used.
    """
    held = runs(trace, settings)
    size = capacity(trace, settings, held)
    on_nodes = by_node(trace, held)
    resource = binding(held, on_nodes, size, settings).resource
    nodes = node_utilization(trace, held, on_nodes, size, settings.name)
    del on_nodes
    trace = replace(trace, placements=trace.placements.clear())
    used = [] if fetch is None else fetch(STEPS_SQL, (settings.name, settings.name))
    held = _amounts(trace, held, used)
    return {USAGE_BY.name: usage_by(trace, held, resource, settings.name), NODE_UTILIZATION.name: nodes}


def _amounts(trace: Trace, held: pl.DataFrame, used: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Add to `held` (see `runs`) the job's QOS and final state, and the use by its steps (_USED)."""
    types = {**_USED, "job_key": held.schema["job_key"]}
    steps = pl.concat([pl.DataFrame(schema=types), *(part.cast(types) for part in used)])  # type: ignore[arg-type]
    jobs = trace.jobs.select("job_key", "qos", pl.col("state").alias("job_state"))
    return (
        held.drop("gpu_time_s")
        .join(jobs, on="job_key", how="left")
        .join(steps, on=["job_key", "attempt"], how="left")
        .with_columns(pl.coalesce("job_state", "state").alias("state"), pl.lit("all").alias("all"))
        .drop("job_state")
    )


def usage_by(trace: Trace, held: pl.DataFrame, resource: Resource, cluster: str) -> pl.DataFrame:
    """Compute totals along every dimension; `held`: see `_amounts`; it has no columns afterwards."""
    jobs = _jobs(trace)
    if jobs.is_empty():
        return empty(USAGE_BY)
    whole = _timed(held)
    parts = [
        _totals(jobs, whole, [name], resource).with_columns(
            pl.lit(name).alias("dimension"), pl.col(name).alias("value")
        )
        for name in DIMENSIONS
    ]
    del whole
    months = _timed(_by_month(moved(held).drop("job_key", "attempt", "user_name", "partition", "qos", "all")))
    month = pl.col("month_utc").dt.strftime("%Y-%m")
    for dimension, names, value in (
        ("month", ["month_utc"], month),
        ("account month", ["account", "month_utc"], pl.col("account")),
    ):
        rows = _totals(jobs, months, names, resource).drop_nulls("month_utc")
        parts.append(rows.with_columns(pl.lit(dimension).alias("dimension"), value.alias("value")))
    texts = pl.col("value").cast(pl.String)
    frame = pl.concat([part.with_columns(texts) for part in parts], how="diagonal").with_columns(
        pl.lit(cluster).alias("cluster"),
        pl.lit(UNITS[resource]).alias("unit"),
        (pl.col("memory_time_mib_s") // 1024).alias("memory_time_gib_s"),
        pl.col("jobs", "ran", "wait_total_s", "cpu_measured", "cpu_measured_s", "memory_measured").fill_null(0),
        pl.col("gpu_measured", "gpu_measured_s").fill_null(0),
    )
    return shaped(frame.sort("dimension", "month_utc", "value"), USAGE_BY)


def _jobs(trace: Trace) -> pl.DataFrame:
    """List every job with the dimensions, whether it ran, and its wait."""
    ran = pl.col("start_utc").is_not_null() | (has_run() & (pl.col("attempts") > 0)).fill_null(False)
    return trace.jobs.select(
        "user_name", "account", "partition", "qos", "wait_s",
        pl.lit("all").alias("all"),
        pl.coalesce("submit_utc", "start_utc").dt.truncate("1mo").alias("month_utc"),
        ran.alias("ran"),
    )  # fmt: skip


def _timed(held: pl.DataFrame) -> pl.DataFrame:
    """Add to `held` the time held of each resource and what its steps used in that time."""
    seconds = (pl.col("end_epoch") - pl.col("start_epoch")).clip(0)
    rss, memory = pl.col("rss_kib"), 1024 * pl.col("mem_mib")
    return held.with_columns(
        *((pl.col(amount) * seconds).alias(name) for name, amount in TIMES.items()),
    ).with_columns(
        pl.col("gpu_time_s") // 1000,  # from thousandths of GPUs
        pl.when(pl.col("cpus") > 0).then("cpu_used_s").alias("cpu_used_s"),
        pl.when(pl.col("gpu_milli") > 0).then("gpu_used_s").alias("gpu_used_s"),
        pl.when(memory > 0).then(rss.cast(pl.Float64) * seconds).alias("memory_used"),
        pl.when(rss.is_not_null() & (memory > 0)).then(memory.cast(pl.Float64) * seconds).alias("memory_held"),
    )


def _by_month(held: pl.DataFrame) -> pl.DataFrame:
    """Split `held` at the first day of each month (UTC): add month_utc and divide CPU and GPU time used by duration."""
    instants = {name: pl.from_epoch(pl.col(name), "s").cast(pl.Datetime("us")) for name in ("start_epoch", "end_epoch")}
    last_s = pl.max_horizontal("start_epoch", pl.col("end_epoch") - 1)
    rows = held.with_columns(
        instants["start_epoch"].dt.truncate("1mo").alias("month_utc"),
        pl.from_epoch(last_s, "s").cast(pl.Datetime("us")).dt.truncate("1mo").alias("last_month"),
    )
    within = rows.filter(pl.col("month_utc") == pl.col("last_month")).drop("last_month")
    across = rows.filter(pl.col("month_utc") < pl.col("last_month"))
    begin, end = pl.col("month_utc").dt.epoch("s"), pl.col("month_utc").dt.offset_by("1mo").dt.epoch("s")
    length = pl.col("end_epoch") - pl.col("start_epoch")
    from_, to = pl.max_horizontal("start_epoch", begin), pl.min_horizontal("end_epoch", end)
    cut = (
        across.with_columns(pl.datetime_ranges("month_utc", "last_month", "1mo").alias("month_utc"))
        .explode("month_utc")
        .drop("last_month")
        .with_columns(
            pl.col("cpu_used_s", "gpu_used_s") * (to - from_) / length,
            from_.alias("start_epoch"),
            to.alias("end_epoch"),
        )
    )
    return pl.concat([within, cut.select(within.columns)])


def _totals(jobs: pl.DataFrame, held: pl.DataFrame, by: list[str], resource: Resource) -> pl.DataFrame:
    """Compute counts of `jobs` and totals of `held` (see `_timed`), one row per value of `by`."""
    counts = jobs.group_by(by).agg(
        pl.len().alias("jobs"), pl.col("ran").sum(), pl.col("wait_s").sum().alias("wait_total_s")
    )
    time, core_time = pl.col(TIME_OF[resource]), pl.col("core_time_s").filter(pl.col("cpu_used_s").is_not_null())
    gpu_time = pl.col("gpu_time_s").filter(pl.col("gpu_used_s").is_not_null())
    ended = time.filter(pl.col("state") != "UNKNOWN")
    sums = held.group_by(by).agg(
        *(pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name) for name in TIMES),
        *(
            pl.when(ended.sum() > 0).then(time.filter(pl.col("state").is_in(states)).sum() / ended.sum())
            .alias(f"{name}_share")
            for name, states in ENDS.items()
        ),
        pl.when(core_time.sum() > 0).then(pl.col("cpu_used_s").sum() / core_time.sum()).alias("cpu_used_share"),
        pl.col("cpu_used_s").count().alias("cpu_measured"),
        core_time.sum().alias("cpu_measured_s"),
        pl.when(pl.col("memory_held").sum() > 0).then(pl.col("memory_used").sum() / pl.col("memory_held").sum())
        .alias("memory_used_share"),
        pl.col("memory_used").count().alias("memory_measured"),
        pl.when(gpu_time.sum() > 0).then(pl.col("gpu_used_s").sum() / gpu_time.sum()).alias("gpu_used_share"),
        pl.col("gpu_used_s").count().alias("gpu_measured"),
        gpu_time.sum().alias("gpu_measured_s"),
    )  # fmt: skip
    rows = counts.join(sums, on=by, how="full", coalesce=True, nulls_equal=True)
    total = time.sum().over("month_utc") if by == ["account", "month_utc"] else time.sum()
    return rows.with_columns(pl.when(total > 0).then(time / total).alias("share"))


def node_utilization(trace: Trace, held: pl.DataFrame, on_nodes: OnNodes, size: Capacity, cluster: str) -> pl.DataFrame:
    """Compute each node's use while the log shows it (`held`: see `runs`; `on_nodes`: see `by_node`)."""
    named = size.sizes.drop_nulls("node")
    if named.is_empty() or on_nodes.placed.is_empty():  # nothing ran, or the log does not name the nodes
        return empty(NODE_UTILIZATION)
    reached = pl.col("end_epoch").cum_max().shift(1).over("node")  # latest end of the jobs that started before
    alone_s = pl.col("end_epoch") - pl.max_horizontal("start_epoch", reached)
    seconds = pl.col("end_epoch") - pl.col("start_epoch")
    amounts = ("gpus", "cpus", "mem_mib")
    used = pl.concat(
        rows.with_columns(pl.col("node").cast(pl.String))
        .sort("node", "start_epoch")
        .with_columns(alone_s.clip(0).alias("busy_s"))
        .group_by("node")
        .agg(
            pl.col("start_epoch").min(), pl.col("end_epoch").max(),
            pl.col("job_key").n_unique().alias("jobs"),
            pl.col("busy_s").sum(),
            *(
                pl.when(pl.col(name).count() == pl.len()).then((pl.col(name) * seconds).sum()).alias(f"{name} time")
                for name in amounts
            ),
        )
        for rows in on_nodes.parts("job_key", "node", "start_epoch", "end_epoch", *amounts)
    )  # fmt: skip
    span = int(str(held["end_epoch"].max())) - int(str(held["start_epoch"].min()))
    listed = trace.nodes.select(pl.col("node").cast(pl.String), "state", pl.lit(True).alias("is_listed"))
    nothing_ran = pl.col("jobs").is_null()
    times = [pl.when(nothing_ran).then(0).otherwise(f"{name} time").alias(f"{name} time") for name in amounts]
    shown_s = pl.when("is_listed").then(span).otherwise(pl.col("end_epoch") - pl.col("start_epoch"))
    rows = (
        named.join(used, on="node", how="left")
        .join(listed, on="node", how="left")
        .with_columns(*times, pl.col("jobs", "busy_s").fill_null(0), shown_s.alias("shown_s"))
    )
    shares = [
        pl.when(pl.col(name) * pl.col("shown_s") > 0)
        .then(pl.col(f"{name} time") / (pl.col(name) * pl.col("shown_s")))
        .alias(share)
        for name, share in zip(amounts, ("gpu_share", "core_share", "memory_share"), strict=True)
    ]
    rows = rows.with_columns(
        pl.lit(cluster).alias("cluster"),
        pl.from_epoch("start_epoch", "s").cast(pl.Datetime("us")).alias("first_utc"),
        pl.from_epoch("end_epoch", "s").cast(pl.Datetime("us")).alias("last_utc"),
        pl.when(pl.col("shown_s") > 0).then(pl.col("busy_s") / pl.col("shown_s")).alias("busy_share"),
        *shares,
    )
    return shaped(rows.sort("node"), NODE_UTILIZATION)
