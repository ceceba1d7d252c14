"""The demand of the generated Slurm log: users, submissions and run times, before any scheduling.

Users have habits (sizes, limits, run times). Records come in groups (single jobs, bursts, arrays, chains, requeues).
The offered work of a week is a drifting share of the cluster, so that light and heavy periods alternate but the queue
never diverges. The distributions resemble public GPU logs: heavy-tailed run times, limits far above them, some jobs
that reach their limit, chains of 48 h jobs with the same name. No number here is taken from a trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.arrays import Float64s, Int64s
from traces.units import HOUR_S, WEEK_S

EPOCH_S = 1_780_272_000  # 2026-06-01T00:00:00Z, a Monday
MAX_LIMIT_S = 48 * HOUR_S
SIZES = np.array([1, 2, 3, 4, 6, 8, 12, 16])
SIZE_SHARES = np.array([0.525, 0.17, 0.02, 0.12, 0.01, 0.140, 0.005, 0.01])
LIMITS_S = np.array([30, 60, 120, 240, 480, 720, 1440, 2160, 2880]) * 60
USERS = 44
TARGET_LOAD = 0.76  # offered node-hours over the cluster's; weeks drift around it

# Kinds of groups. BURST: unrelated jobs submitted by one script. CHAIN: a chain submitted at once with dependencies.
# REACTIVE: a chain whose jobs submit their successor when they end.
SINGLE, BURST, ARRAY, CHAIN, REACTIVE, REQUEUE = range(6)
KIND_SHARES = np.array([0.842, 0.060, 0.045, 0.020, 0.021, 0.012])

# How a record depends on its predecessor. FREE: not at all. DEPENDS: by --dependency. FOLLOWS: submitted at its end.
# REQUEUED: the next run of a requeued job. THROTTLED: by the array's %limit.
FREE, DEPENDS, FOLLOWS, REQUEUED, THROTTLED = range(5)

# How a record's run ends, if it starts.
COMPLETED, FAILED, TIMEOUT, CANCELLED, OUT_OF_MEMORY, NODE_FAIL, REQUEUE_BY_ADMIN = range(7)
REQUEUE_HOLD_S = 120  # delay before a requeued job may start (Slurm's default credential lifetime)


@dataclass(frozen=True)
class Population:
    """The users of the generated cluster; every array has one row per user."""

    weight: Float64s  # (users,) share of groups submitted
    size_shares: Float64s  # (users, sizes)
    median_run_s: Float64s  # (users,)
    limit_slack: Float64s  # (users,) requested limit over typical run time; inf: always the maximum


@dataclass
class GeneratedDemand:
    """Generated records to schedule, in order of group: arrays (records,), times in epoch seconds, durations in s."""

    group: Int64s  # number of the group, from 0
    kind: Int64s  # kind of the group
    member: Int64s  # 0-based position in the group
    user: Int64s
    nodes: Int64s
    limit_s: Int64s
    run_s: Int64s  # run time if nothing else ends it; at most limit_s + 30 (KillWait)
    outcome: Int64s
    submit_s: Int64s  # for FREE, DEPENDS and THROTTLED; other records are submitted when their predecessor ends
    patience_s: Int64s  # pending time after which it is cancelled; -1: never
    previous: Int64s  # index of the predecessor, -1 for none
    link: Int64s
    throttle: Int64s  # % limit of the array, 0 for none
    priority: Int64s  # priority at submission: 1000 plus the user's fair share

    def __len__(self) -> int:
        return len(self.group)


def population(rng: np.random.Generator) -> Population:
    """Draw users with Zipf-like activity, a few favourite sizes each, and very different accuracy of limits."""
    weight = (1.0 / np.arange(1, USERS + 1) ** 0.8) * rng.lognormal(0, 0.3, USERS)
    concentrated = rng.dirichlet(np.ones(len(SIZES)) * 0.9, USERS) * SIZE_SHARES
    size_shares = 0.5 * concentrated / concentrated.sum(axis=1, keepdims=True) + 0.5 * SIZE_SHARES
    slack = rng.choice([1.3, 2.0, 4.0, 8.0, np.inf], USERS, p=[0.15, 0.25, 0.25, 0.15, 0.20])
    return Population(
        weight=weight / weight.sum(),
        size_shares=size_shares / size_shares.sum(axis=1, keepdims=True),
        median_run_s=rng.lognormal(np.log(0.9 * HOUR_S), 0.8, USERS),
        limit_slack=slack,
    )


def demand(
    rng: np.random.Generator, *, jobs: int | None, weeks: int, nodes: int, first_s: int = EPOCH_S
) -> tuple[GeneratedDemand, int]:
    """Draw the records of `weeks` weeks from `first_s`, or of as many weeks as `jobs` records take.

    Returns the demand and the number of weeks that it covers.
    """
    users = population(rng)
    parts: list[GeneratedDemand] = []
    counted, groups_so_far, week, spent = 0, 0, 0, 0.0
    mood = 0.0
    while counted < jobs if jobs is not None else week < weeks:
        mood = 0.35 * mood + rng.normal(0, 0.09)
        level = float(np.clip(TARGET_LOAD + mood - 0.7 * spent, 0.56, 0.9))  # users submit less to a long queue
        part = _week(rng, users, first_s + week * WEEK_S, level * nodes * WEEK_S, nodes, groups_so_far, counted)
        spent = max(0.0, spent + level - TARGET_LOAD)
        parts.append(part)
        counted += len(part)
        groups_so_far = int(part.group[-1]) + 1
        week += 1
    fields = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in GeneratedDemand.__dataclass_fields__
    }
    return GeneratedDemand(**fields), week


@dataclass(frozen=True)
class _Groups:
    """A week's groups before their records are drawn; arrays (groups,)."""

    user: Int64s
    kind: Int64s
    count: Int64s  # records in the group
    size: Int64s
    typical_s: Float64s
    limit_s: Int64s
    throttle: Int64s


