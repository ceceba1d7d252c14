"""The observation of a policy at a decision instant: one function for training, evaluation and live use.

This module imports numpy alone. `fill` and the functions that it calls are plain Python over a `Snapshot` of arrays and
numbers. An agent runs them uncompiled, once in ten minutes. Training compiles the same functions with numba
(`models.provisioning.pairs.injected`) and runs them a million times.

`features.start_estimate` estimates when a job starts.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from features.snapshot import Snapshot
from features.start_estimate import (
    allowed_from,
    expected_left,
    headroom_wait_s,
    place,
    planned,
    start_estimate,
)
from traces.arrays import Float64s
from traces.units import HOUR_S

VERSION = 2  # 1 had no usable nodes, held jobs and headroom
RECENT = 100  # "recent" covers so many jobs started and so many ended (Mirage averages over 100)
HORIZON_H = 240.0  # upper bound of estimates
MOST_JOBS = 1000  # upper bound of the headroom in jobs


class Feature(NamedTuple):
    """The declaration of one number of the observation. Its name is the field of `Index`.

    low, high: the bounds in hours, nodes ...; "limit" is that of the predecessor, "capacity" the nodes of the cluster.
    fill: the number or the name of the feature that replaces it where it cannot be observed; None: nothing can.
    needs: the information that it needs: "" for none that Slurm can hide, "jobs" for other users' jobs, or a key of
    HIDDEN_TOGETHER. is_of_pair: whether it describes the pair, so that a single job has no such feature.
    """

    meaning: str
    low: float | str = 0
    high: float | str = "Inf"
    fill: float | str | None = None
    needs: str = "jobs"
    is_of_pair: bool = False


class Index(NamedTuple):
    """Position of each feature in the observation vector.

    The fields are the names of the features, in the order of the vector. Changing a name or the order, or adding a
    feature, requires a new VERSION. A name ends in its unit if it has one: `_h` hours, `_nodes` whole nodes, `_jobs` a
    count, `_node_h` nodes times hours. Everything else that depends on the list is derived from these declarations.
    """

    remaining_h: Annotated[int, Feature("until the predecessor's end", high="limit", needs="", is_of_pair=True)]
    predecessor_elapsed_h: Annotated[
        int, Feature("since the predecessor's start", high="limit", needs="", is_of_pair=True)
    ]
    predecessor_wait_h: Annotated[int, Feature("of the predecessor", needs="", is_of_pair=True)]
    successor_nodes: Annotated[int, Feature("requested", low=1, high="capacity", needs="", is_of_pair=True)]
    successor_limit_h: Annotated[int, Feature("requested", needs="", is_of_pair=True)]
    capacity_nodes: Annotated[int, Feature("of the cluster", low=1, needs="")]
    free_nodes: Annotated[int, Feature("in service and not held by a job", high="capacity")]
    pending_jobs: Annotated[int, Feature("in the queue")]
    pending_nodes: Annotated[int, Feature("of all pending jobs together")]
    pending_node_h: Annotated[int, Feature("nodes x limit of all pending jobs")]
    pending_widest_nodes: Annotated[int, Feature("of the widest pending job")]
    pending_age_max_h: Annotated[int, Feature("since submission")]
    pending_age_mean_h: Annotated[int, Feature("since submission")]
    pending_limit_mean_h: Annotated[int, Feature("mean limit of the pending jobs")]
    running_jobs: Annotated[int, Feature("the predecessor included")]
    running_node_h: Annotated[int, Feature("nodes x time left to the limit")]
    running_elapsed_mean_h: Annotated[int, Feature("since the start")]
    release_1h_nodes: Annotated[int, Feature("released within 1 h if jobs run to their limits", high="capacity")]
    release_4h_nodes: Annotated[int, Feature("within 4 h", high="capacity")]
    release_12h_nodes: Annotated[int, Feature("within 12 h", high="capacity")]
    release_24h_nodes: Annotated[int, Feature("within 24 h", high="capacity")]
    start_estimate_h: Annotated[
        int, Feature("wait if submitted now, by a reservation profile on limits", high=HORIZON_H)
    ]
    start_estimate_gap_h: Annotated[
        int, Feature("start_estimate_h minus remaining_h", low="-limit", high=HORIZON_H, is_of_pair=True)
    ]
    start_estimate_expected_h: Annotated[
        int, Feature("the same with run times expected from ended jobs", high=HORIZON_H)
    ]
    start_estimate_idle_h: Annotated[int, Feature("the same without pending jobs and limits on users", high=HORIZON_H)]
    recent_wait_mean_h: Annotated[int, Feature("mean wait of the last 100 jobs started", fill=0.0, needs="recent")]
    recent_wait_p50_h: Annotated[int, Feature("median of these waits", fill=0.0, needs="recent")]
    recent_wait_p90_h: Annotated[int, Feature("their 90th percentile", fill=0.0, needs="recent")]
    recent_wait_max_h: Annotated[int, Feature("the longest of them", fill=0.0, needs="recent")]
    recent_wide_wait_mean_h: Annotated[
        int, Feature("mean of those with half the successor's nodes or more", fill=0.0, needs="recent")
    ]
    started_6h_jobs: Annotated[int, Feature("of these 100, started within 6 h", high=RECENT, fill=0.0, needs="recent")]
    arrived_1h_node_h: Annotated[int, Feature("nodes x limit submitted within 1 h")]
    arrived_6h_node_h: Annotated[int, Feature("within 6 h")]
    arrived_24h_node_h: Annotated[int, Feature("within 24 h")]
    limit_use_mean: Annotated[
        int, Feature("mean run time over limit of the last 100 jobs ended", fill=1.0, needs="recent")
    ]
    hour_sin: Annotated[int, Feature("hour of the day, UTC", low=-1, high=1, needs="")]
    hour_cos: Annotated[int, Feature("hour of the day, UTC", low=-1, high=1, needs="")]
    weekday_sin: Annotated[int, Feature("hour of the week, UTC", low=-1, high=1, needs="")]
    weekday_cos: Annotated[int, Feature("hour of the week, UTC", low=-1, high=1, needs="")]
    usable_nodes: Annotated[
        int,
        Feature("in service: not down, drained or kept apart", high="capacity", fill="capacity_nodes", needs="nodes"),
    ]
    held_jobs: Annotated[
        int, Feature("pending, held by a dependency, begin time, user or operator", fill=0.0, needs="held")
    ]
    held_nodes: Annotated[int, Feature("of the held jobs", fill=0.0, needs="held")]
    headroom_jobs: Annotated[
        int,
        Feature("further jobs that limits on users allow now", high=MOST_JOBS, fill=float(MOST_JOBS), needs="limits"),
    ]
    headroom_nodes: Annotated[
        int, Feature("further nodes that they allow", high="capacity", fill="capacity_nodes", needs="limits")
    ]
    headroom_wait_h: Annotated[
        int, Feature("until they allow the successor, from time limits", high=HORIZON_H, fill=0.0, needs="limits")
    ]
    own_pending_jobs: Annotated[int, Feature("of the successor's user, ahead of it and not held", fill=0.0)]


DECLARED: dict[str, Feature] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Index, include_extras=True).items()
}
FEATURES: tuple[str, ...] = Index._fields
# Fallback for each feature that an observer may not see. A user may see neither other users' reasons, nor the limits of
# their own association, nor past jobs (slurm.conf: PrivateData; no slurmdbd).
FILLS: dict[str, float | str] = {name: one.fill for name, one in DECLARED.items() if one.fill is not None}
# Kind of hidden information -> the features that are then missing together.
HIDDEN_TOGETHER: dict[str, tuple[str, ...]] = {
    kind: tuple(name for name, one in DECLARED.items() if one.needs == kind)
    for kind in (
        "recent",  # the jobs that started and ended last: no accounting, or only one's own jobs in it
        "limits",  # the limits of one's own association
        "nodes",  # the states of nodes
        "held",  # the reasons why other users' jobs pend
    )
}
# The features that are missing if Slurm shows a user only their own jobs.
NEED_OTHERS = tuple(name for name, one in DECLARED.items() if one.needs in ("jobs", "recent", "held"))
AT = Index(*range(len(FEATURES)))  # a constant for numba: `out[AT.free_nodes]` is as fast as `out[6]`


def fill(out: NDArray[np.float32], seen: Snapshot) -> None:
    """Write the observation of `seen` into `out` (float32, (len(FEATURES),)), at the positions of AT."""
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
    """Compute the seconds until each running job reaches its limit: float64, (running,).

    The result is at least 60 s: Slurm ends a job over its limit within KillWait.
    """
    left_s = np.empty(len(seen.running_nodes))
    for i in range(len(left_s)):
        left_s[i] = max(seen.running_limit_s[i] - (seen.now_s - seen.running_start_s[i]), 60)
    return left_s


def fill_pair(out: NDArray[np.float32], seen: Snapshot) -> None:
    """Fill in the features of the predecessor, the successor and the size of the cluster."""
    out[AT.remaining_h] = (seen.predecessor_end_s - seen.now_s) / HOUR_S
    out[AT.predecessor_elapsed_h] = (seen.now_s - seen.predecessor_start_s) / HOUR_S
    out[AT.predecessor_wait_h] = seen.predecessor_wait_s / HOUR_S
    out[AT.successor_nodes] = seen.successor_nodes
    out[AT.successor_limit_h] = seen.successor_limit_s / HOUR_S
    out[AT.capacity_nodes] = seen.capacity
    out[AT.usable_nodes] = seen.usable


def fill_pending(out: NDArray[np.float32], seen: Snapshot) -> None:
    """Fill in the features of the queue: number of jobs, amount requested, time waited."""
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
    """Fill in running jobs, free nodes, and the nodes released within 1, 4, 12 and 24 h if jobs run to their limits."""
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


def fill_start_estimates(out: NDArray[np.float32], seen: Snapshot, left_s: Float64s, sorted_use: Float64s) -> None:
    """Fill in when the successor would start if submitted now: by limits, by expected run times, and without a queue.

    The successor starts no earlier than its user's limits allow (`headroom_wait_s`).
    left_s: (running,) as `time_left_s` returns; sorted_use: (recent,) run time over limit of ended jobs, ascending.
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
    usable = seen.usable if nodes <= seen.usable else seen.capacity  # a wider job waits for nodes to return to service
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


