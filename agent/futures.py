"""Simulate the futures of one decision, for a policy that looks ahead: from squeue, sinfo and weeks of accounting.

The futures are those that the policy was trained on (`features.futures.played`). Their inputs:

- Pending and running jobs come from the queue. A job's place follows from the tier of its partition and its priority.
  The priority grows as slurm.conf says (PriorityWeightAge, PriorityMaxAge), else as on the cluster of the training.
- Run times and arrivals are drawn from the jobs of the last PAST_S.
- We assume the same limits for all users: those on the chain's own user, else those inferred on the cluster of the
  training. A link of another QOS has that QOS's limits.
- We assume that nodes out of service return, until as many are usable as were held at once over the last WINDOW_S.

The simulation ends after BUDGET_S, with at least LEAST futures or with none. It ends earlier if the remaining futures
cannot change the decision. That is so if the policy decides the same whether the successor starts at once in all of
them or in none (`between`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from agent.memory import holds_nodes
from agent.slurm.accounting import PastJob
from agent.slurm.limits import UserLimits
from agent.slurm.queue import SqueueJob
from agent.slurm.settings import BASIC, ScontrolConfig
from features.futures import plain
from features.futures.arrivals import MOST_S
from features.futures.played import FutureInputs, ObservedJob, PastArrival, starts_in_futures
from features.futures.run_times import RunTimeHistory, history
from features.futures.summary import AHEAD, BEYOND_S, FUTURES, QUANTILES, summary
from features.snapshot import Snapshot
from traces.counted import counted
from traces.slurm.text import parse_job_id
from traces.units import DAY_S, HOUR_S

PAST_S = MOST_S + DAY_S
WINDOW_S = 3 * DAY_S
BUDGET_S = 8.0  # an unfinished future is then abandoned; all other work takes far less than a second
LEAST = 4  # fewest futures that are informative
NAMELESS = -1  # no job of the past has this name
SETTLED = "the others cannot change the decision"
LINK = re.compile(r"-[0-9a-f]{8}-\d+\.\d+$")  # `agent.chains.state.ChainState.job_name` appends this to a chain's name
TIER_KEY = 1 << 60  # the partition's tier outweighs any priority


@dataclass(frozen=True)
class Site:
    """The rules inferred on the cluster of the training; None for a limit or growth that was not found."""

    max_jobs: int | None
    max_nodes: int | None
    points_per_hour: float | None  # growth of the priority; None: first come, first served
    siblings: bool  # a job waits for held jobs of its user ahead of it


Numbers = Mapping[str, float]  # of `features.futures.summary`, by name


@dataclass(frozen=True)
class Ahead:
    """The summary of the simulated futures, or the reason why there is none.

    why: if there are numbers, the reason why not all futures were simulated; "" if all were.
    """

    numbers: Numbers
    played: int = 0
    why: str = ""

    @property
    def text(self) -> str:
        """Text for people and the journal: the number of futures and the quantiles of the successor's wait."""
        if not self.numbers:
            return f"no futures: {self.why}"
        waits = " / ".join(f"{self.numbers[name]:.2f}" for name in QUANTILES)
        played = f"{self.played} of " * bool(self.why) + counted(FUTURES, "future")
        return f"wait in {played}: {waits} h (quantiles 10, 25, 50, 75, 90 %){self.why and '; '}{self.why}"


def site_of(manifest: Mapping[str, Any]) -> Site:
    """Read the rules in an artifact's manifest, `trained_on.site`. Raises ValueError if they are missing."""
    trained_on = manifest.get("trained_on")
    stated = trained_on.get("site") if isinstance(trained_on, dict) else None
    stated = stated if isinstance(stated, dict) else {}
    counts = [stated.get(name) for name in ("max_jobs", "max_nodes")]
    growth = stated.get("points_per_hour")
    are_counts = all(count is None or (type(count) is int and count > 0) for count in counts)
    is_growth = growth is None or (type(growth) in (int, float) and 0 <= growth < 1e9)
    has_keys = set(stated) == set(Site.__dataclass_fields__)
    if not (has_keys and are_counts and is_growth and type(stated["siblings"]) is bool):
        raise ValueError(
            "manifest.json: a policy that looks ahead needs trained_on.site with max_jobs, max_nodes, points_per_hour "
            "(each a number or null) and siblings (true or false); train it again"
        )
    return Site(counts[0], counts[1], growth, stated["siblings"])


def look_ahead(
    scene: FutureInputs,
    end_s: int,
    clock: Callable[[], float] = time.monotonic,
    settles: Callable[[Sequence[Numbers]], bool] = lambda _: False,
) -> Ahead:
    """Simulate the futures of a scene. end_s: the predecessor's end, epoch s; clock: returns seconds.

    settles: whether the decision is the same for all three results of `between`, and for everything between them.
    """
    began = clock()
    is_settled = False

    def is_enough(found: Sequence[int]) -> bool:
        nonlocal is_settled
        is_settled = LEAST <= len(found) < FUTURES and settles(between(found, FUTURES, scene, end_s))
        return is_settled

    found = starts_in_futures(scene, FUTURES, lambda: clock() - began < BUDGET_S, is_enough)
    wall_s = clock() - began
    if len(found) < LEAST:
        return Ahead({}, len(found), f"only {len(found)} of {FUTURES} simulated in {wall_s:.1f} s")
    why = SETTLED if is_settled else "" if len(found) == FUTURES else f"stopped after {wall_s:.1f} s"
    return Ahead(_numbers_of(found.tolist(), scene.now_s, end_s), len(found), why)


