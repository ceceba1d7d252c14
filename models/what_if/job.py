"""What-if for one job: simulate when it would have started with another limit or size, and compare with no change.

Only this job is simulated: from its submission on, or from when it became eligible if the log shows a later time. Until
then the world is the recorded one. Its rules are fitted on what was known by then (the forked form of
`simulator.recorded`). The result is the difference between the replays with and without the change. The distance of the
unchanged replay from the record shows how far to trust it. Sizes are whole nodes of one pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.recorded.follow import HORIZON_S
from simulator.recorded.parameters import MECHANISMS, Parameters, infer_parameters, jobs_of, rules_of
from simulator.recorded.record import ARRAYS, NEVER, RecordedTrace, events
from simulator.recorded.single import is_around, single_starts
from traces.units import DAY_S, HOUR_S

LEARN_S = 90 * DAY_S  # span of the record that the rules are fitted on
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
) -> dict[str, Any]:
    """Simulate the waits of a job of the record, unchanged and with each change (None: those `proposed`), s.

    Waits count from when it was eligible (`eligible_s`, epoch s) if the log says so, else from its submission.
    `distance_s` is the unchanged replay's wait less the recorded one. A wait is null if the job does not start
    within ten days, and so is a difference to it.
    """
    record = record if eligible_s is None else _submitted(record, job_key, eligible_s)
    row = record.job_key.index(job_key)
    submit_s, start_s, end_s = int(record.submit_s[row]), int(record.start_s[row]), int(record.end_s[row])
    run_s = end_s - start_s if start_s < NEVER and end_s < NEVER else None
    size, limit_s = int(record.size[row]), int(record.limit_s[row])
    near = record.take((record.submit_s >= submit_s - LEARN_S) & (record.submit_s < submit_s))
    rules = infer_parameters(near, submit_s)
    played = record.take(is_around(record, submit_s, submit_s + 1))
    base_s = _wait(played, job_key, rules, JobChange("as it was"))
    recorded_s = start_s - submit_s if start_s < NEVER else None
    rows = []
    for change in proposed(size, limit_s, run_s) if changes is None else changes:
        wait_s = _wait(played, job_key, rules, change)
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
        "recorded_wait_s": recorded_s,
        "replayed_wait_s": base_s,
        "distance_s": None if recorded_s is None or base_s is None else base_s - recorded_s,
        "fitted_on_jobs": len(near),
        "changes": rows,
    }


def _submitted(record: RecordedTrace, job_key: str, submit_s: int) -> RecordedTrace:
    """Return the record with another submission of that job, in order again."""
    submits = record.submit_s.copy()
    submits[record.job_key.index(job_key)] = submit_s
    order = np.argsort(submits, kind="stable")
    columns = {name: getattr(record, name)[order] for name in ARRAYS} | {"submit_s": submits[order]}
    return RecordedTrace(**columns, job_key=[record.job_key[at] for at in order])


def _wait(record: RecordedTrace, job_key: str, rules: Parameters, change: JobChange) -> int | None:
    """Simulate the wait of the job, s; None if it does not start within the horizon."""
    row = record.job_key.index(job_key)
    size, limit_s = record.size.copy(), record.limit_s.copy()
    size[row], limit_s[row] = change.nodes or size[row], change.limit_s or limit_s[row]
    changed = replace(record, size=size, limit_s=limit_s)
    simulated = np.zeros(len(changed), np.bool_)
    simulated[row] = True
    jobs = jobs_of(changed, rules.points_per_hour)
    starts = single_starts(
        changed, events(changed), jobs, rules_of(rules, frozenset(MECHANISMS)), simulated, forked=True
    )
    wait_s = int(starts[row] - changed.submit_s[row])
    return wait_s if wait_s < HORIZON_S - HOUR_S else None
