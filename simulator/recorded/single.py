"""Each job by itself, in a private copy of the recorded world in which its own record is missing.

Two forms, both reading nothing that was recorded at or after the predicted start, and never the job's own start, end
or cancellation: `simulator.recorded.informed` is told of the other jobs up to each instant,
`simulator.recorded.forked` up to the job's submission, and simulates them from then on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import kernel
from simulator.recorded.branch import (
    LAST_PASS_S,
    NEXT_PASS_S,
    Branch,
    Cluster,
    advance,
    copy_branch,
    new_branch,
    new_cluster,
    pass_due,
    submit,
)
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.informed import informed_start
from simulator.recorded.log import Log
from simulator.recorded.record import NEVER, NONE, Events, Int64s, Record
from simulator.recorded.state import Jobs, Rules

BEFORE_S = 14 * 86400  # of record played before the first job asked for; the rules look back three days at most


def is_around(record: Record, from_s: int, until_s: int) -> NDArray[np.bool_]:
    """The jobs among which those submitted in [from_s, until_s), epoch s, are played, shape (jobs,).

    They are of BEFORE_S before and HORIZON_S after. Who pended or ran when that begins is among them, whenever it
    was submitted.
    """
    inside: NDArray[np.bool_] = (record.end_s >= from_s - BEFORE_S) & (record.submit_s < until_s + HORIZON_S)
    return inside


def single_starts(
    record: Record, events: Events, jobs: Jobs, rules: Rules, wanted: NDArray[np.bool_], *, forked: bool
) -> Int64s:
    """Predicted start of each job of the mask, else NEVER; s, shape (jobs,).

    A job that no pass would start is given the last instant looked at: HORIZON_S after its submission, or the last
    record.
    """
    predicted = np.full(len(record), NEVER, np.int64)
    if not wanted.any():
        return predicted
    cluster = new_cluster(record, events, jobs, rules)
    rows = np.flatnonzero(wanted)
    _single(cluster, new_branch(cluster), new_branch(cluster), rows, forked, predicted)
    return predicted


@kernel
def _single(cluster: Cluster, followed: Branch, private: Branch, rows: Int64s, forked: bool, predicted: Int64s) -> None:
    """The log is followed; just before each of `rows` (rising) is submitted, the branch that follows it is copied."""
    for job in rows:
        submit_s = cluster.jobs.submit_s[job]
        advance(cluster, followed, submit_s - 1, NONE)
        if followed.scalars[NEXT_PASS_S] == submit_s:
            pass_due(cluster, followed, NONE)
        copy_branch(cluster, private, followed)
        if forked:
            submit(cluster, private, job, submit_s)
            start_s = advance(cluster, private, max(submit_s, _last_of_others(cluster.log, job)) + 1, job)
            predicted[job] = private.scalars[LAST_PASS_S] if start_s == NONE else start_s
        else:
            predicted[job] = informed_start(cluster, private, job)


@kernel
def _last_of_others(log: Log, job: int) -> int:
    """When the last event is that is not of `job`, s; NONE where there is none."""
    event = len(log.job) - 1
    while event >= 0 and log.job[event] == job:
        event -= 1
    return int(log.time_s[event]) if event >= 0 else NONE
