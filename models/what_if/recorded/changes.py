"""Changes of the recorded cluster in an operator's notation: `nodes=+4`, `limit.partition.gpu=24h`, `priority.age=2`.

A change is NAME=VALUE, or NAME.DIMENSION.WHO=VALUE for the jobs of one user, account, partition or QOS, or for those
that ask for at most a limit or a number of nodes. Several are combined by " and ". docs/what-if.md lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl

from models.what_if.changes import arrival_rate, finite, limit_of, relative
from models.what_if.recorded.default_limits import with_default_limit
from models.what_if.recorded.scene import NodesChange, RecordedScene, with_assumption
from simulator.recorded.free import LimitsOfUsers
from simulator.recorded.record import NEVER
from traces import instants
from traces.arrays import Bools, Int64s
from traces.counted import counted
from traces.errors import InputError
from traces.units import HOUR_S

DIMENSIONS = ("user", "account", "partition", "qos")
MOST = ("limit", "nodes")  # dimensions of jobs that ask for at most so much
OF_CONF = "conf"  # first word of a change of a setting
OF_DECLARED = (OF_CONF, "merge", "partition")  # first words of changes that only a declared slurm.conf can show
LIKE = "like."  # nodes.like.NODENAME: nodes like that one
TOGETHER = " and "  # between changes that are made together
UNLIMITED = "UNLIMITED"
SHOWN = 10  # names in an error
LEAST_IN_BOTH = 5  # users, whose jobs in two QOS are compared
COPY_WITHIN_S = HOUR_S  # a copied job is submitted at most so much later


def changed_recorded(scene: RecordedScene, change: str) -> RecordedScene:
    """The scene with a change, or with several joined by " and ". Raises InputError for one that is not understood."""
    for part in change.split(TOGETHER):
        scene = _changed(scene, part.strip())
    return scene


def _changed(scene: RecordedScene, change: str) -> RecordedScene:
    name, found, value = (part.strip() for part in change.partition("="))
    if not found or not value:
        raise InputError(f"change {change[:80]!r} is not understood; write NAME=VALUE, with one of {', '.join(KNOWN)}")
    if name in _BACKFILL:
        return _BACKFILL[name](scene, value, change)
    first, _dot, rest = name.partition(".")
    if first in OF_DECLARED:
        return _declared(scene, first, rest, value, change)
    if first == "nodes" and rest.startswith(LIKE):
        more_alike(value, change)
        line = f"{change}: the replay has one pool of nodes; the declared slurm.conf shows their types and partitions"
        return with_assumption(_nodes(scene, np.ones(len(scene.record), np.bool_), value, change), line)
    if first == "default_limit":
        return _default_limit(scene, rest, value, change)
    if name in ("priority.age", "priority.size"):
        return (_age if name == "priority.age" else _size)(scene, value, change)
    if first not in _OF_JOBS:
        raise InputError(f"unknown change {name[:80]!r}: known are {', '.join(KNOWN)}")
    dimension, _dot, who = rest.partition(".")
    return _OF_JOBS[first](scene, _jobs_of(scene, dimension, who, change), value, change)


def _declared(scene: RecordedScene, first: str, rest: str, value: str, change: str) -> RecordedScene:
    """Say that only the declared slurm.conf shows it; QOS that are merged differ in points of priority."""
    if first == OF_CONF:
        line = f"{change}: the recorded cluster has no such rule; only the declared slurm.conf shows its effect"
        return with_assumption(scene, line)
    is_merge = first == "merge"
    dimension, _dot, who = (rest if is_merge else rest.partition(".")[2]).partition(".")
    if not who or (is_merge and dimension not in ("partition", "qos")):
        how = "write merge.partition.A=B or merge.qos.A=B" if is_merge else "write partition.NAME.limit.4h=NODES"
        raise InputError(f"change {change!r} does not say which jobs ask for something else; {how}")
    jobs = _jobs_of(scene, dimension, who, change)
    if not (jobs & scene.judged).any():
        raise InputError(f"change {change!r} concerns no job of the window, so nothing would show")
    merged = _merged_qos(scene, jobs, value, change) if is_merge and dimension == "qos" else None
    line = f"{change}: the replay has one pool of nodes and no QOS; only the declared slurm.conf shows the effect"
    return merged or with_assumption(scene, line)


def _merged_qos(scene: RecordedScene, jobs: Bools, into: str, change: str) -> RecordedScene | None:
    """Give the jobs the points of the other QOS: the median of what users with jobs in both have more there.

    None if less than LEAST_IN_BOTH users have jobs in both, and for a log without priorities.
    """
    asked = pl.DataFrame({"user": scene.record.user, "priority": scene.record.priority, "is_old": jobs})
    users = (
        asked.filter(pl.Series(jobs) | (scene.about["qos"] == into).fill_null(value=False))
        .group_by("user")
        .agg(more=pl.col("priority").filter(~pl.col("is_old")).mean() - pl.col("priority").filter("is_old").mean())
        .drop_nulls()
    )
    if len(users) < LEAST_IN_BOTH or all(stretch.points_per_hour is None for stretch in scene.daily):
        return None
    points = float(np.median(users["more"]))
    return with_assumption(
        replace(scene, points=scene.points + np.where(jobs, points, 0.0)),
        f"{change}: the jobs get {points:+,.0f} points: so much more is the mean recorded priority in {into} of "
        f"{counted(len(users), 'user')} of both QOS (the median); limits of the QOS are not in the replay",
    )


def _default_limit(scene: RecordedScene, rest: str, value: str, change: str) -> RecordedScene:
    dimension, _dot, who = rest.partition(".")
    return with_default_limit(scene, _jobs_of(scene, dimension, who, change), dimension, who, value, change)


def _jobs_of(scene: RecordedScene, dimension: str, who: str, change: str) -> Bools:
    """The jobs that a change concerns. Raises InputError for a dimension or a name that no job of the window has."""
    if not dimension:
        return np.ones(len(scene.record), np.bool_)
    if dimension == "limit":
        within: Bools = scene.record.limit_s <= limit_of(who, change)
        return within
    if dimension == "nodes":
        return np.asarray(scene.record.size <= _whole(who, change))
    if dimension not in DIMENSIONS:
        raise InputError(
            f"change {change!r}: unknown dimension {dimension[:40]!r}: known are {', '.join((*DIMENSIONS, *MOST))}"
        )
    concerned: Bools = (scene.about[dimension] == who).fill_null(value=False).to_numpy()
    if not (concerned & scene.judged).any():
        names = scene.about.filter(scene.judged)[dimension].drop_nulls().value_counts(sort=True)[dimension]
        known = ", ".join(names.head(SHOWN)) + (", ..." if len(names) > SHOWN else "")
        raise InputError(
            f"change {change!r}: no job of the window has {dimension} {who[:60]!r}, so nothing would show; "
            + (f"most jobs have {known}" if known else f"the log holds no {dimension} of a job")
        )
    return concerned


def _nodes(scene: RecordedScene, jobs: Bools, value: str, change: str) -> RecordedScene:
    """Add or remove nodes, for good or between two dates: `-8@2023-01-10..2023-01-17`."""
    _check_all(jobs, change)
    amount, at, dates = value.partition("@")
    now = scene.most_nodes
    more = round(relative(now, amount, change)) - now
    largest = int(scene.record.size[scene.judged].max())
    if now + more < largest:
        raise InputError(f"change {change!r} leaves {counted(now + more, 'node')} of {now}: a job needs {largest}")
    from_s, until_s = _dates(dates, change) if at else (0, NEVER)
    return replace(scene, nodes=(*scene.nodes, NodesChange(more, from_s, until_s)))


def more_alike(value: str, change: str) -> int:
    """Return the number of nodes to add (below 0: to remove) of `nodes.like.NODENAME=+4`. Raises InputError."""
    if re.fullmatch(r"[+-][0-9]{1,5}", value) is None or not int(value):
        raise InputError(f"change {change!r}: {value[:40]!r} is not understood; write +4 or -4")
    return int(value)


def _dates(dates: str, change: str) -> tuple[int, int]:
    """Two dates, or one for a change that lasts, epoch s."""
    ends = [part.strip() for part in dates.split("..")]
    try:
        seconds = [instants.epoch_s(instants.parse(end)) for end in ends]
    except ValueError as error:
        raise InputError(f"change {change!r}: {error}; write nodes=-8@2023-01-10..2023-01-17") from None
    if len(ends) > 2 or (len(ends) == 2 and seconds[0] >= seconds[1]):
        raise InputError(f"change {change!r}: write two dates in their order, as in nodes=-8@2023-01-10..2023-01-17")
    return seconds[0], seconds[1] if len(ends) == 2 else NEVER


def _limit(scene: RecordedScene, jobs: Bools, value: str, change: str) -> RecordedScene:
    """Cut jobs at that run time."""
    most_s = min(limit_of(value, change), float(NEVER))
    longer = jobs & (scene.limit_s > most_s)
    cut = longer & scene.judged & (scene.run_s > most_s)
    limit_s = np.where(longer, int(most_s), scene.limit_s)
    scene = replace(scene, limit_s=limit_s, run_s=np.minimum(scene.run_s, np.where(jobs, int(most_s), NEVER)))
    return with_assumption(
        scene,
        f"{change}: {counted(int((longer & scene.judged).sum()), 'job', 'asks')} for less, "
        f"{counted(int(cut.sum()), 'job', 'is')} cut and not submitted again",
    )


def _ask(scene: RecordedScene, jobs: Bools, value: str, change: str) -> RecordedScene:
    """Jobs ask for so many times what they use, at most for what they asked."""
    factor = finite(value, change)
    if not 1.0 <= factor <= 100.0:
        raise InputError(f"change {change!r}: jobs ask for {factor:g} times what they use; allowed is 1 to 100")
    concerned, limit_s = jobs & scene.record.ran, scene.limit_s.copy()
    asked_s = np.ceil(factor * np.clip(scene.run_s, 1, limit_s)[concerned])
    limit_s[concerned] = np.minimum(asked_s, limit_s[concerned]).astype(np.int64)
    return replace(scene, limit_s=limit_s)


def _arrivals(scene: RecordedScene, jobs: Bools, value: str, change: str) -> RecordedScene:
    """Submit so many times as many jobs: a share of them is left out or copied, at random."""
    rate = 0.0 if value in ("0", "0%") else arrival_rate(value, change)
    generator = np.random.default_rng(scene.seed)
    ours = np.flatnonzero(jobs & scene.present)
    if rate < 1.0:
        present = scene.present.copy()
        present[ours[generator.random(len(ours)) >= rate]] = False
        if not (present & scene.judged).any():
            raise InputError(f"change {change!r} leaves no job of the window, so no wait is left to compare")
        gone = counted(int((scene.present & ~present & scene.judged).sum()), "job", "is")
        return with_assumption(
            replace(scene, present=present),
            f"{change}: {gone} left out at random; jobs that run when a replay begins stay",
        )
    ours = ours[scene.record.ran[ours]]
    whole, part = divmod(rate - 1.0, 1.0)
    times = int(whole) + (generator.random(len(ours)) < part)
    copied = np.repeat(ours, times)
    later_s = generator.integers(0, COPY_WITHIN_S, len(copied))
    line = f"{change}: generated: {counted(len(copied), 'job', 'is')} copied at random and submitted within an hour"
    return with_assumption(
        replace(
            scene,
            copied=np.concatenate([scene.copied, copied]),
            copied_later_s=np.concatenate([scene.copied_later_s, later_s]),
        ),
        line,
    )


def _user_limit(field: str) -> Callable[[RecordedScene, Bools, str, str], RecordedScene]:
    def limited(scene: RecordedScene, jobs: Bools, value: str, change: str) -> RecordedScene:
        """Limit what each of the concerned users runs at once; every other user keeps the inferred limit."""
        most = NEVER if value.upper() == UNLIMITED else _whole(value, change)
        if jobs.all():
            own = scene.own and scene.own._replace(**{field: np.full(scene.record.users, NEVER)})
            return replace(scene, rules={**scene.rules, field: most}, own=own)
        users = np.unique(scene.record.user[jobs])
        if (~jobs & np.isin(scene.record.user, users)).any():
            raise InputError(f"change {change!r}: a limit of running jobs or nodes counts for a user, not for a group")
        own = scene.own or LimitsOfUsers(*(np.full(scene.record.users, NEVER) for _ in LimitsOfUsers._fields))
        limits: Int64s = getattr(own, field).copy()
        inferred = max(getattr(stretch.rules, field) for stretch in scene.daily)
        if most > scene.rules.get(field, inferred):  # the rule for all would hold the user back: give it to the others
            limits = np.minimum(limits, scene.rules.get(field, inferred))
            scene = replace(scene, rules={**scene.rules, field: NEVER})
        limits[users] = most
        return replace(scene, own=own._replace(**{field: limits}))

    return limited


def _priority(scene: RecordedScene, jobs: Bools, value: str, change: str) -> RecordedScene:
    """Add points of priority to the concerned jobs, or hours of waiting: `+1000`, `+6h`."""
    _check_some(jobs, change)
    if value[-1].isalpha() or ":" in value:
        sign, span = (-1.0, value[1:]) if value.startswith("-") else (1.0, value.removeprefix("+"))
        waited_s = sign * limit_of(span, change)
        if not np.isfinite(waited_s):
            raise InputError(f"change {change!r}: write points or a time, as in +1000 or +6h")
        return replace(scene, waited_s=scene.waited_s + np.where(jobs, waited_s, 0.0))
    _check_points(scene, change)
    return replace(scene, points=scene.points + np.where(jobs, finite(value, change), 0.0))


def _age(scene: RecordedScene, value: str, change: str) -> RecordedScene:
    """Multiply the growth of the priority with the time waited."""
    _check_points(scene, change)
    factor = finite(value, change)
    if not 0.0 <= factor <= 1000.0:
        raise InputError(f"change {change!r}: {factor:g} times the age weight; allowed is 0 to 1000")
    return replace(scene, age=scene.age * factor)


def _size(scene: RecordedScene, value: str, change: str) -> RecordedScene:
    """Add points in proportion to a job's nodes: so many for the whole machine (PriorityWeightJobSize)."""
    _check_points(scene, change)
    points = finite(value, change) * scene.record.size / scene.most_nodes
    return replace(scene, points=scene.points + points)


