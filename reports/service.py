"""The page of `baton evaluate --chains --plots`: what each policy loses and what it costs, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from features.conventions import BLOCK_DAYS
from reports import figures
from reports import format as fmt
from reports.build import render
from reports.layout import Figure, Section, TableView, columns
from reports.source import Source
from traces.counted import counted
from traces.files.whole import write_text

_COSTS = {
    "lost_h_per_day": ("Lost hours", "hours of interruption and restarts, a day of work"),
    "node_hours_ratio": ("Node hours", "node hours of all links over those of the work"),
}


def write_service_page(path: Path, source: Source, rows: Sequence[Mapping[str, Any]], window: str) -> None:
    """Write one self-contained HTML file of the rows of `models.study.chains.service_rows`.

    window: when the chains begin, such as "2023-02-01 to 2023-02-21".
    """
    ordered = sorted(rows, key=lambda row: (row["cost_h_per_day"], row["policy"]))
    first = ordered[0]
    caption = (
        f"{fmt.text(source.cluster)}, chains that begin in {window}, world {first['world']}, n {first['n']}, "
        f"{counted(first['blocks'], 'block')} of {BLOCK_DAYS} days"
        f"{', intervals only indicative' if first['indicative'] else ''}, {counted(first['seeds'], 'seed')}."
    )
    sentence = (
        f"Chains of {first['wanted_h'] / 24:g} days of work; a restart costs {first['restart_s'] / 60:g} min. The best "
        f"policy that chooses only the moment is {first['difference_to_best_timing']['policy']}."
    )
    section = Section("chains", "Chains of a wanted service", sentences=[sentence])
    for measure, (title, label) in _COSTS.items():
        ends = {row["policy"]: (row[measure], *(row["intervals"][measure] or (row[measure],) * 2)) for row in ordered}
        drawn = figures.intervals(measure.replace("_", "-"), ends, label)
        section.figures.append(Figure(measure, title, caption, drawn, f"{title} of each policy, with 95 % intervals."))
    section.tables.append(
        TableView(
            "policies", "Policies side by side", caption,
            columns(
                "policy|policy|name", "lost_h_per_day|lost, h/day|number", "low|from|number", "high|to|number",
                "overlap_h_per_day|overlap, h/day|number", "node_hours_ratio|node hours|number",
                "restarts_per_day|restarts/day|number", "undisturbed_days_share|quiet days|percent",
            ),
            [{**row, "low": (row["ci95"] or [None])[0], "high": (row["ci95"] or [None])[-1]} for row in ordered],
        )
    )  # fmt: skip
    write_text(path, render([{"source": source, "sections": [section]}]))
