"""Plays the futures of one decision, for a policy that looks ahead: from squeue, sinfo and weeks of accounting.

The futures are those that the policy was trained on (`features.ahead.played`). What they are made of here:

- Who pends and runs is the queue; a job's place follows from the tier of its partition and its priority, which grows
  as slurm.conf says (PriorityWeightAge, PriorityMaxAge), else as it did where the policy was trained.
- How long jobs run, and who arrives, is drawn from the jobs of the last PAST_S.
- Limits hold for all users alike: those on the chain's own user, else those that showed where the policy was trained.
- Nodes that are out come back: as many become usable as were held at once over the last WINDOW_S.

Playing ends after BUDGET_S, with at least LEAST of the futures or with none. It ends earlier where the rest cannot
change the decision: the policy decides alike if the successor starts at once in all that were not played and if it
starts in none (`between`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from agent.memory import holds_nodes
from agent.slurm.accounting import DAY_S, PastJob
from agent.slurm.limits import UserLimits
from agent.slurm.queue import SqueueJob
from agent.slurm.settings import BASIC, SlurmSettings
from features.ahead import plain
from features.ahead.arrivals import MOST_S
from features.ahead.played import Came, Scene, Seen, starts
from features.ahead.run_times import History, history
from features.ahead.summary import AHEAD, BEYOND_S, FUTURES, QUANTILES, summary
from features.snapshot import Snapshot
from traces.counted import counted
from traces.slurm.text import parse_job_id

PAST_S = MOST_S + DAY_S
WINDOW_S = 3 * DAY_S
HOUR_S = 3600
BUDGET_S = 8.0  # a future under way is given up; what is around it takes far less than a second
LEAST = 4  # futures that tell anything
SETTLED = "the others cannot change the decision"
LINK = re.compile(r"-[0-9a-f]{8}-\d+\.\d+$")  # what `agent.state.ChainState.job_name` puts behind a chain's name
TIER_KEY = 1 << 60  # a tier of the partition counts for more than any priority


@dataclass(frozen=True)
class Site:
    """The rules that were inferred where the policy was trained; None for a limit or growth that did not show."""

    max_jobs: int | None
    max_nodes: int | None
    points_per_hour: float | None  # growth of the priority; None: first come, first served
    siblings: bool  # a job waits for held ones of its user ahead of it


Numbers = Mapping[str, float]  # of `features.ahead.summary`, by name


@dataclass(frozen=True)
class Ahead:
    """What the futures say, or why there is nothing.

    why: where numbers are there, why no more futures were played; "" where all were.
    """

    numbers: Numbers
    played: int = 0
    wall_s: float = 0.0
    why: str = ""
    futures: int = FUTURES  # that were to be played

    @property
    def text(self) -> str:
        """For people and the journal: how many futures, and within which hours the successor starts in them."""
        if not self.numbers:
            return f"no futures: {self.why}"
        waits = " / ".join(f"{self.numbers[name]:.2f}" for name in QUANTILES)
        played = f"{self.played} of " * bool(self.why) + counted(self.futures if self.why else self.played, "future")
        return f"in {played} it waits {waits} h (10, 25, 50, 75, 90 %){self.why and '; '}{self.why}"


def site_of(manifest: Mapping[str, Any]) -> Site:
    """The rules in an artifact's manifest, `trained_on.site`. Raises ValueError where they are not there."""
    trained_on = manifest.get("trained_on")
    told = trained_on.get("site") if isinstance(trained_on, dict) else None
    told = told if isinstance(told, dict) else {}
    counts = [told.get(name) for name in ("max_jobs", "max_nodes")]
    growth = told.get("points_per_hour")
    are_counts = all(count is None or (type(count) is int and count > 0) for count in counts)
    is_growth = growth is None or (type(growth) in (int, float) and 0 <= growth < 1e9)
    if set(told) != set(Site.__dataclass_fields__) or not (are_counts and is_growth and type(told["siblings"]) is bool):
        raise ValueError(
            "manifest.json: a policy that looks ahead needs trained_on.site with max_jobs, max_nodes, points_per_hour "
            "(a number or null each) and siblings (true or false); train it again"
        )
    return Site(counts[0], counts[1], growth, told["siblings"])