def starts_within(scene: FutureInputs, budget_s: float) -> list[int]:
    """Return when the watched job of a scene starts in each future, epoch s; none if too few could be simulated."""
    began = time.monotonic()
    found = starts_in_futures(scene, FUTURES, lambda: time.monotonic() - began < budget_s).tolist()
    return found if len(found) >= LEAST else []


def watching(scene: FutureInputs, job_id: str, limit_s: int, horizon_s: int) -> FutureInputs:
    """The scene with a pending job as the watched one, in place of a new submission. Raises ValueError if absent.

    limit_s: as if the job had asked for this limit.
    """
    number = _number(job_id)
    job = next((one for one in scene.pending if one.number == number), None)
    if job is None:
        raise ValueError(f"job {job_id} is not pending")
    others = [one for one in scene.pending if one is not job]
    return replace(scene, pending=others, successor=replace(job, number=-1, limit_s=limit_s), horizon_s=horizon_s)


def between(found: Sequence[int], futures: int, scene: FutureInputs, end_s: int) -> tuple[Numbers, Numbers, Numbers]:
    """Bound the numbers of all futures from those simulated so far; return (low, so far, high).

    found: starts in the simulated futures, epoch s. low: the numbers if the successor starts at once in all remaining
    futures. high: if it starts in none of them. so far: of the simulated futures alone. The numbers of all futures lie
    between low and high, and so do those so far: with linear interpolation, adding smaller values to k numbers cannot
    raise their p-quantile, and adding larger values cannot lower it.
    """
    rest = futures - len(found)
    soonest, latest = [scene.now_s] * rest, [scene.now_s + scene.horizon_s] * rest
    low, so_far, high = (_numbers_of([*found, *more], scene.now_s, end_s) for more in (soonest, [], latest))
    return low, so_far, high


def _numbers_of(start_s: Sequence[int], now_s: int, end_s: int) -> Numbers:
    """Compute the seven numbers of these starts."""
    row = summary(np.array([start_s], np.int64), np.array([now_s]), np.array([end_s]))[0]
    return dict(zip(AHEAD, row.tolist(), strict=True))


@dataclass(frozen=True)
class Live:
    """The inputs of a scene from a live Slurm, besides the snapshot.

    pending: in queue order, as in the snapshot. running: with the number of nodes that each job holds. past: in order
    of submission. tier: of a partition, or of several separated by commas. limit_s: of a job, finite also if it has no
    limit. priority: of the successor, before it has waited.
    """

    pending: Sequence[SqueueJob]
    running: Sequence[tuple[SqueueJob, int]]
    past: Sequence[PastJob]
    tier: Callable[[str], int]
    limit_s: Callable[[SqueueJob | PastJob], int]
    is_held: Callable[[SqueueJob], bool]
    partition: str  # of the successor
    user: str
    priority: int
    settings: ScontrolConfig | None
    limits: UserLimits | None
    own_limits: UserLimits | None = None  # of the user's jobs that count with the successor; None: as everyone's
    is_apart: Callable[[SqueueJob], bool] = lambda job: False  # whether a job of the user does not count with it


def scene_of(live: Live, seen: Snapshot, predecessor: SqueueJob | None, site: Site, delay_s: int = 0) -> FutureInputs:
    """Build the scene of an instant from the same Slurm output as its snapshot `seen`; None for a first link.

    delay_s: from the instant to the submission of the successor.
    """
    now_s = seen.now_s
    queued = [*live.pending, *(job for job, _ in live.running)]
    past = [job for job in live.past if job.start_s is not None or job.end_s is None]
    before = [] if predecessor is None else [predecessor]
    named = _Named.of(live, seen, [*before, *queued], past, points_per_hour(live.settings, site))
    ids = {job.id for job in queued}
    again = [job for job in past if now_s - MOST_S <= job.submit_s < now_s and (job.end_s is not None or job.id in ids)]
    limits = (
        UserLimits(site.max_jobs or plain.FAR_S, site.max_nodes or plain.FAR_S) if live.limits is None else live.limits
    )
    back = min(max(most_held(past, now_s), seen.usable), seen.capacity)
    by_number = {_number(job.id): job for job in again}
    end_s = seen.predecessor_end_s
    return FutureInputs(
        now_s=now_s,
        pending=[named.seen(job, job.nodes, is_held=live.is_held(job)) for job in live.pending],
        running=[
            named.seen(job, nodes, known_end_s=end_s if job.id in [one.id for one in before] else None)
            for job, nodes in live.running
        ],
        came=[named.came(job) for job in again],
        key_of=lambda one, submit_s: named.key(
            by_number[one.number].partition, by_number[one.number].priority, submit_s
        ),
        history=named.history([job for job in past if job.end_s is not None and job.end_s < now_s]),
        successor=ObservedJob(
            -1, seen.successor_nodes, seen.successor_limit_s, named.user[live.user],
            NAMELESS if predecessor is None else named.name_of(predecessor),
            named.key(live.partition, live.priority, now_s + delay_s), now_s + delay_s,
        ),
        limits=plain.FutureUserLimits(
            limits.jobs, limits.nodes, site.siblings,
            {} if (own := live.own_limits) is None else {named.user[live.user]: (own.jobs, own.nodes)},
        ),
        usable=plain.Usable(seen.usable, back),
        horizon_s=max(end_s - now_s, 0) + BEYOND_S,
    )  # fmt: skip