def fill_limits(out: NDArray[np.float32], seen: Snapshot) -> None:
    """Fill in the held jobs of the queue, and the headroom that the limits on users leave the successor's user."""
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
    """Fill in the waits of the jobs that started last; all are 0 where none has started."""
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
    """Fill in the node-hours requested within the last 1, 6 and 24 h."""
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
    """Fill in the mean of run time over limit of the jobs that ended last; 1 where none has ended."""
    total = 0.0
    for i in range(len(sorted_use)):
        total += sorted_use[i]
    out[AT.limit_use_mean] = total / len(sorted_use) if len(sorted_use) > 0 else 1.0


def fill_calendar(out: NDArray[np.float32], now_s: int) -> None:
    """Fill in the hour of the day and the hour of the week (UTC), each as a point on a circle."""
    day = 2.0 * np.pi * (now_s % 86400) / 86400.0
    week = 2.0 * np.pi * (now_s % 604800) / 604800.0
    out[AT.hour_sin] = np.sin(day)
    out[AT.hour_cos] = np.cos(day)
    out[AT.weekday_sin] = np.sin(week)
    out[AT.weekday_cos] = np.cos(week)


# The functions that `fill` calls: compiling `fill` requires compiling these too.
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
    """Compute the observation at one instant: float32, (len(FEATURES),), in the order of FEATURES."""
    out = np.zeros(len(FEATURES), np.float32)
    fill(out, snapshot)
    return out
