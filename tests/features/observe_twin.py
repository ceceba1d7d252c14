"""Every feature once more, from its definition in `features.observe.Index`: a small function a feature, by its name.

Nothing here is shared with `observe` but the snapshot that both are given. Lists of jobs, seconds and hours in plain
Python; where `observe` keeps a profile of free nodes, this tries one instant after the other.
"""

from __future__ import annotations

import math
import statistics
from datetime import UTC, datetime
from fractions import Fraction
from typing import NamedTuple

from features.observe import FEATURES
from features.snapshot import Snapshot

MINUTE, HOUR = 60, 3600
NOBODY_LIMITED = 1_000_000


class Job(NamedTuple):
    """A pending or running job."""

    nodes: int
    limit_s: int
    since_s: int  # submitted, or started
    user: int
    is_held: bool = False


class Reserved(NamedTuple):
    """Nodes that are taken from one instant to another, seconds from now."""

    from_s: float
    to_s: float
    nodes: int


def pending(seen: Snapshot) -> list[Job]:
    columns = (seen.pending_nodes, seen.pending_limit_s, seen.pending_submit_s, seen.pending_user, seen.pending_held)
    return [
        Job(int(nodes), int(limit_s), int(submit_s), int(user), bool(is_held))
        for nodes, limit_s, submit_s, user, is_held in zip(*columns, strict=True)
    ]


def running(seen: Snapshot) -> list[Job]:
    columns = (seen.running_nodes, seen.running_limit_s, seen.running_start_s, seen.running_user)
    return [
        Job(int(nodes), int(limit_s), int(start_s), int(user))
        for nodes, limit_s, start_s, user in zip(*columns, strict=True)
    ]


def mean(numbers: list[float], otherwise: float = 0.0) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


# -- the pair -----------------------------------------------------------------------------------------------------


def remaining_h(seen: Snapshot) -> float:
    return (seen.predecessor_end_s - seen.now_s) / HOUR


def predecessor_elapsed_h(seen: Snapshot) -> float:
    return (seen.now_s - seen.predecessor_start_s) / HOUR


def predecessor_wait_h(seen: Snapshot) -> float:
    return seen.predecessor_wait_s / HOUR


def successor_nodes(seen: Snapshot) -> float:
    return seen.successor_nodes


def successor_limit_h(seen: Snapshot) -> float:
    return seen.successor_limit_s / HOUR


# -- nodes --------------------------------------------------------------------------------------------------------


def capacity_nodes(seen: Snapshot) -> float:
    return seen.capacity


def usable_nodes(seen: Snapshot) -> float:
    return seen.usable


def free_nodes(seen: Snapshot) -> float:
    return seen.usable - sum(job.nodes for job in running(seen))


# -- the queue ----------------------------------------------------------------------------------------------------


def pending_jobs(seen: Snapshot) -> float:
    return len(pending(seen))


def pending_nodes(seen: Snapshot) -> float:
    return sum(job.nodes for job in pending(seen))


def pending_node_h(seen: Snapshot) -> float:
    return sum(job.nodes * job.limit_s / HOUR for job in pending(seen))


def pending_widest_nodes(seen: Snapshot) -> float:
    return max((job.nodes for job in pending(seen)), default=0)


def pending_ages_h(seen: Snapshot) -> list[float]:
    return [(seen.now_s - job.since_s) / HOUR for job in pending(seen)]


def pending_age_max_h(seen: Snapshot) -> float:
    return max(pending_ages_h(seen), default=0.0)


def pending_age_mean_h(seen: Snapshot) -> float:
    return mean(pending_ages_h(seen))


def pending_limit_mean_h(seen: Snapshot) -> float:
    return mean([job.limit_s / HOUR for job in pending(seen)])


def held_jobs(seen: Snapshot) -> float:
    return sum(job.is_held for job in pending(seen))


def held_nodes(seen: Snapshot) -> float:
    return sum(job.nodes for job in pending(seen) if job.is_held)


# -- what runs ----------------------------------------------------------------------------------------------------


def left_s(seen: Snapshot, job: Job) -> float:
    """Until the job's limit; one that is over it ends within a minute."""
    return max(job.limit_s - (seen.now_s - job.since_s), MINUTE)


def running_jobs(seen: Snapshot) -> float:
    return len(running(seen))


def running_node_h(seen: Snapshot) -> float:
    return sum(job.nodes * left_s(seen, job) / HOUR for job in running(seen))


def running_elapsed_mean_h(seen: Snapshot) -> float:
    return mean([(seen.now_s - job.since_s) / HOUR for job in running(seen)])


def given_back_nodes(seen: Snapshot, within_h: int) -> float:
    return sum(job.nodes for job in running(seen) if left_s(seen, job) <= within_h * HOUR)


def release_1h_nodes(seen: Snapshot) -> float:
    return given_back_nodes(seen, 1)