def _groups(rng: np.random.Generator, users: Population, pool: int, nodes: int) -> _Groups:
    """Draw `pool` groups by the habits of their users."""
    user = rng.choice(USERS, pool, p=users.weight)
    kind = rng.choice(6, pool, p=KIND_SHARES)
    count = np.ones(pool, dtype=np.int64)
    for k, low, high in ((BURST, 2, 10), (ARRAY, 4, 21), (CHAIN, 2, 5), (REACTIVE, 2, 6), (REQUEUE, 2, 3)):
        count[kind == k] = rng.integers(low, high, int((kind == k).sum()))
    size = _sizes(rng, users, user, kind, nodes)
    typical_s = users.median_run_s[user] * rng.lognormal(0, 1.25, pool) * np.where(size >= 8, 0.6, 1.0)
    typical_s = np.where(kind == ARRAY, np.minimum(typical_s, 4 * HOUR_S), typical_s)
    throttled = (kind == ARRAY) & (rng.random(pool) < 0.5)
    return _Groups(
        user=user,
        kind=kind,
        count=count,
        size=size,
        typical_s=typical_s,
        limit_s=_limits(rng, users, user, kind, size, typical_s),
        throttle=np.where(throttled, rng.integers(1, 5, pool), 0),
    )


def _week(
    rng: np.random.Generator, users: Population, monday_s: int, work_s: float, nodes: int, first_group: int, base: int
) -> GeneratedDemand:
    """Draw the groups of one week that offer `work_s` node-seconds; `base` is the index of its first record."""
    pool = int(work_s / (6 * HOUR_S)) + 200  # more than enough: a group offers some 12 node-hours on average
    drawn = _groups(rng, users, pool, nodes)
    owner = np.repeat(np.arange(pool), drawn.count)
    ends = np.cumsum(drawn.count)
    member = np.arange(len(owner)) - (ends - drawn.count)[owner]
    kind = drawn.kind[owner]
    run_s, outcome = _outcomes(rng, kind, member, drawn.count[owner], drawn.typical_s[owner], drawn.limit_s[owner])
    work = np.add.reduceat(run_s * drawn.size[owner], ends - drawn.count)
    groups = min(int(np.searchsorted(np.cumsum(work), work_s)) + 1, pool)
    keep = owner < groups
    owner, member, kind, run_s, outcome = owner[keep], member[keep], kind[keep], run_s[keep], outcome[keep]

    arrival = _arrivals(rng, work[:groups], monday_s)
    submit_s = arrival[owner] + np.where(kind == BURST, member * rng.integers(1, 40, len(owner)), 0)
    throttle = drawn.throttle[owner]
    link = _links(kind, member, throttle)
    index = base + np.arange(len(owner))
    back = np.where(link == THROTTLED, throttle, 1)
    patience = np.where(rng.random(len(owner)) < 0.10, rng.lognormal(np.log(2 * HOUR_S), 1.0, len(owner)), -1)
    patience[np.isin(kind, (ARRAY, REQUEUE))] = -1
    fair_share = rng.integers(0, 85, USERS)
    user = drawn.user[owner]
    return GeneratedDemand(
        group=first_group + owner,
        kind=kind,
        member=member,
        user=user,
        nodes=drawn.size[owner],
        limit_s=drawn.limit_s[owner],
        run_s=run_s,
        outcome=outcome,
        submit_s=submit_s,
        patience_s=patience.astype(np.int64),
        previous=np.where(link == FREE, -1, index - back),
        link=link,
        throttle=throttle,
        priority=1000 + fair_share[user],
    )


