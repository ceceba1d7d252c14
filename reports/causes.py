"""What a job waits for: the five causes of `queueing_delay` in words, in the order in which they count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cause:
    """`column` of queueing_delay and queueing_by, s; `tint` is a name of the palette."""

    column: str
    name: str
    words: str  # completes "x % of the waiting passed ..."
    tint: str


CAUSES = (
    Cause("held_s", "not yet eligible", "before the job was eligible (dependency, hold or begin time)", "class0"),
    Cause("own_limit_s", "own limit", "at the user's or the group's own limit", "class2"),
    Cause("cluster_full_s", "cluster full", "with the cluster full (too little free for anybody)", "class1"),
    Cause("fragmented_s", "fragmented", "with enough free, on nodes where the job did not fit", "class3"),
    Cause("behind_s", "behind others", "behind others, although the job would have fitted", "class4"),
)


def shares(row: Mapping[str, Any]) -> dict[Cause, float]:
    """Share of the waiting that each cause has, largest first; {} where the row does not tell, or nothing waited."""
    seconds = {cause: float(row.get(cause.column) or 0) for cause in CAUSES}
    total = sum(seconds.values())
    if not total or any(cause.column not in row for cause in CAUSES):
        return {}
    return {cause: value / total for cause, value in sorted(seconds.items(), key=lambda item: -item[1]) if value}
