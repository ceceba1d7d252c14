"""The cost of hiding information from policies, as a plain-text table.

The rows come from `models.provisioning.comparison.masked`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from features.conventions import ALL_SIZES, BLOCK_DAYS
from reports.text.columns import aligned
from traces.counted import counted

HEADINGS = ("policy", "pairs", "n", "cost", "hidden", "more", "95 %", "setting")


def format_hidden(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format one line per policy and size of pairs: cost, cost with less information, and the difference.

    All three are in hours per pair.
    """
    first = rows[0]
    note = ", intervals only indicative" if any(row["indicative"] for row in rows) else ""
    title = f"without {', '.join(first['hidden'])}: {counted(first['blocks'], 'block')} of {BLOCK_DAYS} days{note}"
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    return "\n".join([title, *aligned(lines)])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ends = row["ci95"]
    return (
        row["policy"],
        "all" if row["size"] == ALL_SIZES else f"{row['size']}-node",
        str(row["n"]),
        f"{row['cost_w1']:.2f}",
        f"{row['cost_w1_hidden']:.2f}",
        f"{row['difference_h']:+.2f}",
        "-" if ends is None else f"[{ends[0]:.2f}, {ends[1]:.2f}]",
        f"{row['setting']:g}",
    )
