"""Losses of chains with a wanted service, as plain-text tables; rows of `models.study.chains` and of what-if agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from features.conventions import BLOCK_DAYS
from reports.text.columns import aligned
from traces.counted import counted

_HEADINGS = (
    "policy", "lost h/day", "95 %", "overlap h/day", "node hours", "restarts/day", "quiet days", "queued",
    "to best", "95 %", "setting",
)  # fmt: skip


def format_services(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format one line per policy, the least lost + weight x overlap first.

    'to best' is the difference of lost h/day to the best policy that chooses only the moment; 'setting' is that of a
    policy of timing.
    """
    first = rows[0]
    note = ", intervals only indicative" if first["indicative"] else ""
    world = first["world"] if first["scheduler"] is None else f"{first['world']} ({first['scheduler']})"
    title = (
        f"chains of {first['wanted_h'] / 24:g} days of work, a restart costs {first['restart_s'] / 60:g} min, world "
        f"{world}: n {first['n']}, {counted(first['blocks'], 'block')} of {BLOCK_DAYS} days{note}"
    )
    ordered = sorted(rows, key=lambda row: (row["cost_h_per_day"], row["policy"]))
    padded = aligned([_HEADINGS, *(_service_cells(row) for row in ordered)])
    best = first["difference_to_best_timing"]["policy"]
    last = [
        f"least lost + {first['overlap_weight']:g} x overlap first; quiet days: no interruption of over 10 min",
        f"to best: lost h/day less that of {best}, the best policy that chooses only the moment",
    ]
    beyond = max(row["beyond_log"] for row in rows)
    if beyond:
        last.append(f"{beyond} of {first['n']} chains continued after the last submission of the log")
    return "\n".join([title, *padded, *last, *_unfinished(rows)])


def _unfinished(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    most = max(row["unfinished"] for row in rows)
    return [f"up to {counted(most, 'chain')} of a policy did not do all of the work"] if most else []


_AGENT_HEADINGS = (
    "share", "policy", "cap", "chains", "lost h/day", "overlap h/day", "others' wait h", "change", "95 %",
    "nodes in use", "queued links", "most", "of the queue",
)  # fmt: skip


def format_agents(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format one line per share, policy and cap; 'change' is that of the others' mean wait against reactive chains."""
    others = rows[0]["others"]
    note = ", intervals only indicative" if others["indicative"] else ""
    title = (
        f"a share of the long jobs as chains of agents; {counted(others['blocks'], 'block')} of {BLOCK_DAYS} days{note}"
    )
    return "\n".join([title, *aligned([_AGENT_HEADINGS, *map(_agent_cells, rows)]), *_unfinished(rows)])


def _agent_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    others, ends = row["others"], row["others"]["ci95"]
    of_user, share = row["cap_of_user"], row["cap_share"]
    return (
        f"{100 * row['share']:g}%",
        row["policy"],
        "-" if of_user is None and share is None else f"{100 * share:g}%" if of_user is None else str(of_user),
        str(row["chains"]),
        f"{row['lost_h_per_day']:.2f}",
        f"{row['overlap_h_per_day']:.2f}",
        f"{others['wait_h']:.2f} (n {others['n']:,})",
        f"{others['change']:+.1%}",
        "-" if ends is None else f"[{ends[0]:+.1%}, {ends[1]:+.1%}]",
        f"{row['utilization']:.1%}",
        f"{row['queued_links']:.1f}",
        f"{row['most_queued_links']:.0f}",
        f"{row['share_of_queue']:.0%}",
    )


def _service_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    beside = row["difference_to_best_timing"]
    return (
        row["policy"],
        f"{row['lost_h_per_day']:.2f}",
        _ends(row["ci95"]),
        f"{row['overlap_h_per_day']:.2f}",
        f"{row['node_hours_ratio']:.3f}",
        f"{row['restarts_per_day']:.2f}",
        f"{row['undisturbed_days_share']:.0%}",
        f"{row['most_queued']:.1f}",
        f"{beside['lost_h_per_day']:+.2f}",
        _ends(beside["ci95"]),
        "-" if row["setting"] is None else f"{row['setting']:g}",
    )


def _ends(ends: Sequence[float] | None) -> str:
    return "-" if ends is None else f"[{ends[0]:.2f}, {ends[1]:.2f}]"
