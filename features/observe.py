"""What a policy may know at a decision instant: one function for training, evaluation and live use.

Imports numpy alone. `fill` and the functions that it calls are plain Python over a `Snapshot` of arrays and numbers, so
that an agent runs them as they are, once in ten minutes, while training hands the very same functions to numba
(`models.pairs`), a million times.

The start estimate is what `squeue --start` shows: every pending job ahead of the successor, in queue order, takes the
earliest place in a profile of free nodes in which running jobs hold theirs until their time limit (a conservative
reservation profile; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001, section 2.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

VERSION = 2  # 1 had no usable nodes, held jobs and headroom
MAX_PLANNED = 400  # pending jobs that an estimate places; the rest are beyond any start within days
RECENT = 100  # jobs started, and jobs ended, that "recent" looks back on (Mirage's average takes 100)
HORIZON_H = 240.0  # estimates are cut here
NO_LIMIT = 1_000_000  # jobs or nodes that a user may hold where nothing limits them
MOST_JOBS = 1000  # headroom in jobs is cut here
HOUR_S = 3600.0


class Index(NamedTuple):
    """Where each number of the observation stands in its vector.

    The fields, in this order, are the names and the order of the observation; a change of either is a new VERSION. A
    name ends in its unit if it has one: `_h` hours, `_nodes` whole nodes, `_jobs` a count, `_node_h` nodes times hours.
    """

    remaining_h: int  # until the predecessor's end
    predecessor_elapsed_h: int
    predecessor_wait_h: int
    successor_nodes: int
    successor_limit_h: int
    capacity_nodes: int
    free_nodes: int
    pending_jobs: int
    pending_nodes: int
    pending_node_h: int  # nodes x limit
    pending_widest_nodes: int
    pending_age_max_h: int
    pending_age_mean_h: int
    pending_limit_mean_h: int
    running_jobs: int
    running_node_h: int  # nodes x time left to the limit
    running_elapsed_mean_h: int
    release_1h_nodes: int  # nodes that running jobs give back within 1 h by their limits
    release_4h_nodes: int
    release_12h_nodes: int
    release_24h_nodes: int
    start_estimate_h: int  # wait if submitted now, by a reservation profile on time limits (squeue --start)
    start_estimate_gap_h: int  # that, minus remaining_h
    start_estimate_expected_h: int  # the same with run times expected from recently ended jobs in place of limits
    start_estimate_idle_h: int  # wait by limits if nobody else were pending and no limit were on users
    recent_wait_mean_h: int  # mean wait of the last 100 jobs started
    recent_wait_p50_h: int
    recent_wait_p90_h: int
    recent_wait_max_h: int
    recent_wide_wait_mean_h: int  # mean wait of those that asked for at least half the successor's nodes
    started_6h_jobs: int
    arrived_1h_node_h: int  # node-hours (by limit) submitted in the last hour
    arrived_6h_node_h: int
    arrived_24h_node_h: int
    limit_use_mean: int  # run time over limit, mean of the last 100 jobs ended
    hour_sin: int  # hour of the day, UTC
    hour_cos: int
    weekday_sin: int
    weekday_cos: int
    usable_nodes: int  # in service: capacity less what is down, drained or kept apart
    held_jobs: int  # pending jobs that a dependency, a begin time, their user or an operator keeps from starting
    held_nodes: int
    headroom_jobs: int  # running jobs that the user may have beside those of now, by the limits on users
    headroom_nodes: int  # nodes that the user may hold beside those of now
    headroom_wait_h: int  # until the user's own jobs, running and ahead in the queue, leave room, by their time limits
    own_pending_jobs: int  # of the successor's user, ahead of it in the queue and not held


FEATURES: tuple[str, ...] = Index._fields
# What stands in for a number that an observer is not shown: a number, or another feature. A user may see neither other
# users' reasons nor the limits of its own association, nor past jobs (slurm.conf: PrivateData; no slurmdbd).
FILLS: dict[str, float | str] = {
    "usable_nodes": "capacity_nodes",
    "held_jobs": 0.0,
    "held_nodes": 0.0,
    "headroom_jobs": float(MOST_JOBS),
    "headroom_nodes": "capacity_nodes",
    "headroom_wait_h": 0.0,
    "own_pending_jobs": 0.0,
    "recent_wait_mean_h": 0.0,
    "recent_wait_p50_h": 0.0,
    "recent_wait_p90_h": 0.0,
    "recent_wait_max_h": 0.0,
    "recent_wide_wait_mean_h": 0.0,
    "started_6h_jobs": 0.0,
    "limit_use_mean": 1.0,
}
AT = Index(*range(len(FEATURES)))  # numba freezes it: `out[AT.free_nodes]` costs what `out[6]` does


class Snapshot(NamedTuple):
    """The visible state of a cluster at one instant. Times are epoch seconds, sizes whole nodes, arrays int64.

    Everything here is in `squeue`, `sinfo` and `sacct` at that instant; nothing is learned later.
    """

    now_s: int
    capacity: int  # nodes of the cluster
    usable: int  # those in service
    pending_nodes: Int64s  # (pending,) in queue order, first to start first
    pending_limit_s: Int64s
    pending_submit_s: Int64s
    pending_held: Int64s  # 1: held by something other than the queue (squeue's Reason); 0
    pending_user: Int64s  # numbers of users
    running_nodes: Int64s  # (running,) in any order, the predecessor included
    running_limit_s: Int64s
    running_start_s: Int64s
    running_user: Int64s  # numbers of users
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
    successor_user: int
    successor_place: int  # pending jobs that would go ahead of it, if it were submitted now
    user_max_jobs: int  # running jobs that a user may have; NO_LIMIT
    user_max_nodes: int  # nodes that a user may hold, but for a single job that is wider; NO_LIMIT


def place(times: Float64s, free: Float64s, used: int, nodes: float, duration: float) -> tuple[float, int]:
    """Reserve `nodes` for `duration` seconds at the earliest instant where they stay free.

    times, free: (room,) float64; free[i] nodes are free from times[i] until times[i + 1], the last for ever.
    used: entries in use. Returns (start, entries in use afterwards). The profile ends with all nodes free, so a job
    that fits the cluster always has a place; one that is wider starts at infinity.
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