def look_ahead(
    scene: Scene,
    end_s: int,
    clock: Callable[[], float] = time.monotonic,
    futures: int = FUTURES,
    settles: Callable[[Sequence[Numbers]], bool] = lambda _: False,
) -> Ahead:
    """Play the futures of a scene. end_s: the predecessor's end, epoch s; clock: seconds.

    settles: whether a decision is the same for all three of `between`, and for whatever lies between them.
    """
    began = clock()
    is_settled = False

    def is_enough(found: Sequence[int]) -> bool:
        nonlocal is_settled
        is_settled = LEAST <= len(found) < futures and settles(between(found, futures, scene, end_s))
        return is_settled

    found = starts(scene, futures, lambda: clock() - began < BUDGET_S, is_enough)
    wall_s = clock() - began
    if len(found) < min(LEAST, futures):
        return Ahead({}, len(found), wall_s, f"{len(found)} of {futures} were played in {wall_s:.1f} s", futures)
    why = SETTLED if is_settled else "" if len(found) == futures else f"{wall_s:.1f} s were over"
    return Ahead(_numbers_of(found.tolist(), scene.now_s, end_s), len(found), wall_s, why, futures)


def between(found: Sequence[int], futures: int, scene: Scene, end_s: int) -> tuple[Numbers, Numbers, Numbers]:
    """The numbers of all futures lie between the first and the last of these, whatever the rest say; so do the second.

    found: starts in those that were played, epoch s. The first are the numbers if the successor starts at once in all
    of the rest, the last if it starts in none of them, the second those of the played ones alone: with linear
    interpolation the p-quantile of k numbers is no less than that of the k with more below them, and no more than that
    of the k with more above them.
    """
    rest = futures - len(found)
    soonest, latest = [scene.now_s] * rest, [scene.now_s + scene.horizon_s] * rest
    low, so_far, high = (_numbers_of([*found, *more], scene.now_s, end_s) for more in (soonest, [], latest))
    return low, so_far, high


def _numbers_of(start_s: Sequence[int], now_s: int, end_s: int) -> Numbers:
    """The seven numbers of such starts."""
    row = summary(np.array([start_s], np.int64), np.array([now_s]), np.array([end_s]))[0]
    return dict(zip(AHEAD, row.tolist(), strict=True))


