"""Why each job waited: each second of a wait is given to exactly one of five causes (docs/decisions/0013).

The causes are asked in the order in which Slurm checks them, and the first that applied at that second takes it:

- `held`: the job was not yet eligible;
- `own limit`: its user or group would have exceeded a limit or quota;
- `cluster full`: too little was free in the pool that the job may use, wherever it might be placed;
- `fragmented`: enough was free, but on no set of nodes of the job's shape;
- `behind others`: it would have fitted (a higher priority, a reservation for another job, the pace of the scheduler,
  and whatever the log does not show).

The seconds are integrals of step functions that are 0 or 1, so they are exact: nothing is sampled.

Example: a job for 4 GPUs of one node is submitted at 10:00 and eligible at 10:05. Until 10:20 the cluster has 2 GPUs
free, then 4 on two nodes; at 10:50 a whole node comes free, and at 10:51 the job starts. It was held for 5 min, the
cluster was full for 15 min, what was free was fragmented for 30 min, and for 1 min the job was behind others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from features.limits import HOLD_REASON, LIMIT_REASON, Usage, inferred
from features.pools import COUNTS, KNOWN, Basis, Counted, Demand, Fit, Placed, placed_pools
from features.trace import Trace, beside
from features.usage import INSTANTS, Int64s, Steps, from_epoch, overlap_area, shows_its_end, steps_of
from traces.clusters import ClusterSettings
from traces.progress import Progress

MAIN_CAUSES = {
    "held_s": "held",
    "own_limit_s": "own limit",
    "cluster_full_s": "cluster full",
    "fragmented_s": "fragmented",
    "behind_s": "behind others",
}
CAUSES = tuple(MAIN_CAUSES)
_READ = (
    "job_key", "submit", "eligible_from", "waiting_to", "gpus", "nodes", "user_name", "partition", "group_name",
    "quota_gpus", "quota_source",
)  # fmt: skip
_HELD = (
    "job_key", "attempt", "partition", "user_name", "group_name", "start_epoch", "end_epoch", "nodes", "gpus",
)  # fmt: skip
READ_OF_JOBS = (*INSTANTS, "job_key", "partition", "state", "reason", "requested_cpus", "allocated_cpus")
KEPT = 20_000_000  # steps of demands kept for the next pass: 320 MB


def with_causes(jobs: pl.DataFrame, trace: Trace, settings: ClusterSettings, held: pl.DataFrame) -> pl.DataFrame:
    """`jobs` with CAUSES, main_cause, cause_basis and own_limit; null without a wait, or with one under 0.

    jobs: job_key, submit (epoch s), eligible_from (epoch s, null where the log has none up to the start), waiting_to
    (epoch s: the first start), gpus, nodes, user_name, partition, group_name, quota_gpus, quota_source. held: see
    `usage.runs`, with a column group_name.
    """
    cpus = pl.coalesce(pl.col("allocated_cpus").replace(0, None), "requested_cpus")
    cpus_and_reason = trace.jobs.select("job_key", cpus.alias("cpus"), "reason")
    waiting = jobs.lazy().select(_READ).filter(pl.col("waiting_to") >= pl.col("submit")).collect()
    waiting = beside(waiting, cpus_and_reason, "job_key")
    eligible = pl.coalesce("eligible_from", "submit").clip(pl.col("submit"), pl.col("waiting_to"))
    waiting = waiting.with_columns(eligible.alias("from")).with_columns(
        (pl.col("from") - pl.col("submit")).alias("held_s")
    )
    held = beside(held.select(_HELD), cpus_and_reason.select("job_key", "cpus"), "job_key")
    held = held.with_columns(pl.lit(1).alias("jobs"))
    rooms = _Rooms(trace, settings, held)
    waiting = _measured(waiting, rooms)
    waiting = _limited(waiting, rooms, held)
    waiting = _named(waiting)
    largest = pl.max_horizontal(CAUSES)
    main = pl.coalesce(
        pl.when((largest > 0) & (pl.col(name) == largest)).then(pl.lit(cause)) for name, cause in MAIN_CAUSES.items()
    )
    by_cause = waiting.select(
        "job_key", *CAUSES, "cause_basis", "own_limit", main.cast(pl.Categorical).alias("main_cause")
    )
    return beside(jobs, by_cause, "job_key")


@dataclass
class _Rooms:
    """Where jobs could have run, by partition and by what is known of a job; computed when first asked for."""

    trace: Trace
    settings: ClusterSettings
    held: pl.DataFrame
    placed: dict[str | None, Placed] | None = field(init=False)
    has_cpus: bool = field(init=False)
    fits: dict[tuple[object, ...], Fit] = field(init=False, default_factory=dict)
    counted: dict[Basis, Counted] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        cpus = self.held["cpus"]
        self.has_cpus = bool(len(cpus)) and cpus.count() >= KNOWN * len(cpus)
        if not self.has_cpus:
            self.held = self.held.with_columns(pl.lit(None, pl.Int64).alias("cpus"))
        self.placed = placed_pools(self.trace, self.settings, self.held)

    def demand(self) -> tuple[pl.Expr, ...]:
        """Columns cause_basis, ask_gpus, ask_cpus and ask_nodes of the waiting jobs."""
        gpus, nodes = pl.col("gpus"), pl.col("nodes")
        ask_nodes = pl.when(nodes > 0).then(nodes).otherwise(1)
        ask_cpus = (
            pl.col("cpus").fill_null(0) if self.has_cpus else pl.when(gpus.is_null()).then(ask_nodes).otherwise(0)
        )
        if self.placed is not None:
            basis = pl.lit("placements")
        else:
            basis = (
                pl.when(gpus > 0).then(pl.lit("GPU counts"))
                .when(pl.lit(self.has_cpus) & (pl.col("cpus") > 0)).then(pl.lit("CPU counts"))
                .when(nodes > 0).then(pl.lit("node counts"))
                .otherwise(pl.lit("job counts"))
            )  # fmt: skip
        return (
            basis.cast(pl.Categorical).alias("cause_basis"), gpus.fill_null(0).clip(0).alias("ask_gpus"),
            ask_cpus.alias("ask_cpus"), ask_nodes.alias("ask_nodes"),
        )  # fmt: skip

    def fit(self, basis: Basis, partition: str | None, demand: Demand) -> Fit:
        """When the job's pool was too full for it, and when it fitted."""
        room: Placed | Counted
        if self.placed is not None:
            room = self.placed[partition]
        else:
            if basis not in self.counted:
                self.counted[basis] = Counted(self.held, COUNTS[basis], shows_its_end(self.trace))
            room = self.counted[basis]
        key = (id(room), demand)
        if key not in self.fits:
            while self.fits and sum(len(fit.full.times) + len(fit.fits.times) for fit in self.fits.values()) > KEPT:
                del self.fits[next(iter(self.fits))]
            self.fits[key] = room.fit(demand)
        return self.fits[key]


