"""Periods in which waiting jobs fitted, computed once per pool and shape of job. No table of its own.

`features.causes.pools` computes what was free; this module handles the jobs of a log, grouped by shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from features.causes.node_changes import KNOWN
from features.causes.pools import Basis, Counted, Demand, Fit, Placed, Pools, placed_pools
from features.causes.precedence import WIDTH
from features.resources.capacity import KNOWN_BY, Capacity
from features.resources.usage import Steps, overlap_area, shows_its_end
from features.trace import NumberedTrace, narrowed
from traces.arrays import Int64s
from traces.progress import Progress

SHAPE = ("cause_basis", "partition", "ask_gpus", "ask_cpus", "ask_mem_mib", "ask_nodes", "ask_like")
_FEATURES = r"^[\w.:-]+(?:&[\w.:-]+)*$"  # features requested together; other forms of Slurm's constraints are ignored
KEPT = 20_000_000  # steps of demands cached for the next pass: 320 MB


@dataclass
class Rooms:
    """The pools in which jobs could have run, by partition and by basis; computed on first use.

    held: see `usage.runs`; it gets a column `jobs` of ones, and loses those that the pools alone read, as do the
    placements of `trace`. queue: one row per job, with user_name, partition, from and left (when it was eligible and
    when it left the queue, epoch s, null where unknown), and the requested nodes, gpus and cpus.
    """

    trace: NumberedTrace
    size: Capacity
    held: pl.DataFrame
    queue: pl.DataFrame
    placed: Pools | None = field(init=False)
    has_cpus: bool = field(init=False)
    fits: dict[tuple[object, ...], Fit] = field(init=False, default_factory=dict)
    kept: int = field(init=False, default=0)  # number of steps in `fits`
    counted: dict[Basis, Counted] = field(init=False, default_factory=dict)
    plenties: dict[tuple[Basis, str | None], Steps] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        cpus = self.held["cpus"]
        self.has_cpus = bool(len(cpus)) and cpus.count() >= KNOWN * len(cpus)
        if not self.has_cpus:
            self.held = self.held.with_columns(pl.lit(None, pl.Int64).alias("cpus"))
        self.placed = placed_pools(self.trace, self.held, self.size)
        self.trace = replace(self.trace, placements=self.trace.placements.select("job_key", "node"))
        ones = pl.lit(1, pl.Int64).alias("jobs")
        self.held = narrowed(self.held.drop("attempt", "mem_mib").with_columns(ones), "start_epoch", "end_epoch")

    def asked(self, waiting: pl.DataFrame) -> pl.DataFrame:
        """Add to `waiting` the columns of SHAPE (except partition), pool_nodes and pool_known_by.

        waiting: gpus, nodes, cpus, mem_mib, partition, features_asked, gpu_type_asked.
        """
        waiting = waiting.with_columns(*self._demand())
        if self.placed is None or waiting["ask_like"].is_null().all():
            return waiting
        kinds = waiting.select("partition", "ask_like").drop_nulls("ask_like").unique()
        nodes = [
            self.placed.by_partition[None if name is None else str(name)].like(like).nodes
            for name, like in kinds.rows()
        ]
        kinds = kinds.with_columns(pl.Series("nodes_like", nodes, pl.Int64))
        waiting = waiting.join(kinds, on=["partition", "ask_like"], how="left", nulls_equal=True, maintain_order="left")
        return waiting.with_columns(pl.coalesce("nodes_like", "pool_nodes").alias("pool_nodes")).drop("nodes_like")

    def _like(self) -> pl.Expr:
        """Requirements on the nodes of a job (see `Demand.like`); null where the machine list has no node labels."""
        if self.placed is None or not any(any(pool.labels) for pool in self.placed.by_partition.values()):
            return pl.lit(None, pl.Categorical)
        features, types = (pl.col(name).cast(pl.String) for name in ("features_asked", "gpu_type_asked"))
        features = pl.when(features.str.contains(_FEATURES)).then(features).fill_null("")
        like = pl.concat_str(features, types.fill_null(""), separator=";")
        return pl.when(like != ";").then(like).cast(pl.Categorical)

    def _demand(self) -> tuple[pl.Expr, ...]:
        gpus, nodes, cpus = pl.col("gpus"), pl.col("nodes"), pl.col("cpus")
        ask_nodes = pl.when(nodes > 0).then(nodes).otherwise(1)
        ask_cpus = cpus.fill_null(0) if self.has_cpus else pl.when(gpus.is_null()).then(ask_nodes).otherwise(0)
        memory, pool_nodes = pl.lit(0, pl.Int64), pl.lit(self.size.nodes, pl.Int64)
        known_by = pl.lit(KNOWN_BY[self.size.source]).cast(pl.Categorical)
        if self.placed is not None:
            basis = pl.lit("placements")
            memory = pl.col("mem_mib").fill_null(0).clip(0) if self.placed.with_memory else memory
            pool = {name: room.nodes for name, room in self.placed.by_partition.items()}
            pool_nodes = pl.col("partition").cast(pl.String).replace_strict(pool, default=None, return_dtype=pl.Int64)
        else:
            basis = (
                pl.when(gpus > 0).then(pl.lit("GPU counts"))
                .when(pl.lit(self.has_cpus) & (cpus > 0)).then(pl.lit("CPU counts"))
                .when(nodes > 0).then(pl.lit("node counts"))
                .otherwise(pl.lit("job counts"))
            )  # fmt: skip
        return (
            basis.cast(pl.Categorical).alias("cause_basis"), gpus.fill_null(0).clip(0).alias("ask_gpus"),
            ask_cpus.alias("ask_cpus"), memory.alias("ask_mem_mib"), ask_nodes.alias("ask_nodes"),
            self._like().alias("ask_like"), pool_nodes.alias("pool_nodes"), known_by.alias("pool_known_by"),
        )  # fmt: skip

    def room(self, basis: Basis, partition: str | None) -> Counted | Placed:
        """Return the pool of the jobs of a partition."""
        if self.placed is not None:
            return self.placed.by_partition[partition]
        if basis not in self.counted:
            users = users_in(self.queue.drop_nulls("left"))
            self.counted[basis] = Counted(self.held, basis, self.size, users, shows_its_end(self.trace))
        return self.counted[basis]

    def plenty(self, basis: Basis, partition: str | None) -> Steps:
        """Return 1 while the pool has enough free for all jobs in its queue, so that no job keeps another waiting."""
        if (basis, partition) not in self.plenties:
            is_here = pl.lit(self.placed is None) | pl.col("partition").eq_missing(pl.lit(partition))
            queue = self.queue.lazy().filter(is_here).select("from", "left", *WIDTH).drop_nulls("left").collect()
            self.plenties[basis, partition] = self.room(basis, partition).plenty(lambda amount: _asked(queue, amount))
        return self.plenties[basis, partition]

    def fit(self, basis: Basis, partition: str | None, demand: Demand) -> Fit:
        """Return when the job's pool was too full for it, and when it fitted."""
        room = self.room(basis, partition)
        key = (id(room), demand)
        if key not in self.fits:
            self.fits[key] = room.fit(demand)
            self.kept += self.fits[key].length
            while self.kept > KEPT and len(self.fits) > 1:
                self.kept -= self.fits.pop(next(iter(self.fits))).length
        return self.fits[key]

    def by_shape(self, rows: pl.DataFrame, *also: str) -> Iterator[tuple[Fit, tuple[object, ...], pl.DataFrame]]:
        """Yield the rows of each pool and demand (and of equal `also`), with their fit."""
        done = 0
        with Progress("causes of waits", len(rows), "jobs", stays=False) as progress:
            for (basis, partition, gpus, cpus, memory, nodes, like, *rest), group in rows.group_by(
                *SHAPE, *also, maintain_order=True
            ):
                counts = [int(str(asked)) for asked in (gpus, cpus, memory, nodes)]
                demand = Demand(counts[0], counts[1], counts[2], counts[3], None if like is None else str(like))
                yield self.fit(basis, partition, demand), tuple(rest), group
                done += len(group)
                progress.reach(done)

    def seconds(self, rows: pl.DataFrame, end: str = "waiting_to") -> pl.Series:
        """Compute room_s: seconds of each row, from `from` to `end` (epoch s), in which the job would have fitted."""
        room = np.zeros(len(rows), np.int64)
        for fit, _, group in self.by_shape(rows.select(*SHAPE, "from", end).with_row_index("row")):
            room[group["row"].to_numpy()] = between(fit.fits, *span(group, end))
        return pl.Series("room_s", room, pl.Int64)