def release_4h_nodes(seen: Snapshot) -> float:
    return given_back_nodes(seen, 4)


def release_12h_nodes(seen: Snapshot) -> float:
    return given_back_nodes(seen, 12)


def release_24h_nodes(seen: Snapshot) -> float:
    return given_back_nodes(seen, 24)


# -- limits on users ----------------------------------------------------------------------------------------------


def own_running(seen: Snapshot) -> list[Job]:
    return [job for job in running(seen) if job.user == seen.successor_user]


def own_ahead(seen: Snapshot) -> list[Job]:
    ahead = pending(seen)[: seen.successor_place]
    return [job for job in ahead if job.user == seen.successor_user and not job.is_held]


def own_pending_jobs(seen: Snapshot) -> float:
    return len(own_ahead(seen))


def headroom_jobs(seen: Snapshot) -> float:
    return min(1000, max(0, seen.user_max_jobs - len(own_running(seen))))


def headroom_nodes(seen: Snapshot) -> float:
    return min(seen.capacity, max(0, seen.user_max_nodes - sum(job.nodes for job in own_running(seen))))


def may_start(seen: Snapshot, nodes: list[int], size: int) -> bool:
    """May a user whose jobs hold these nodes start one of that size? One that is wider than the limit may run alone."""
    if not nodes:
        return True
    return len(nodes) < seen.user_max_jobs and sum(nodes) + size <= seen.user_max_nodes


def allowed_after_s(seen: Snapshot, own_left_s: list[float], use: float) -> float:
    """When the limits let the successor run: the user's jobs ahead start in their order, as soon as they may."""
    if seen.user_max_jobs >= NOBODY_LIMITED and seen.user_max_nodes >= NOBODY_LIMITED:
        return 0.0
    taken = [Reserved(0.0, left, job.nodes) for job, left in zip(own_running(seen), own_left_s, strict=True)]
    ahead = [(job.nodes, use * job.limit_s) for job in own_ahead(seen)][:400]
    now = 0.0
    for size, duration_s in [*ahead, (seen.successor_nodes, 0.0)]:
        instants = sorted({now, *(one.to_s for one in taken if one.to_s > now)})
        now = next(t for t in instants if may_start(seen, [one.nodes for one in taken if one.to_s > t], size))
        taken.append(Reserved(now, now + duration_s, size))
    return now


def headroom_wait_h(seen: Snapshot) -> float:
    return min(allowed_after_s(seen, [left_s(seen, job) for job in own_running(seen)], 1.0) / HOUR, 240.0)


# -- when the successor would start -------------------------------------------------------------------------------


def earliest_s(usable: int, runs: list[Reserved], reserved: list[Reserved], nodes: int, duration_s: float) -> float:
    """The first instant from which so many nodes stay free for so long; they become free where something ends."""

    def free(at_s: float) -> float:
        left = usable - sum(one.nodes for one in runs if at_s < one.to_s)
        return max(0, left) - sum(one.nodes for one in reserved if one.from_s <= at_s < one.to_s)

    for start in sorted({0.0, *(one.to_s for one in (*runs, *reserved))}):
        until = start + duration_s
        changes = [one.from_s for one in reserved if start < one.from_s < until]
        if all(free(at_s) >= nodes for at_s in (start, *changes)):
            return start
    return math.inf


def planned(seen: Snapshot) -> list[Job]:
    """Of the jobs ahead: not held, and within the limits on their users. No more than 400 of them."""
    holding: dict[int, list[int]] = {}
    for job in running(seen):
        holding.setdefault(job.user, []).append(job.nodes)
    chosen: list[Job] = []
    for job in pending(seen)[: seen.successor_place]:
        own = holding.setdefault(job.user, [])
        within = len(own) < seen.user_max_jobs and (not own or sum(own) + job.nodes <= seen.user_max_nodes)
        if not job.is_held and within and len(chosen) < 400:
            own.append(job.nodes)
            chosen.append(job)
    return chosen


def profile_s(seen: Snapshot, lefts_s: list[float], queue: list[tuple[int, float]]) -> float:
    """Where the successor gets its nodes after all of the queue (nodes, seconds) has got theirs."""
    usable = seen.usable if seen.successor_nodes <= seen.usable else seen.capacity
    runs = [Reserved(0.0, left, job.nodes) for job, left in zip(running(seen), lefts_s, strict=True)]
    reserved: list[Reserved] = []
    for nodes, duration_s in queue:
        start = earliest_s(usable, runs, reserved, nodes, duration_s)
        if start < math.inf:
            reserved.append(Reserved(start, start + duration_s, nodes))
    return earliest_s(usable, runs, reserved, seen.successor_nodes, seen.successor_limit_s)


