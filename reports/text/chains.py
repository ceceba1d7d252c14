"""Losses of chains of jobs under each policy, as a plain-text table; the rows come from `models.study.chains`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from features.conventions import BLOCK_DAYS
from traces.counted import counted

HEADINGS = ("policy", "I h/link", "95 %", "O h/link", "I h/chain", "O h/chain", "at work", "95 %", "setting")


def format_chains(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format one line per policy, the least loss first.

    I is mean interruption and O mean overlap; '-' means that there is no figure.
    """
    first = rows[0]
    note = ", intervals only indicative" if first["indicative"] else ""
    title = (
        f"chains of {counted(first['links'], 'link')} of {first['limit_h']:g} h, world {first['world']}: n "
        f"{first['n']}, {counted(first['blocks'], 'block')} of {BLOCK_DAYS} days{note}"
    )
    ordered = sorted(rows, key=lambda row: (row["chain_interruption_h"] + row["chain_overlap_h"], row["policy"]))
    lines = [HEADINGS, *(_cells(row) for row in ordered)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    padded = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]
    beyond = max(row["beyond_log"] for row in rows)
    last = [f"{beyond} of {first['n']} chains continued after the last submission of the log"] if beyond else []
    return "\n".join([title, *padded, *last])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["policy"],
        f"{row['interruption_h']:.2f}",
        _spread(row["ci95"]["interruption_h"], ".2f"),
        f"{row['overlap_h']:.2f}",
        f"{row['chain_interruption_h']:.2f}",
        f"{row['chain_overlap_h']:.2f}",
        f"{row['at_work_share']:.0%}",
        _spread(row["ci95"]["at_work_share"], ".0%"),
        "-" if row["setting"] is None else f"{row['setting']:g}",
    )


def _spread(ends: Sequence[float] | None, form: str) -> str:
    return "-" if ends is None else f"[{ends[0]:{form}}, {ends[1]:{form}}]"
