"""Simulation of one future of a cluster in plain Python: the slow twin of the compiled `simulator.recorded.future`.

Present jobs run for the given run times, others arrive at the given times, and scheduling passes start jobs. In a pass,
each job in queue order takes the earliest place in a profile of free nodes that delays no job before it, assuming time
limits. A held job, or one over its user's limits, is skipped. A pass runs one second after the event that triggers it,
and at least STEP_S after the previous pass. A job may wait for a held job of the same user that is ahead of it and no
larger or longer; such a job keeps its place in the plan but does not start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

STEP_S = 60  # as `simulator.recorded.future`
OUT_S = 7200  # as `simulator.recorded.forked`: nodes out of service return after this time
FAR_S = 1 << 60


@dataclass(eq=False)
class FutureJob:
    """A job of one future. Times in s."""

    nodes: int
    limit_s: int
    user: int
    key: int  # place in the queue: falling key, equal keys in order of `row`
    row: int
    run_s: int
    start_s: int = FAR_S  # start of a running job
    submit_s: int = 0  # submission of an arriving job
    release_s: int = FAR_S  # release of a held job
    is_held: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key of the queue order."""
        return -self.key, self.row


@dataclass(frozen=True)
class FutureUserLimits:
    """Limits per user, and whether jobs wait for held jobs of the same user (`siblings`).

    others: (max_jobs, max_nodes) of the users that have other limits.
    """

    max_jobs: int
    max_nodes: int
    siblings: bool
    others: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Usable:
    """Usable nodes until nodes out of service return (`yet`), and from then on (`then`)."""

    yet: int
    then: int


def start_in_plain_future(
    pending: Sequence[FutureJob],
    running: Sequence[FutureJob],
    arriving: Sequence[FutureJob],
    watched: FutureJob,
    limits: FutureUserLimits,
    usable: Usable,
    now_s: int,
    last_s: int,
    goes_on: Callable[[], bool] = lambda: True,
) -> int | None:
    """Compute when `watched`, one of `pending` or `arriving`, starts, s; `last_s` if it has not started by then.

    arriving: in order of `submit_s`. The jobs passed in are modified. goes_on: called before each pass; if it returns
    False, the result is None.
    """
    queue, alive, coming = sorted(pending, key=lambda job: job.rank), list(running), list(arriving)[::-1]
    back_s, now = now_s + OUT_S, now_s + 1
    while now <= last_s:
        if not goes_on():
            return None
        alive = [job for job in alive if job.start_s + job.run_s >= now]
        while coming and coming[-1].submit_s < now:
            queue.append(coming.pop())
            queue.sort(key=lambda job: job.rank)
        for job in queue:
            job.is_held = job.is_held and job.release_s >= now
        nodes = usable.yet if now <= back_s else usable.then
        if nodes > sum(job.nodes for job in alive):
            for job in _placed_now(queue, alive, limits, nodes, now):
                if job is watched:
                    return now
                if not limits.siblings or not _waits_for_held(job, queue):
                    queue.remove(job)
                    job.start_s = now
                    alive.append(job)
        following = [job.start_s + job.run_s for job in alive] + [job.release_s for job in queue if job.is_held]
        following += [coming[-1].submit_s] if coming else []
        following += [back_s] if now <= back_s else []
        if not following:
            return last_s
        now = max(min(following) + 1, now + STEP_S)
    return last_s


def _waits_for_held(job: FutureJob, queue: Sequence[FutureJob]) -> bool:
    """Return whether a held job of the same user is ahead of `job` and asks for no more nodes and no longer limit."""
    return any(
        other.is_held
        and other.rank < job.rank
        and other.user == job.user
        and other.nodes <= job.nodes
        and other.limit_s <= job.limit_s
        for other in queue
    )


def _placed_now(
    queue: Sequence[FutureJob], alive: Sequence[FutureJob], limits: FutureUserLimits, nodes: int, now: int
) -> list[FutureJob]:
    """List the jobs that one pass places at `now`, in queue order, including those that wait for a held job."""
    jobs_of: dict[int, int] = {}
    nodes_of: dict[int, int] = {}
    for job in alive:
        jobs_of[job.user] = jobs_of.get(job.user, 0) + 1
        nodes_of[job.user] = nodes_of.get(job.user, 0) + job.nodes
    profile = _profile(alive, nodes, now)
    placed = []
    for job in queue:
        held_jobs, held_nodes = jobs_of.get(job.user, 0), nodes_of.get(job.user, 0)
        max_jobs, max_nodes = limits.others.get(job.user, (limits.max_jobs, limits.max_nodes))
        over = held_jobs >= max_jobs or held_nodes + job.nodes > max(max_nodes, job.nodes)
        if job.is_held or over:
            continue
        jobs_of[job.user], nodes_of[job.user] = held_jobs + 1, held_nodes + job.nodes
        begin_s = _earliest(profile, job)
        if begin_s == now:
            placed.append(job)
        if begin_s < FAR_S:
            _reserve(profile, begin_s, begin_s + job.limit_s, job.nodes)
        if profile[0][1] <= 0:
            break
    return placed


def _profile(alive: Sequence[FutureJob], nodes: int, now: int) -> list[list[int]]:
    """Build the profile [from, free nodes] from the limits of running jobs; one past its limit ends at `now` + 1 s."""
    profile = [[now, nodes - sum(job.nodes for job in alive)]]
    for job in sorted(alive, key=lambda job: max(job.start_s + job.limit_s, now + 1)):
        until = max(job.start_s + job.limit_s, now + 1)
        if profile[-1][0] != until:
            profile.append([until, profile[-1][1]])
        profile[-1][1] += job.nodes
    return profile


def _earliest(profile: list[list[int]], job: FutureJob) -> int:
    """Find the first step from which enough nodes stay free for the job's limit; FAR_S where there is none."""
    first = 0
    while first < len(profile):
        begin_s = profile[first][0]
        last = first
        while last < len(profile) and profile[last][0] < begin_s + job.limit_s and profile[last][1] >= job.nodes:
            last += 1
        if last == len(profile) or profile[last][0] >= begin_s + job.limit_s:
            return begin_s
        first = last + 1
    return FAR_S


def _reserve(profile: list[list[int]], from_s: int, until_s: int, nodes: int) -> None:
    """Subtract nodes from the profile between two times."""
    for instant in (from_s, until_s):
        index = max(place for place, step in enumerate(profile) if step[0] <= instant)
        if profile[index][0] < instant:
            profile.insert(index + 1, [instant, profile[index][1]])
    for step in profile:
        if from_s <= step[0] < until_s:
            step[1] -= nodes
