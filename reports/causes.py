"""The causes of waits in `queueing_delay`, in words and in the order in which they are tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from features.causes import waits as causes


@dataclass(frozen=True)
class Cause:
    """One cause of waits; `column` is its column in queueing_delay and queueing_by, s."""

    column: str
    words: str  # completes "x % of the waiting passed ..."
    meaning: str  # for one job, which "it" refers to

    @property
    def name(self) -> str:
        """Its name in main_cause."""
        return causes.MAIN_CAUSES[self.column]

    @property
    def tint(self) -> str:
        """The name of its colour in the palette."""
        return f"cause-{self.column.removesuffix('_s').replace('_', '-')}"


CAUSES = (
    Cause(
        "held_s",
        "before the job was eligible (dependency, hold or begin time)",
        "not yet eligible (dependency, hold or begin time)",
    ),
    Cause(
        "dependency_s",
        "until a job of the same user and name ended (likely a dependency)",
        "it waited until a job of the same user and name ended",
    ),
    Cause(
        "own_jobs_s",
        "behind jobs of the same user",
        "it waited for jobs of the same user",
    ),
    Cause(
        "array_limit_s",
        "while the job's array ran as many tasks as it may at a time",
        "its array ran as many tasks as it may at a time",
    ),
    Cause(
        "own_limit_s",
        "while the user or the group was at a limit",
        "its user or group was at a limit",
    ),
    Cause(
        "cluster_full_s",
        "while the cluster was full (too little was free on the nodes that the job could use)",
        "too little was free on the nodes that it could use",
    ),
    Cause(
        "nodes_down_s",
        "while only nodes that seem out of service had room for the job",
        "it would have fitted if all the nodes that it could use had been in service",
    ),
    Cause(
        "fragmented_s",
        "while enough was free in total, but on nodes where the job did not fit",
        "enough was free in total, but too few nodes had room for its share",
    ),
    Cause(
        "reservation_s",
        "while nothing started although jobs would have fitted (a reservation or maintenance)",
        "it would have fitted, but nothing started (a reservation or maintenance)",
    ),
    Cause(
        "behind_s",
        "behind jobs of other users, although the job would have fitted",
        "it would have fitted, but jobs of other users came first (priority, backfill, room kept for a large job)",
    ),
    Cause(
        "unknown_s",
        "for no reason that the log shows",
        "the log shows no reason",
    ),
)


def shares(row: Mapping[str, Any]) -> dict[Cause, float]:
    """Return each cause's share of the waiting, largest first.

    Returns {} if nothing waited or the row does not have all causes.
    """
    seconds = {cause: float(row.get(cause.column) or 0) for cause in CAUSES}
    total = sum(seconds.values())
    if not total or any(cause.column not in row for cause in CAUSES):
        return {}
    return {cause: value / total for cause, value in sorted(seconds.items(), key=lambda item: -item[1]) if value}
