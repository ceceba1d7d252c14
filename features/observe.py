"""What a policy may know at a decision instant: one function for training, evaluation and live use.

Imports numpy alone. `fill` and the functions that it calls are plain Python over arrays and scalars, so that an agent
runs them as they are, once in ten minutes, while training hands the very same functions to numba
(`models.pairs`), a million times.

The start estimate is what `squeue --start` shows: every pending job, in queue order, takes the earliest place in a
profile of free nodes in which running jobs hold theirs until their time limit (a conservative reservation profile;
Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, section 2.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

VERSION = 1
MAX_PLANNED = 400  # pending jobs that the reservation profile places; the rest are beyond any start within days
RECENT = 100  # jobs started, and jobs ended, that "recent" looks back on (Mirage's average takes 100)
HORIZON_H = 240.0  # estimates are cut here

# Name: meaning. The order is the order of the vector; a change of either is a new VERSION.
FEATURES: tuple[str, ...] = (
    "remaining_h",  # until the predecessor's end
    "predecessor_elapsed_h",
    "predecessor_wait_h",
    "successor_nodes",
    "successor_limit_h",
    "capacity_nodes",
    "free_nodes",
    "pending_jobs",
    "pending_nodes",
    "pending_node_h",  # nodes x limit
    "pending_widest_nodes",
    "pending_age_max_h",
    "pending_age_mean_h",
    "pending_limit_mean_h",
    "running_jobs",
    "running_node_h",  # nodes x time left to the limit
    "running_elapsed_mean_h",
    "release_1h_nodes",  # nodes that running jobs give back within 1 h by their limits
    "release_4h_nodes",
    "release_12h_nodes",
    "release_24h_nodes",
    "start_estimate_h",  # wait if submitted now, by a reservation profile on time limits (squeue --start)
    "start_estimate_gap_h",  # that, minus remaining_h
    "start_estimate_expected_h",  # the same with run times expected from recently ended jobs in place of limits
    "start_estimate_idle_h",  # wait by limits if nobody else were pending
    "recent_wait_mean_h",  # mean wait of the last 100 jobs started
    "recent_wait_p50_h",
    "recent_wait_p90_h",
    "recent_wait_max_h",
    "recent_wide_wait_mean_h",  # mean wait of those of the last 100 that asked for at least half the successor's nodes
    "started_6h_jobs",
    "arrived_1h_node_h",  # node-hours (by limit) submitted in the last hour
    "arrived_6h_node_h",
    "arrived_24h_node_h",
    "limit_use_mean",  # run time over limit, mean of the last 100 jobs ended
    "hour_sin",  # hour of the day, UTC
    "hour_cos",
    "weekday_sin",
    "weekday_cos",
)


class Snapshot(NamedTuple):
    """The visible state of a cluster at one instant. Times are epoch seconds, sizes whole nodes, arrays int64.

    Everything here is in `squeue`, `sinfo` and `sacct` at that instant; nothing is learned later.
    """

    now_s: int
    capacity: int  # usable nodes
    pending_nodes: Int64s  # (pending,) in queue order, first to start first
    pending_limit_s: Int64s
    pending_submit_s: Int64s
    running_nodes: Int64s  # (running,) in any order, the predecessor included
    running_limit_s: Int64s
    running_start_s: Int64s
    recent_start_s: Int64s  # (up to RECENT,) jobs that started last, in any order
    recent_wait_s: Int64s
    recent_nodes: Int64s
    ended_use: Float64s  # (up to RECENT,) run time over limit of the jobs that ended last
    arrived_submit_s: Int64s  # (jobs submitted in the last 24 h,)
    arrived_node_s: Int64s  # their nodes x limit
    predecessor_start_s: int
    predecessor_wait_s: int
    predecessor_end_s: int
    successor_nodes: int
    successor_limit_s: int


def place(times: Float64s, free: Float64s, used: int, nodes: float, duration: float) -> tuple[float, int]:
    """Reserve `nodes` for `duration` seconds at the earliest instant where they stay free.

    times, free: (room,) float64; free[i] nodes are free from times[i] until times[i + 1], the last for ever.
    used: entries in use. Returns (start, entries in use now). The profile ends with all nodes free, so a job that
    fits the cluster always finds a place.
    """
    first = 0
    while True:
        start = times[first]
        last = first
        while last < used and times[last] < start + duration and free[last] >= nodes:
            last += 1
        if last == used or times[last] >= start + duration:
            break
        first = last + 1
        while first < used and free[first] < nodes:
            first += 1
        if first >= used:  # wider than the cluster: never starts
            return np.inf, used
    end = start + duration
    stop = first
    while stop < used and times[stop] < end:
        stop += 1
    if stop == used or times[stop] > end:  # a new breakpoint at the end, with what was free there before
        for i in range(used, stop, -1):
            times[i] = times[i - 1]
            free[i] = free[i - 1]
        times[stop] = end
        free[stop] = free[stop - 1]
        used += 1
    for i in range(first, stop):
        free[i] -= nodes
    return start, used


def start_estimate(
    capacity: int,
    running_nodes: Int64s,
    running_left_s: Float64s,
    pending_nodes: Int64s,
    pending_duration_s: Float64s,
    planned: int,
    nodes: int,
    duration_s: float,
) -> float:
    """Seconds until a job of `nodes` for `duration_s`, last in the queue, would start by the reservation profile.

    running_left_s: (running,) seconds until each running job gives its nodes back. The first `planned` pending jobs
    hold reservations before it, in queue order.
    """
    running = len(running_nodes)
    times = np.empty(running + 2 * planned + 4)
    free = np.empty(running + 2 * planned + 4)
    order = np.argsort(running_left_s)
    held = 0.0
    for i in range(running):
        held += running_nodes[i]
    times[0] = 0.0
    free[0] = max(0.0, capacity - held)
    used = 1
    released = capacity - held
    for k in range(running):
        i = order[k]
        released += running_nodes[i]
        if running_left_s[i] <= times[used - 1]:
            free[used - 1] = max(free[used - 1], min(released, capacity * 1.0))
        else:
            times[used] = running_left_s[i]
            free[used] = max(0.0, min(released, capacity * 1.0))
            used += 1
    for j in range(planned):
        _, used = place(times, free, used, pending_nodes[j], pending_duration_s[j])
    start, used = place(times, free, used, nodes, duration_s)
    return start


def expected_left(elapsed_s: float, limit_s: float, sorted_use: Float64s) -> float:
    """Expected seconds left of a job that has run `elapsed_s` of `limit_s`, from recent run-time-over-limit ratios.

    The mean of the ratios above the job's own, less its own: the empirical conditional expectation. Without such a
    ratio, the limit. sorted_use: (recent,) ascending.
    """
    used = elapsed_s / limit_s
    total = 0.0
    count = 0
    for i in range(len(sorted_use) - 1, -1, -1):
        if sorted_use[i] <= used:
            break
        total += sorted_use[i]
        count += 1
    if count == 0:
        return max(limit_s - elapsed_s, 60.0)
    return max((total / count - used) * limit_s, 60.0)


def fill(
    out: NDArray[np.float32],
    now_s: int,
    capacity: int,
    pending_nodes: Int64s,
    pending_limit_s: Int64s,
    pending_submit_s: Int64s,
    running_nodes: Int64s,
    running_limit_s: Int64s,
    running_start_s: Int64s,
    recent_start_s: Int64s,
    recent_wait_s: Int64s,
    recent_nodes: Int64s,
    ended_use: Float64s,
    arrived_submit_s: Int64s,
    arrived_node_s: Int64s,
    predecessor_start_s: int,
    predecessor_wait_s: int,
    predecessor_end_s: int,
    successor_nodes: int,
    successor_limit_s: int,
) -> None:
    """Write the observation, in the order of FEATURES, into `out` (float32, (len(FEATURES),)).

    One function of over fifty lines on purpose: it is a list, and numba compiles it as it stands.
    """
    hour = 3600.0
    remaining = (predecessor_end_s - now_s) / hour
    out[0] = remaining
    out[1] = (now_s - predecessor_start_s) / hour
    out[2] = predecessor_wait_s / hour
    out[3] = successor_nodes
    out[4] = successor_limit_s / hour
    out[5] = capacity

    pending = len(pending_nodes)
    nodes, node_h, widest, age_max, age_sum, limit_sum = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(pending):
        age = (now_s - pending_submit_s[i]) / hour
        nodes += pending_nodes[i]
        node_h += pending_nodes[i] * pending_limit_s[i] / hour
        widest = max(widest, pending_nodes[i] * 1.0)
        age_max = max(age_max, age)
        age_sum += age
        limit_sum += pending_limit_s[i] / hour
    out[7] = pending
    out[8] = nodes
    out[9] = node_h
    out[10] = widest
    out[11] = age_max
    out[12] = age_sum / max(pending, 1)
    out[13] = limit_sum / max(pending, 1)

    running = len(running_nodes)
    left_s = np.empty(running)
    expected_s = np.empty(running)
    sorted_use = np.sort(ended_use)
    held, left_node_h, elapsed_sum = 0.0, 0.0, 0.0
    r1, r4, r12, r24 = 0.0, 0.0, 0.0, 0.0
    for i in range(running):
        elapsed = now_s - running_start_s[i]
        left = max(running_limit_s[i] - elapsed, 60)  # overdue: within KillWait, about to go
        left_s[i] = left
        expected_s[i] = expected_left(elapsed * 1.0, running_limit_s[i] * 1.0, sorted_use)
        held += running_nodes[i]
        left_node_h += running_nodes[i] * left / hour
        elapsed_sum += elapsed / hour
        r1 += running_nodes[i] if left <= 3600 else 0
        r4 += running_nodes[i] if left <= 4 * 3600 else 0
        r12 += running_nodes[i] if left <= 12 * 3600 else 0
        r24 += running_nodes[i] if left <= 24 * 3600 else 0
    out[6] = capacity - held
    out[14] = running
    out[15] = left_node_h
    out[16] = elapsed_sum / max(running, 1)
    out[17] = r1
    out[18] = r4
    out[19] = r12
    out[20] = r24

    planned = min(pending, MAX_PLANNED)
    by_limit = np.empty(planned)
    by_use = np.empty(planned)
    for j in range(planned):
        by_limit[j] = pending_limit_s[j]
        by_use[j] = expected_left(0.0, pending_limit_s[j] * 1.0, sorted_use)
    width, duration = successor_nodes, successor_limit_s * 1.0
    estimate = start_estimate(capacity, running_nodes, left_s, pending_nodes, by_limit, planned, width, duration)
    expected = start_estimate(capacity, running_nodes, expected_s, pending_nodes, by_use, planned, width, duration)
    idle = start_estimate(capacity, running_nodes, left_s, pending_nodes, by_limit, 0, width, duration)
    out[21] = min(estimate / hour, HORIZON_H)
    out[22] = min(estimate / hour, HORIZON_H) - remaining
    out[23] = min(expected / hour, HORIZON_H)
    out[24] = min(idle / hour, HORIZON_H)

    recent = len(recent_wait_s)
    sorted_wait = np.sort(recent_wait_s)
    wait_sum, wide_sum, wide, started = 0.0, 0.0, 0, 0
    for i in range(recent):
        wait_sum += recent_wait_s[i] / hour
        if 2 * recent_nodes[i] >= successor_nodes:
            wide_sum += recent_wait_s[i] / hour
            wide += 1
        if recent_start_s[i] > now_s - 6 * 3600:
            started += 1
    out[25] = wait_sum / max(recent, 1)
    out[26] = sorted_wait[(recent - 1) // 2] / hour if recent > 0 else 0.0
    out[27] = sorted_wait[(9 * (recent - 1)) // 10] / hour if recent > 0 else 0.0
    out[28] = sorted_wait[recent - 1] / hour if recent > 0 else 0.0
    out[29] = wide_sum / wide if wide > 0 else out[25]
    out[30] = started

    a1, a6, a24 = 0.0, 0.0, 0.0
    for i in range(len(arrived_submit_s)):
        age_s = now_s - arrived_submit_s[i]
        node_hours = arrived_node_s[i] / hour
        if 0 <= age_s <= 24 * 3600:
            a24 += node_hours
            a6 += node_hours if age_s <= 6 * 3600 else 0.0
            a1 += node_hours if age_s <= 3600 else 0.0
    out[31] = a1
    out[32] = a6
    out[33] = a24

    use_sum = 0.0
    for i in range(len(sorted_use)):
        use_sum += sorted_use[i]
    out[34] = use_sum / len(sorted_use) if len(sorted_use) > 0 else 1.0

    day = 2.0 * np.pi * (now_s % 86400) / 86400.0
    week = 2.0 * np.pi * (now_s % 604800) / 604800.0
    out[35] = np.sin(day)
    out[36] = np.cos(day)
    out[37] = np.sin(week)
    out[38] = np.cos(week)


def observe(snapshot: Snapshot) -> NDArray[np.float32]:
    """The observation at one instant: float32, (len(FEATURES),), in the order of FEATURES."""
    out = np.zeros(len(FEATURES), np.float32)
    fill(out, *snapshot)
    return out
