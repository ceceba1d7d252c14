"""The comparison of policies as a plain-text table, with the same rows as `baton evaluate --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from features.conventions import (
    ALL_SIZES,
    BLOCK_DAYS,
    LIGHT_H,
    MEDIUM_H,
    OVERLAP_BUDGETS_H,
    POOLED_WINDOWS,
    size_rank,
)
from reports.text.columns import aligned
from traces.counted import counted

HEADINGS = (
    "policy",
    "I h",
    "95 %",
    "O h",
    "zero",
    "<=10min",
    "cost",
    "to rule",
    "95 %",
    "regret",
    "reduced",
    "I@0.25",
    "I@0.5",
    "I@1",
    "zero@0.5",
    "setting",
)
LOADS = ("light", "medium", "heavy")
BY_LOAD = ("I h", "reduced", "zero", "O h")
WITHIN_LOADS = f"l: light, up to {LIGHT_H:g} h; m: medium, up to {MEDIUM_H:g} h; h: heavy, more"


def format_table(rows: Sequence[Mapping[str, Any]], load: str = "all") -> str:
    """Format one block of lines per size of pairs, one line per policy, least cost first.

    Figures are hours per pair; '-' means that a figure does not exist. I is mean interruption, O is mean overlap, and
    cost is I + O. I@x is the interruption and zero@x the share without interruption at a mean overlap of x h. "to rule"
    is the cost minus that of the best rule, which learned nothing.
    """
    blocks: list[str] = []
    for size, limit_h in sorted({(row["size"], row["limit_h"]) for row in rows}, key=_order):
        chosen = [row for row in rows if (row["size"], row["limit_h"]) == (size, limit_h) and row["load"] == load]
        if chosen:
            blocks.append(_block(sorted(chosen, key=_by_cost)))
    return "\n\n".join(blocks)


def format_loads(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format one block of lines per size of pairs, one line per policy: its figures at light, medium and heavy load.

    Loads are by the interruption that reactive leaves. A load without pairs has no columns.
    """
    blocks: list[str] = []
    for size, limit_h in sorted({(row["size"], row["limit_h"]) for row in rows}, key=_order):
        chosen = [row for row in rows if (row["size"], row["limit_h"]) == (size, limit_h)]
        found = {(row["policy"], row["load"]): row for row in chosen}
        most = {load: max((row["n"] for row in chosen if row["load"] == load), default=0) for load in LOADS}
        loads = [load for load in LOADS if most[load]]
        headings = ["policy", *(f"{load[0]}: {name}" for load in loads for name in BY_LOAD)]
        policies = [row["policy"] for row in sorted(chosen, key=_by_cost) if row["load"] == "all"]
        lines = [[name, *(cell for load in loads for cell in _at_load(found.get((name, load))))] for name in policies]
        counts = ", ".join(f"{load} n {most[load]}" for load in loads)
        title = f"{_what(chosen[0])} by load, which is what reactive loses ({WITHIN_LOADS}): {counts}"
        blocks.append("\n".join([title, *aligned([headings, *lines])]))
    return "\n\n".join(blocks)


def world_words(world_error: Mapping[str, Any]) -> str:
    """Say in one line how far the world's waits are from the recorded ones."""
    if not world_error["jobs"]:
        return "world: no job of this window ran, so the error of its waits is unknown"
    figures = {
        "Spearman": world_error["spearman"],
        "error over mean wait": world_error["error_over_mean"],
        "mean wait, h": world_error["mean_wait_h"],
        "recorded, h": world_error["recorded_mean_wait_h"],
    }
    listed = ", ".join(f"{name} {_hours(value)}" for name, value in figures.items())
    return f"world compared with the record, {counted(world_error['jobs'], 'job')} of the window: {listed}"


def _order(size_and_limit: tuple[str, float | None]) -> tuple[int, float]:
    size, limit_h = size_and_limit
    return size_rank(size), limit_h or 0.0


def _block(rows: Sequence[Mapping[str, Any]]) -> str:
    first = max(rows, key=lambda row: row["n"])  # not the row of users, which is known for some pairs only
    note = ", intervals only indicative" if first["indicative"] else ""
    rule = next((row["difference_to_best_rule"]["rule"] for row in rows if row["difference_to_best_rule"]), None)
    to_rule = (
        f"to rule: cost minus that of {rule}, the best rule on the select window; one window does not show which "
        f"policy is better; {POOLED_WINDOWS} pooled windows may"
        if rule
        else "to rule: empty, because a rule is picked on a select window and there is none"
    )
    title = (
        f"{_what(first)}, {first['cluster']}, {first['scenario']}, load {first['load']}: "
        f"n {first['n']}, {counted(first['blocks'], 'block')} of {BLOCK_DAYS} days{note}"
    )
    return "\n".join([title, *aligned([HEADINGS, *(_cells(row, first["n"]) for row in rows)]), to_rule])


def _by_cost(row: Mapping[str, Any]) -> tuple[float, str]:
    return row["cost_w1"], row["policy"]


def _at_load(row: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The cells of BY_LOAD; '-' where the policy has no pair of that load."""
    if row is None:
        return ("-",) * len(BY_LOAD)
    shares = _percent(row["reduction"]), _percent(row["zero_share"])
    return _hours(row["interruption_h"]), *shares, _hours(row["overlap_h"])


def _what(row: Mapping[str, Any]) -> str:
    kind = "" if row["pairs"] == "injected" else f"{row['pairs']} "
    size = f"all {kind}pairs" if row["size"] == ALL_SIZES else f"{row['size']}-node {kind}pairs"
    return size if row["limit_h"] is None else f"{size} of {row['limit_h']:g} h"


def _cells(row: Mapping[str, Any], most: int) -> tuple[str, ...]:
    curve = row["interruption_h_at_overlap"]
    difference = row["difference_to_best_rule"] or {"cost_w1": None, "ci95": {"cost_w1": None}}
    return (
        row["policy"] if row["n"] == most else f"{row['policy']} (n {row['n']})",
        _hours(row["interruption_h"]),
        _interval(row["ci95"].get("interruption_h")),
        _hours(row["overlap_h"]),
        _percent(row["zero_share"]),
        _percent(row["within_10min_share"]),
        _hours(row["cost_w1"]),
        "-" if difference["cost_w1"] is None else f"{difference['cost_w1']:+.2f}",
        _interval(difference["ci95"]["cost_w1"]),
        _hours(row["regret_h_w1"]),
        _percent(row["reduction"]),
        *(_hours(curve[budget]) for budget in OVERLAP_BUDGETS_H),
        _percent(row["zero_share_at_overlap_05"]),
        "-" if row["setting"] is None else f"{row['setting']:g}",
    )


def _interval(ends: Sequence[float] | None) -> str:
    return "-" if ends is None else f"[{ends[0]:.2f}, {ends[1]:.2f}]"


def _hours(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
