"""Part of section `policies`: promised and observed shares of interrupted pairs, and their price in overlap."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from features.conventions import BLOCK_DAYS
from reports import figures
from reports import format as fmt
from reports.hand_over import best_on_select, headline_comparison
from reports.layout import Figure, Section, TableView, columns
from reports.source import Source
from simulator.metrics import NOTICED_WAIT_S
from traces import instants
from traces.counted import counted

_MINUTES = NOTICED_WAIT_S // 60
_TINTS = ("class0", "class1", "class2", "class3")


def promises(source: Source, section: Section) -> None:
    """Add a sentence, the table of all policies, and the weekly coverage of the policy that the section features."""
    promised = source.rows("policy_promises")
    if promised.is_empty():
        return
    rows = [_shown(row) for row in promised.sort("policy", "risk").to_dicts()]
    pairs = headline_comparison(source)
    best = best_on_select(source, pairs.size) if pairs is not None else None
    featured = [row for row in rows if row["policy"] == best] or [
        row for row in rows if row["policy"] == rows[0]["policy"]
    ]
    section.sentences.append(_sentence(featured))
    first = featured[0]
    ending = source.caption(first["n"], "pairs", first["seeds"], (first["from_utc"], first["to_utc"]))
    few = f" Only {counted(first['blocks'], 'block')} of {BLOCK_DAYS} days: intervals are indicative." * bool(
        first["indicative"]
    )
    section.tables.append(_table(rows, f"{few} {ending}"))
    if len(first["weekly"]) > 1:
        section.figures.append(_figure(source, featured, ending))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its interval, its weeks and the next setting parsed for the table."""
    ends = [row["interrupted_low"], row["interrupted_high"]]
    after = "cannot" if not row["is_next_promised"] else "at once"
    is_set = row["is_next_promised"] and row["next_setting"] is not None
    return {
        **row,
        "share_ci": None if None in ends else ends,
        "kept": None if row["is_kept"] is None else ("yes" if row["is_kept"] else "no"),
        "promised": f"{row['promised_weeks']} of {row['weeks']}",
        "next": f"{row['next_setting']:g}" if is_set else after,
        "weekly": json.loads(row["weekly"]),
    }


def _sentence(rows: list[dict[str, Any]]) -> str:
    """Say how the featured policy kept each promise, and at what price."""
    name = fmt.text(rows[0]["policy"])
    parts = []
    for row in rows:
        risk = fmt.percent(row["risk"])
        if row["interrupted_share"] is None:
            parts.append(f"at most {risk}: never promised, because even submitting at once would have broken it")
            continue
        parts.append(
            f"at most {risk}: {fmt.percent(row['interrupted_share'])} interrupted, with "
            f"{fmt.number(row['overlap_h'])} h of mean overlap (promised for {row['promised']} weeks)"
        )
    return (
        f"{name} promises a limit on the share of pairs interrupted for over {_MINUTES} minutes; its setting is chosen "
        f"each week from earlier outcomes. Promised and observed: {'; '.join(parts)}. Submitting every successor "
        f"at once would interrupt {fmt.percent(rows[0]['at_once_share'])} of the pairs."
    )


def _table(rows: list[dict[str, Any]], ending: str) -> TableView:
    return TableView(
        "promises",
        "Promised and observed shares of interrupted pairs",
        f"Interrupted: share of pairs with a gap over {_MINUTES} minutes, over the weeks with a promise, with its 95 % "
        "interval by moving-block bootstrap. Kept: the interval is not above the promised share. A week has no "
        "promise if no setting, not even submitting at once, keeps it on earlier outcomes; its pairs are then "
        f"submitted at once. Next week: the setting for the week after the window.{ending}",
        columns(
            "policy|policy|name", "risk|at most|percent", "interrupted_share|interrupted|percent",
            "share_ci|95 %|interval", "kept|kept|text", "promised|weeks promised|text",
            "overlap_h|overlap, h|number", "interruption_h|interruption, h|number", "all_share|all pairs|percent",
            "all_overlap_h|overlap of all, h|number", "at_once_share|at once|percent", "next|next week|text",
        ),
        rows,
    )  # fmt: skip


def _figure(source: Source, rows: list[dict[str, Any]], ending: str) -> Figure:
    """Plot the weekly coverage of the featured policy, one line per risk."""
    weeks = [instants.parse(week["from_utc"]) for week in rows[0]["weekly"]]
    series = {
        f"at most {fmt.percent(row['risk'])}": (
            np.array([1.0 - week["interrupted_share"] for week in row["weekly"]]), _TINTS[place % len(_TINTS)]
        )
        for place, row in enumerate(rows)
    }  # fmt: skip
    return Figure(
        "promises-by-week",
        f"Coverage by week, {fmt.text(rows[0]['policy'])}",
        f"Share of the week's pairs that were not interrupted for over {_MINUTES} minutes. A line of at most 5, 10 or "
        f"20 % interrupted promises 95, 90 or 80 %. {ending}",
        figures.over_time(f"{source.slug}-promises", weeks, series, "share not interrupted", as_share=True),
        "Share of pairs not interrupted by week, one line per promise; the table has the figures.",
    )
