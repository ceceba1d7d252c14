"""Utilization of the cluster: allocated resources everywhere, and measured GPU utilization where samples exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from features.resources.capacity import AMOUNTS, KNOWN_BY, TIMED, Capacity, Resource, capacity
from features.resources.on_nodes import by_node
from features.resources.resource import UNITS, Binding, PartitionResource, binding, of_partitions
from features.resources.samples import Fetch, Joined, join, quantiles
from features.resources.sizes import size_bucket
from features.resources.usage import INSTANTS, Steps, complete_from, runs, steps_of
from features.tables.utilization import (
    ALLOCATED_BY_USER,
    IDLE_GPU_TIME,
    RESOURCES,
    UTILIZATION_ALLOCATED,
    UTILIZATION_BY,
    UTILIZATION_MEASURED,
    UTILIZATION_PERCENTILES,
)
from features.trace import Trace, left_join, read_trace, shaped
from traces.arrays import Int64s
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.frames import empty
from traces.units import HOUR_S, MINUTE_S, WEEK_S

TABLES: tuple[Table, ...] = (
    RESOURCES,
    UTILIZATION_ALLOCATED,
    ALLOCATED_BY_USER,
    UTILIZATION_MEASURED,
    UTILIZATION_BY,
    UTILIZATION_PERCENTILES,
    IDLE_GPU_TIME,
)
MONDAY_S = 4 * 86_400  # 1970-01-05, the first Monday of the epoch
READ_MEMORY = "700MB"  # database memory limit while samples are read, in addition to the joined rows
GROUPINGS = (
    (), ("size_bucket",), ("state",), ("sharing",), ("size_bucket", "state"), ("gpus", "state"), ("gpus", "nodes"),
    ("gpus", "sharing"),
)  # fmt: skip
GROUPED_BY = ("size_bucket", "gpus", "state", "nodes")


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute the tables for the cluster of `settings` from the warehouse."""
    return from_trace(
        read_trace(data, settings.name, by_node=True),
        settings,
        partial(warehouse.batches, data, rows=1_000_000, memory=READ_MEMORY),
    )


def from_trace(trace: Trace, settings: ClusterSettings, fetch: Fetch | None = None) -> dict[str, pl.DataFrame]:
    """Compute the tables from canonical frames; `fetch` runs a SELECT on the samples, None where there are none."""
    held = runs(trace, settings)
    trace = replace(trace, attempts=trace.attempts.select("job_key", "attempt", *INSTANTS))
    size = capacity(trace, settings, held)
    attempts = _attempts(trace, held)
    joined: dict[str, Joined] = {}
    if fetch is not None:
        kinds = attempts.select("job_key", "attempt", *GROUPED_BY)
        joined = {resource: join(trace, settings.name, resource, kinds, fetch) for resource in ("GPU", "CPU", "memory")}
    measured = _measured(joined, settings.name)
    whole = binding(held, by_node(trace, held), size, settings)
    parts = of_partitions(trace, held, size, settings)
    return {
        RESOURCES.name: _resources(held, size, whole, parts, settings.name),
        UTILIZATION_ALLOCATED.name: allocated(held, size, whole, parts, settings.name),
        ALLOCATED_BY_USER.name: _by_user(held, size, whole.resource, settings.name),
        UTILIZATION_MEASURED.name: measured,
        UTILIZATION_BY.name: _by(attempts, measured, settings.name),
        UTILIZATION_PERCENTILES.name: _percentiles(joined, attempts, settings.name),
        IDLE_GPU_TIME.name: _idle(attempts, measured, settings.name),
    }


def _resources(
    held: pl.DataFrame, size: Capacity, whole: Binding, parts: Mapping[str, PartitionResource], cluster: str
) -> pl.DataFrame:
    """List the binding resource and the capacity of the cluster and of each partition."""
    rows: list[dict[str, object]] = [_statement("cluster", None, size, whole)]
    rows += [_statement("partition", name, part.size, part.binding) for name, part in parts.items()]
    since, until = (None, None) if held.is_empty() else _shown(held)[:2]
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.lit(cluster).alias("cluster"),
        pl.from_epoch(pl.lit(since, pl.Int64), "s").alias("since_utc"),
        pl.from_epoch(pl.lit(until, pl.Int64), "s").alias("until_utc"),
    )
    return shaped(frame.cast(dict.fromkeys(AMOUNTS.values(), pl.Int64)), RESOURCES)


