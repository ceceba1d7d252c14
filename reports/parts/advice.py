"""Part of section `change`: the changes that the advisor found, judged on weeks that its search never saw."""

from __future__ import annotations

from typing import Any

from reports import format as fmt
from reports.layout import Section, TableView, columns
from reports.source import Source


def advised(source: Source, section: Section) -> None:
    """Add the table `advice` and a sentence that says what to change, or why nothing."""
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
