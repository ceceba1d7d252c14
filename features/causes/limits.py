"""Limits on users, inferred from the record, and the scheduler's reasons that name a limit.

A peak of use is no limit: most users simply never request more. We count a user as stopped at a peak only if, during
the peak, a job of theirs waited that would have exceeded it and for which the cluster had room. If several users
stopped at the same number and hardly any exceeded it, we infer a limit (`shared_limit` of the calibration). We infer no
limits on groups, because a group has a single peak and no other group to compare it with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from features.causes.fits import SHAPE, Rooms, between, both_between, span
from features.resources.usage import Steps, collapsed, either, from_epoch, steps_of, without
from simulator.recorded.parameters import BEYOND, shared_limit
from traces.arrays import Int64s

# Reasons in Slurm's job_reason_string that name a limit of a user, account, association or QOS.
LIMIT_REASON = r"^(?:QOS(?:Max|Grp|Min|Job|Resource|Time|Usage)|Assoc(?:Max|Grp|iation)|Max\w+PerAccount)"
HOLD_REASON = r"^(?:Dependency|BeginTime|JobHeld)"
# Cause (a column of `features.causes.waits`) -> Slurm's reasons that name it, as sacct prints them.
NAMED_BY = {
    "held_s": HOLD_REASON,
    "dependency_s": "^Dependency",
    "array_limit_s": "^JobArrayTaskLimit",
    "own_limit_s": LIMIT_REASON,
    "reservation_s": "^(?:Reservation|ReqNodeNotAvail.*reserved)",
    "nodes_down_s": "^(?:Partition(?:Down|Inactive)|NodeDown|Nodes.required.for.job.are.DOWN)",
    "unknown_s": "^Licenses",
}
PRESSED_S = 600  # minimum time waited at the peak, with room in the cluster, to count as stopped there
WORDS = {"jobs": "running jobs per user", "nodes": "nodes per user", "gpus": "GPUs per user"}


class Limit(NamedTuple):
    """At most `most` of `amount` (a key of WORDS) per user, in one partition or (None) in the whole cluster."""

    partition: str | None
    amount: str
    most: int

    def __str__(self) -> str:
        where = "" if self.partition is None else f" in {self.partition}"
        return f"{self.most} {WORDS[self.amount]}{where} (inferred)"


@dataclass(frozen=True)
class UsageByUser:
    """The amounts that each user holds over time, in the whole cluster (partition None) and in each partition."""

    steps: dict[tuple[str | None, str], dict[str, Steps]]

    @classmethod
    def of(cls, held: pl.DataFrame) -> UsageByUser:
        """Build from `held` (see `Rooms`)."""
        known = held.select("user_name", "partition", "start_epoch", "end_epoch", *WORDS)
        known = known.filter(pl.col("user_name").is_not_null() & (pl.col("end_epoch") > pl.col("start_epoch")))
        steps = {}
        scopes = [known.with_columns(pl.lit(None, pl.String).alias("partition"))]
        if known["partition"].drop_nulls().n_unique() > 1:
            scopes.append(known.filter(pl.col("partition").is_not_null()))
        for scope in scopes:
            for (partition, user), rows in scope.group_by("partition", "user_name", maintain_order=True):
                where = None if partition is None else str(partition)
                steps[where, str(user)] = _levels(rows)
        return cls(steps)

    def over(self, limit: Limit, user: str, asked: int) -> Steps | None:
        """Return 1 while the user, with `asked` more, would exceed the limit; None if the user's own peak exceeds it.

        The record does not exclude that a single job is wider than a limit on nodes or GPUs, so one job must already
        run.
        """
        levels = self.steps.get((limit.partition, user))
        if levels is None or self.peak(limit.amount, levels) > limit.most:
            return None
        return over(levels, limit.amount, asked, limit.most)

    @staticmethod
    def peak(amount: str, levels: dict[str, Steps]) -> int:
        """Return the most held at once; nodes and GPUs count only while at least two jobs run."""
        values = levels[amount].values
        several = levels["jobs"].values >= (1 if amount == "jobs" else 2)
        return int(values[several].max(initial=0))


def over(levels: dict[str, Steps], amount: str, asked: int, most: int) -> Steps:
    """Return 1 while at least one job runs and `asked` more would exceed `most`."""
    held, jobs = levels[amount], levels["jobs"]
    return collapsed(held.times, (held.values + asked > most) & (jobs.values > 0))


def _levels(rows: pl.DataFrame) -> dict[str, Steps]:
    """Compute jobs, nodes and GPUs of one user over time, all at the same instants."""
    levels = {name: steps_of(rows, name) for name in WORDS}
    return {name: Steps(levels["jobs"].times, steps.values) for name, steps in levels.items()}


Pressed = Callable[[pl.DataFrame, Steps], Int64s]  # seconds for which each waiting job fitted while the steps are 1


def inferred(waiting: pl.DataFrame, usage: UsageByUser, pressed: Pressed) -> list[Limit]:
    """Infer the limits on users from the record.

    `waiting`: jobs that waited although they fitted, with user_name, partition, gpus, nodes, reason. `pressed` measures
    some of its rows. Nothing is inferred where the log holds the scheduler's reasons and none of them names a limit.
    """
    if not _may_be_limited(waiting["reason"]):
        return []
    limits: list[Limit] = []
    for partition in sorted({where for where, _ in usage.steps}, key=lambda name: (name is not None, name)):
        rows = waiting if partition is None else waiting.filter(pl.col("partition") == partition)
        for amount in WORDS:
            if (most := _shared(rows, usage, (partition, amount), limits, pressed)) is not None:
                limits.append(Limit(partition, amount, most))
    return limits


def _may_be_limited(reasons: pl.Series) -> bool:
    """Return whether there are no reasons, or some that name a limit."""
    known = reasons.drop_nulls().unique().cast(pl.String)
    return not len(known) or bool(known.str.contains(LIMIT_REASON).any())


def _shared(
    rows: pl.DataFrame, usage: UsageByUser, scope: tuple[str | None, str], known: list[Limit], pressed: Pressed
) -> int | None:
    """Find the number at which users stopped while a job of theirs waited and had room, or None.

    Time during which an already `known` limit held the user back does not count.
    """
    partition, amount = scope
    users = {user: levels for (where, user), levels in usage.steps.items() if where == partition}
    peaks = {user: UsageByUser.peak(amount, levels) for user, levels in users.items()}
    asked = [(pl.lit(1) if name == "jobs" else pl.col(name).fill_null(0)).alias(f"ask {name}") for name in WORDS]
    stopped = []
    for (user_,), jobs in rows.group_by("user_name", maintain_order=True):
        user = str(user_)
        if peaks.get(user, 0) < 2:
            continue
        seconds = 0
        for more, alike in jobs.group_by(*asked, maintain_order=True):
            ask = dict(zip(WORDS, (int(str(count)) for count in more), strict=True))
            stop = over(users[user], amount, ask[amount], peaks[user])
            for limit in known:
                if (earlier := usage.over(limit, user, ask[limit.amount])) is not None:
                    stop = without(stop, earlier)
            if between(stop, *span(alike)).any():  # else `pressed`, which takes longer, would find nothing either
                seconds += int(pressed(alike, stop).sum())
            if seconds >= PRESSED_S:
                stopped.append(peaks[user])
                break
    most = shared_limit(np.array(stopped, dtype=np.int64))
    if most is None or sum(peak > most for peak in peaks.values()) * BEYOND > stopped.count(most):
        return None
    return most


def is_free(reasons: pl.Series) -> pl.Series:
    """Mark the jobs that no limit, dependency, hold or reservation of their own kept waiting, according to the dump.

    Slurm keeps the last such reason of a job. So in a dump with reasons, a job with reason None or without a reason had
    none of these.
    """
    text = reasons.cast(pl.String).fill_null("")
    is_none = text.is_in(["", "None"])
    return is_none & (not is_none.all())


OWNER = ("user_name", "group_name", "quota_gpus", "quota_source", "gpus")  # columns that determine the limits of a job


@dataclass(frozen=True)
class OwnLimits:
    """The known limits on users and groups: those inferred from the record, and the given quotas."""

    usage: UsageByUser
    inferred: list[Limit]
    groups: dict[str, Steps]

    @classmethod
    def of(cls, waiting: pl.DataFrame, rooms: Rooms) -> OwnLimits:
        """Infer the limits from waiting jobs (columns SHAPE, OWNER, nodes, reason, from and waiting_to)."""

        def pressed(jobs: pl.DataFrame, over: Steps) -> Int64s:
            seconds = [both_between(over, fit.fits, *span(rows)).sum() for fit, _, rows in rooms.by_shape(jobs)]
            return np.array(seconds, dtype=np.int64)

        fitted = (rooms.seconds(waiting) > 0) & waiting["user_name"].is_not_null()
        asked = dict.fromkeys((*SHAPE, "from", "waiting_to", "user_name", "gpus", "nodes", "reason"))
        waited = waiting.select(*asked).filter(fitted)
        usage = UsageByUser.of(rooms.held) if _may_be_limited(waited["reason"]) else UsageByUser({})
        limits = inferred(waited, usage, pressed)
        with_quota = waiting.filter((pl.col("quota_source") == "given").fill_null(False))["group_name"].unique()
        by_group = rooms.held.filter(pl.col("group_name").is_in(with_quota)).group_by("group_name")
        return cls(
            usage if limits else UsageByUser({}),
            limits,
            {str(name): steps_of(rows, "gpus") for (name,), rows in by_group},
        )

    @property
    def are_none(self) -> bool:
        """Return whether no limit is known."""
        return not self.inferred and not self.groups

    def binding(self, rows: pl.DataFrame, owner: tuple[object, ...]) -> dict[str, Steps]:
        """List the limits that may hold back `rows` of one owner (values of OWNER) and demand: 1 while exceeded."""
        user, group, quota, source, gpus = owner
        found: dict[str, Steps] = {}
        if source == "given" and (asked := int(str(gpus or 0))) > 0:
            used = self.groups.get(str(group), Steps(np.zeros(0, np.int64), np.zeros(0, np.int64)))
            found[f"{quota} GPUs for its group (given)"] = from_epoch(used).above(int(str(quota)) - asked)
        for limit in self.inferred:
            if user is None or limit.partition not in (None, rows["partition"][0]):
                continue
            asked = {"jobs": 1, "nodes": int(rows["ask_nodes"][0]), "gpus": int(rows["ask_gpus"][0])}[limit.amount]
            if asked and (over := self.usage.over(limit, str(user), asked)) is not None and over.peak:
                found[str(limit)] = over
        return found


def any_of(limits: dict[str, Steps]) -> Steps | None:
    """Return 1 while any of the limits holds; None without limits."""
    over: Steps | None = None
    for steps in limits.values():
        over = steps if over is None else either(over, steps)
    return over