def fill(out: NDArray[np.float32], seen: Snapshot) -> None:
    """Write the observation of `seen` into `out` (float32, (len(FEATURES),)), each number where AT says."""
    sorted_use = np.sort(seen.ended_use)
    left_s = time_left_s(seen)
    fill_pair(out, seen)
    fill_pending(out, seen)
    fill_running(out, seen, left_s)
    fill_start_estimates(out, seen, left_s, sorted_use)
    fill_limits(out, seen)
    fill_recent_waits(out, seen)
    fill_arrivals(out, seen)
    fill_limit_use(out, sorted_use)
    fill_calendar(out, seen.now_s)


def time_left_s(seen: Snapshot) -> Float64s:
    """Seconds until each running job reaches its limit: float64, (running,).

    At least a minute: a job over its limit is within Slurm's KillWait and about to go.
    """
    left_s = np.empty(len(seen.running_nodes))
    for i in range(len(left_s)):
        left_s[i] = max(seen.running_limit_s[i] - (seen.now_s - seen.running_start_s[i]), 60)
    return left_s


def fill_pair(out: NDArray[np.float32], seen: Snapshot) -> None:
    """What is known of the predecessor and the successor, and the size of the cluster."""
    out[AT.remaining_h] = (seen.predecessor_end_s - seen.now_s) / HOUR_S
    out[AT.predecessor_elapsed_h] = (seen.now_s - seen.predecessor_start_s) / HOUR_S
    out[AT.predecessor_wait_h] = seen.predecessor_wait_s / HOUR_S
    out[AT.successor_nodes] = seen.successor_nodes
    out[AT.successor_limit_h] = seen.successor_limit_s / HOUR_S
    out[AT.capacity_nodes] = seen.capacity
    out[AT.usable_nodes] = seen.usable


def fill_pending(out: NDArray[np.float32], seen: Snapshot) -> None:
    """The queue: how many jobs, how much they ask for, how long they have waited."""
    pending = len(seen.pending_nodes)
    nodes, node_h, widest, age_max, age_sum, limit_sum = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(pending):
        age_h = (seen.now_s - seen.pending_submit_s[i]) / HOUR_S
        nodes += seen.pending_nodes[i]
        node_h += seen.pending_nodes[i] * seen.pending_limit_s[i] / HOUR_S
        widest = max(widest, seen.pending_nodes[i] * 1.0)
        age_max = max(age_max, age_h)
        age_sum += age_h
        limit_sum += seen.pending_limit_s[i] / HOUR_S
    out[AT.pending_jobs] = pending
    out[AT.pending_nodes] = nodes
    out[AT.pending_node_h] = node_h
    out[AT.pending_widest_nodes] = widest
    out[AT.pending_age_max_h] = age_max
    out[AT.pending_age_mean_h] = age_sum / max(pending, 1)
    out[AT.pending_limit_mean_h] = limit_sum / max(pending, 1)


