"""Estimates of when a job would start if submitted now, from public information: reservation profile and user limits.

`squeue --start` uses the same profile. It holds the free nodes over time, and running jobs keep theirs until their time
limit. Every pending job ahead of the successor, in queue order, takes the earliest place in it (a conservative
reservation profile; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, section 2.2). Imports numpy alone.
"""

from __future__ import annotations

import numpy as np

from features.snapshot import NO_LIMIT, Snapshot
from traces.arrays import Float64s, Int64s

MAX_PLANNED = 400  # pending jobs that an estimate places; later ones would not start within days


def place(times: Float64s, free: Float64s, used: int, nodes: float, duration: float) -> tuple[float, int]:
    """Reserve `nodes` for `duration` seconds at the earliest instant where they stay free.

    times, free: (room,) float64; free[i] nodes are free from times[i] until times[i + 1], the last one without end.
    used: entries in use. Returns (start, entries in use afterwards). The profile ends with all nodes free, so a job
    that fits the cluster always finds a place; a wider job starts at infinity.
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
    if stop == used or times[stop] > end:  # add a breakpoint at the end, with the nodes that were free there
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
    """Estimate the seconds until a job of `nodes` for `duration_s`, last in the queue, starts by the profile.

    running_left_s: (running,) seconds until each running job releases its nodes. The first `planned` pending jobs
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
    """Estimate the remaining seconds of a job that has run `elapsed_s` of `limit_s`, from recent run times over limits.

    The estimate is the empirical conditional expectation: the mean of the ratios above the job's own ratio, minus that
    ratio, times the limit. Without a higher ratio the job is assumed to run to its limit. sorted_use: (recent,)
    ascending.
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


def planned(seen: Snapshot) -> Int64s:
    """List the pending jobs that reserve nodes before the successor: rows, in queue order, at most MAX_PLANNED.

    These are the jobs ahead of it that are not held and that the limits on their users allow to start.
    """
    users = seen.successor_user + 1
    for i in range(len(seen.running_user)):
        users = max(users, seen.running_user[i] + 1)
    for i in range(seen.successor_place):
        users = max(users, seen.pending_user[i] + 1)
    jobs, nodes = np.zeros(users, np.int64), np.zeros(users, np.int64)
    for i in range(len(seen.running_user)):
        jobs[seen.running_user[i]] += 1
        nodes[seen.running_user[i]] += seen.running_nodes[i]
    rows = np.empty(min(seen.successor_place, MAX_PLANNED), np.int64)
    count = 0
    for i in range(seen.successor_place):
        user, size = seen.pending_user[i], seen.pending_nodes[i]
        within = jobs[user] < seen.user_max_jobs and nodes[user] + size <= max(seen.user_max_nodes, size)
        if seen.pending_held[i] == 0 and within and count < len(rows):
            jobs[user] += 1
            nodes[user] += size
            rows[count] = i
            count += 1
    return rows[:count]


def headroom_wait_s(seen: Snapshot, left_s: Float64s, use: float) -> float:
    """Estimate the seconds until the limits on users allow the successor to run; 0 if they allow it now.

    The user's own pending jobs ahead of it start first, each as soon as the limits allow, and run for `use` times
    their limit. A job wider than the limit on nodes may run alone.
    left_s: (running,) seconds until each running job ends.

    Example with a limit of two jobs per user: the predecessor ends in 1 h, another job ends in 5 h, and a job of 10 h
    pends ahead. The pending job starts in 1 h and ends in 11 h; the successor may start in 5 h.
    """
    if seen.user_max_jobs >= NO_LIMIT and seen.user_max_nodes >= NO_LIMIT:
        return 0.0
    end_s, nodes = np.empty(len(left_s) + MAX_PLANNED), np.empty(len(left_s) + MAX_PLANNED, np.int64)
    alive = 0
    for i in range(len(left_s)):
        if seen.running_user[i] == seen.successor_user:
            end_s[alive], nodes[alive] = left_s[i], seen.running_nodes[i]
            alive += 1
    now, taken = 0.0, 0
    for i in range(seen.successor_place):
        if seen.pending_user[i] == seen.successor_user and seen.pending_held[i] == 0 and taken < MAX_PLANNED:
            now, alive = allowed_from(seen, end_s, nodes, alive, now, seen.pending_nodes[i])
            end_s[alive], nodes[alive] = now + use * seen.pending_limit_s[i], seen.pending_nodes[i]
            alive += 1
            taken += 1
    now, alive = allowed_from(seen, end_s, nodes, alive, now, seen.successor_nodes)
    return now


def allowed_from(
    seen: Snapshot, end_s: Float64s, nodes: Int64s, alive: int, now: float, size: int
) -> tuple[float, int]:
    """Compute when a user with `alive` jobs, ending at `end_s` (s), may start one of `size` nodes, at `now` or later.

    Removes jobs that have ended by then from end_s and nodes. Returns (s, number of jobs alive then).
    """
    while True:
        held, kept, following = 0, 0, np.inf
        for i in range(alive):
            if end_s[i] > now:
                end_s[kept], nodes[kept] = end_s[i], nodes[i]
                held += nodes[i]
                following = min(following, end_s[i])
                kept += 1
        alive = kept
        if alive == 0 or (alive < seen.user_max_jobs and held + size <= max(seen.user_max_nodes, size)):
            return now, alive
        now = following
