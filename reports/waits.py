"""Section `waits`: who waits, when, and for what."""

from __future__ import annotations

import numpy as np
import polars as pl

from reports import figures
from reports import format as fmt
from reports.layout import Figure, Section, TableView, columns, cut
from reports.palette import CLASSES
from reports.source import Source

MOST_USERS = 25
SIZE_ORDER = ("0", "1", "2-4", "5-8", ">8")
_BY_COLUMNS = (
    "jobs|jobs|count", "never_ran|never ran|count", "wait_p50_s|median|duration", "wait_mean_s|mean|duration",
    "wait_p90_s|p90|duration", "wait_p95_s|p95|duration", "wait_p99_s|p99|duration",
    "over_10min_share|over 10 min|percent", "wait_gpu_time_weighted_s|mean by GPU time|duration",
    "wait_total_s|all waits|duration",
)  # fmt: skip


def waits(source: Source) -> Section:
    """Waits by size, partition, user and hour of the week; the fair-share / fragmentation split where it is known."""
    section = Section("waits", "Who waits and why")
    delays, by = source.rows("queueing_delay"), source.rows("queueing_by")
    if delays.is_empty() or by.is_empty():
        section.missing.append("The tables queueing_delay and queueing_by hold nothing for this cluster.")
        return section
    waited = delays.filter(pl.col("wait_s") >= 0)
    if waited.is_empty():
        section.missing.append("No job of this trace has both a submission and a start, so there is no wait to show.")
        return section
    section.sentences += _sentences(waited, by)
    section.figures.append(_by_size_figure(source, waited))
    if (heat := _heatmap(source, by)) is not None:
        section.figures.append(heat)
    section.tables += [
        table
        for dimension, title, label in (
            ("size_bucket", "Waits by GPUs asked for", "GPUs"),
            ("partition", "Waits by partition or virtual cluster", "partition"),
            ("user_name", "Waits by user: the longest in sum", "user"),
            ("state", "Waits by final state", "state"),
            ("month", "Waits by month of submission", "month"),
        )
        if (table := _by_table(source, by, dimension, title, label)) is not None
    ]
    _split(source, section, delays, by)
    return section


def by_size(column: str) -> pl.Expr:
    """Sort key that puts size buckets in order of size, unknown ones last."""
    return pl.col(column).replace_strict(SIZE_ORDER, range(len(SIZE_ORDER)), default=99, return_dtype=pl.Int64)


def _sentences(waited: pl.DataFrame, by: pl.DataFrame) -> list[str]:
    whole = by.filter(pl.col("dimension") == "all").to_dicts()[0]
    sentences = [
        f"Half of the jobs started within {fmt.duration(whole['wait_p50_s'])}, 5 % waited over "
        f"{fmt.duration(whole['wait_p95_s'])}; {fmt.percent(whole['over_10min_share'])} waited over 10 minutes."
    ]
    held = waited["held_s"].fill_null(0)
    total = int(waited["wait_s"].sum())
    if total and held.sum() > 0:
        sentences.append(
            f"{fmt.percent(float(held.sum()) / total)} of all waiting was before the job was eligible "
            "(dependency, hold or begin time): no scheduler can shorten that part."
        )
    if whole["never_ran"]:
        sentences.append(f"{whole['never_ran']:,} jobs never ran; they count in no wait.")
    return sentences


def _gpus(size: str) -> str:
    return "1 GPU" if size == "1" else f"{size} GPUs"


def _ordered_sizes(frame: pl.DataFrame) -> list[str]:
    present = set(frame["size_bucket"].drop_nulls().unique().to_list())
    return [size for size in SIZE_ORDER if size in present]


def _by_size_figure(source: Source, waited: pl.DataFrame) -> Figure:
    sizes = _ordered_sizes(waited)
    curves = {
        _gpus(size): (
            waited.filter(pl.col("size_bucket") == size)["wait_s"].to_numpy().astype(np.float64),
            CLASSES[SIZE_ORDER.index(size)],
        )
        for size in sizes
    }
    if not curves:
        curves = {"all jobs": (waited["wait_s"].to_numpy().astype(np.float64), "recorded")}
    return Figure(
        "waits_ecdf",
        "How long jobs wait, by size",
        "Share of jobs that waited at most so long (log axis; a wait of 0 counts as 1 s). "
        + ("" if sizes else "The log does not tell how many GPUs a job asked for. ")
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
        "When one waits: hour of the week",
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
        rows = rows.sort(
            pl.col("value").replace_strict(SIZE_ORDER, range(len(SIZE_ORDER)), default=99), nulls_last=True
        )
    shown, left_out = cut(rows.to_dicts(), MOST_USERS)
    return TableView(
        f"by_{dimension}",
        title,
        f"Jobs that started, unless the heading says otherwise. {source.caption(int(rows['jobs'].sum()), 'jobs')}",
        columns(f"value|{label}", *_BY_COLUMNS),
        shown,
        left_out,
    )


def _split(source: Source, section: Section, delays: pl.DataFrame, by: pl.DataFrame) -> None:
    """Fair share against fragmentation, seconds per cause, labelled by where the quota came from."""
    known = delays.filter(pl.col("fair_share_delay_s").is_not_null())
    sources = sorted(known["quota_source"].drop_nulls().unique().to_list())
    if known.is_empty() or not sources:
        section.missing.append(
            "Waits are not split into fair-share and fragmentation delay: no quota is given for this cluster, and the "
            "log does not name two groups (accounts or virtual clusters) from whose use quotas could be inferred."
        )
        return
    label = " and ".join(f"{kind} quotas" for kind in sources)
    fair, rest = float(known["fair_share_delay_s"].sum()), float(known["fragmentation_delay_s"].sum())
    if fair + rest <= 0:
        section.missing.append(f"With {label} no job has an eligible wait to split.")
        return
    section.sentences.append(
        f"By {label}, {fmt.percent(fair / (fair + rest))} of the eligible waiting is fair-share delay (the group was "
        f"at its quota) and {fmt.percent(rest / (fair + rest))} fragmentation delay (within it, but no fitting GPUs)."
    )
    sizes = by.filter(
        (pl.col("dimension") == "size_bucket")
        & pl.col("value").is_not_null()
        & (pl.col("fair_share_delay_s") + pl.col("fragmentation_delay_s") > 0)
    ).sort(by_size("value"))
    groups = {"all": (fair / (fair + rest), rest / (fair + rest))}
    for row in sizes.to_dicts():
        both = row["fair_share_delay_s"] + row["fragmentation_delay_s"]
        groups[_gpus(row["value"])] = (row["fair_share_delay_s"] / both, row["fragmentation_delay_s"] / both)
    section.figures.append(
        Figure(
            "waits_split",
            f"What one waits for ({label})",
            f"Shares of the eligible waiting time. Quotas are {' and '.join(sources)}"
            + (" (99th percentile of what the group used while busy)" if "inferred" in sources else "")
            + f". {source.caption(known.height, 'jobs')}",
            figures.shares(
                f"{source.slug}-split",
                ("fair-share delay", "fragmentation delay"),
                groups,
                ("fair_share", "fragmentation"),
            ),
            "Stacked shares of fair-share and fragmentation delay by size.",
        )
    )