def fill_running(out: NDArray[np.float32], seen: Snapshot, left_s: Float64s) -> None:
    """What runs, what is free, and what comes free within 1, 4, 12 and 24 h if every job runs to its limit."""
    running = len(seen.running_nodes)
    held, left_node_h, elapsed_sum = 0.0, 0.0, 0.0
    within_1h, within_4h, within_12h, within_24h = 0.0, 0.0, 0.0, 0.0
    for i in range(running):
        nodes = seen.running_nodes[i]
        held += nodes
        left_node_h += nodes * left_s[i] / HOUR_S
        elapsed_sum += (seen.now_s - seen.running_start_s[i]) / HOUR_S
        within_1h += nodes if left_s[i] <= 1 * HOUR_S else 0
        within_4h += nodes if left_s[i] <= 4 * HOUR_S else 0
        within_12h += nodes if left_s[i] <= 12 * HOUR_S else 0
        within_24h += nodes if left_s[i] <= 24 * HOUR_S else 0
    out[AT.free_nodes] = seen.usable - held
    out[AT.running_jobs] = running
    out[AT.running_node_h] = left_node_h
    out[AT.running_elapsed_mean_h] = elapsed_sum / max(running, 1)
    out[AT.release_1h_nodes] = within_1h
    out[AT.release_4h_nodes] = within_4h
    out[AT.release_12h_nodes] = within_12h
    out[AT.release_24h_nodes] = within_24h


def planned(seen: Snapshot) -> Int64s:
    """Which pending jobs hold nodes before the successor gets a place: rows, in queue order, at most MAX_PLANNED.

    Of those ahead of it, what is not held and what the limits on its user let start: the others are passed over.
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


def fill_start_estimates(out: NDArray[np.float32], seen: Snapshot, left_s: Float64s, sorted_use: Float64s) -> None:
    """When the successor would start if submitted now: by limits, by expected run times, and with nobody else pending.

    It starts no earlier than its user's limits allow (`headroom_wait_s`).
    left_s: (running,) as `time_left_s` gives it; sorted_use: (recent,) run time over limit of ended jobs, ascending.
    """
    expected_left_s = np.empty(len(left_s))
    for i in range(len(left_s)):
        elapsed_s = seen.now_s - seen.running_start_s[i]
        expected_left_s[i] = expected_left(elapsed_s * 1.0, seen.running_limit_s[i] * 1.0, sorted_use)
    rows = planned(seen)
    count = len(rows)
    pending, limit_s, expected_s = seen.pending_nodes[rows], np.empty(count), np.empty(count)
    for j in range(count):
        limit_s[j] = seen.pending_limit_s[rows[j]]
        expected_s[j] = expected_left(0.0, limit_s[j], sorted_use)

    running, nodes, duration_s = seen.running_nodes, seen.successor_nodes, seen.successor_limit_s * 1.0
    usable = seen.usable if nodes <= seen.usable else seen.capacity  # nodes that are out come back
    by_limits = start_estimate(usable, running, left_s, pending, limit_s, count, nodes, duration_s)
    by_use = start_estimate(usable, running, expected_left_s, pending, expected_s, count, nodes, duration_s)
    if_idle = start_estimate(usable, running, left_s, pending, limit_s, 0, nodes, duration_s)
    use = float(np.mean(sorted_use)) if len(sorted_use) > 0 else 1.0
    allowed_s, allowed_by_use_s = headroom_wait_s(seen, left_s, 1.0), headroom_wait_s(seen, expected_left_s, use)
    by_limits, by_use = max(by_limits, allowed_s), max(by_use, allowed_by_use_s)
    remaining_h = (seen.predecessor_end_s - seen.now_s) / HOUR_S
    out[AT.headroom_wait_h] = min(allowed_s / HOUR_S, HORIZON_H)
    out[AT.start_estimate_h] = min(by_limits / HOUR_S, HORIZON_H)
    out[AT.start_estimate_gap_h] = min(by_limits / HOUR_S, HORIZON_H) - remaining_h
    out[AT.start_estimate_expected_h] = min(by_use / HOUR_S, HORIZON_H)
    out[AT.start_estimate_idle_h] = min(if_idle / HOUR_S, HORIZON_H)


def headroom_wait_s(seen: Snapshot, left_s: Float64s, use: float) -> float:
    """Seconds until the limits on users let the successor run; 0 where they do now.

    The user's own jobs that pend ahead of it start first, each as soon as the limits allow, and run for `use` times
    their limit. A job wider than the limit on nodes may run alone.
    left_s: (running,) seconds until each running job ends.

    An example with two jobs a user: the predecessor ends in 1 h and another job in 5 h, and a job of 10 h pends ahead.
    That one starts in 1 h and ends in 11 h; the successor may run from 5 h on.
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
    """When a user with `alive` jobs, which end at `end_s` (s), may start one of `size` nodes, no earlier than `now`.

    Jobs that have ended by then are taken out of end_s and nodes. Returns (s, jobs alive then).
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


def fill_limits(out: NDArray[np.float32], seen: Snapshot) -> None:
    """What is held in the queue, and what the limits on users leave to the successor's."""
    held_jobs, held_nodes = 0, 0
    for i in range(len(seen.pending_nodes)):
        if seen.pending_held[i] == 1:
            held_jobs += 1
            held_nodes += seen.pending_nodes[i]
    jobs, nodes = 0, 0
    for i in range(len(seen.running_nodes)):
        if seen.running_user[i] == seen.successor_user:
            jobs += 1
            nodes += seen.running_nodes[i]
    own_pending = 0
    for i in range(seen.successor_place):
        if seen.pending_user[i] == seen.successor_user and seen.pending_held[i] == 0:
            own_pending += 1
    out[AT.own_pending_jobs] = own_pending
    out[AT.held_jobs] = held_jobs
    out[AT.held_nodes] = held_nodes
    out[AT.headroom_jobs] = min(max(seen.user_max_jobs - jobs, 0), MOST_JOBS)
    out[AT.headroom_nodes] = min(max(seen.user_max_nodes - nodes, 0), seen.capacity)


