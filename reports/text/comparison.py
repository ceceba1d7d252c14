"""The comparison as a plain-text table for a terminal; the same rows as `baton evaluate --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from features.conventions import BLOCK_DAYS, OVERLAP_BUDGETS_H

HEADINGS = (
    "policy",
    "I h",
    "95 %",
    "O h",
    "zero",
    "<=10min",
    "cost",
    "regret",
    "reduced",
    "I@.25",
    "I@.5",
    "I@1",
    "setting",
)


def format_table(rows: Sequence[Mapping[str, Any]], load: str = "all") -> str:
    """One block of lines a pair size, one line a policy, least cost first; '-' where a figure does not exist.

    I is mean interruption, O mean overlap, cost I + O, I@x interruption at a mean overlap of x h; all in hours a pair.
    """
    blocks: list[str] = []
    for size in sorted({(row["pair_nodes"], row["limit_h"]) for row in rows}):
        chosen = [row for row in rows if (row["pair_nodes"], row["limit_h"]) == size and row["load"] == load]
        if chosen:
            blocks.append(_block(sorted(chosen, key=lambda row: (row["cost_w1"], row["policy"])), size))
    return "\n\n".join(blocks)


def _block(rows: Sequence[Mapping[str, Any]], size: tuple[int, float]) -> str:
    first = rows[0]
    note = ", intervals only indicative" if first["indicative"] else ""
    title = (
        f"{size[0]}-node pairs of {size[1]:g} h, {first['cluster']}, {first['scenario']}, load {first['load']}: "
        f"n {first['n']}, {first['blocks']} blocks of {BLOCK_DAYS} days{note}"
    )
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    padded = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]
    return "\n".join([title, *padded])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    curve = row["interruption_h_at_overlap"]
    spread = row["ci95"].get("interruption_h")
    return (
        row["policy"],
        _hours(row["interruption_h"]),
        "-" if spread is None else f"[{spread[0]:.2f}, {spread[1]:.2f}]",
        _hours(row["overlap_h"]),
        _percent(row["zero_share"]),
        _percent(row["within_10min_share"]),
        _hours(row["cost_w1"]),
        _hours(row["regret_h_w1"]),
        _percent(row["reduction"]),
        *(_hours(curve[budget]) for budget in OVERLAP_BUDGETS_H),
        "-" if row["setting"] is None else f"{row['setting']:g}",
    )


def _hours(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
