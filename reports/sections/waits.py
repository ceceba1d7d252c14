"""Section `waits`: which jobs wait, when, and for what."""

from __future__ import annotations

import numpy as np
import polars as pl

from features.resources.sizes import by_size, size_in_words, size_names
from reports import figures
from reports import format as fmt
from reports.layout import Figure, Section, TableView, columns, cut
from reports.palette import CLASSES
from reports.parts.delay_split import split
from reports.parts.queue_order import locality, order
from reports.source import Source
from simulator.metrics import NOTICED_WAIT_S
from traces.counted import counted

MOST_USERS = 25
_BY_COLUMNS = (
    "jobs|jobs|count", "never_ran|never ran|count", "wait_p50_s|median|duration", "wait_mean_s|mean|duration",
    "wait_p90_s|p90|duration", "wait_p95_s|p95|duration", "wait_p99_s|p99|duration",
    f"over_10min_share|over {NOTICED_WAIT_S // 60} min|percent",
    "wait_gpu_time_weighted_s|mean, weighted by GPU time|duration",
    "wait_total_s|total wait|duration",
)  # fmt: skip


_ELIGIBLE = ("eligible_wait_mean_s|mean since eligible|duration", "eligible_wait_p95_s|p95 since eligible|duration")


def waits(source: Source) -> Section:
    """Return waits by size, partition, user and hour of the week, and what the jobs waited for."""
    section = Section("waits", "Who waits and why")
    delays, by = source.columns("queueing_delay", "wait_s", "size_bucket"), source.rows("queueing_by")
    if delays.is_empty() or by.is_empty():
        section.missing.append("The tables queueing_delay and queueing_by hold nothing for this cluster.")
        return section
    waited = delays.filter(pl.col("wait_s") >= 0)
    if waited.is_empty():
        section.missing.append("No job of this trace has both a submission and a start, so there is no wait to show.")
        return section
    section.sentences += _sentences(by)
    section.figures.append(_by_size_figure(source, waited))
    if (heat := _heatmap(source, by)) is not None:
        section.figures.append(heat)
    section.tables += [
        table
        for dimension, title, label in (
            ("size_bucket", f"Waits by {source.units} requested", source.units),
            ("partition", "Waits by partition or virtual cluster", "partition"),
            ("user_name", "Waits by user, longest total wait first", "user"),
            ("state", "Waits by final state", "state"),
            ("month", "Waits by month of submission", "month"),
        )
        if (table := _by_table(source, by, dimension, title, label)) is not None
    ]
    split(source, section, by)
    order(source, section)
    locality(source, section)
    return section


def _sentences(by: pl.DataFrame) -> list[str]:
    whole = by.filter(pl.col("dimension") == "all").to_dicts()[0]
    sentences = [
        f"Half of the jobs started within {fmt.duration(whole['wait_p50_s'])}, 5 % waited over "
        f"{fmt.duration(whole['wait_p95_s'])}; {fmt.percent(whole['over_10min_share'])} waited "
        f"over {NOTICED_WAIT_S // 60} minutes."
    ]
    if whole["never_ran"]:
        sentences.append(f"{counted(whole['never_ran'], 'job')} never ran; the waits exclude such jobs.")
    return sentences


def _ordered_sizes(source: Source, frame: pl.DataFrame) -> list[str]:
    present = set(frame["size_bucket"].drop_nulls().unique().to_list())
    return [size for size in size_names(source.binding) if size in present]


def _by_size_figure(source: Source, waited: pl.DataFrame) -> Figure:
    sizes = _ordered_sizes(source, waited)
    curves = {
        size_in_words(size, source.unit): (
            waited.filter(pl.col("size_bucket") == size)["wait_s"].to_numpy().astype(np.float64),
            CLASSES[size_names(source.binding).index(size)],
        )
        for size in sizes
    }
    if not curves:
        curves = {"all jobs": (waited["wait_s"].to_numpy().astype(np.float64), "recorded")}
    return Figure(
        "waits_ecdf",
        "How long jobs wait, by size",
        "Share of jobs with at most this wait (log axis; a wait of 0 counts as 1 s). "
        + ("" if sizes else f"The log does not record how many {source.units} a job requested. ")
        + source.caption(waited.height, "jobs"),
        figures.ecdf(f"{source.slug}-waits", curves, "wait from submission"),
        "Cumulative distribution of waits, one curve for each size; the table of waits by size has the figures.",
    )


def _heatmap(source: Source, by: pl.DataFrame) -> Figure | None:
    hours = by.filter((pl.col("dimension") == "hour_of_week") & pl.col("value").is_not_null() & (pl.col("jobs") > 0))
    if hours.is_empty():
        return None
    grid = np.full(7 * 24, np.nan)
    grid[hours["value"].cast(pl.Int64).to_numpy()] = hours["wait_p90_s"].cast(pl.Float64).to_numpy()
    return Figure(
        "waits_heatmap",
        "Waits by hour of the week",
        f"90th percentile of the wait by hour of submission, local time ({fmt.text(source.timezone)}); blank where "
        f"nothing was submitted. {source.caption(int(hours['jobs'].sum()), 'jobs')}",
        figures.heatmap(f"{source.slug}-hours", grid.reshape(7, 24)),
        "Heat map of the 90th percentile of the wait over the hours of the week.",
    )


def _by_table(source: Source, by: pl.DataFrame, dimension: str, title: str, label: str) -> TableView | None:
    rows = by.filter(pl.col("dimension") == dimension)
    if rows["value"].null_count() == rows.height:
        return None
    if dimension == "user_name":
        rows = source.hide(rows.rename({"value": "user_name"})).rename({"user_name": "value"})
        rows = rows.sort("wait_total_s", descending=True)
    elif dimension == "size_bucket":
        rows = rows.sort(by_size("value"))
    shown, left_out = cut(rows.to_dicts(), MOST_USERS)
    return TableView(
        f"by_{dimension}",
        title,
        f"Jobs that started; “never ran” counts the others. {source.caption(int(rows['jobs'].sum()), 'jobs')}",
        columns(f"value|{label}", *_BY_COLUMNS, *(_ELIGIBLE if by["held_s"].sum() else ())),
        shown,
        left_out,
    )
