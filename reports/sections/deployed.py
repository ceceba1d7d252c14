"""Section `deployed`: what the released policy did live, from its agent's log, and how good its predictions were."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl

from features.conventions import BLOCK_DAYS
from reports import figures
from reports import format as fmt
from reports.layout import Figure, Section, TableView, columns, cut
from reports.source import Source
from simulator.metrics import NOTICED_WAIT_S
from traces.counted import counted

MOST_ROWS = 50
EVERY, PLAN = "all", "plan"  # values of decided_by
_MINUTES = NOTICED_WAIT_S // 60
_INTERVALS = {"interruption_ci": "interruption{}_h", "overlap_ci": "overlap{}_h", "zero_ci": "zero_share{}"}


def deployed(source: Source) -> Section:
    """Return handovers by version with intervals, each link, and actual waits compared with predicted ones."""
    section = Section("deployed", "Deployed policy")
    links, policies = source.rows("deployed_links"), source.rows("deployed_policies")
    if policies.is_empty():
        section.applies = False
        section.missing.append(
            "No log of baton-agent was read for this cluster: `baton ingest` takes its decisions.jsonl."
        )
        return section
    rows = policies.to_dicts()
    whole = next(row for row in rows if row["decided_by"] == EVERY)
    _sentences(section, links, whole)
    _which_decided(section, rows)
    window = _window(links)
    section.tables.append(_by_version(source, rows, whole, window))
    _plans(source, section, rows, whole, window)
    _predictions(source, section, links, rows, window)
    if not links.is_empty():
        section.tables.append(_by_link(source, links, window))
    return section


def _window(links: pl.DataFrame) -> tuple[datetime, datetime] | None:
    """Return the first and last known time of any job; None if there is none."""
    times = [links[name] for name in ("submit_utc", "start_utc", "end_utc")] if not links.is_empty() else []
    known = [time for column in times for time in column.drop_nulls()]
    return (min(known), max(known)) if known else None


def _sentences(section: Section, links: pl.DataFrame, whole: dict[str, Any]) -> None:
    chains = links["chain"].n_unique() if not links.is_empty() else 0
    jobs, handovers = counted(links.height, "job"), counted(whole["handovers"], "handover")
    maintained = f"baton-agent maintained {counted(chains, 'chain')} of {jobs} with {whole['decisions']:,} decisions"
    if not whole["handovers"]:
        section.sentences.append(f"{maintained}; no link has taken over from another yet.")
        return
    section.sentences.append(
        f"{maintained}. Over {handovers} the mean interruption was {fmt.number(whole['interruption_h'])} h and the "
        f"mean overlap {fmt.number(whole['overlap_h'])} h; {fmt.percent(whole['zero_share'])} had no interruption."
    )
    waits = links.filter(pl.col("handover_utc").is_not_null() & (pl.col("dependency") == ""))["wait_s"].drop_nulls()
    mean_s = waits.mean()
    observed = (
        f"The {counted(len(waits), 'successor')} without a dependency waited {fmt.duration(mean_s)} on average from "
        "submission."
        if isinstance(mean_s, float)
        else "No successor without a dependency has started."
    )
    section.sentences.append(
        "The log cannot show the interruption under reactive submission (at the predecessor's end), since no job was "
        "submitted then. If a later submission starts no earlier, that interruption is at least as long. "
        f"{observed}"
    )


def _which_decided(section: Section, rows: list[dict[str, Any]]) -> None:
    """Say which versions decided, and how often the agent's own rules did."""
    versions = [row for row in rows if row["decided_by"] == "policy"]
    plans = [row for row in rows if row["decided_by"] == PLAN]
    policies = [
        f"{fmt.text(row['policy'])} {fmt.text(row['version'])} at {fmt.number(row['setting'])} "
        f"({counted(row['decisions'], 'decision')})"
        for row in versions
    ]
    if plans:
        policies.append(f"plans ({counted(sum(row['decisions'] for row in plans), 'decision')})")
    others = sum(row["decisions"] for row in rows if row["decided_by"] not in ("policy", PLAN, EVERY))
    section.sentences.append(
        f"Policies that decided: {', '.join(policies) or 'none'}. The agent's own rules made "
        f"{counted(others, 'decision')} that a policy could not make."
    )


def _by_version(
    source: Source, rows: list[dict[str, Any]], whole: dict[str, Any], window: tuple[datetime, datetime] | None
) -> TableView:
    """Return counts, interruption and overlap of each version that decided, and of all together."""
    few = f" Only {counted(whole['blocks'], 'such block')}: intervals are indicative." * bool(whole["indicative"])
    return TableView(
        "deployed_policies",
        "Interruption and overlap, by deciding policy",
        "Means per handover; no interruption: share of handovers. 95 % intervals by moving-block bootstrap in blocks "
        f"of {BLOCK_DAYS} days, if the log is longer than one block. Decided by none: submitted without a decision (a "
        f"first link, the last moment, a retry).{few} {source.caption(whole['handovers'], 'handovers', window=window)}",
        columns(
            *_who(rows),
            "decisions|decisions|count", "submissions|submitted|count", "handovers|handovers|count",
            "interruption_h|interruption, h|number", "interruption_ci|95 %|interval",
            "overlap_h|overlap, h|number", "overlap_ci|95 %|interval",
            "zero_share|no interruption|percent", "zero_ci|95 %|interval",
        ),
        [_with_intervals(row) for row in rows],
    )  # fmt: skip


