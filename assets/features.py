"""Features: who waits and why, where GPUs are wasted, what fails. The package `features` computes them all."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import dagster as dg
import polars as pl

from assets import warehouse
from assets.shared.metadata import figure_metadata, materialization, numbers, plot, spread_metadata, table
from assets.shared.promises import computed_by
from assets.shared.resources import CLUSTERS, OWNERS, Baton
from features.catalog import FEATURES
from features.failures.signatures import tails_digest
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.store import derived
from traces.store import warehouse as inputs

READ = (
    "jobs", "attempts", "steps", "placements", "nodes", "gpu_utilization", "cpu_utilization", "memory_utilization",
    "agent_decisions", "agent_events",
)  # fmt: skip
# Tables plotted as lines over time or over use: x column, y columns and label, for rows of the whole cluster.
LINES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "utilization_allocated": ("hour_utc", ("allocated_share",), "share allocated"),
    "fragmentation": ("time_utc", ("free_gpus", "largest_gang_gpus", "largest_gang_nodes"), "GPUs or nodes"),
    "empty_nodes": ("utilization_from", ("empty_node_share_mean",), "share of empty nodes"),
    "load": ("day_utc", ("arrivals", "queued_mean", "running_mean"), "jobs"),
}
# Columns whose mean is recorded as one number per materialization.
MEANS = {
    "utilization_allocated": ("allocated_share",),
    "utilization_measured": ("utilization_mean_percent", "idle_share"),
    "load": ("arrivals", "queued_mean", "running_mean"),
}
FIRST_ROWS = 8
MOST_POINTS = 2_000


def analysis_assets(name: str, analysis: ModuleType) -> dg.AssetsDefinition:
    """Return one op per analysis, with one asset per table that it makes."""

    @dg.multi_asset(
        name=name,
        partitions_def=CLUSTERS,
        specs=[
            dg.AssetSpec(
                declared.name,
                deps=[warehouse.key(name) for name in READ],
                group_name="features",
                kinds={"polars", "parquet"},
                owners=OWNERS,
                description=declared.meaning,
                metadata=computed_by(analysis.__name__),
            )
            for declared in analysis.TABLES
        ],
    )
    def analysed(context: dg.AssetExecutionContext, baton: Baton) -> Iterator[dg.MaterializeResult[None]]:
        data, cluster = baton.folder, context.partition_key
        settings = baton.settings(cluster)
        code = code_digest(analysis.__name__)
        made_from = digest(inputs.made_from(data, cluster), settings, code, tails_digest(data, cluster))

        def compute() -> list[pl.DataFrame]:
            made = analysis.compute(data, settings)
            return [made[declared.name] for declared in analysis.TABLES]

        frames, reused = derived.read_or_compute(data, analysis.TABLES, cluster, made_from, compute)
        for declared, frame in zip(analysis.TABLES, frames, strict=True):
            yield materialization(
                key=dg.AssetKey(declared.name),
                rows=len(frame),
                reused=reused,
                version=made_from,
                **_figures(declared.name, frame),
                **_drawn(declared.name, frame),
                key_figures=figure_metadata(frame),
                first_rows=table(frame, rows=FIRST_ROWS),
            )

    return analysed


def _figures(name: str, frame: pl.DataFrame) -> dict[str, Any]:
    """Return the figures of a table that are worth plotting over all its materializations."""
    if name == "queueing_delay":
        return spread_metadata(frame["wait_s"], "wait")
    if name in MEANS and len(frame):
        rows = frame.filter(pl.col("scope") == "cluster") if "scope" in frame.columns else frame
        known = {column: rows[column].drop_nulls().mean() for column in MEANS[name]}
        return numbers(**{f"{column}_mean": value for column, value in known.items() if isinstance(value, float)})
    if name == "failures":
        return numbers(gpu_time_lost_h=float(frame["gpu_time_lost_s"].sum()) / 3600)
    return {}


def _drawn(name: str, frame: pl.DataFrame) -> dict[str, Any]:
    """Plot the lines of LINES, thinned for a long table; {} for other tables and empty ones."""
    if name not in LINES or frame.is_empty():
        return {}
    x, columns, label = LINES[name]
    rows = frame.filter(pl.col("scope") == "cluster") if "scope" in frame.columns else frame
    rows = rows.sort(x).gather_every(-(-len(rows) // MOST_POINTS))
    known = [column for column in columns if rows[column].null_count() < len(rows)]
    return {"plot": plot({c: (rows[x].to_list(), rows[c].to_list()) for c in known}, x=x, y=label)} if known else {}


ASSETS = [analysis_assets(name, analysis) for name, analysis in FEATURES.items()]
