"""The answer of `baton plan` as text: a table of three plans, the recommendation, and the expected next links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from reports.format import duration
from reports.text.columns import aligned
from traces.counted import counted
from traces.units import HOUR_S
from traces.visible import visible

WIDTH = 48  # characters of the timeline
_HEADINGS = (
    "plan", "limit", "nodes", "QOS", "queued", "submit at", "lost h/day", "95 %", "restarts/day", "first start",
    "10-90 %", "node hours",
)  # fmt: skip


def plan_lines(result: Mapping[str, Any]) -> str:
    """Format the answer. Times are hours from now."""
    where = "now, on this machine's Slurm" if result["live"] else f"{result['cluster']} at {result['at_utc']} UTC"
    asked = f"{visible(Path(result['script']).name)}, {counted(result['nodes'], 'node')}"
    work = f"{duration(result['work_h'] * HOUR_S)} of work, a restart costs {duration(result['restart_cost_s'])}"
    futures = counted(result["futures"], "simulated future") if result["futures"] else "the start estimate alone"
    lines = [
        f"{asked}, {where}: {work}; {futures}",
        *aligned(_table(result)),
        "submit at: from the start of link n to the submission of link n + queued; 95 %: the mean of the futures",
        result["recommendation"],
        *_timeline(result["timeline"], result["at_s"]),
        *(fill(f"note: {note}", 120, subsequent_indent="    ") for note in result["notes"]),
    ]
    return "\n".join(lines) + "\n"


def _table(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The heading and a row for each plan; the column of the QOS is there only where there is a choice."""
    rows = [_HEADINGS, *(_cells(row, result["at_s"]) for row in result["plans"])]
    at = _HEADINGS.index("QOS")
    return rows if result["qos_choice"] else [row[:at] + row[at + 1 :] for row in rows]


def _cells(row: Mapping[str, Any], now_s: int) -> tuple[str, ...]:
    low, high = (_hours(at_s - now_s) for at_s in row["first_start_range_s"])
    least = "" if row["least_s"] == row["limit_s"] else f"{row['least_s'] / HOUR_S:g}-"
    return (
        row["plan"],
        f"{least}{row['limit_s'] / HOUR_S:g} h",
        f"{row['nodes']:,}",
        row["qos"] or "script's",
        str(row["ahead"]),
        _hours(row["submit_after_s"]) if row["ahead"] else "end",
        _figure(row["lost_h_per_day"]),
        "-" if row["ci95"] is None else f"[{row['ci95'][0]:.2f}, {row['ci95'][1]:.2f}]",
        _figure(row["restarts_per_day"]),
        _hours(row["first_start_s"] - now_s),
        f"{low} to {high}",
        "-" if row["node_hours"] is None else f"{row['node_hours']:,.0f}",
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.1f} h"


def _timeline(links: Sequence[Mapping[str, int]], now_s: int) -> list[str]:
    """Draw one bar per link on a common time scale: `.` waiting, `#` running."""
    span_s = max(links[-1]["end_s"] - now_s, 1)
    lines = [f"links in the median future, 0 to {_hours(span_s)} from now, . waits, # runs"]
    for link in links:
        submit_s, start_s, end_s = (link[name] - now_s for name in ("submit_s", "start_s", "end_s"))
        begin, run, end = (round(at_s / span_s * WIDTH) for at_s in (submit_s, start_s, end_s))
        bar = " " * begin + "." * (run - begin) + "#" * (end - run)
        lines.append(f"{link['link']:>4} |{bar:{WIDTH}}| {_hours(submit_s)}, {_hours(start_s)} to {_hours(end_s)}")
    return lines