def start_estimate_h(seen: Snapshot) -> float:
    queue = [(job.nodes, float(job.limit_s)) for job in planned(seen)]
    by_nodes = profile_s(seen, [left_s(seen, job) for job in running(seen)], queue)
    return min(240.0, max(by_nodes / HOUR, headroom_wait_h(seen)))


def start_estimate_gap_h(seen: Snapshot) -> float:
    return start_estimate_h(seen) - remaining_h(seen)


def expected_s(seen: Snapshot, elapsed_s: float, limit_s: int) -> float:
    """Seconds left by the jobs that ended last: of those that used a larger share of their limit, the mean share."""
    used = elapsed_s / limit_s
    longer = [float(share) for share in seen.ended_use if share > used]
    expected = (mean(longer) - used) * limit_s if longer else limit_s - elapsed_s
    return max(expected, MINUTE)


def start_estimate_expected_h(seen: Snapshot) -> float:
    queue = [(job.nodes, expected_s(seen, 0.0, job.limit_s)) for job in planned(seen)]
    lefts_s = [expected_s(seen, seen.now_s - job.since_s, job.limit_s) for job in running(seen)]
    own_s = [left for job, left in zip(running(seen), lefts_s, strict=True) if job.user == seen.successor_user]
    allowed_s = allowed_after_s(seen, own_s, limit_use_mean(seen))
    return min(240.0, max(profile_s(seen, lefts_s, queue), allowed_s) / HOUR)


def start_estimate_idle_h(seen: Snapshot) -> float:
    return min(240.0, profile_s(seen, [left_s(seen, job) for job in running(seen)], []) / HOUR)


# -- recent jobs --------------------------------------------------------------------------------------------------


def recent_waits_h(seen: Snapshot) -> list[float]:
    return sorted(float(wait) / HOUR for wait in seen.recent_wait_s)


def recent_wait_mean_h(seen: Snapshot) -> float:
    return mean(recent_waits_h(seen))


def recent_wait_p50_h(seen: Snapshot) -> float:
    return statistics.median_low(recent_waits_h(seen) or [0.0])


def recent_wait_p90_h(seen: Snapshot) -> float:
    waits_h = recent_waits_h(seen) or [0.0]
    return waits_h[math.floor(Fraction(90, 100) * (len(waits_h) - 1))]


def recent_wait_max_h(seen: Snapshot) -> float:
    return max(recent_waits_h(seen), default=0.0)


def recent_wide_wait_mean_h(seen: Snapshot) -> float:
    jobs = zip(seen.recent_wait_s, seen.recent_nodes, strict=True)
    wide = [float(wait) / HOUR for wait, nodes in jobs if nodes >= seen.successor_nodes / 2]
    return mean(wide, otherwise=recent_wait_mean_h(seen))


def started_6h_jobs(seen: Snapshot) -> float:
    return sum(seen.now_s - int(start) < 6 * HOUR for start in seen.recent_start_s)


def arrived_node_h(seen: Snapshot, within_h: int) -> float:
    jobs = zip(seen.arrived_submit_s, seen.arrived_node_s, strict=True)
    return sum(float(work) / HOUR for submit, work in jobs if 0 <= seen.now_s - int(submit) <= within_h * HOUR)


def arrived_1h_node_h(seen: Snapshot) -> float:
    return arrived_node_h(seen, 1)


def arrived_6h_node_h(seen: Snapshot) -> float:
    return arrived_node_h(seen, 6)


def arrived_24h_node_h(seen: Snapshot) -> float:
    return arrived_node_h(seen, 24)


def limit_use_mean(seen: Snapshot) -> float:
    return mean([float(share) for share in seen.ended_use], otherwise=1.0)


# -- the calendar -------------------------------------------------------------------------------------------------


def day_turn(seen: Snapshot) -> float:
    """The share of the day that has passed, as an angle."""
    now = datetime.fromtimestamp(seen.now_s, UTC)
    return 2 * math.pi * (now.hour + now.minute / 60 + now.second / 3600) / 24


def week_turn(seen: Snapshot) -> float:
    """The share of the week that has passed since Thursday 0:00, the weekday on which the epoch begins."""
    days = (datetime.fromtimestamp(seen.now_s, UTC).weekday() - 3) % 7
    return (2 * math.pi * days + day_turn(seen)) / 7


def hour_sin(seen: Snapshot) -> float:
    return math.sin(day_turn(seen))


def hour_cos(seen: Snapshot) -> float:
    return math.cos(day_turn(seen))


def weekday_sin(seen: Snapshot) -> float:
    return math.sin(week_turn(seen))


def weekday_cos(seen: Snapshot) -> float:
    return math.cos(week_turn(seen))


def observe_twin(seen: Snapshot) -> dict[str, float]:
    """The observation by feature. A feature without its function here is a KeyError that names it."""
    return {name: float(globals()[name](seen)) for name in FEATURES}