_SHAPE = ("cause_basis", "partition", "ask_gpus", "ask_cpus", "ask_nodes")

_PRESSED = (*_SHAPE, "from", "waiting_to", "user_name", "gpus", "nodes", "reason")  # what `limits.inferred` reads


def _by_shape(
    waiting: pl.DataFrame, rooms: _Rooms, *also: str
) -> Iterator[tuple[Fit, tuple[object, ...], pl.DataFrame]]:
    """The waiting jobs of one pool and demand (and of equal `also`), and how they fitted."""
    done = 0
    with Progress("causes of waits", len(waiting), "jobs", stays=False) as progress:
        for (basis, partition, gpus, cpus, nodes, *rest), rows in waiting.group_by(*_SHAPE, *also, maintain_order=True):
            demand = Demand(int(str(gpus)), int(str(cpus)), int(str(nodes)))
            yield rooms.fit(basis, partition, demand), tuple(rest), rows
            done += len(rows)
            progress.reach(done)


def _between(steps: Steps, begin: Int64s, end: Int64s) -> Int64s:
    return steps.area(end) - steps.area(begin)


def _both(first: Steps, second: Steps, begin: Int64s, end: Int64s) -> Int64s:
    return overlap_area(first, second, end) - overlap_area(first, second, begin)


def _span(rows: pl.DataFrame) -> tuple[Int64s, Int64s]:
    return rows["from"].to_numpy(), rows["waiting_to"].to_numpy()


def _measured(waiting: pl.DataFrame, rooms: _Rooms) -> pl.DataFrame:
    """With the causes that the machine decides, as if there were no limits: a pass for each pool and demand."""
    waiting = waiting.with_columns(rooms.demand())
    own, full, fits = (np.zeros(len(waiting), np.int64) for _ in range(3))
    for fit, _, rows in _by_shape(waiting.select(*_SHAPE, "from", "waiting_to").with_row_index("row"), rooms):
        (begin, end), at = _span(rows), rows["row"].to_numpy()
        full[at], fits[at] = _between(fit.full, begin, end), _between(fit.fits, begin, end)
    return _seconds(waiting, own, full, fits).with_columns(pl.lit(None, pl.String).alias("own_limit"))


def _seconds(rows: pl.DataFrame, own: Int64s, full: Int64s, fits: Int64s) -> pl.DataFrame:
    """`rows` with own_limit_s, cluster_full_s, behind_s and, the rest of the eligible wait, fragmented_s."""
    begin, end = _span(rows)
    return rows.with_columns(
        pl.Series("own_limit_s", own, pl.Int64), pl.Series("cluster_full_s", full, pl.Int64),
        pl.Series("fragmented_s", end - begin - own - full - fits, pl.Int64), pl.Series("behind_s", fits, pl.Int64),
    )  # fmt: skip