def fill_recent_waits(out: NDArray[np.float32], seen: Snapshot) -> None:
    """How long the jobs waited that started last; all zero where none has started."""
    recent = len(seen.recent_wait_s)
    sorted_wait_s = np.sort(seen.recent_wait_s)
    wait_sum, wide_sum, wide, started = 0.0, 0.0, 0, 0
    for i in range(recent):
        wait_sum += seen.recent_wait_s[i] / HOUR_S
        if 2 * seen.recent_nodes[i] >= seen.successor_nodes:
            wide_sum += seen.recent_wait_s[i] / HOUR_S
            wide += 1
        if seen.recent_start_s[i] > seen.now_s - 6 * HOUR_S:
            started += 1
    mean_h = wait_sum / max(recent, 1)
    out[AT.recent_wait_mean_h] = mean_h
    out[AT.recent_wait_p50_h] = sorted_wait_s[(recent - 1) // 2] / HOUR_S if recent > 0 else 0.0
    out[AT.recent_wait_p90_h] = sorted_wait_s[(9 * (recent - 1)) // 10] / HOUR_S if recent > 0 else 0.0
    out[AT.recent_wait_max_h] = sorted_wait_s[recent - 1] / HOUR_S if recent > 0 else 0.0
    out[AT.recent_wide_wait_mean_h] = wide_sum / wide if wide > 0 else mean_h
    out[AT.started_6h_jobs] = started


def fill_arrivals(out: NDArray[np.float32], seen: Snapshot) -> None:
    """Node-hours asked for within the last 1, 6 and 24 h."""
    last_1h, last_6h, last_24h = 0.0, 0.0, 0.0
    for i in range(len(seen.arrived_submit_s)):
        age_s = seen.now_s - seen.arrived_submit_s[i]
        node_h = seen.arrived_node_s[i] / HOUR_S
        if 0 <= age_s <= 24 * HOUR_S:
            last_24h += node_h
            last_6h += node_h if age_s <= 6 * HOUR_S else 0.0
            last_1h += node_h if age_s <= 1 * HOUR_S else 0.0
    out[AT.arrived_1h_node_h] = last_1h
    out[AT.arrived_6h_node_h] = last_6h
    out[AT.arrived_24h_node_h] = last_24h


def fill_limit_use(out: NDArray[np.float32], sorted_use: Float64s) -> None:
    """Mean run time over limit of the jobs that ended last; 1 where none has ended."""
    total = 0.0
    for i in range(len(sorted_use)):
        total += sorted_use[i]
    out[AT.limit_use_mean] = total / len(sorted_use) if len(sorted_use) > 0 else 1.0


def fill_calendar(out: NDArray[np.float32], now_s: int) -> None:
    """The hour of the day and the hour of the week (UTC), each as a point on a circle."""
    day = 2.0 * np.pi * (now_s % 86400) / 86400.0
    week = 2.0 * np.pi * (now_s % 604800) / 604800.0
    out[AT.hour_sin] = np.sin(day)
    out[AT.hour_cos] = np.cos(day)
    out[AT.weekday_sin] = np.sin(week)
    out[AT.weekday_cos] = np.cos(week)


# Whoever compiles `fill` compiles these, which it calls, as well.
CALLED_BY_FILL = (
    place,
    start_estimate,
    expected_left,
    time_left_s,
    fill_pair,
    fill_pending,
    fill_running,
    planned,
    fill_start_estimates,
    headroom_wait_s,
    allowed_from,
    fill_limits,
    fill_recent_waits,
    fill_arrivals,
    fill_limit_use,
    fill_calendar,
)


def observe(snapshot: Snapshot) -> NDArray[np.float32]:
    """The observation at one instant: float32, (len(FEATURES),), in the order of FEATURES."""
    out = np.zeros(len(FEATURES), np.float32)
    fill(out, snapshot)
    return out
