"""Sensitivity of the split into fair-share and fragmentation delay to the quotas, which most logs do not record."""

from __future__ import annotations

import polars as pl

from features.queueing import QUOTA_QUANTILE, WAITED, grouped_runs, philly_delay, waits_of_jobs
from features.resources.capacity import capacity
from features.resources.usage import without_runs
from features.tables.queueing import QUOTA_SENSITIVITY
from features.trace import Trace, read_trace, shaped
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store.folder import DataFolder

TABLES: tuple[Table, ...] = (QUOTA_SENSITIVITY,)
QUANTILES = (0.5, 0.75, 0.9, 0.95, QUOTA_QUANTILE, 1.0)


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute the table for the cluster of `settings` from the warehouse."""
    return from_trace(read_trace(data, settings.name, jobs=WAITED), settings)


def from_trace(trace: Trace, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute the table from canonical frames: one row per quantile; a single row where every quota is given."""
    held = grouped_runs(trace, settings)
    trace = without_runs(trace)
    size = capacity(trace, settings, held)  # used only to check whether it is known
    read = ("job_key", "gpus", "group_name", "waiting_from", "waiting_to")
    waits = waits_of_jobs(trace, settings, held).select(read)
    del trace
    parts = []
    for quantile in QUANTILES:
        delays = philly_delay(waits, settings, held, size, quantile).drop_nulls("fair_share_delay_s")
        parts.append(_summary(delays, quantile))
        if not (delays["quota_source"] == "inferred").any():
            break  # every quota is given, so the quantile has no effect
        del delays
    rows = pl.concat(parts).with_columns(
        pl.lit(settings.name).alias("cluster"), (pl.col("quantile") == QUOTA_QUANTILE).alias("is_default")
    )
    return {QUOTA_SENSITIVITY.name: shaped(rows.filter(pl.col("jobs") > 0), QUOTA_SENSITIVITY)}


def _summary(delays: pl.DataFrame, quantile: float) -> pl.DataFrame:
    fair, rest = pl.col("fair_share_delay_s").sum(), pl.col("fragmentation_delay_s").sum()
    inferred = (pl.col("quota_source") == "inferred").any()
    groups = pl.struct("group_name", "quota_gpus").unique()
    return delays.select(
        pl.when(inferred).then(pl.lit(quantile)).alias("quantile"),
        pl.when(inferred).then(pl.lit("inferred")).otherwise(pl.lit("given")).alias("quota_source"),
        groups.struct.field("quota_gpus").sum().alias("quota_gpus"),
        pl.len().cast(pl.Int64).alias("jobs"),
        fair.alias("fair_share_delay_s"),
        rest.alias("fragmentation_delay_s"),
        pl.when(fair + rest > 0).then(fair / (fair + rest)).alias("fair_share_delay_share"),
        (pl.col("philly_cause") == "fair share").sum().alias("fair_share_jobs"),
        (pl.col("philly_cause") == "fragmentation").sum().alias("fragmentation_jobs"),
    )
