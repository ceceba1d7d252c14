"""Inference of waits for a user's own jobs: a likely dependency, a fixed number at a time, or an array's own limit.

We infer that a job waited for its user's own jobs under three conditions. It would have fitted for at least half of
that time; a group of these jobs ran at a constant level during it; and the job started within REFILL_S of the end of
one of them without exceeding that level. Groups are tried in this order:

- the job array, at its own limit (sbatch --array=...%N);
- jobs of the same name, ignoring digits, one at a time: likely a dependency, unless all of them ran on one node, which
  was then requested by name;
- all jobs of the user in the partition: as many at a time as the user lets run.

A single job may meet the conditions by chance. It counts if its wait is so long that chance is unlikely, or if most
jobs of the group meet them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from features.causes import precedence
from features.causes.fits import SHAPE, Rooms, between, span
from features.causes.limits import OWNER, OwnLimits, any_of, is_free
from features.resources.capacity import OF_NODE
from features.resources.usage import Steps, collapsed, steps_of
from features.trace import NumberedTrace, left_join

REFILL_S = 300  # a free place is filled within one backfill interval (30 s by default, 300 s on large sites)
LEVEL_SHARE = 0.9  # share of the wait spent at the constant level
ROOM_SHARE, ROOM_S = 0.5, 600  # minimum share and seconds of the wait in which the job would have fitted
LONG = 10  # times REFILL_S: after so long a wait, a start falls within REFILL_S by chance in one of ten cases
ALIKE_SHARE, FEW_ALIKE, MANY_ALIKE = 0.8, 3, 10  # share and number of waiting jobs that meet the conditions
SERIAL_NODE = 3  # minimum number of jobs of a name, all on one node, to infer that the node was requested by name
STEM = r"[\d\W_]+"  # the part of a name that numbers jobs of one kind: dimer.21 and dimer.22


class GroupKind(NamedTuple):
    """A kind of group: its name, and the columns that define its groups."""

    name: str
    columns: tuple[str, ...]


ARRAY, NAME, USER = (
    GroupKind("array", ("array",)),
    GroupKind("name", ("user_name", "stem")),
    GroupKind("user", ("user_name", "partition")),
)
KINDS = (ARRAY, NAME, USER)
TAKEN = ("dependency_s", "own_jobs_s", "array_limit_s")
AMOUNTS_HELD = ("gpus", "cpus", "nodes")
MOST = 0.5  # share of a pool held by one user from which the pool counts as full of the user's own jobs


def with_groups(jobs: pl.DataFrame) -> pl.DataFrame:
    """Add the columns `stem` and `array`, null where there is none, to `jobs` (user_name, job_name, array_job_id)."""
    stem = pl.col("job_name").cast(pl.String).str.replace_all(STEM, "#")
    return jobs.with_columns(
        stem.replace({"": None, "#": None}).cast(pl.Categorical).alias("stem"), pl.col("array_job_id").alias("array")
    )


def candidates(waiting: pl.DataFrame, held: pl.DataFrame, kind: GroupKind) -> pl.DataFrame:
    """Find jobs of `waiting` that started within REFILL_S of the end of a job of their group, at a constant level.

    Time before the first start of the log is ignored. waiting: row, from, waiting_to (epoch s) and the columns of
    `kind`; held: start_epoch, end_epoch, job_key and the same columns. Returns row, kind, begin (start of the examined
    wait), until (the end that the job waited for, epoch s), level (jobs of the group at a time), before (key of the job
    that ended).
    """
    known = [pl.col(name).is_not_null() for name in kind.columns]
    waiting = waiting.select("row", "from", "waiting_to", *kind.columns)
    held = held.select("job_key", "start_epoch", "end_epoch", *kind.columns)
    waiting = waiting.filter(*known, pl.col("waiting_to") > pl.col("from"))
    held = held.filter(*known, pl.col("end_epoch") > pl.col("start_epoch"))
    first = int(str(held["start_epoch"].min())) if held.height else 0
    held = held.filter(pl.len().over(kind.columns) > 1).join(waiting, on=kind.columns, how="semi")
    waiting = waiting.join(held, on=kind.columns, how="semi", maintain_order="left")
    runs = held.sort("end_epoch", "job_key").partition_by(*kind.columns, as_dict=True)
    groups = waiting.partition_by(*kind.columns, as_dict=True)
    parts = [_of_group(rows, runs[group], first) for group, rows in groups.items()]
    frame = pl.concat(parts) if parts else _none()
    return frame.with_columns(pl.lit(kind.name).alias("kind"))


def _none() -> pl.DataFrame:
    return pl.DataFrame(
        schema={"row": pl.UInt32, "begin": pl.Int64, "until": pl.Int64, "level": pl.Int64, "before": pl.UInt32}
    )


def _of_group(rows: pl.DataFrame, runs: pl.DataFrame, first: int) -> pl.DataFrame:
    """Find the candidates of one group; `runs` are in order of `end_epoch`, then `job_key`."""
    ends = runs["end_epoch"].to_numpy()
    levels = Steps.of_intervals(
        runs["start_epoch"].to_numpy(), runs["end_epoch"].to_numpy(), np.ones(runs.height, np.int64)
    )
    begin, start = np.maximum(rows["from"].to_numpy(), first), rows["waiting_to"].to_numpy()
    place = np.searchsorted(ends, start, side="right") - 1
    until = np.where(place >= 0, ends[np.maximum(place, 0)], 0)
    level = levels.at(until - 1)
    follows = (until > begin) & (start - until <= REFILL_S) & (level > 0) & (levels.at(start) <= level)
    for one_level in np.unique(level[follows]):
        at_level = follows & (level == one_level)
        reached, beyond = levels.above(int(one_level) - 1), levels.above(int(one_level))
        full = between(reached, begin[at_level], until[at_level]) >= LEVEL_SHARE * (until - begin)[at_level]
        follows[at_level] = full & (between(beyond, begin[at_level], start[at_level]) == 0)
    kept = np.flatnonzero(follows)
    return pl.DataFrame(
        {
            "row": rows["row"].gather(kept),
            "begin": pl.Series(begin[kept], dtype=pl.Int64),
            "until": pl.Series(until[kept], dtype=pl.Int64),
            "level": pl.Series(level[kept], dtype=pl.Int64),
            "before": runs["job_key"].gather(place[kept]),
        }
    )


def accepted(found: pl.DataFrame, waiting: pl.DataFrame) -> pl.DataFrame:
    """Keep the candidates that had room and are unlikely to be chance: one row per job, the first kind that applies.

    found: the result of `candidates` with room_s and limited_s, the seconds from `begin` to `until` in which the job
    would have fitted and in which a limit on its user held, and was_overtaken, whether a later and at least as wide job
    of another user started during that time. waiting: row, from, waiting_to and the columns of KINDS.
    """
    asked = waiting.filter(pl.col("waiting_to") - pl.col("from") >= ROOM_S)
    parts = []
    for kind in KINDS:
        rows = found.filter(pl.col("kind") == kind.name).join(waiting.select("row", *kind.columns), on="row")
        span = pl.col("until") - pl.col("begin")
        had_room = (pl.col("room_s") >= ROOM_S) & (pl.col("room_s") >= ROOM_SHARE * span)
        rows = rows.filter(pl.col("limited_s") < ROOM_SHARE * span).with_columns(had_room.alias("had_room"))
        rows = rows.filter(pl.col("had_room") | pl.col("was_overtaken"))
        alike = rows.group_by(kind.columns).agg(pl.len().alias("alike"))
        waited = asked.group_by(kind.columns).agg(pl.len().alias("waited"))
        rows = rows.join(alike, on=kind.columns).join(waited, on=kind.columns)
        is_serial = pl.col("level") == 1
        is_frequent = pl.col("alike") >= ALIKE_SHARE * pl.col("waited")
        is_accepted = is_frequent & (pl.col("alike") >= pl.when(is_serial).then(FEW_ALIKE).otherwise(MANY_ALIKE))
        is_accepted |= is_serial & pl.col("had_room") & (span >= LONG * REFILL_S)
        if kind is NAME:
            is_accepted &= is_serial  # several jobs of a name at a time are examined with all jobs of the user
        parts.append(rows.filter(is_accepted).select("row", "kind", "until", "level", "before", "alike"))
    return pl.concat(parts).unique("row", keep="first", maintain_order=True)


CAUSE_OF = {ARRAY.name: "array_limit_s", NAME.name: "dependency_s", USER.name: "own_jobs_s"}
_EVIDENCE = {
    "array_limit_s": "{alike} tasks of its array started just after another one ended, {level} at a time",
    "dependency_s": "started {gap} s after job {before} of the same user and name ended; it would have fitted earlier",
    "own_jobs_s": "started {gap} s after the same user's job {before} ended: {level} at a time; more would fit",
    "node": "started {gap} s after the same user's job {before} ended; all jobs of that name ran on one node",
}


def described(kept: pl.DataFrame, waiting: pl.DataFrame, trace: NumberedTrace) -> pl.DataFrame:
    """Describe the rows of `accepted`: row, until, cause (a column of `features.causes.waits`), evidence (a sentence).

    At least SERIAL_NODE jobs of one name that all ran on one node waited for the node and not for each other.
    """
    jobs = waiting.select("row", "job_key", "user_name", "stem", "waiting_to")
    asked = jobs.join(kept.filter(pl.col("kind") == NAME.name), on="row", how="semi").select("user_name", "stem")
    named = jobs.select("job_key", "user_name", "stem").join(asked.unique(), on=["user_name", "stem"], how="semi")
    on_one = (
        trace.placements.lazy().select("job_key", "node").join(named.lazy(), on="job_key").group_by("user_name", "stem")
        .agg(pl.col("node").n_unique().alias("nodes"), pl.col("job_key").n_unique().alias("named"))
        .filter((pl.col("nodes") == 1) & (pl.col("named") >= SERIAL_NODE))
        .select("user_name", "stem", pl.lit(True).alias("on_one")).collect()
    )  # fmt: skip
    kept = kept.with_columns(trace.keys.gather(kept["before"]).alias("before"))
    rows = kept.join(jobs, on="row", maintain_order="left").join(on_one, on=["user_name", "stem"], how="left")
    is_node = (pl.col("kind") == NAME.name) & pl.col("on_one").fill_null(False)
    cause = pl.when(is_node).then(pl.lit("own_jobs_s")).otherwise(
        pl.col("kind").replace_strict(CAUSE_OF, return_dtype=pl.String)
    )  # fmt: skip
    rows = rows.with_columns(
        cause.alias("cause"), is_node.alias("is_node"), (pl.col("waiting_to") - pl.col("until")).alias("gap")
    )
    evidence = [
        _EVIDENCE["node" if row["is_node"] else row["cause"]].format(**row)
        for row in rows.select("is_node", "cause", "gap", "before", "level", "alike").iter_rows(named=True)
    ]
    return rows.select("row", "until", pl.col("cause").cast(pl.Categorical), pl.Series("evidence", evidence, pl.String))


def with_own_job_waits(waiting: pl.DataFrame, rooms: Rooms, limits: OwnLimits, queue: pl.DataFrame) -> pl.DataFrame:
    """Add TAKEN and evidence to `waiting`, and move `from` past the time spent waiting for the user's own jobs.

    waiting: see `causes.with_causes`. queue: see `precedence.behind_until`.
    """
    found = pl.concat([candidates(waiting, rooms.held, kind) for kind in KINDS])
    found = found.join(waiting.select("row", *dict.fromkeys((*SHAPE, *OWNER))), on="row", maintain_order="left")
    asked = found.with_columns(pl.col("begin").alias("from"))
    found = found.with_columns(
        rooms.seconds(asked, "until"),
        limited(asked, limits),
        pl.Series("was_overtaken", precedence.overtaken(found, queue)),
    )
    free = waiting["row"].filter(is_free(waiting["reason"]))
    found = found.filter((pl.col("kind") == USER.name) | ~pl.col("row").is_in(free.implode()))
    kept = accepted(found.drop(*dict.fromkeys((*SHAPE, *OWNER))), waiting)
    kept = described(kept, waiting, rooms.trace)
    waiting = left_join(waiting, kept, "row")
    waited = pl.col("until") - pl.col("from")
    return waiting.with_columns(
        *(pl.when(pl.col("cause") == name).then(waited).otherwise(0).alias(name) for name in TAKEN),
        pl.coalesce("until", "from").alias("from"),
    ).drop("until", "cause", "stem", "array")


def limited(found: pl.DataFrame, limits: OwnLimits) -> pl.Series:
    """Compute limited_s: seconds of each row, from `from` to `until`, in which a limit on its user or group held."""
    seconds = np.zeros(len(found), np.int64)
    if not limits.are_none:
        keys = list(dict.fromkeys((*OWNER, *SHAPE)))
        for values, rows in found.with_row_index("at").group_by(*keys, maintain_order=True):
            over = any_of(limits.binding(rows, values[: len(OWNER)]))
            if over is not None:
                seconds[rows["at"].to_numpy()] = between(over, *span(rows, "until"))
    return pl.Series("limited_s", seconds, pl.Int64)


class OwnNodes:
    """Periods in which one user's jobs hold at least MOST of a pool."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        held = rooms.held.select("partition", "user_name", "start_epoch", "end_epoch", *AMOUNTS_HELD)
        self._runs: dict[tuple[object, ...], pl.DataFrame] = {}
        self._steps: dict[tuple[object, ...], Steps | None] = {}
        for group, runs in held.drop_nulls("user_name").group_by("partition", "user_name"):
            self._runs[group] = runs
            if not self._is_large(*group):
                del self._runs[group]
        users = sorted({str(user) for _, user in self._runs})
        self.users = pl.Series(users, dtype=pl.String).cast(held.schema["user_name"])

    def _is_large(self, partition: object, user: object) -> bool:
        """Return whether the jobs of the user ever hold so much of the whole cluster or of the partition's nodes."""
        return any(self._of(partition, user, amount) is not None for amount in AMOUNTS_HELD)

    def _whole(self, partition: object, amount: str) -> int | None:
        placed = self._rooms.placed
        if placed is None:
            whole: int | None = getattr(self._rooms.size, amount)
            return whole
        name = None if partition is None else str(partition)
        if name not in placed.by_partition:
            return None
        pool = placed.by_partition[name]
        return pool.nodes if amount == "nodes" else int(pool.size[:, OF_NODE.index(amount)].sum())

    def _of(self, partition: object, user: object, amount: str) -> Steps | None:
        key = (partition, user, amount)
        if key not in self._steps:
            whole = self._whole(partition, amount)
            held = steps_of(self._runs[partition, user], amount) if whole else None
            most = None if held is None else collapsed(held.times, held.values >= MOST * (whole or 0))
            self._steps[key] = most if most is not None and most.peak else None
        return self._steps[key]

    def most(self, rows: pl.DataFrame, user: object) -> Steps | None:
        """Return 1 while the jobs of `user` hold most of the pool of `rows` (one demand); None where they never do."""
        partition = rows["partition"][0]
        if user is None or (partition, user) not in self._runs:
            return None
        amount = "gpus" if rows["ask_gpus"][0] else "cpus" if self._rooms.has_cpus else "nodes"
        return self._of(partition, user, amount)