def _asked(queue: pl.DataFrame, amount: str) -> Steps:
    """Sum the requests of the jobs in the queue over time."""
    return Steps.of_intervals(*(queue[name].to_numpy().astype(np.int64) for name in ("from", "left", amount)))


def users_in(queue: pl.DataFrame) -> Steps:
    """Count the users with a job in the queue over time; a job without a named user counts as a user of its own.

    queue: user_name, from, left (epoch s).
    """
    alone = pl.when(pl.col("user_name").is_null()).then("row")
    owner = ("user_name", "alone")
    rows = queue.with_row_index("row").select("user_name", alone.alias("alone"), "from", "left").sort("from")
    latest = pl.col("left").cum_max().shift(1).over(owner)
    spell = (pl.col("from") > latest).fill_null(False).cum_sum().over(owner)
    spells = (
        rows.with_columns(spell.alias("spell"))
        .group_by(*owner, "spell")
        .agg(pl.col("from").min(), pl.col("left").max(), pl.lit(1, pl.Int64).alias("users"))
    )
    return _asked(spells, "users")


def span(rows: pl.DataFrame, end: str = "waiting_to") -> tuple[Int64s, Int64s]:
    """Return begin and end of the examined waits, epoch s."""
    return rows["from"].to_numpy(), rows[end].to_numpy()


def between(steps: Steps, begin: Int64s, end: Int64s) -> Int64s:
    """Integrate a step function over each interval (value x s)."""
    return steps.area(end) - steps.area(begin)


def both_between(first: Steps, second: Steps, begin: Int64s, end: Int64s) -> Int64s:
    """Compute the seconds of each interval in which two 0/1 step functions are both 1."""
    return overlap_area(first, second, end) - overlap_area(first, second, begin)
