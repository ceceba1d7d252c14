"""Predict each job separately, in a private copy of the recorded world without its own record.

There are two forms. Neither reads anything recorded at or after the predicted start, nor the job's own start, end or
cancellation. `simulator.recorded.informed` observes the other jobs up to each instant. `simulator.recorded.forked`
observes them up to the job's submission and simulates them from then on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import kernel
from simulator.recorded.branch import (
    LAST_PASS_S,
    NEXT_PASS_S,
    RecordedBranch,
    RecordedCluster,
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
from simulator.recorded.record import NEVER, NONE, Events, RecordedTrace
from simulator.recorded.state import RecordedJobs, RecordedRules
from traces.arrays import Int64s

BEFORE_S = 14 * 86400  # length of record simulated before the first predicted job; the rules use at most three days


def is_around(record: RecordedTrace, from_s: int, until_s: int) -> NDArray[np.bool_]:
    """Return the mask of the jobs needed to predict those submitted in [from_s, until_s), epoch s, shape (jobs,).

    They range from BEFORE_S before to HORIZON_S after. Jobs that pended or ran at the beginning of this range are
    included, whenever they were submitted.
    """
    inside: NDArray[np.bool_] = (record.end_s >= from_s - BEFORE_S) & (record.submit_s < until_s + HORIZON_S)
    return inside


def single_starts(
    record: RecordedTrace,
    events: Events,
    jobs: RecordedJobs,
    rules: RecordedRules,
    wanted: NDArray[np.bool_],
    *,
    forked: bool,
) -> Int64s:
    """Return the predicted start of each job of the mask, NEVER for other jobs; s, shape (jobs,).

    A job that no pass starts gets the last instant considered: HORIZON_S after its submission, or the last record.
    """
    predicted = np.full(len(record), NEVER, np.int64)
    if not wanted.any():
        return predicted
    cluster = new_cluster(record, events, jobs, rules)
    rows = np.flatnonzero(wanted)
    _single(cluster, new_branch(cluster), new_branch(cluster), rows, forked, predicted)
    return predicted


@kernel
def _single(
    cluster: RecordedCluster,
    followed: RecordedBranch,
    private: RecordedBranch,
    rows: Int64s,
    forked: bool,
    predicted: Int64s,
) -> None:
    """Follow the log, and copy the branch just before each of `rows` (rising) is submitted to predict its start."""
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
    """Return the time of the last event of another job than `job`, s; NONE if there is none."""
    event = len(log.job) - 1
    while event >= 0 and log.job[event] == job:
        event -= 1
    return int(log.time_s[event]) if event >= 0 else NONE
