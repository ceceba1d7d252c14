"""How policies keep the promise of each risk, as a plain-text table.

The rows come from `models.provisioning.comparison.promises`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from features.conventions import BLOCK_DAYS
from reports.text.columns import aligned
from simulator.metrics import NOTICED_WAIT_S
from traces.counted import counted

HEADINGS = ("policy", "at most", "interrupted", "95 %", "kept", "weeks", "O h", "all pairs", "O h", "next week")


def format_promises(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format one line per policy and risk.

    "weeks" counts the weeks with a promise among all weeks. "next week" is the setting for the week after the window.
    """
    first = rows[0]
    note = ", intervals only indicative" if first["indicative"] else ""
    title = (
        f"share of pairs interrupted for over {NOTICED_WAIT_S // 60} minutes, promised and observed, with the setting "
        f"chosen each week from earlier outcomes: n {first['n']}, {counted(first['blocks'], 'block')} of "
        f"{BLOCK_DAYS} days{note}"
    )
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    return "\n".join(
        [
            title,
            *aligned(lines),
            f"submitting every successor at once would interrupt {first['at_once_share']:.1%} of the pairs",
        ]
    )


def next_words(row: Mapping[str, Any]) -> str:
    """Name the setting for the week after the window; "cannot" means that no setting keeps the risk."""
    if not row["is_next_promised"]:
        return "cannot"
    return "at once" if row["next_setting"] is None else f"{row['next_setting']:g}"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ends, is_kept = row["ci95"], row["is_kept"]
    return (
        row["policy"],
        f"{row['risk']:.0%}",
        _share(row["interrupted_share"]),
        "-" if ends is None else f"[{ends[0]:.1%}, {ends[1]:.1%}]",
        "-" if is_kept is None else ("yes" if is_kept else "no"),
        f"{row['promised_weeks']}/{row['weeks']}",
        "-" if row["overlap_h"] is None else f"{row['overlap_h']:.2f}",
        _share(row["all_share"]),
        f"{row['all_overlap_h']:.2f}",
        next_words(row),
    )


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
