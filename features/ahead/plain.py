"""One future of a cluster in plain Python: what `simulator.recorded.future` plays compiled, and its slow twin.

Who is there goes on for the run times given, others arrive at the times given, and a scheduling pass starts jobs: in
queue order each gets the earliest place in a profile of free nodes that delays none before it, by time limits; a job
over its user's limits, or held, is passed over. A pass comes a second after what it waits for, and STEP_S after the
last one at the earliest. A job that waits for a held one of its user ahead of it, which asks for no more than it does,
keeps its place in the plan and does not start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

STEP_S = 60  # as `simulator.recorded.future`
OUT_S = 7200  # as `simulator.recorded.forked`: nodes that are out come back after so long
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
    start_s: int = FAR_S  # of one that runs
    submit_s: int = 0  # of one that arrives
    release_s: int = FAR_S  # when one that is held is released
    is_held: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """First in the queue, first here."""
        return -self.key, self.row


@dataclass(frozen=True)
class FutureUserLimits:
    """What users may have, and whether jobs wait for held ones of their user."""

    max_jobs: int
    max_nodes: int
    siblings: bool


@dataclass(frozen=True)
class Usable:
    """Nodes that may be used until those that are out have come back, and from then on."""

    yet: int
    then: int


def start_in_future(
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
    """When `watched`, one of `pending`, starts, s; `last_s` where it has not started by then.

    arriving: by rising `submit_s`. Jobs given are used up. goes_on: asked before each pass; None where it says no.
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
    """Whether a held job ahead of it, of the same user, asks for neither more nodes nor a longer limit."""
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
    """The jobs that one pass places now, in queue order; of a user's, also those that wait for a held one."""
    jobs_of: dict[int, int] = {}
    nodes_of: dict[int, int] = {}
    for job in alive:
        jobs_of[job.user] = jobs_of.get(job.user, 0) + 1
        nodes_of[job.user] = nodes_of.get(job.user, 0) + job.nodes
    profile = _profile(alive, nodes, now)
    placed = []
    for job in queue:
        held_jobs, held_nodes = jobs_of.get(job.user, 0), nodes_of.get(job.user, 0)
        over = held_jobs >= limits.max_jobs or held_nodes + job.nodes > max(limits.max_nodes, job.nodes)
        if job.is_held or over:
            continue
        jobs_of[job.user], nodes_of[job.user] = held_jobs + 1, held_nodes + job.nodes
        at = _earliest(profile, job)
        if at == now:
            placed.append(job)
        if at < FAR_S:
            _reserve(profile, at, at + job.limit_s, job.nodes)
        if profile[0][1] <= 0:
            break
    return placed


def _profile(alive: Sequence[FutureJob], nodes: int, now: int) -> list[list[int]]:
    """[from, free nodes] by the limits of those that run; one past its limit ends at any moment."""
    profile = [[now, nodes - sum(job.nodes for job in alive)]]
    for job in sorted(alive, key=lambda job: max(job.start_s + job.limit_s, now + 1)):
        until = max(job.start_s + job.limit_s, now + 1)
        if profile[-1][0] != until:
            profile.append([until, profile[-1][1]])
        profile[-1][1] += job.nodes
    return profile


def _earliest(profile: list[list[int]], job: FutureJob) -> int:
    """The first step from which enough nodes stay free for its limit; FAR_S where there is none."""
    first = 0
    while first < len(profile):
        at = profile[first][0]
        last = first
        while last < len(profile) and profile[last][0] < at + job.limit_s and profile[last][1] >= job.nodes:
            last += 1
        if last == len(profile) or profile[last][0] >= at + job.limit_s:
            return at
        first = last + 1
    return FAR_S


def _reserve(profile: list[list[int]], from_s: int, until_s: int, nodes: int) -> None:
    """Take the nodes from the profile between two times."""
    for instant in (from_s, until_s):
        at = max(place for place, step in enumerate(profile) if step[0] <= instant)
        if profile[at][0] < instant:
            profile.insert(at + 1, [instant, profile[at][1]])
    for step in profile:
        if from_s <= step[0] < until_s:
            step[1] -= nodes
