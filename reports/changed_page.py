"""The page of `baton whatif --plots`: waits, queue and nodes in use in the cluster as recorded, with each change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reports.schedule import DrawnTrace, write_page
from simulator.workload import Replay, Workload


def write_changes(
    path: Path, cluster: str, result: dict[str, Any], workload: Workload, replays: Sequence[Replay]
) -> None:
    """Write one self-contained HTML file about the replays of a window in one piece, one for each change.

    `result` is the output of `baton whatif --json`. Raises InputError if the path cannot be written.
    """
    rows: dict[str, dict[str, Any]] = {}
    for one in result["results"]:
        if one["horizon"] == "whole":
            row = rows.setdefault(one["change"], {"scheduler": one["change"], "jobs": one["jobs"]})
            row[one["figure"].replace("median_", "p50_")] = one["value"]
    sentences = [
        f"Jobs of the cluster as recorded, submitted from {result['from_utc']} to {result['until_utc']} (UTC), "
        f"replayed in one piece. How far to trust it: {result['base_whole']['trust']['why']}."
    ]
    write_page(path, DrawnTrace(cluster, workload, result["nodes"], "nodes"), replays, list(rows.values()), sentences)
