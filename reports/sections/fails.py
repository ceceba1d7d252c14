"""Section `fails`: how jobs end, and how long failing jobs ran."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.resources.sizes import by_size, size_in_words, size_names
from reports import figures
from reports import format as fmt
from reports.layout import Figure, Section, TableView, columns, cut
from reports.source import Source
from traces.counted import counted

MOST_USERS = 25
SHOWN_STATES = 6  # the palette has colours for this many; the rest is "other"
_RUNTIME = ("runtime_p50_s|ran, median|duration", "runtime_p90_s|p90|duration", "runtime_p95_s|p95|duration")


def fails(source: Source) -> Section:
    """Return final states by jobs and by time held, reasons, and runtime to failure."""
    section = Section("fails", "What fails")
    by, bad = source.rows("failures_by"), source.rows("failures")
    if by.is_empty():
        no_start = "The table failures_by holds nothing for this cluster: no job of it has a start."
        section.missing.append(source.why_empty("failures_by", "start_utc", no_start))
        return section
    states, unit = _states(source, by), source.unit
    if (states["value"] == "UNKNOWN").all():
        section.missing.append("The log does not record how its jobs ended.")
    else:
        section.sentences.append(_sentence(source, states))
    if source.read("SELECT count(*) AS n FROM jobs WHERE cluster = ? AND state_is_inferred")["n"][0]:
        section.missing.append(
            "The log holds no state for some or all jobs; the report infers it from times, limit and exit code."
        )
    section.figures.append(_states_figure(source, states))
    section.tables.append(
        TableView(
            "states",
            f"Final states by jobs and {unit} time",
            f"Shares of all jobs that ran and of all {unit} time{_total(states, unit)}. "
            + source.caption(int(states["jobs"].sum()), "jobs"),
            columns(
                "value|state|name", "jobs|jobs|count", "jobs_share|of jobs|percent", "users|users|count",
                *_times(states, unit), *_RUNTIME,
            ),
            states.to_dicts(),
        )
    )  # fmt: skip
    if bad.is_empty():
        section.missing.append("No attempt of this trace ended badly.")
        return section
    _failures(source, section, by, bad)
    return section


def _states(source: Source, by: pl.DataFrame) -> pl.DataFrame:
    """Return the final states, most jobs first, with `hours` and `time_share` of the main resource."""
    held = source.jobs.group_by(pl.col("state").cast(pl.String).alias("value")).agg(
        pl.when(pl.col("unit_time_s").count() > 0).then(pl.col("unit_time_s").sum() / 3600).alias("hours")
    )
    states = by.filter(pl.col("dimension") == "state").join(held, on="value", how="left", maintain_order="left")
    total = states["hours"].sum()
    share = pl.col("hours") / total if total else pl.lit(None, pl.Float64)
    return states.with_columns(share.alias("time_share")).sort("jobs", descending=True)


def _sentence(source: Source, states: pl.DataFrame) -> str:
    completed = states.filter(pl.col("value") == "COMPLETED")
    jobs = float(completed["jobs_share"].sum() or 0)
    words = f"{fmt.percent(jobs)} of the jobs that ran completed"
    if states["time_share"].null_count() < states.height:
        return f"{words}, with {fmt.percent(float(completed['time_share'].sum() or 0))} of the {source.unit} time."
    return f"{words}; the log does not record what they held."


def _total(states: pl.DataFrame, unit: str) -> str:
    """Return what all attempts held of the main resource, in parentheses; '' if nothing is known."""
    total = float(states["hours"].sum() or 0)
    return f" ({fmt.number(total)} {unit} h, with running jobs counted until the end of the log)" if total else ""


def _times(states: pl.DataFrame, unit: str) -> tuple[str, ...]:
    """Return the columns of the time held: of GPUs if any were held, and of the main resource if it is another."""
    others = () if unit == "GPU" else (f"hours|{unit} hours|number", f"time_share|of {unit} time|percent")
    has_gpus = unit == "GPU" or bool(states["gpu_time_s"].sum())
    return (*others, *(("gpu_time_s|GPU time|gpu_time", "gpu_time_share|of GPU time|percent") if has_gpus else ()))


def _states_figure(source: Source, states: pl.DataFrame) -> Figure:
    named = states["value"].to_list()[:SHOWN_STATES]
    groups = {}
    for label, column in (("jobs", "jobs_share"), (f"{source.unit} time", "time_share")):
        values = dict(zip(states["value"].to_list(), states[column].fill_null(0).to_list(), strict=True))
        if sum(values.values()) > 0:
            groups[label] = [values[name] for name in named] + [
                max(0.0, sum(values.values()) - sum(values[n] for n in named))
            ]
    labels = [*(str(name) for name in named), "other"]
    if not any(group[-1] > 1e-9 for group in groups.values()):
        labels, groups = labels[:-1], {label: group[:-1] for label, group in groups.items()}
    return Figure(
        "states",
        "How jobs end",
        f"Shares of the final states, by jobs and by {source.unit} time. "
        + source.caption(int(states["jobs"].sum()), "jobs"),
        figures.shares(f"{source.slug}-states", labels, groups, labels),
        "Stacked shares of final states; the table of states has the figures.",
    )


def _failures(source: Source, section: Section, by: pl.DataFrame, bad: pl.DataFrame) -> None:
    lost = bad["unit_time_lost_s"].sum()
    cost = f" after holding {fmt.unit_time(float(lost), source.unit)}" if lost else ""
    median = _median(bad, "runtime_to_failure_s")
    soon = "" if median is None else f", half of them within {fmt.duration(median)} of their start"
    section.sentences.append(f"{counted(bad.height, 'attempt')} ended badly{cost}{soon}.")
    curves: dict[str, tuple[NDArray[np.float64], str]] = {}
    ended = bad.filter(pl.col("runtime_to_failure_s") >= 0).group_by("state", maintain_order=True)
    for state, rows in sorted(ended, key=lambda item: -item[1].height):
        if len(curves) < 4:
            curves[str(state[0])] = (rows["runtime_to_failure_s"].to_numpy().astype(np.float64), str(state[0]))
    if curves:
        section.figures.append(
            Figure(
                "runtime_to_failure",
                "Runtime to failure",
                "Share of attempts that ended within this run time, for the four most frequent bad states. "
                + source.caption(bad.height, "attempts"),
                figures.ecdf(f"{source.slug}-rtf", curves, "time run until failure", of="attempts"),
                "Cumulative distribution of runtime to failure by state.",
            )
        )
    _retries(source, section)
    section.tables += [
        _bad_ends(source, by, bad, dimension, title, label)
        for dimension, title, label in (
            ("reason", "Reasons", "reason"),
            ("size_bucket", "Bad ends by size", source.units),
            ("user_name", "Bad ends by user", "user"),
        )
        if not by.filter((pl.col("dimension") == dimension) & pl.col("value").is_not_null()).is_empty()
    ]
    _causes(source, section, bad)


def _bad_ends(source: Source, by: pl.DataFrame, bad: pl.DataFrame, dimension: str, title: str, label: str) -> TableView:
    """Return attempts that ended badly by one dimension; reasons also by size, as in the Philly study."""
    rows = by.filter(pl.col("dimension") == dimension).sort("attempts", descending=True)
    shown: tuple[str, ...] = ()
    if dimension == "reason":
        sizes = [size for size in size_names(source.binding) if size in set(bad["size_bucket"].drop_nulls().to_list())]
        demand = bad.group_by("reason").agg(
            (pl.col("size_bucket") == size).sum().alias(f"with {size}") for size in sizes
        )
        rows = rows.join(demand, left_on="value", right_on="reason", how="left")
        shown = tuple(f"with {size}|{size_in_words(size, source.unit)}|count" for size in sizes)
    elif dimension == "user_name":
        rows = source.hide(rows.rename({"value": "user_name"})).rename({"user_name": "value"})
    kept, left_out = cut(rows.to_dicts(), MOST_USERS)
    return TableView(
        f"failures_{dimension}",
        title,
        "Attempts that ended badly. Per job and per user: attempts for each job or user that had any. Shares are of "
        f"all jobs that ran, of all {source.unit} time, and of the run time of attempts that ended badly. "
        + source.caption(int(rows["attempts"].sum()), "attempts"),
        columns(
            f"value|{label}|name", "attempts|attempts|count", "jobs|jobs|count", "users|users|count",
            "repetition_per_job|per job|number", "repetition_per_user|per user|number", "jobs_share|of jobs|percent",
            f"unit_time_share|of {source.unit} time|percent", "runtime_share|of time to failure|percent", *_RUNTIME,
            *shown,
        ),
        kept,
        left_out,
    )  # fmt: skip


def _retries(source: Source, section: Section) -> None:
    """Say how often jobs ran again, and how often they then completed."""
    retries = source.rows("retries")
    whole = retries.filter(pl.col("dimension") == "all").to_dicts() if not retries.is_empty() else []
    if not whole or not whole[0]["retried_jobs"]:
        section.missing.append("No job ran more than once, or the log keeps only the last attempt of each.")
        return
    (all_,) = whole
    section.sentences.append(
        f"{fmt.percent(all_['retried_share'])} of the jobs ran more than once; of these "
        f"{fmt.percent(all_['recovered_jobs'] / all_['retried_jobs'])} completed in the end."
    )
    is_whole = pl.col("dimension") == "all"
    rows = pl.concat([retries.filter(is_whole), retries.filter(~is_whole).sort(by_size("value"))])
    section.tables.append(
        TableView(
            "retries",
            "Retries by size",
            f"Recovered: retried jobs that completed in the end. {source.caption(all_['jobs'], 'jobs')}",
            columns(
                f"value|{source.units}", "jobs|jobs|count", "attempts_mean|attempts per job|number",
                "attempts_most|most|count",
                "retried_jobs|retried|count", "retried_share|of jobs|percent", "recovered_jobs|recovered|count",
                f"retry_unit_time_s|{source.unit} time after the first attempt|{source.time_kind}",
            ),
            rows.to_dicts(),
        )
    )  # fmt: skip


def _causes(source: Source, section: Section, bad: pl.DataFrame) -> None:
    """Show where the causes most likely lie, with the evidence."""
    unsigned = bad.filter(pl.col("reason") == "no signature").height
    again = bad.filter(pl.col("reason") == "failed or preempted").height
    rows = (
        bad.group_by("category", "reason_source")
        .agg(
            pl.len().alias("attempts"),
            pl.col("unit_time_lost_s").sum().alias("lost_s"),
            pl.col("is_hopeless").sum().alias("hopeless"),
        )
        .sort("attempts", descending=True)
    )
    if again:
        section.missing.append(
            f"{fmt.percent(again / bad.height)} of the bad ends are attempts that ran again and have no status in the "
            "log. They may have failed or been preempted."
        )
    if unsigned:
        section.missing.append(
            f"{fmt.percent(unsigned / bad.height)} of the bad ends match no failure signature: give the tails of "
            "stdout and stderr to infer their reasons."
        )
    section.tables.append(
        TableView(
            "causes",
            "Where the cause most likely lies",
            "Hopeless: the same run would fail again, as shown by a log signature or exit status 2, 126 or 127 "
            "(not a 127 that may be 255). "
            + source.caption(bad.height, "attempts"),
            columns(
                "category|cause", "reason_source|evidence", "attempts|attempts|count",
                f"lost_s|{source.unit} time|{source.time_kind}",
                "hopeless|hopeless|count",
            ),
            rows.to_dicts(),
        )
    )  # fmt: skip


def _median(frame: pl.DataFrame, column: str) -> float | None:
    value = frame[column].median()
    return float(value) if isinstance(value, int | float) else None
