"""Causes of waits: each second of a wait is attributed to exactly one of eleven causes (docs/decisions/0013, 0041).

The causes are checked in this order, and the first that applies at that second counts:

- `held`: the job was not yet eligible (Slurm's eligible time, or its reason where the log has no such time);
- `likely dependency`, `own jobs`, `array limit`: the job waited for jobs of its own user (`features.causes.own_jobs`);
- `own limit`: with the job, its user or group would have exceeded a limit or quota (`features.causes.limits`);
- `cluster full`: too little was free on the nodes that the job may use, for any placement;
- `nodes down`: the job would have fitted on those of these nodes that were out of service;
- `fragmented`: enough was free in total, but not in the job's shape;
- `reservation`: the job would have fitted, but its queue was closed for hours although jobs of several users would have
  fitted (`features.causes.closures`);
- `behind others`: the job would have fitted, but other users' jobs of its queue were ahead or started first;
- `unknown`: the job would have fitted and no job was before it, or the log does not yet show what ran.

During a wait for its user's own jobs, a job has no other cause. A Slurm reason that names a limit, a reservation or
nodes that are down overrides `behind others` and `unknown`. The seconds are integrals of 0/1 step functions, so they
are exact and nothing is sampled.

Example: a job for 4 GPUs of one node is submitted at 10:00 and eligible at 10:05. Until 10:20 the cluster has 2 GPUs
free, then 4 on two nodes. At 10:50 a whole node becomes free. At 10:51, just after a job of another user, the job
starts. The job was held for 5 min, the cluster was full for 15 min, the free GPUs were fragmented for 30 min, and the
job was behind others for 1 min.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from features.causes import closures, named_nodes, own_jobs, precedence
from features.causes.fits import SHAPE, Rooms, between, span
from features.causes.limits import NAMED_BY, OWNER, OwnLimits, any_of, is_free
from features.causes.own_jobs import OwnNodes
from features.causes.pools import Fit
from features.resources.capacity import Capacity
from features.resources.on_nodes import by_node
from features.resources.usage import INSTANTS, Steps, complete_from, either, horizon, product, queue_end, without
from features.trace import NumberedTrace, Trace, left_join, moved, narrowed
from traces.arrays import Int64s

MAIN_CAUSES = {
    "held_s": "held",
    "dependency_s": "likely dependency",
    "own_jobs_s": "own jobs",
    "array_limit_s": "array limit",
    "own_limit_s": "own limit",
    "cluster_full_s": "cluster full",
    "nodes_down_s": "nodes down",
    "fragmented_s": "fragmented",
    "reservation_s": "reservation",
    "behind_s": "behind others",
    "unknown_s": "unknown",
}
CAUSES = tuple(MAIN_CAUSES)
EXPLAINED = ("cause_basis", "own_limit", "evidence", "pool_nodes", "pool_known_by")  # columns that explain the seconds
_READ = (
    "job_key", "submit", "eligible_from", "waiting_to", "gpus", "nodes", "user_name", "partition", "group_name",
    "quota_gpus", "quota_source",
)  # fmt: skip
TIMES = ("submit", "eligible_from", "waiting_from", "waiting_to")  # epoch s
READ_OF_RUNS = (
    "job_key", "attempt", "partition", "user_name", "group_name", "start_epoch", "end_epoch", "nodes", "gpus", "cpus",
    "mem_mib",
)  # fmt: skip
READ_OF_JOBS = (
    *INSTANTS, "eligible_utc", "job_key", "user_name", "partition", "state", "reason", "requested_cpus",
    "allocated_cpus", "requested_mem_mib", "job_name", "array_job_id", "features_asked", "gpu_type_asked",
)  # fmt: skip
_OF_JOB = ("cpus", "mem_mib", "reason", "stem", "array", "features_asked", "gpu_type_asked")


def with_causes(jobs: pl.DataFrame, trace: NumberedTrace, held: pl.DataFrame, size: Capacity) -> pl.DataFrame:
    """Add CAUSES, main_cause and EXPLAINED to `jobs`; null without a wait, or with a negative one.

    jobs: job_key, submit (epoch s), eligible_from (epoch s, null where the log has none up to the start), waiting_to
    (epoch s: the first start), gpus, nodes, user_name, partition, group_name, quota_gpus, quota_source. held: see
    `usage.runs`, with a column group_name. size: of the cluster, node by node where nodes are named. The columns TIMES
    are dropped from `jobs`, and all columns from `trace.jobs`, `trace.placements` and `held`, as soon as they are used.
    """
    about = narrowed(own_jobs.with_groups(_described(trace.jobs)).select("job_key", *_OF_JOB))
    held = left_join(moved(held), about.select("job_key", "stem", "array"), "job_key")
    queue = _queue(trace, jobs, about)
    waiting = jobs.lazy().select(_READ).filter(pl.col("waiting_to") >= pl.col("submit")).collect()
    waiting = left_join(waiting, about, "job_key")
    del about
    for name in TIMES:
        jobs.drop_in_place(name)
    eligible = pl.coalesce("eligible_from", "submit").clip(pl.col("submit"), pl.col("waiting_to"))
    waiting = waiting.with_columns(eligible.alias("eligible")).with_row_index("row")
    on_named = _on_named_nodes(waiting, trace, held)
    waiting = waiting.with_columns(
        pl.col("eligible").alias("from"),
        (pl.col("eligible") - pl.col("submit")).alias("held_s"),
        pl.col("eligible_from").is_null().alias("no_eligible"),
    ).drop("eligible", "submit", "eligible_from")
    waiting = left_join(waiting, precedence.behind_until(queue), "job_key")
    rooms = Rooms(replace(trace, jobs=_kinds(trace.jobs), placements=moved(trace.placements)), size, held, queue)
    del held
    waiting = narrowed(rooms.asked(waiting), "from", "waiting_to", "held_s", "others_until", "own_until")
    waiting = waiting.drop("cpus", "mem_mib", "features_asked", "gpu_type_asked")
    for basis, partition in waiting.select("cause_basis", "partition").unique().rows():
        rooms.plenty(basis, partition)  # computed here, where less memory is held than where it is read
    limits = OwnLimits.of(waiting, rooms)
    waiting = own_jobs.with_own_job_waits(waiting, rooms, limits, queue)
    waiting = _before_the_log(waiting, rooms.held)
    waiting = _counted(waiting, rooms, limits, queue)
    del rooms, limits, queue
    waiting = _named(waiting if on_named is None else waiting.update(on_named, on="row"))
    largest = pl.max_horizontal(CAUSES)
    main = pl.coalesce(
        pl.when((largest > 0) & (pl.col(name) == largest)).then(pl.lit(cause)) for name, cause in MAIN_CAUSES.items()
    )
    by_cause = waiting.select("job_key", *CAUSES, *EXPLAINED, main.cast(pl.Categorical).alias("main_cause"))
    return left_join(jobs, by_cause, "job_key")


def _described(jobs: pl.DataFrame) -> pl.DataFrame:
    cpus = pl.coalesce(pl.col("allocated_cpus").replace(0, None), "requested_cpus")
    return jobs.select(
        "job_key", "reason", "job_name", "array_job_id", "user_name", cpus.alias("cpus"),
        pl.col("requested_mem_mib").alias("mem_mib"), "features_asked", "gpu_type_asked",
    )  # fmt: skip


def _kinds(jobs: pl.DataFrame) -> pl.DataFrame:
    """Keep what `horizon`, `shows_its_end` and the pools read: a row per partition, state and known times.

    `jobs` is consumed: it has no columns afterwards.
    """
    is_known = [pl.col(name).is_null().alias(f"no {name}") for name in INSTANTS]
    return moved(jobs).group_by("partition", "state", *is_known).agg(pl.col(INSTANTS).max())


def _queue(trace: Trace, jobs: pl.DataFrame, about: pl.DataFrame) -> pl.DataFrame:
    """List every job from its eligible time until it left the queue, for `features.causes.precedence`."""
    start = pl.col("start_utc").dt.epoch("s")
    eligible = pl.coalesce(pl.when(pl.col("eligible_utc") <= pl.col("start_utc")).then("eligible_utc"), "submit_utc")
    queue = trace.jobs.select(
        "job_key", "partition", "user_name", eligible.dt.epoch("s").alias("from"), start.alias("start"),
        queue_end(horizon(trace)).alias("left"),
    )  # fmt: skip
    width = left_join(jobs.select("job_key", "nodes", "gpus"), about.select("job_key", "cpus"), "job_key")
    queue = left_join(queue, width, "job_key").with_columns(pl.col(precedence.WIDTH).fill_null(0)).drop_nulls("from")
    return narrowed(queue, "from", "start", "left")


def _before_the_log(waiting: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """Add unknown_s, the time before the log shows what ran, to `waiting`, and move `from` past it."""
    begin = pl.col("from").clip(pl.min_horizontal(pl.lit(complete_from(held)), "waiting_to"))
    return waiting.with_columns((begin - pl.col("from")).alias("unknown_s"), begin.alias("from"))


class _Open(NamedTuple):
    """State of a queue: 1 while it was closed (`shut`), and while enough was free for all its jobs (`plenty`)."""

    shut: Steps
    plenty: Steps


_NEVER = Steps(np.zeros(0, np.int64), np.zeros(0, np.int64))


def _counted(waiting: pl.DataFrame, rooms: Rooms, limits: OwnLimits, queue: pl.DataFrame) -> pl.DataFrame:
    """Add the seconds of every remaining cause, and own_limit, the limits that held the job back."""
    closed, own = closures.closed(waiting, rooms, queue), OwnNodes(rooms)
    may_be_limited = pl.lit(not limits.are_none) & ~is_free(waiting["reason"])
    owner = [pl.when(may_be_limited).then(pl.col(name)).alias(f"of {name}") for name in OWNER]
    owner.append(pl.when(pl.col("user_name").is_in(own.users)).then("user_name").alias("large user"))
    asked = waiting.select("row", *SHAPE, "from", "waiting_to", "others_until", "own_until", *owner)
    seconds = {name: np.zeros(waiting.height, np.int64) for name in CAUSES if name not in waiting.columns}
    seconds |= {name: waiting[name].to_numpy(writable=True) for name in ("own_jobs_s", "unknown_s")}
    own_limits = [pl.DataFrame(schema={"row": pl.UInt32, "own_limit": pl.String})]
    for fit, owner_values, rows in rooms.by_shape(asked, *(f"of {name}" for name in OWNER), "large user"):
        basis, partition = rows["cause_basis"][0], rows["partition"][0]
        room = _Open(closed.get(partition, _NEVER), rooms.plenty(basis, partition))
        binding = limits.binding(rows, owner_values[:-1])
        more = _seconds(rows, fit, room, any_of(binding), own.most(rows, owner_values[-1]))
        for name, values in more.items():
            seconds[name][rows["row"].to_numpy()] += values
        if binding:
            own_limits.append(_own_limits(rows, binding))
    columns = [pl.Series(name, seconds.pop(name)) for name in tuple(seconds)]  # popped: each array is freed once copied
    return left_join(waiting.with_columns(columns), pl.concat(own_limits), "row")


def _seconds(rows: pl.DataFrame, fit: Fit, room: _Open, limited: Steps | None, most: Steps | None) -> dict[str, Int64s]:
    """Compute the seconds of each cause from `from` on, for rows of one demand and owner.

    limited: 1 while a limit held the owner back. most: 1 while the user's own jobs hold most of the pool; they are then
    the cause if the job does not fit.
    """
    begin, end = span(rows)
    over = limited or _NEVER
    full, away, fits = (without(steps, over) for steps in (fit.full, fit.away, fit.fits))
    shut, free = product(fits, room.shut), without(fits, room.shut)
    others, own = (
        np.clip(rows[name].fill_null(precedence.NEVER).to_numpy(), begin, end) for name in ("others_until", "own_until")
    )
    contested = without(free, room.plenty)
    seconds: dict[str, Int64s] = {
        "own_limit_s": between(over, begin, end), "cluster_full_s": between(full, begin, end),
        "nodes_down_s": between(away, begin, end), "reservation_s": between(shut, begin, end),
        "behind_s": between(contested, begin, others),
        "own_jobs_s": between(free, begin, own) - between(contested, begin, np.minimum(own, others)),
    }  # fmt: skip
    seconds["unknown_s"] = between(free, begin, end) - seconds["behind_s"] - seconds["own_jobs_s"]
    seconds["fragmented_s"] = end - begin - sum(seconds.values())
    if most is not None:
        held = without(most, over)
        scattered = without(without(held, either(full, away)), fits)
        parts = {"cluster_full_s": product(held, full), "nodes_down_s": product(held, away), "fragmented_s": scattered}
        for name, steps in parts.items():
            seconds[name] = seconds[name] - between(steps, begin, end)
            seconds["own_jobs_s"] = seconds["own_jobs_s"] + between(steps, begin, end)
    return seconds


def _own_limits(rows: pl.DataFrame, binding: dict[str, Steps]) -> pl.DataFrame:
    """Name the limits that were exceeded during each wait: row and own_limit."""
    names: list[list[str]] = [[] for _ in range(len(rows))]
    for name, steps in binding.items():
        for place in np.flatnonzero(between(steps, *span(rows))):
            names[place].append(name)
    return rows.select("row", pl.Series("own_limit", [" and ".join(some) or None for some in names], pl.String))


def _on_named_nodes(waiting: pl.DataFrame, trace: Trace, held: pl.DataFrame) -> pl.DataFrame | None:
    """Compute the causes of jobs whose reason names nodes, over the whole eligible wait: row and causes, s.

    See `features.causes.named_nodes`. None where no reason names nodes.
    """
    if not waiting["reason"].cast(pl.String).str.contains(named_nodes.REASON).any():
        return None
    columns = ("job_key", "attempt", "node", "user_name", "start_epoch", "end_epoch")
    found = named_nodes.waits(waiting, pl.concat(by_node(trace, held).parts(*columns)))
    later = [name for name in CAUSES if name != "held_s"]
    found = found.with_columns(pl.lit(0, pl.Int64).alias(name) for name in later if name not in named_nodes.COUNTED)
    return found.select("row", *later)


def _named(waiting: pl.DataFrame) -> pl.DataFrame:
    """Apply the scheduler's own reason; Slurm keeps the last one that is neither Priority nor Resources.

    Slurm checks limits before resources, so a reason that names a limit gets the whole eligible wait. A reservation, a
    partition that is down, or a licence overrides `behind` and `unknown`. The time before a job was eligible gets the
    cause that the reason names, because a dependency or an array limit makes a job eligible late. Where the log has no
    eligible time, a reason that names a hold gets the time in which the job would have fitted.
    """
    reason = pl.col("reason").cast(pl.String)
    says = {name: reason.str.contains(pattern).fill_null(False) for name, pattern in NAMED_BY.items()}
    after_held = [name for name in CAUSES if name != "held_s"]
    limit, open_ = says["own_limit_s"], pl.col("behind_s") + pl.col("unknown_s")
    waiting = waiting.with_columns(
        pl.when(limit).then(pl.sum_horizontal(after_held)).otherwise("own_limit_s").alias("own_limit_s"),
        *(pl.when(limit).then(0).otherwise(name).alias(name) for name in after_held if name != "own_limit_s"),
        pl.when(limit).then(pl.concat_str("own_limit", "reason", separator=" and ", ignore_nulls=True))
        .otherwise("own_limit").alias("own_limit"),
    )  # fmt: skip
    hold = says["held_s"] & pl.col("no_eligible")
    moves = {
        **{name: says[name] for name in ("array_limit_s", "reservation_s", "nodes_down_s", "unknown_s")},
        "held_s": hold,
    }
    any_said = pl.any_horizontal(moves.values())
    left = [pl.when(any_said).then(0).otherwise(name).alias(name) for name in ("behind_s", "unknown_s")]
    waiting = waiting.with_columns(open_.alias("open_s"), *left).with_columns(
        (pl.col(name) + pl.when(said).then("open_s").otherwise(0)).alias(name) for name, said in moves.items()
    )
    late = {name: says[name] for name in ("array_limit_s", "dependency_s", "reservation_s")}
    return waiting.with_columns(
        *((pl.col(name) + pl.when(said).then("held_s").otherwise(0)).alias(name) for name, said in late.items()),
        pl.when(pl.any_horizontal(late.values())).then(0).otherwise("held_s").alias("held_s"),
    )