def _sizes(rng: np.random.Generator, users: Population, user: Int64s, kind: Int64s, nodes: int) -> Int64s:
    """Draw the nodes of each group by its user's habits; arrays are small, and chains have at most 8 nodes."""
    cumulative = np.cumsum(users.size_shares, axis=1)[user]
    size = SIZES[np.minimum((rng.random((len(user), 1)) > cumulative).sum(axis=1), len(SIZES) - 1)]
    size = np.where(kind == ARRAY, np.minimum(size, 2), size)
    chained = np.isin(kind, (CHAIN, REACTIVE))
    size = np.where(chained, rng.choice([1, 2, 4, 8], len(user), p=[0.52, 0.26, 0.16, 0.06]), size)
    return np.minimum(size, max(1, nodes // 2)).astype(np.int64)


def _limits(
    rng: np.random.Generator, users: Population, user: Int64s, kind: Int64s, size: Int64s, typical_s: Float64s
) -> Int64s:
    """Draw the requested limit: the next usual value above run time x slack, so mostly far above the run time."""
    target_s = typical_s * users.limit_slack[user] * rng.lognormal(0, 0.4, len(user))
    limit = LIMITS_S[np.minimum(np.searchsorted(LIMITS_S, target_s), len(LIMITS_S) - 1)]
    careful = rng.random(len(user)) < 0.35  # most wide jobs request the maximum
    limit = np.where((size >= 8) & ~careful, MAX_LIMIT_S, limit)
    chained = np.isin(kind, (CHAIN, REACTIVE))
    return np.where(chained, rng.choice([24, 48], len(user), p=[0.45, 0.55]) * HOUR_S, limit).astype(np.int64)


def _outcomes(
    rng: np.random.Generator, kind: Int64s, member: Int64s, count: Int64s, typical_s: Float64s, limit_s: Int64s
) -> tuple[Int64s, Int64s]:
    """Draw run time and outcome of each record. A run that exceeds its limit ends up to 30 s after it (KillWait)."""
    n = len(kind)
    run = typical_s * rng.lognormal(0, 0.35, n)
    shares = [0.745, 0.135, 0.035, 0.065, 0.015, 0.005]
    outcome = rng.choice(6, n, p=shares).astype(np.int64)
    chained = np.isin(kind, (CHAIN, REACTIVE)) & (member < count - 1)
    outcome = np.where(chained, TIMEOUT, outcome)
    first_run = (kind == REQUEUE) & (member == 0)
    outcome = np.where(first_run, rng.choice([NODE_FAIL, REQUEUE_BY_ADMIN], n), outcome)
    brief = rng.lognormal(np.log(70), 1.6, n) * (rng.random(n) > 0.06)
    run = np.where(outcome == FAILED, np.minimum(brief, run), run)
    cut = np.isin(outcome, (CANCELLED, OUT_OF_MEMORY, NODE_FAIL, REQUEUE_BY_ADMIN))
    run = np.where(cut, run * rng.random(n), run)
    outcome = np.where((outcome == COMPLETED) & (run > limit_s), TIMEOUT, outcome)
    kill_wait = np.where(rng.random(n) < 0.5, rng.integers(0, 31, n), 0)
    run = np.where(outcome == TIMEOUT, limit_s + kill_wait, np.minimum(run, limit_s - 1))
    return run.astype(np.int64), outcome


def _links(kind: Int64s, member: Int64s, throttle: Int64s) -> Int64s:
    """Return how each record depends on an earlier one of its group."""
    link = np.zeros(len(kind), dtype=np.int64)
    for k, value in ((CHAIN, DEPENDS), (REACTIVE, FOLLOWS), (REQUEUE, REQUEUED)):
        link[(kind == k) & (member > 0)] = value
    link[(kind == ARRAY) & (throttle > 0) & (member >= throttle)] = THROTTLED
    return link


def _arrivals(rng: np.random.Generator, work: Float64s, monday_s: int) -> Int64s:
    """Draw submission times in one week for groups of `work` node-seconds each, shape (groups,).

    The intensity has a daily and weekly cycle, differences between days, and a few crowded hours. The offered work,
    not the number of groups, follows it within about half a day, because users look at the queue before they submit.
    """
    hour = np.arange(168)
    daily = 1 + 0.75 * np.cos((hour % 24 - 15) / 24 * 2 * np.pi)
    weight = daily * np.where(hour < 120, 1.0, 0.55) * np.repeat(rng.lognormal(0, 0.3, 7), 24)
    weight[rng.choice(168, 3, replace=False)] *= 4  # a deadline, a class
    offered = np.cumsum(work) - work / 2
    share = np.abs(offered / offered[-1] + rng.normal(0, 0.03, len(work)))
    share = np.where(share > 1, 2 - share, share)  # reflected into the week
    edges = np.concatenate([[0.0], np.cumsum(weight) / weight.sum()])
    at = np.interp(share, edges, np.arange(169) * HOUR_S)
    return np.sort(monday_s + np.minimum(at, WEEK_S - 1).astype(np.int64))
