"""Features of one job at the instant of its submission: their names, their order, and the functions that fill them.

`features.observe` observes a pair of jobs; this module observes a single job and reuses its parts: the queue, the
running jobs, the reservation profile, the limits on users, recent waits, arrivals and the calendar. It adds the job's
request, the jobs ahead of it, and the history of its user, account, partition, QOS and shape.
Imports numpy alone; the functions are plain Python that numba can also compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features import observe
from features.snapshot import Snapshot
from traces.arrays import Float32s, Int64s
from traces.units import HOUR_S

VERSION = 1
SHARED: tuple[str, ...] = tuple(name for name, one in observe.DECLARED.items() if not one.is_of_pair)
# The size is in nodes, or in CPUs where the cluster's log records no nodes.
ASKED: tuple[str, ...] = (
    "size", "limit_h", "size_h", "cpus", "gpus", "mem_gib", "priority", "is_array_task",
)  # fmt: skip
AHEAD: tuple[str, ...] = (
    "ahead_jobs",  # pending jobs ahead of it in the queue, without held ones
    "ahead_size",
    "ahead_size_h",  # size x limit
    "ahead_others_jobs",  # jobs ahead that belong to other users
    "ahead_fitting_jobs",  # jobs ahead that are no larger and no longer, so that it cannot be backfilled before them
    "behind_jobs",
    "running_ending_1h_jobs",  # running jobs whose limit ends within the hour
    "fits_now",  # 1 if its size is free at this instant, whatever waits in the queue
)
# Statistics of each group of jobs to which the job belongs. `log_wait`: natural logarithm of 1 + seconds.
TALLIED: tuple[str, ...] = (
    "running_jobs",
    "running_size",
    "pending_jobs",
    "pending_size",
    "pending_age_max_h",
    "since_submit_h",  # since the last submission, at most numbers.SINCE_MOST_H
    "since_start_h",
    "submitted_day_jobs",  # submissions, with a weight that halves every day
    "last_log_wait",  # of the group's job that started last; of the cluster's where none has started
    "mean_log_wait",  # exponential moving average over jobs that started; each new job weighs 0.1
    "mean_use",  # the same average of run time over limit, over jobs that ended
    "started_jobs",  # natural logarithm of 1 + number of jobs started
)
GROUPS: tuple[str, ...] = ("user", "account", "partition", "qos", "shape", "user_shape", "everybody")

FEATURES: tuple[str, ...] = (
    *SHARED,
    *ASKED,
    *AHEAD,
    *(f"{group}_{name}" for group in GROUPS for name in TALLIED),
)
# The calendar features. With the request, they are all that is known where the queue cannot be rebuilt.
CALENDAR: tuple[str, ...] = ("hour_sin", "hour_cos", "weekday_sin", "weekday_cos")
ASKED_AT = len(SHARED)
AHEAD_AT = ASKED_AT + len(ASKED)
TALLIED_AT = AHEAD_AT + len(AHEAD)
OBSERVED = len(observe.FEATURES)
SHARED_COLUMNS: Int64s = np.array([observe.FEATURES.index(name) for name in SHARED], np.int64)


class SubmissionRequest(NamedTuple):
    """The request of one job apart from the nodes and the limit in the Snapshot; 0 where the log does not record it."""

    cpus: float
    gpus: float
    mem_gib: float
    priority: float
    is_array_task: float


def fill_submission(out: Float32s, seen: Snapshot, asked: SubmissionRequest) -> None:
    """Write the features SHARED, ASKED and AHEAD of `seen` and `asked` into out (float32, (TALLIED_AT,)).

    The job is the successor of `seen`; the predecessor of `seen` is ignored.
    """
    pair = np.zeros(OBSERVED, np.float32)
    observe.fill(pair, seen)
    for i in range(len(SHARED_COLUMNS)):
        out[i] = pair[SHARED_COLUMNS[i]]
    fill_asked(out, seen, asked)
    fill_ahead(out, seen, pair[observe.AT.free_nodes])


def fill_asked(out: Float32s, seen: Snapshot, asked: SubmissionRequest) -> None:
    """Fill in the request of the job, in the order of ASKED."""
    limit_h = seen.successor_limit_s / HOUR_S
    out[ASKED_AT] = seen.successor_nodes
    out[ASKED_AT + 1] = limit_h
    out[ASKED_AT + 2] = seen.successor_nodes * limit_h
    out[ASKED_AT + 3] = asked.cpus
    out[ASKED_AT + 4] = asked.gpus
    out[ASKED_AT + 5] = asked.mem_gib
    out[ASKED_AT + 6] = asked.priority
    out[ASKED_AT + 7] = asked.is_array_task


def fill_ahead(out: Float32s, seen: Snapshot, free: float) -> None:
    """Fill in the state of the queue around the job, in the order of AHEAD. free: nodes that no job holds now."""
    jobs, size, size_h, others, fitting, ending = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(seen.successor_place):
        if seen.pending_held[i] == 1:
            continue
        jobs += 1
        size += seen.pending_nodes[i]
        size_h += seen.pending_nodes[i] * seen.pending_limit_s[i] / HOUR_S
        others += seen.pending_user[i] != seen.successor_user
        no_larger = seen.pending_nodes[i] <= seen.successor_nodes
        fitting += no_larger and seen.pending_limit_s[i] <= seen.successor_limit_s
    for i in range(len(seen.running_nodes)):
        ending += seen.running_start_s[i] + seen.running_limit_s[i] - seen.now_s <= HOUR_S
    out[AHEAD_AT] = jobs
    out[AHEAD_AT + 1] = size
    out[AHEAD_AT + 2] = size_h
    out[AHEAD_AT + 3] = others
    out[AHEAD_AT + 4] = fitting
    out[AHEAD_AT + 5] = len(seen.pending_nodes) - seen.successor_place
    out[AHEAD_AT + 6] = ending
    out[AHEAD_AT + 7] = 1.0 if seen.successor_nodes <= free else 0.0


CALLED_BY_FILL = (observe.fill, fill_asked, fill_ahead)
