"""Section `load`: arrivals and running jobs by day and month, and drift from week to week."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from reports import figures
from reports import format as fmt
from reports.drift import FEATURES, list_features
from reports.layout import Figure, Section, TableView, columns
from reports.source import Source
from reports.usage import month_table
from traces.counted import counted

SHORTEST_PLOT = 3  # days


def load(source: Source) -> Section:
    """Return arrivals, demand and concurrency over time, and the drift of every feature from week to week."""
    section = Section("load", "Load and drift")
    days = source.rows("load")
    if days.is_empty():
        no_submission = "The log holds no submission, so its load is unknown."
        section.missing.append(source.why_empty("load", "submit_utc", no_submission))
        return section
    days = days.sort("day_utc")
    section.sentences.append(_sentence(days))
    if days["running_peak"].max():
        section.sentences.append(_running(days))
    else:
        section.missing.append("The number of jobs that ran or queued at once is unknown: the log holds no start.")
    if days.height >= SHORTEST_PLOT:
        section.figures.append(_arrivals(source, days))
        if days["running_peak"].max():
            section.figures.append(_concurrency(source, days))
    else:
        section.missing.append("The window is too short for a plot over time.")
    quiet = days.filter(pl.col("arrivals") == 0).height
    if quiet:
        section.sentences.append(f"On {fmt.count(quiet)} of the {counted(days.height, 'day')} nothing was submitted.")
    month_table(source, section)
    _drift(source, section)
    return section


def _sentence(days: pl.DataFrame) -> str:
    last = days.filter(pl.col("arrivals") > 0)["day_utc"].max()  # on later days the last jobs only run out
    arrivals = days.filter(pl.col("day_utc") <= last)["arrivals"]
    peak = days.sort("arrivals", descending=True).to_dicts()[0]
    variation = days["interarrival_variation"].median()
    bursts = (
        f"; on the median day the time between submissions varies {variation:.1f} times as much as for Poisson arrivals"
        if isinstance(variation, float)
        else ""
    )
    return (
        f"{float(str(arrivals.mean())):,.0f} jobs a day are submitted on average, and at most {peak['arrivals']:,} "
        f"({fmt.day(peak['day_utc'])}){bursts}."
    )


def _running(days: pl.DataFrame) -> str:
    running, queued = (float(str(days[f"{what}_mean"].mean())) for what in ("running", "queued"))
    peak = float(str(days["queued_peak"].max()))
    return f"On average {running:,.1f} jobs run and {queued:,.1f} jobs queue at once (at most {fmt.count(peak)} queue)."


def _floats(days: pl.DataFrame, column: str) -> NDArray[np.float64]:
    return days[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _arrivals(source: Source, days: pl.DataFrame) -> Figure:
    return Figure(
        "arrivals",
        "Submissions a day",
        f"Jobs submitted per day (UTC). {source.caption(days.height, 'days')}",
        figures.over_time(
            f"{source.slug}-arrivals",
            days["day_utc"].to_list(),
            {"submitted": (_floats(days, "arrivals"), "recorded")},
            "jobs a day",
            fill=True,
        ),
        "Jobs submitted a day over time.",
    )


def _concurrency(source: Source, days: pl.DataFrame) -> Figure:
    return Figure(
        "concurrency",
        "Running and queued jobs",
        f"Daily means. Queued: eligible but not yet started. {source.caption(days.height, 'days')}",
        figures.over_time(
            f"{source.slug}-concurrency",
            days["day_utc"].to_list(),
            {
                "running": (_floats(days, "running_mean"), "allocated"),
                "queued": (_floats(days, "queued_mean"), "gang"),
            },
            "jobs",
        ),
        "Running and queued jobs over time.",
    )


def _drift(source: Source, section: Section) -> None:
    """Compare each feature of the newest week with the week before, and count the shifts over the whole log."""
    drift = source.rows("drift")
    if drift.is_empty():
        section.missing.append("Drift is unknown: it needs two weeks with submissions.")
        return
    weeks = drift["week_utc"].unique().sort().to_list()
    by = (
        drift.sort("week_utc")
        .group_by("feature", maintain_order=True)
        .agg(
            pl.len().alias("weeks"),
            pl.col("is_shifted").sum().alias("shifted"),
            pl.col("psi").median().alias("psi_median"),
            pl.col("psi").last().alias("psi_last"),
            pl.col("ks").last().alias("ks_last"),
            pl.col("ks_p").last().alias("ks_p_last"),
            pl.col("week_utc").last().alias("week_utc"),
        )
        .sort("psi_last", descending=True)
    )
    last = drift.filter((pl.col("week_utc") == weeks[-1]) & pl.col("is_shifted"))
    shifted = last.sort("psi", descending=True)["feature"].to_list()
    last_moment = source.window[1]
    is_cut = last_moment is not None and last_moment < weeks[-1] + timedelta(days=7)
    section.sentences.append(
        f"In the week of {fmt.day(weeks[-1])} "
        + ("(cut short by the end of the log) " if is_cut else "")
        + (
            f"{list_features(shifted)} shifted compared with the week before (population stability index over 0.25)."
            if shifted
            else "no feature shifted compared with the week before (population stability index at most 0.25)."
        )
    )
    section.tables.append(
        TableView(
            "drift",
            "Week over week, by feature",
            "Population stability index (PSI) of a week's jobs compared with the previous week with jobs, in ten bins "
            "of equal mass; a PSI over 0.25 counts as a shift. KS: Kolmogorov-Smirnov distance and its asymptotic "
            f"p-value, for numbers only. {source.caption(len(weeks), 'weeks')}",
            columns(
                "name|feature", "weeks|weeks compared|count", "shifted|with a shift|count",
                "psi_median|median PSI|number", "week_utc|last week|utc", "psi_last|last PSI|number",
                "ks_last|last KS|number", "ks_p_last|p|number",
            ),
            [{**row, "name": FEATURES.get(row["feature"], row["feature"])} for row in by.to_dicts()],
        )
    )  # fmt: skip