def _statement(scope: str, partition: str | None, size: Capacity, chosen: Binding) -> dict[str, object]:
    return {
        "scope": scope, "partition": partition, **chosen._asdict(),
        "known_by": KNOWN_BY[size.source], **{name: getattr(size, name) for name in AMOUNTS.values()},
        "contradictions": "; ".join(size.contradictions) or None,
    }  # fmt: skip


def allocated(
    held: pl.DataFrame, size: Capacity, whole: Binding, parts: Mapping[str, PartitionResource], cluster: str
) -> pl.DataFrame:
    """Compute what is held in each hour from the first start to the last end (`held`: see `runs`).

    The rows cover the cluster and each partition, for every resource that the log records.
    """
    if held.is_empty():
        return empty(UTILIZATION_ALLOCATED)
    edges, shown = _edges(held, HOUR_S, 0), _shown(held)
    frames = []
    for resource, (amount, _) in TIMED.items():
        if held[amount].count() == 0:
            continue
        hours = _hours(held, resource, edges, size, shown)
        frames.append(hours.with_columns(scope=pl.lit("cluster"), is_binding=pl.lit(resource == whole.resource)))
        columns = ("partition", "start_epoch", "end_epoch", amount)
        for (name,), rows in held.select(columns).group_by("partition", maintain_order=True):
            part = parts.get(str(name))
            hours = _hours(rows, resource, edges, size if part is None else part.size, shown)
            hours = hours.filter(pl.col("allocated_s") > 0)
            is_binding = resource == (whole if part is None else part.binding).resource
            scope = {
                "scope": pl.lit("partition"),
                "partition": pl.lit(name, pl.String),
                "is_binding": pl.lit(is_binding),
            }
            frames.append(hours.with_columns(**scope))
    if not frames:
        return empty(UTILIZATION_ALLOCATED)
    frame = pl.concat(frames, how="diagonal").with_columns(
        pl.lit(cluster).alias("cluster"),
        pl.lit(size.source).alias("capacity_source"),
        pl.when(pl.col("capacity_s") > 0).then(pl.col("allocated_s") / pl.col("capacity_s")).alias("allocated_share"),
    )
    return shaped(frame.sort("scope", "partition", "unit", "hour_utc"), UTILIZATION_ALLOCATED)