def _limited(waiting: pl.DataFrame, rooms: _Rooms, held: pl.DataFrame) -> pl.DataFrame:
    """With the time that a given quota or an inferred limit on users takes out of the other causes."""
    usage = Usage.of(held)
    fitted = (pl.col("behind_s") > 0) & pl.col("user_name").is_not_null()
    could_have_run = waiting.lazy().filter(fitted).select(_PRESSED).collect()

    def pressed(jobs: pl.DataFrame, over: Steps) -> Int64s:
        seconds = [_both(over, fit.fits, *_span(rows)).sum() for fit, _, rows in _by_shape(jobs, rooms)]
        return np.array(seconds, dtype=np.int64)

    limits = inferred(could_have_run, usage, pressed)
    groups_with_quota = waiting.filter((pl.col("quota_source") == "given").fill_null(False))["group_name"].unique()
    if not limits and groups_with_quota.is_empty():
        return waiting
    groups = {
        str(name): steps_of(rows, "gpus") for (name,), rows in held.group_by("group_name") if name in groups_with_quota
    }
    parts = []
    owner = ("user_name", "group_name", "quota_gpus", "quota_source", "gpus")
    for fit, (user, group, quota, source, gpus), rows in _by_shape(waiting, rooms, *owner):
        binding: dict[str, Steps] = {}
        if source == "given" and (asked := int(str(gpus or 0))) > 0:
            used = groups.get(str(group), Steps(np.zeros(0, np.int64), np.zeros(0, np.int64)))
            binding[f"{quota} GPUs for its group (given)"] = from_epoch(used).above(int(str(quota)) - asked)
        for limit in limits:
            if user is None or limit.partition not in (None, rows["partition"][0]):
                continue
            asked = {"jobs": 1, "nodes": int(rows["ask_nodes"][0]), "gpus": int(rows["ask_gpus"][0])}[limit.amount]
            if asked and (over := usage.over(limit, str(user), asked)) is not None and over.peak:
                binding[str(limit)] = over
        parts.append(_taken_out(rows, fit, binding) if binding else rows)
    return pl.concat(parts) if parts else waiting


def either(first: Steps, second: Steps) -> Steps:
    """The step function that is 1 where at least one of two step functions of 0 and 1 is 1."""
    times = np.union1d(first.times, second.times)
    return Steps(times, first.at(times) | second.at(times))


def _taken_out(rows: pl.DataFrame, fit: Fit, binding: dict[str, Steps]) -> pl.DataFrame:
    """`rows` of one owner and demand, with the time in which any limit of `binding` was reached (1) as own_limit_s.

    That time is taken out of cluster_full_s and behind_s; own_limit names the limits that were reached.
    """
    begin, end = _span(rows)
    over = None
    names: list[list[str]] = [[] for _ in range(len(rows))]
    for name, steps in binding.items():
        for place in np.flatnonzero(_between(steps, begin, end)):
            names[place].append(name)
        over = steps if over is None else either(over, steps)
    assert over is not None
    full = rows["cluster_full_s"].to_numpy() - _both(over, fit.full, begin, end)
    fits = rows["behind_s"].to_numpy() - _both(over, fit.fits, begin, end)
    text = pl.Series("own_limit", [" and ".join(some) or None for some in names], pl.String)
    return _seconds(rows, _between(over, begin, end), full, fits).with_columns(text)


def _named(waiting: pl.DataFrame) -> pl.DataFrame:
    """With what the scheduler's own reason says of the time in which a job would have fitted.

    Slurm keeps the last reason that was not Priority or Resources. One that names a limit outweighs our `behind`. One
    that names a hold does so only where the log has no eligible time: else that time already says how long it lasted.
    """
    behind = pl.col("behind_s")
    reason = pl.col("reason").cast(pl.String)
    limit = reason.str.contains(LIMIT_REASON).fill_null(False) & (behind > 0)
    hold = reason.str.contains(HOLD_REASON).fill_null(False) & pl.col("eligible_from").is_null()
    return waiting.with_columns(
        (pl.col("own_limit_s") + pl.when(limit).then(behind).otherwise(0)).alias("own_limit_s"),
        (pl.col("held_s") + pl.when(hold).then(behind).otherwise(0)).alias("held_s"),
        pl.when(limit | hold).then(0).otherwise(behind).alias("behind_s"),
        pl.when(limit).then(pl.concat_str("own_limit", "reason", separator=" and ", ignore_nulls=True))
        .otherwise("own_limit").alias("own_limit"),
    )  # fmt: skip