@dataclass(frozen=True)
class Live:
    """What of a live Slurm a scene is made of, but for the snapshot.

    pending: in queue order, as in the snapshot; running: with the nodes that each holds. past: by submission. tier: of
    a partition, or of several with commas. limit_s: of a job, what stands for an unlimited one in place. priority: of
    the successor, before it has waited.
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
    settings: SlurmSettings | None
    limits: UserLimits | None


def scene_of(live: Live, seen: Snapshot, predecessor: SqueueJob, site: Site) -> Scene:
    """The scene of an instant, from the same text as the snapshot `seen` of it."""
    now_s = seen.now_s
    there = [*live.pending, *(job for job, _ in live.running)]
    past = [job for job in live.past if job.start_s is not None or job.end_s is None]
    named = _Named.of(live, seen, [predecessor, *there], past, points_per_hour(live.settings, site))
    ids = {job.id for job in there}
    again = [job for job in past if now_s - MOST_S <= job.submit_s < now_s and (job.end_s is not None or job.id in ids)]
    limits = (
        UserLimits(site.max_jobs or plain.FAR_S, site.max_nodes or plain.FAR_S) if live.limits is None else live.limits
    )
    back = min(max(most_held(past, now_s), seen.usable), seen.capacity)
    by_number = {_number(job.id): job for job in again}
    end_s = seen.predecessor_end_s
    return Scene(
        now_s=now_s,
        pending=[named.seen(job, job.nodes, is_held=live.is_held(job)) for job in live.pending],
        running=[
            named.seen(job, nodes, known_end_s=end_s if job.id == predecessor.id else None)
            for job, nodes in live.running
        ],
        came=[named.came(job) for job in again],
        key_of=lambda one, submit_s: named.key(
            by_number[one.number].partition, by_number[one.number].priority, submit_s
        ),
        history=named.history([job for job in past if job.end_s is not None and job.end_s < now_s]),
        successor=Seen(
            -1, seen.successor_nodes, seen.successor_limit_s, named.user[live.user], named.name_of(predecessor),
            named.key(live.partition, live.priority, now_s), now_s,
        ),
        limits=plain.Limits(limits.jobs, limits.nodes, site.siblings),
        usable=plain.Usable(seen.usable, back),
        horizon_s=max(end_s - now_s, 0) + BEYOND_S,
    )  # fmt: skip


@dataclass(frozen=True)
class _Named:
    """The jobs of an instant with numbers for users and names, and places in the queue."""

    live: Live
    now_s: int
    growth: float | None  # of the priority, points an hour; None: first come, first served
    user: dict[str, int]
    name: dict[str, int]

    @classmethod
    def of(
        cls, live: Live, seen: Snapshot, there: Sequence[SqueueJob], past: Sequence[PastJob], growth: float | None
    ) -> _Named:
        """Numbers from 0 on, by who is there and who was."""
        users = [live.user, *(job.user for job in there), *(job.user for job in past)]
        names = [*(script_name(job.name) for job in there), *(script_name(job.name) for job in past)]
        return cls(live, seen.now_s, growth, _numbers(users), _numbers(names))

    def name_of(self, job: SqueueJob | PastJob) -> int:
        """The number of the job's name."""
        return self.name[script_name(job.name)]

    def key(self, partition: str, priority: int, submit_s: int) -> int:
        """The place of a job of that priority: at now, or of one that is yet to come at its submission."""
        points = self.now_s - submit_s
        if self.growth is not None:
            points = HOUR_S * priority - round(self.growth * max(submit_s - self.now_s, 0))
        return self.live.tier(partition) * TIER_KEY + points

    def seen(self, job: SqueueJob, nodes: int, *, is_held: bool = False, known_end_s: int | None = None) -> Seen:
        """A job that pends or runs."""
        limit_s, key = self.live.limit_s(job), self.key(job.partition, job.priority, job.submit_s)
        start_s = job.start_s if holds_nodes(job) else None
        who = self.user[job.user], self.name_of(job)
        return Seen(_number(job.id), nodes, limit_s, *who, key, job.submit_s, start_s, is_held, known_end_s)

    def came(self, job: PastJob) -> Came:
        """A job as it may come again."""
        who = self.user[job.user], self.name_of(job)
        return Came(_number(job.id), job.nodes, self.live.limit_s(job), *who, job.submit_s, _run_s(job))

    def history(self, ended: Sequence[PastJob]) -> History:
        """How long the jobs that ended have run."""
        return history(
            _ints(job.end_s or 0 for job in ended),
            _ints(_run_s(job) or 0 for job in ended),
            _ints(self.live.limit_s(job) for job in ended),
            _ints(self.user[job.user] for job in ended),
            _ints(self.name_of(job) for job in ended),
        )


def _run_s(job: PastJob) -> int | None:
    """How long a job ran, s; None where it has not ended."""
    if job.start_s is None or job.end_s is None:
        return None
    return max(job.end_s - job.start_s, 1)


def script_name(name: str) -> str:
    """What the jobs of a script are called: the links of a chain have names of their own (`agent.state`)."""
    return LINK.sub("", name)


def points_per_hour(settings: SlurmSettings | None, site: Site) -> float | None:
    """How fast the priority of a job that pends grows; None: first come, first served."""
    if settings is None:
        return site.points_per_hour
    if settings.priority_type == BASIC or not settings.age_most_s:
        return None
    return HOUR_S * settings.age_weight / settings.age_most_s


def most_held(past: Iterable[PastJob], now_s: int) -> int:
    """Nodes that those jobs held at once, at most, over the last WINDOW_S."""
    from_s = now_s - WINDOW_S
    ran = [job for job in past if job.start_s is not None and (job.end_s is None or job.end_s > from_s)]
    moves = [(max(job.start_s or 0, from_s), job.nodes) for job in ran]
    moves += [(job.end_s, -job.nodes) for job in ran if job.end_s is not None]
    return max(accumulate(nodes for _, nodes in sorted(moves)), default=0)


def _numbers(words: Iterable[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(dict.fromkeys(words))}


def _number(job_id: str) -> int:
    """What a job's random numbers hang on: the same at every look."""
    identity = parse_job_id(job_id)
    return identity.job + (0 if identity.task is None else (identity.task + 1) << 32)


def _ints(numbers: Iterable[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(list(numbers), np.int64)
