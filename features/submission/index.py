"""What may be known about one job's wait at the instant of its submission: the names, the order, and how to fill them.

Beside `features.observe`, which observes a pair, and made of its parts: the queue, the running jobs, the reservation
profile, the limits on users, recent waits, arrivals and the calendar are the very same numbers. To these come what the
job asks for, what is ahead of it, and what became of the earlier jobs of its user, account, partition, QOS and shape.
Imports numpy alone; the functions are plain Python that numba compiles as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from features import observe
from features.observe import HOUR_S
from features.snapshot import Snapshot

Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

VERSION = 1
# What `features.observe` has of a pair and one job has not.
OF_A_PAIR = (
    "remaining_h", "predecessor_elapsed_h", "predecessor_wait_h", "successor_nodes", "successor_limit_h",
    "start_estimate_gap_h",
)  # fmt: skip
SHARED: tuple[str, ...] = tuple(name for name in observe.FEATURES if name not in OF_A_PAIR)
# Size is counted in nodes, or in CPUs where the log of a cluster knows no nodes.
ASKED: tuple[str, ...] = (
    "size", "limit_h", "size_h", "cpus", "gpus", "mem_gib", "priority", "is_array_task",
)  # fmt: skip
AHEAD: tuple[str, ...] = (
    "ahead_jobs",  # pending jobs before it in the queue, held ones left out
    "ahead_size",
    "ahead_size_h",  # size x limit
    "ahead_others_jobs",  # those of other users
    "ahead_fitting_jobs",  # those that ask for neither more nor longer: nothing that it could slip past
    "behind_jobs",
    "running_ending_1h_jobs",  # running jobs whose limit ends within the hour
    "fits_now",  # 1: its size is free at this instant, whoever waits
)
# Of each group of jobs that the job belongs to. `log_wait`: natural logarithm of 1 + seconds.
TALLIED: tuple[str, ...] = (
    "running_jobs",
    "running_size",
    "pending_jobs",
    "pending_size",
    "pending_age_max_h",
    "since_submit_h",  # since the last submission, at most numbers.SINCE_MOST_H
    "since_start_h",
    "submitted_day_jobs",  # submissions, each worth half as much a day later
    "last_log_wait",  # of the job that started last; of the cluster's where none has
    "mean_log_wait",  # the same over the last jobs that started, each a tenth of what is left
    "mean_use",  # run time over limit, likewise, of those that ended
    "started_jobs",  # logarithm of 1 + how many have started
)
GROUPS: tuple[str, ...] = ("user", "account", "partition", "qos", "shape", "user_shape", "everybody")

FEATURES: tuple[str, ...] = (
    *SHARED,
    *ASKED,
    *AHEAD,
    *(f"{group}_{name}" for group in GROUPS for name in TALLIED),
)
# What is known where no queue can be rebuilt: the request, the calendar.
CALENDAR: tuple[str, ...] = ("hour_sin", "hour_cos", "weekday_sin", "weekday_cos")
ASKED_AT = len(SHARED)
AHEAD_AT = ASKED_AT + len(ASKED)
TALLIED_AT = AHEAD_AT + len(AHEAD)
SHARED_COLUMNS: Int64s = np.array([observe.FEATURES.index(name) for name in SHARED], np.int64)


class SubmissionRequest(NamedTuple):
    """What one job asks for beside the nodes and the limit that a Snapshot holds; 0 where the log does not say."""

    cpus: float
    gpus: float
    mem_gib: float
    priority: float
    is_array_task: float


def fill_submission(out: Float32s, seen: Snapshot, asked: SubmissionRequest) -> None:
    """Write what `seen` and `asked` say into out (float32, (TALLIED_AT,)): SHARED, ASKED, AHEAD.

    Of `seen` the successor is the job, and its predecessor means nothing.
    """
    pair = np.zeros(observe.AT.own_pending_jobs + 1, np.float32)
    observe.fill(pair, seen)
    for i in range(len(SHARED_COLUMNS)):
        out[i] = pair[SHARED_COLUMNS[i]]
    fill_asked(out, seen, asked)
    fill_ahead(out, seen, pair[observe.AT.free_nodes])


def fill_asked(out: Float32s, seen: Snapshot, asked: SubmissionRequest) -> None:
    """What the job asks for, in the order of ASKED."""
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
    """What is before the job in the queue, in the order of AHEAD. free: nodes that nobody holds now."""
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