def _check_points(scene: RecordedScene, change: str) -> None:
    if all(stretch.points_per_hour is None for stretch in scene.daily):
        raise InputError(
            f"change {change!r}: the log holds no priorities that explain the order, so jobs are served first come, "
            "first served; write a time, as in priority.user.NAME=+6h"
        )


def _check_all(jobs: Bools, change: str) -> None:
    if not jobs.all():
        raise InputError(f"change {change!r} concerns all jobs; leave the name behind the dot out")


def _check_some(jobs: Bools, change: str) -> None:
    if jobs.all():
        raise InputError(f"change {change!r} raises every job alike; name whose: priority.user.NAME=+1000")


def _rule(field: str, parsed: Callable[[str, str], int]) -> Callable[[RecordedScene, str, str], RecordedScene]:
    def ruled(scene: RecordedScene, value: str, change: str) -> RecordedScene:
        """Change a rule of backfill."""
        return replace(scene, rules={**scene.rules, field: parsed(value, change)})

    return ruled


def _off(value: str, change: str) -> int:
    if value not in ("on", "off"):
        raise InputError(f"change {change!r}: write backfill=off or backfill=on")
    return int(value == "on")


def _span(value: str, change: str) -> int:
    return int(min(limit_of(value, change), NEVER))


def _whole(value: str, change: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value) < NEVER:
        raise InputError(f"change {change!r}: {value[:40]!r} is not a whole number from 1 on")
    return int(value)


_BACKFILL = {
    "backfill": _rule("backfill", _off),
    "backfill.depth": _rule("depth", _whole),
    "backfill.user": _rule("user_depth", _whole),
    "backfill.window": _rule("plan_s", _span),
}
_OF_JOBS: dict[str, Callable[[RecordedScene, Bools, str, str], RecordedScene]] = {
    "nodes": _nodes,
    "limit": _limit,
    "ask": _ask,
    "arrivals": _arrivals,
    "max_jobs": _user_limit("max_jobs"),
    "max_nodes": _user_limit("max_nodes"),
    "priority": _priority,
}
KNOWN = (
    "nodes", "nodes.like.NODENAME", "limit", "default_limit", "ask", "arrivals", "max_jobs", "max_nodes",
    "priority.age", "priority.size", "priority.user.NAME", *_BACKFILL, "merge.partition.NAME", "merge.qos.NAME",
    "partition.NAME.limit.TIME", f"{OF_CONF}.KEY",
)  # fmt: skip
