"""How much of the cluster is held, and what the held GPUs do: allocated everywhere, measured where samples exist."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from features.tables import UTILIZATION_ALLOCATED, UTILIZATION_BY, UTILIZATION_MEASURED
from features.trace import Trace, read_trace, shaped
from features.usage import Capacity, Int64s, Steps, capacity, runs, size_bucket, steps_of
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store import DataFolder, empty, read

TABLES: tuple[Table, ...] = (UTILIZATION_ALLOCATED, UTILIZATION_MEASURED, UTILIZATION_BY)
HOUR_S = 3600
MEASURED_SQL = (Path(__file__).parent / "sql" / "join_gpu_samples.sql").read_text(encoding="utf-8")


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """The three tables for the cluster of `settings`; the samples are joined inside the warehouse."""
    return from_trace(read_trace(data, settings.name), settings, read(data, MEASURED_SQL, (settings.name,)))


def from_trace(trace: Trace, settings: ClusterSettings, joined: pl.DataFrame | None = None) -> dict[str, pl.DataFrame]:
    """The three tables from canonical frames; `joined` is the result of MEASURED_SQL, None without samples."""
    held = runs(trace, settings)
    measured = empty(UTILIZATION_MEASURED) if joined is None else shaped(joined, UTILIZATION_MEASURED)
    return {
        UTILIZATION_ALLOCATED.name: allocated(held, capacity(trace, settings, held), settings.name),
        UTILIZATION_MEASURED.name: measured,
        UTILIZATION_BY.name: _by(trace, held, measured, settings.name),
    }


def allocated(held: pl.DataFrame, size: Capacity, cluster: str) -> pl.DataFrame:
    """What is held in each hour from the first start to the last end (`held`: see `runs`), in all and by partition."""
    if held.is_empty():
        return empty(UTILIZATION_ALLOCATED)
    unit = "GPU" if size.gpus is not None else "node"
    amount = "gpus" if unit == "GPU" else "nodes"
    first, last = int(str(held["start_epoch"].min())), int(str(held["end_epoch"].max()))
    edges = np.arange(first // HOUR_S * HOUR_S, last + HOUR_S, HOUR_S, dtype=np.int64)
    if len(edges) < 2:  # one instant on the hour
        edges = np.array([edges[0], edges[0] + HOUR_S])
    whole = _capacity_s(size, unit, edges)
    parts = [_hours(held, amount, edges, whole).with_columns(pl.lit("cluster").alias("scope"))]
    for (name,), rows in held.group_by("partition", maintain_order=True):
        part = _hours(rows, amount, edges, whole).filter(pl.col("allocated_s") > 0)
        parts.append(part.with_columns(pl.lit("partition").alias("scope"), pl.lit(name, pl.String).alias("partition")))
    frame = pl.concat(parts, how="diagonal").with_columns(
        pl.lit(cluster).alias("cluster"),
        pl.lit(unit).alias("unit"),
        pl.lit(size.source).alias("capacity_source"),
        pl.when(pl.col("capacity_s") > 0).then(pl.col("allocated_s") / pl.col("capacity_s")).alias("allocated_share"),
    )
    return shaped(frame.sort("scope", "partition", "hour_utc"), UTILIZATION_ALLOCATED)


def _hours(held: pl.DataFrame, amount: str, edges: Int64s, whole: Int64s | None) -> pl.DataFrame:
    """Unit seconds held between neighbouring edges (epoch s), exactly."""
    return pl.DataFrame(
        {
            "hour_utc": pl.from_epoch(pl.Series(edges[:-1]), "s").cast(pl.Datetime("us")),
            "allocated_s": np.diff(steps_of(held, amount).area(edges)),
            "capacity_s": pl.Series([None] * (len(edges) - 1), dtype=pl.Int64) if whole is None else pl.Series(whole),
        }
    )


def _capacity_s(size: Capacity, unit: str, edges: Int64s) -> Int64s | None:
    dated: Steps | None = size.gpu_steps() if unit == "GPU" else size.node_steps
    if dated is not None:
        return np.diff(dated.area(edges))
    units = size.gpus if unit == "GPU" else size.nodes
    return None if units is None else np.diff(edges) * units


def _by(trace: Trace, held: pl.DataFrame, measured: pl.DataFrame, cluster: str) -> pl.DataFrame:
    """Attempts by size and final state, measured figures weighted by samples."""
    jobs = trace.jobs.select("job_key", pl.col("state").alias("job_state"))
    seconds = pl.coalesce("run_s", pl.col("end_epoch") - pl.col("start_epoch"))
    logged = trace.attempts.select("job_key", "attempt", "run_s", "gpu_time_s")
    rows = (
        held.join(jobs, on="job_key", how="left")
        .join(logged, on=["job_key", "attempt"], how="left")
        .join(measured.drop("cluster"), on=["job_key", "attempt"], how="left")
        .with_columns(
            pl.coalesce("job_state", "state").alias("state"),
            size_bucket(pl.col("gpus")).alias("size_bucket"),
            pl.coalesce("gpu_time_s", pl.col("gpus") * seconds).alias("gpu_time_s"),
        )
    )
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
