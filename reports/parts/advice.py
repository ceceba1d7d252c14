"""Part of section `change`: the changes that the advisor found, judged on weeks that its search never saw."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from reports import figures
from reports import format as fmt
from reports.layout import Figure, Section, TableView, columns
from reports.source import Source
from traces.units import DAY_S

# column of `advice_curves`: its name in a drawing, and its colour
_CURVES = {"recorded": ("recorded", "recorded"), "unchanged": ("as it is", "simulated"),
           "changed": ("with the change", "class0")}  # fmt: skip


def advised(source: Source, section: Section) -> None:
    """Add the table `advice`, the picture of its best candidate, and a sentence: what to change, or why nothing."""
    rows = source.rows("advice")
    if rows.is_empty():
        section.missing.append(
            "No change of settings was searched for, or none was better: `baton advise` needs two weeks of jobs that "
            "ran, and searches longer than the pipeline."
        )
        return
    shown = [{**row, "interval": _interval(row)} for row in rows.sort("place").to_dicts()]
    section.sentences.append(_sentence(shown))
    section.tables.append(
        TableView(
            "advice",
            "What to change",
            "The best changes of a search on the older weeks, judged on the newer ones, which the search never saw; "
            "the 90th percentile of the waits in the cluster as recorded, anew every week. Difference: below 0 is "
            f"shorter. {fmt.sentence(shown[0]['trust_why'])}. {source.caption(shown[0]['jobs'], 'jobs')}",
            columns(
                "changes|change|code", "value|90th percentile|duration", "difference|difference|duration",
                "interval|95 %|interval_s", "whole_difference|in one piece|duration",
                "error_share|the base's error explains|percent", "losing_groups|groups that lose|count",
                "verdict|what the replay can tell|name", "why_not|not recommended because",
            ),
            shown,
        )
    )  # fmt: skip
    points = source.rows("advice_curves")
    if not points.is_empty():  # else a warehouse of an older version
        section.figures += _drawn(source, points.sort("point"), shown)


def _drawn(source: Source, points: pl.DataFrame, rows: list[dict[str, Any]]) -> list[Figure]:
    """Draw the waits and the queue: recorded, replayed as it is, and with the changes of the candidate drawn."""
    row = next(row for row in rows if row["place"] == points["place"][0])
    of = {curve: points.filter(pl.col("curve") == curve) for curve in ("waits", "queue")}
    lines = {
        curve: {label: (found[column].to_numpy(), tint) for column, (label, tint) in _CURVES.items()}
        for curve, found in of.items()
    }
    edges_d = np.concatenate([[0.0], of["queue"]["at"].to_numpy()])
    period = fmt.duration((edges_d[1] - edges_d[0]) * DAY_S)
    replays = (
        f"The change is {fmt.text(row['changes'])}. Both replays begin anew from the record every week. "
        f"{source.caption(row['jobs'], 'jobs')}"
    )
    return [
        Figure(
            "advice_waits", "Waits before and after the change",
            f"Share of jobs with at most this wait (log axis; 0 counts as 1 s). {replays}",
            figures.ecdf(f"{source.slug}-advice-waits", lines["waits"], "wait from submission", dashed=("recorded",)),
            "Cumulative distributions of the waits: recorded, as it is, and with the change.",
        ),
        Figure(
            "advice_queue", "Queue before and after the change",
            f"Pending jobs of the judged weeks, means over periods of {period}. {replays}",
            figures.over_days(f"{source.slug}-advice-queue", edges_d, lines["queue"], "pending jobs"),
            "Number of pending jobs over time: recorded, as it is, and with the change.",
        ),
    ]  # fmt: skip


def _sentence(rows: list[dict[str, Any]]) -> str:
    recommended = next((row for row in rows if row["is_recommended"]), None)
    if recommended is None:
        best = rows[0]
        return f"The advisor recommends to change nothing: it found {fmt.text(best['changes'])}, but {best['why_not']}."
    return (
        f"The advisor recommends {fmt.text(recommended['changes'])}: on weeks that it did not search, the 90th "
        f"percentile of the waits falls from {fmt.duration(recommended['base_value'])} to "
        f"{fmt.duration(recommended['value'])} (95 % interval of the difference "
        f"{fmt.interval_s(recommended['interval'])}); `baton advise` prints what to type."
    )


def _interval(row: dict[str, Any]) -> list[float] | None:
    low, high = row["difference_low"], row["difference_high"]
    return None if low is None or high is None else [low, high]