@dataclass(frozen=True)
class _Named:
    """Numbers for the users and names of an instant's jobs, and conversion of the jobs for a scene."""

    live: Live
    now_s: int
    growth: float | None  # of the priority, points per hour; None: first come, first served
    user: dict[str, int]
    name: dict[str, int]

    @classmethod
    def of(
        cls, live: Live, seen: Snapshot, queued: Sequence[SqueueJob], past: Sequence[PastJob], growth: float | None
    ) -> _Named:
        """Number users and names from 0: first those of queued jobs, then those of past jobs."""
        users = [live.user, *(job.user for job in queued), *(job.user for job in past)]
        names = [*(script_name(job.name) for job in queued), *(script_name(job.name) for job in past)]
        return cls(live, seen.now_s, growth, _numbers(users), _numbers(names))

    def name_of(self, job: SqueueJob | PastJob) -> int:
        """Return the number of the job's name."""
        return self.name[script_name(job.name)]

    def key(self, partition: str, priority: int, submit_s: int) -> int:
        """Return the place in the queue of a job with that priority, now or at its later submission."""
        points = self.now_s - submit_s
        if self.growth is not None:
            points = HOUR_S * priority - round(self.growth * max(submit_s - self.now_s, 0))
        return self.live.tier(partition) * TIER_KEY + points

    def seen(self, job: SqueueJob, nodes: int, *, is_held: bool = False, known_end_s: int | None = None) -> ObservedJob:
        """Convert a pending or running job."""
        limit_s, key = self.live.limit_s(job), self.key(job.partition, job.priority, job.submit_s)
        start_s = job.start_s if holds_nodes(job) else None
        user_and_name = self.user[job.user], self.name_of(job)
        group = len(self.user) if self.live.is_apart(job) else None
        return ObservedJob(
            _number(job.id), nodes, limit_s, *user_and_name, key, job.submit_s, start_s, is_held, known_end_s, group
        )

    def came(self, job: PastJob) -> PastArrival:
        """Convert a past job that may arrive again in a future."""
        user_and_name = self.user[job.user], self.name_of(job)
        return PastArrival(
            _number(job.id), job.nodes, self.live.limit_s(job), *user_and_name, job.submit_s, _run_s(job)
        )

    def history(self, ended: Sequence[PastJob]) -> RunTimeHistory:
        """Build the history of run times from ended jobs."""
        return history(
            _ints(job.end_s or 0 for job in ended),
            _ints(_run_s(job) or 0 for job in ended),
            _ints(self.live.limit_s(job) for job in ended),
            _ints(self.user[job.user] for job in ended),
            _ints(self.name_of(job) for job in ended),
        )


def _run_s(job: PastJob) -> int | None:
    """Return a job's run time, s; None if it has not ended."""
    if job.start_s is None or job.end_s is None:
        return None
    return max(job.end_s - job.start_s, 1)


def script_name(name: str) -> str:
    """Return a job's name without the suffix that distinguishes the links of a chain (`agent.chains.state`)."""
    return LINK.sub("", name)


def points_per_hour(settings: ScontrolConfig | None, site: Site) -> float | None:
    """Return the growth of a pending job's priority per hour; None: first come, first served."""
    if settings is None:
        return site.points_per_hour
    if settings.priority_type == BASIC or not settings.age_most_s:
        return None
    return HOUR_S * settings.age_weight / settings.age_most_s


def most_held(past: Iterable[PastJob], now_s: int) -> int:
    """Return the most nodes that these jobs held at once over the last WINDOW_S."""
    from_s = now_s - WINDOW_S
    ran = [job for job in past if job.start_s is not None and (job.end_s is None or job.end_s > from_s)]
    moves = [(max(job.start_s or 0, from_s), job.nodes) for job in ran]
    moves += [(job.end_s, -job.nodes) for job in ran if job.end_s is not None]
    return max(accumulate(nodes for _, nodes in sorted(moves)), default=0)


def _numbers(words: Iterable[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(dict.fromkeys(words))}


def _number(job_id: str) -> int:
    """Return the number that seeds a job's random numbers; it is the same at every look."""
    identity = parse_job_id(job_id)
    return identity.job + (0 if identity.task is None else (identity.task + 1) << 32)


def _ints(numbers: Iterable[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(list(numbers), np.int64)