def _edges(held: pl.DataFrame, step_s: int, zero_s: int) -> Int64s:
    """List instants `step_s` apart, aligned to `zero_s`, that enclose all of `held`."""
    first, last = int(str(held["start_epoch"].min())), int(str(held["end_epoch"].max()))
    edges = np.arange((first - zero_s) // step_s * step_s + zero_s, last + step_s, step_s, dtype=np.int64)
    return edges if len(edges) > 1 else np.array([edges[0], edges[0] + step_s])


class _Shown(NamedTuple):
    """The period (epoch s) in which the log shows everything that ran, and whether anything ran before."""

    since: int
    until: int
    is_cut: bool


def _shown(held: pl.DataFrame) -> _Shown:
    since, first = complete_from(held), int(str(held["start_epoch"].min()))
    return _Shown(since, int(str(held["end_epoch"].max())), first < since)


def _hours(held: pl.DataFrame, resource: Resource, edges: Int64s, size: Capacity, shown: _Shown) -> pl.DataFrame:
    """Compute the exact unit seconds held between neighbouring edges (epoch s), and the capacity while `shown`.

    The capacity is null for an interval that begins before the log shows everything that ran.
    """
    amount, in_unit = TIMED[resource]
    of_whole = 1024 if resource == "memory" else 1  # MiB to GiB
    steps = size.steps(resource) or Steps(np.zeros(1, np.int64), np.array([size.of(resource) or 0], np.int64))
    capacity_s = np.diff(steps.area(np.clip(edges, shown.since, shown.until))) // of_whole
    is_known = np.full(len(capacity_s), size.of(resource) is not None)
    if shown.is_cut:
        is_known &= edges[:-1] >= shown.since
    return (
        pl.DataFrame(
            {
                "hour_utc": pl.from_epoch(pl.Series(edges[:-1]), "s").cast(pl.Datetime("us")),
                "unit": [UNITS[resource]] * (len(edges) - 1),
                "allocated_s": np.diff(steps_of(held, amount).area(edges)) // in_unit,
                "capacity_s": capacity_s,
                "is_known": is_known,
            }
        )
        .with_columns(pl.when("is_known").then("capacity_s").alias("capacity_s"))
        .drop("is_known")
    )


def _by_user(held: pl.DataFrame, size: Capacity, resource: Resource, cluster: str) -> pl.DataFrame:
    """Compute what each user held of the binding resource in each week from the first start to the last end."""
    if held.is_empty():
        return empty(ALLOCATED_BY_USER)
    edges, shown = _edges(held, WEEK_S, MONDAY_S), _shown(held)
    columns = ("user_name", "start_epoch", "end_epoch", TIMED[resource][0])
    parts = [
        _hours(rows, resource, edges, size, shown).with_columns(pl.lit(name, pl.String).alias("user_name"))
        for (name,), rows in held.select(columns).group_by("user_name", maintain_order=True)
    ]
    frame = pl.concat(parts).filter(pl.col("allocated_s") > 0).rename({"hour_utc": "week_utc"})
    frame = frame.with_columns(
        pl.lit(cluster).alias("cluster"),
        (pl.col("allocated_s") / pl.col("allocated_s").sum().over("week_utc")).alias("share_of_allocated"),
        pl.when(pl.col("capacity_s") > 0).then(pl.col("allocated_s") / pl.col("capacity_s")).alias("share_of_capacity"),
    )
    return shaped(frame.sort("week_utc", "user_name"), ALLOCATED_BY_USER)


def _attempts(trace: Trace, held: pl.DataFrame) -> pl.DataFrame:
    """List the attempts that ran, with the job's state, size, nodes, GPU time, user and partition."""
    jobs = trace.jobs.select("job_key", pl.col("state").alias("job_state"))
    placed = trace.placements.group_by("job_key", "attempt").agg(
        pl.col("node").n_unique().cast(pl.Int64).alias("placed")
    )
    return left_join(left_join(held, jobs, "job_key"), placed, ["job_key", "attempt"]).select(
        "job_key", "attempt", "user_name", "partition", "gpus",
        pl.coalesce("job_state", "state").alias("state"),
        size_bucket(pl.col("gpus")).alias("size_bucket"),
        pl.coalesce("placed", "nodes").alias("nodes"),
        "gpu_time_s",
    )  # fmt: skip


def _measured(joined: dict[str, Joined], cluster: str) -> pl.DataFrame:
    """List the attempts with GPU samples, with the readings of their nodes' CPU and memory."""
    if not joined:
        return empty(UTILIZATION_MEASURED)
    online = pl.col("online_node_minutes")
    frame = joined["GPU"].attempts.with_columns(
        pl.lit(cluster).alias("cluster"),
        pl.when("names_gpus").then(pl.lit("gpu")).otherwise(pl.lit("node")).alias("attribution"),
        pl.when(online > 0).then(pl.col("idle_node_minutes") / online).alias("idle_share"),
        pl.col("mean_percent", "p50_percent", "p90_percent", "p95_percent").name.prefix("utilization_"),
    ).drop("mean_percent", "p50_percent", "p90_percent", "p95_percent")  # fmt: skip
    for resource in ("CPU", "memory"):
        of_node = joined[resource].attempts.select(
            "job_key", "attempt", pl.col("mean_percent", "p95_percent").name.prefix(f"{resource.lower()}_")
        )
        frame = frame.join(of_node, on=["job_key", "attempt"], how="left")
    return shaped(frame.sort("job_key", "attempt"), UTILIZATION_MEASURED)


def _percentiles(joined: dict[str, Joined], attempts: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Compute mean and percentiles of every group of GROUPINGS."""
    parts = [empty(UTILIZATION_PERCENTILES)]
    for resource, of_resource in joined.items():
        counted = of_resource.attempts.join(attempts, on=["job_key", "attempt"])
        alone, shared = pl.col("node_minutes") > pl.col("shared_node_minutes"), pl.col("shared_node_minutes") > 0
        counted = pl.concat(
            [
                counted.filter(alone).with_columns(pl.lit("dedicated").alias("sharing")),
                counted.filter(shared).with_columns(pl.lit("shared").alias("sharing")),
            ]
        )
        everything = pl.lit("all").alias("all")
        counted, readings = counted.with_columns(everything), of_resource.readings.with_columns(everything)
        for by in GROUPINGS:
            names = list(by) or ["all"]
            n = counted.group_by(names).agg(pl.struct("job_key", "attempt").n_unique().alias("attempts"))
            value, weight = pl.col("value"), pl.col("n")
            sums = readings.group_by(names).agg(
                weight.sum().alias("samples"), ((value * weight).sum() / weight.sum()).alias("mean_percent")
            )
            part = (
                quantiles(readings, names)
                .join(sums, on=names, nulls_equal=True)
                .join(n, on=names, nulls_equal=True)
                .sort(names)
                .with_columns(
                    pl.lit(cluster).alias("cluster"),
                    pl.lit(resource).alias("resource"),
                    pl.lit(" ".join(names)).alias("grouping"),
                )
            )
            parts.append(shaped(part.cast({pl.Categorical: pl.String}), UTILIZATION_PERCENTILES))
    return pl.concat(parts)


def _idle(attempts: pl.DataFrame, measured: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Compute idle but allocated GPU time: in total, by user, partition and job."""
    rows = measured.select("job_key", "attempt", "samples", "offline_samples", "idle_samples").join(
        attempts, on=["job_key", "attempt"]
    )
    rows = rows.with_columns(pl.lit("all").alias("all"))
    online, idle, held = pl.col("samples") - pl.col("offline_samples"), pl.col("idle_samples"), pl.col("gpu_time_s")
    parts = [
        rows.group_by(pl.col(dimension).alias("value"))
        .agg(
            pl.len().alias("attempts"),
            pl.when(held.count() > 0).then(held.sum()).alias("gpu_time_s"),
            (online.sum() * MINUTE_S).alias("measured_gpu_time_s"),
            (idle.sum() * MINUTE_S).alias("idle_gpu_time_s"),
            pl.when(online.sum() > 0).then(idle.sum() / online.sum()).alias("idle_share"),
        )
        .with_columns(
            pl.col("value").cast(pl.String), pl.lit(cluster).alias("cluster"), pl.lit(dimension).alias("dimension")
        )
        .sort("idle_gpu_time_s", "value", descending=[True, False])
        for dimension in ("all", "user_name", "partition", "job_key")
    ]
    return shaped(pl.concat(parts), IDLE_GPU_TIME)


def _by(attempts: pl.DataFrame, measured: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Summarize attempts by size and final state; measured figures are weighted by samples."""
    read = (
        "job_key", "attempt", "samples", "offline_samples", "utilization_mean_percent", "idle_node_minutes",
        "online_node_minutes",
    )  # fmt: skip
    rows = left_join(attempts, measured.select(read), ["job_key", "attempt"])
    total = rows["gpu_time_s"].sum()
    online = pl.col("samples") - pl.col("offline_samples")
    frame = (
        rows.group_by("size_bucket", "state")
        .agg(
            pl.col("job_key").n_unique().alias("jobs"),
            pl.len().alias("attempts"),
            pl.when(pl.col("gpu_time_s").count() > 0).then(pl.col("gpu_time_s").sum()).alias("gpu_time_s"),
            pl.col("samples").count().alias("measured_attempts"),
            pl.col("samples").sum().alias("samples"),
            ((pl.col("utilization_mean_percent") * online).sum() / online.sum()).alias("utilization_mean_percent"),
            (pl.col("idle_node_minutes").sum() / pl.col("online_node_minutes").sum()).alias("idle_share"),
        )
        .with_columns(
            pl.lit(cluster).alias("cluster"),
            (pl.col("gpu_time_s") / total if total else pl.lit(None, pl.Float64)).alias("gpu_time_share"),
            pl.col("utilization_mean_percent", "idle_share").fill_nan(None),
        )
        .sort("size_bucket", "state")
    )
    return shaped(frame, UTILIZATION_BY)