def _plans(
    source: Source,
    section: Section,
    rows: list[dict[str, Any]],
    whole: dict[str, Any],
    window: tuple[datetime, datetime] | None,
) -> None:
    """Compare actual with predicted interruptions, by the limit that a plan chose."""
    plans = [row for row in rows if row["decided_by"] == PLAN]
    if not plans:
        return
    if whole["planned"]:
        section.sentences.append(
            f"Plans expected {fmt.number(whole['expected_interruption_h'])} h of interruption at "
            f"{counted(whole['planned'], 'handover')}; {fmt.number(whole['planned_interruption_h'])} h happened."
        )
    section.tables.append(
        TableView(
            "plans",
            "Predicted against actual interruption, by planned limit",
            "Means per handover to a link that a plan submitted. Predicted: the mean over the plan's futures at the "
            f"submission. {source.caption(whole['planned'], 'handovers', window=window)}",
            columns(
                "limit_s|limit|duration", "setting|overlap weight|number", "decisions|decisions|count",
                "submissions|submitted|count", "planned|handovers|count",
                "expected_interruption_h|predicted, h|number", "planned_interruption_h|actual, h|number",
            ),
            plans,
        )
    )  # fmt: skip


def _who(rows: list[dict[str, Any]]) -> list[str]:
    """The columns that say what decided; plans differ by the limit that they chose."""
    limit = ["limit_s|limit|duration"] * any(row["limit_s"] for row in rows)
    return [
        "decided_by|decided by|name", "policy|policy|name", "version|version|code", "setting|setting|number", *limit,
    ]  # fmt: skip


def _with_intervals(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its intervals as [low, high]."""
    ends = {name: [row[figure.format(end)] for end in ("_low", "_high")] for name, figure in _INTERVALS.items()}
    return row | {name: None if None in both else both for name, both in ends.items()}


def _predictions(
    source: Source,
    section: Section,
    links: pl.DataFrame,
    rows: list[dict[str, Any]],
    window: tuple[datetime, datetime] | None,
) -> None:
    """Compare actual with predicted waits: how many were as predicted, a plot, and a table by version."""
    judged = links.filter(pl.col("band").is_not_null()) if not links.is_empty() else links
    if judged.is_empty():
        section.missing.append("No job with a predicted wait and without a dependency has started yet.")
        return
    whole = next(row for row in rows if row["decided_by"] == EVERY)
    section.sentences.append(
        f"Of {counted(whole['predicted'], 'predicted wait')}, {fmt.percent(whole['within_share'])} were as predicted: "
        f"between the estimate by expected run times and the estimate by time limits, or less than {_MINUTES} minutes "
        f"outside. {fmt.percent(whole['before_share'])} were shorter and {fmt.percent(whole['after_share'])} longer "
        "than predicted."
    )
    ending = source.caption(judged.height, "waits", window=window)
    section.figures.append(_drawn(source, judged, ending))
    section.tables.append(
        TableView(
            "predictions",
            "Predicted against actual waits, by deciding policy",
            "Jobs with a prediction and without a dependency that have started. Jobs that still wait are excluded, so "
            "long waits appear late. Error: actual minus predicted wait, as mean and mean absolute value. "
            f"{ending}",
            columns(
                *_who(rows),
                "predicted|waits|count", "wait_mean_s|actual, mean|duration",
                "estimate_mean_s|by limits, mean|duration", "estimate_error_s|error|duration",
                "estimate_absolute_error_s|absolute|duration", "expected_mean_s|by run times, mean|duration",
                "expected_error_s|error|duration", "expected_absolute_error_s|absolute|duration",
                "within_share|as predicted|percent", "before_share|shorter|percent", "after_share|longer|percent",
            ),
            [row for row in rows if row["predicted"]],
        )
    )  # fmt: skip


def _drawn(source: Source, judged: pl.DataFrame, ending: str) -> Figure:
    """Plot the predicted band and the actual wait of each job."""
    both = ("start_estimate_s", "start_expected_s")
    low, high, real = (
        judged.select(values.cast(pl.Float64))[:, 0].to_numpy()
        for values in (pl.min_horizontal(both), pl.max_horizontal(both), pl.col("wait_s"))
    )
    return Figure(
        "predicted",
        "Predicted against actual waits",
        "One line per job, from the wait predicted at submission by expected run times to the wait predicted by time "
        f"limits (dot: the longer). On the broken line the predicted wait equals the actual one. {ending}",
        figures.predicted(f"{source.slug}-predicted", low, high, real, (judged["band"] == "within").to_numpy()),
        "Actual wait over predicted wait of each job, both on a log axis; the table has the figures.",
    )


def _by_link(source: Source, links: pl.DataFrame, window: tuple[datetime, datetime] | None) -> TableView:
    """Return each job of a chain, the newest first."""
    ordered = links.sort("submit_utc", "chain", "link", "attempt", descending=True, nulls_last=True)
    shown, left_out = cut(ordered.to_dicts(), MOST_ROWS)
    return TableView(
        "deployed_links",
        "Each link",
        "One row per job, the newest first. Predicted: the wait predicted at submission. Interruption and overlap are "
        f"relative to its predecessor. {source.caption(links.height, 'jobs', window=window)}",
        columns(
            "chain|chain|code", "link|link|count", "attempt|attempt|count", "job_id|job|code",
            "submit_utc|submitted, UTC|utc", "wait_s|wait|duration", "start_expected_s|predicted by run times|duration",
            "start_estimate_s|by limits|duration", "interruption_s|interruption|duration",
            "overlap_s|overlap|duration", "state|ended as|name", "decided_by|decided by|name",
            "version|version|code",
        ),
        shown,
        left_out,
    )  # fmt: skip
