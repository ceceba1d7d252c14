"""What-if for one job: simulate when it would have started with another limit or size, and compare with no change.

The base is that of `baton whatif` (`models.what_if.recorded`), anchored at the job's submission, or at the time when it
became eligible if the log shows a later one: the queue of that instant and all later arrivals are simulated under the
rules inferred from the weeks before. Nodes in and out of service, run times, and the starts of held jobs are the
recorded ones. The result is the difference between the replays with and without the change. The distance of the
unchanged replay from the record shows how far to trust it. Sizes are whole nodes of one pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from models.what_if.recorded.replays import starts_of
from models.what_if.recorded.scene import RecordedScene, follow_window
from simulator.recorded.record import ARRAYS, NEVER, RecordedTrace

STEP_S = 600  # proposed limits are multiples of it
SLACK = 1.1  # a proposed limit is a tenth over the used time


@dataclass(frozen=True)
class JobChange:
    """Another limit, another size, or both; None leaves it unchanged."""

    name: str
    limit_s: int | None = None
    nodes: int | None = None


def proposed(size: int, limit_s: int, run_s: int | None) -> list[JobChange]:
    """Propose changes for a job of that size (nodes) and limit that ran for `run_s` (None: it never ran)."""
    changes = []
    if run_s is not None and (fits_s := -(-int(run_s * SLACK) // STEP_S) * STEP_S) and fits_s < limit_s:
        changes.append(JobChange("a limit of what it used and a tenth more", limit_s=max(fits_s, STEP_S)))
    half_s = limit_s // 2 // STEP_S * STEP_S
    if half_s >= STEP_S and all(change.limit_s != half_s for change in changes):
        changes.append(JobChange("half the limit", limit_s=half_s))
    if size > 1:
        changes.append(JobChange("half the nodes", nodes=size // 2))
    if size > 3:
        changes.append(JobChange("one node", nodes=1))
    return changes


def what_if_job(
    record: RecordedTrace, job_key: str, eligible_s: int | None, changes: list[JobChange] | None = None
) -> dict[str, Any] | None:
    """Simulate the waits of a job of the record, unchanged and with each change (None: those `proposed`), s.

    Waits count from when it was eligible (`eligible_s`, epoch s) if the log says so, else from its submission.
    `distance_s` is the unchanged replay's wait less the recorded one. A wait is null if the job does not start within
    ten days, and so is a difference to it. A job that was cancelled in the queue is simulated to its limit. A held job
    (`is_held`) starts when it did under every change. None if neither it nor a later job ran.
    """
    record = record if eligible_s is None else _submitted(record, job_key, eligible_s)
    row = record.job_key.index(job_key)
    submit_s, start_s, end_s = int(record.submit_s[row]), int(record.start_s[row]), int(record.end_s[row])
    later_s = record.submit_s[record.ran & (record.submit_s >= submit_s)]
    if not len(later_s):
        return None
    run_s = end_s - start_s if start_s < NEVER and end_s < NEVER else None
    size, limit_s = int(record.size[row]), int(record.limit_s[row])
    scene = _scene(record, row, int(later_s[0]) + 1)
    base_s = _wait(scene, row, JobChange("as it was"))
    recorded_s = start_s - submit_s if start_s < NEVER else None
    rows = []
    for change in proposed(size, limit_s, run_s) if changes is None else changes:
        wait_s = _wait(scene, row, change)
        rows.append(
            {
                "change": change.name,
                "nodes": change.nodes or size,
                "limit_s": change.limit_s or limit_s,
                "wait_s": wait_s,
                "difference_s": None if wait_s is None or base_s is None else wait_s - base_s,
                "would_be_cut": run_s is not None and (change.limit_s or limit_s) < run_s and not change.nodes,
            }
        )
    return {
        "is_from_eligible": eligible_s is not None,
        "is_held": bool(scene.held[row]),
        "recorded_wait_s": recorded_s,
        "replayed_wait_s": base_s,
        "distance_s": None if recorded_s is None or base_s is None else base_s - recorded_s,
        "said": list(scene.assumptions),
        "changes": rows,
    }


def _scene(record: RecordedTrace, row: int, until_s: int) -> RecordedScene:
    """Follow the record to the submission of a job; one that was cancelled in the queue is given a run to its limit."""
    submit_s = int(record.submit_s[row])
    scene = follow_window(record, pl.DataFrame(), submit_s, until_s, until_s - submit_s, also_whole=False,
                          is_frozen=True)  # fmt: skip
    if record.ran[row]:
        return scene
    start_s, end_s, run_s = record.start_s.copy(), record.end_s.copy(), scene.run_s.copy()
    start_s[row], end_s[row], run_s[row] = submit_s, submit_s + record.limit_s[row], record.limit_s[row]
    return replace(scene, record=replace(record, start_s=start_s, end_s=end_s), run_s=run_s)


def _submitted(record: RecordedTrace, job_key: str, submit_s: int) -> RecordedTrace:
    """Return the record with another submission of that job, in order again."""
    submits = record.submit_s.copy()
    submits[record.job_key.index(job_key)] = submit_s
    order = np.argsort(submits, kind="stable")
    columns = {name: getattr(record, name)[order] for name in ARRAYS} | {"submit_s": submits[order]}
    return RecordedTrace(**columns, job_key=[record.job_key[at] for at in order])


def _wait(scene: RecordedScene, row: int, change: JobChange) -> int | None:
    """Simulate the wait of the job, s; None if it does not start within the horizon."""
    size, limit_s, run_s = scene.record.size.copy(), scene.limit_s.copy(), scene.run_s.copy()
    size[row], limit_s[row] = change.nodes or size[row], change.limit_s or limit_s[row]
    run_s[row] = min(run_s[row], limit_s[row])
    changed = replace(scene, record=replace(scene.record, size=size), limit_s=limit_s, run_s=run_s)
    start_s = int(starts_of(changed).jobs[row])
    return None if start_s == NEVER else start_s - int(scene.record.submit_s[row])
