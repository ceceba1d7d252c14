"""The page of `baton whatif --plots`: waits, queue and nodes in use in the cluster as recorded, with each change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.schedule import DrawnTrace, write_page
from simulator.recorded.follow import HORIZON_S
from simulator.workload import Replay, Workload

if TYPE_CHECKING:
    from models.what_if.recorded.outcomes import RecordedOutcome


def write_changes(
    path: Path, cluster: str, result: dict[str, Any], whole: Sequence[tuple[str, RecordedOutcome]]
) -> None:
    """Write one self-contained HTML file about the replays of the window in one piece.

    `result` is the output of `baton whatif --json`. Raises InputError if the path cannot be written.
    """
    scene = whole[0][1].scene
    jobs, record = scene.judged, scene.record
    run_s = (record.end_s - record.start_s)[jobs]
    submit_s, start_s = record.submit_s[jobs], record.start_s[jobs]
    drawn = Workload(np.arange(len(run_s)), submit_s, record.size[jobs], run_s, record.limit_s[jobs], start_s)
    replays = []
    for change, outcome in whole:
        begun = outcome.wait_s[jobs] < HORIZON_S  # False for a job that was not submitted
        starts = np.where(begun, record.submit_s[jobs] + outcome.wait_s[jobs], -1).astype(np.int64)
        replays.append(Replay(change, starts, outcome.scene.run_s[jobs], float("nan")))
    rows: dict[str, dict[str, Any]] = {}
    for one in result["results"]:
        if one["horizon"] == "whole":
            row = rows.setdefault(one["change"], {"scheduler": one["change"], "jobs": one["jobs"]})
            row[one["figure"].replace("median_", "p50_")] = one["value"]
    sentences = [
        f"Jobs of the cluster as recorded, submitted from {result['from_utc']} to {result['until_utc']} (UTC), "
        f"replayed in one piece. How far to trust it: {result['base_whole']['trust']['why']}."
    ]
    write_page(path, DrawnTrace(cluster, drawn, result["nodes"], "nodes"), replays, list(rows.values()), sentences)
