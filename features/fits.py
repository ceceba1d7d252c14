"""Whether waiting jobs fitted, asked once for each pool and shape of job. No table of its own.

`features.pools` says what was free; here the jobs of a log are asked about, those of one shape together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from features.capacity import KNOWN_BY, Capacity
from features.pools import KNOWN, Basis, Counted, Demand, Fit, Placed, Pools, placed_pools
from features.trace import Trace
from features.usage import Int64s, Steps, overlap_area, shows_its_end
from traces.progress import Progress

SHAPE = ("cause_basis", "partition", "ask_gpus", "ask_cpus", "ask_mem_mib", "ask_nodes", "ask_like")
_FEATURES = r"^[\w.:-]+(?:&[\w.:-]+)*$"  # asked for together; other forms of Slurm's constraints are not understood
KEPT = 20_000_000  # steps of demands kept for the next pass: 320 MB


@dataclass
class Rooms:
    """Where jobs could have run, by partition and by what is known of a job; computed when first asked for.

    held: see `usage.runs`, with a column jobs of ones. queue: a row a job that waited, with user_name, partition, from
    and left (when it was eligible and left the queue, epoch s), nodes, gpus and cpus that it asked for.
    """

    trace: Trace
    size: Capacity
    held: pl.DataFrame
    queue: pl.DataFrame
    placed: Pools | None = field(init=False)
    has_cpus: bool = field(init=False)
    fits: dict[tuple[object, ...], Fit] = field(init=False, default_factory=dict)
    kept: int = field(init=False, default=0)  # steps of `fits`
    counted: dict[Basis, Counted] = field(init=False, default_factory=dict)
    plenties: dict[tuple[Basis, str | None], Steps] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        cpus = self.held["cpus"]
        self.has_cpus = bool(len(cpus)) and cpus.count() >= KNOWN * len(cpus)
        if not self.has_cpus:
            self.held = self.held.with_columns(pl.lit(None, pl.Int64).alias("cpus"))
        self.placed = placed_pools(self.trace, self.held, self.size)

    def asked(self, waiting: pl.DataFrame) -> pl.DataFrame:
        """`waiting` with the columns of SHAPE but the partition, how many nodes a job may use and how that is known.

        waiting: gpus, nodes, cpus, mem_mib, partition, features_asked, gpu_type_asked.
        """
        waiting = waiting.with_columns(*self._demand())
        if self.placed is None or waiting["ask_like"].is_null().all():
            return waiting
        kinds = waiting.select("partition", "ask_like").drop_nulls("ask_like").unique()
        nodes = [self.placed.of[None if name is None else str(name)].like(like).nodes for name, like in kinds.rows()]
        kinds = kinds.with_columns(pl.Series("nodes_like", nodes, pl.Int64))
        waiting = waiting.join(kinds, on=["partition", "ask_like"], how="left", nulls_equal=True, maintain_order="left")
        return waiting.with_columns(pl.coalesce("nodes_like", "pool_nodes").alias("pool_nodes")).drop("nodes_like")

    def _like(self) -> pl.Expr:
        """What the nodes of a job must have, see `Demand.like`; null where the machine list tells no nodes apart."""
        if self.placed is None or not any(any(pool.labels) for pool in self.placed.of.values()):
            return pl.lit(None, pl.String)
        features, types = (pl.col(name).cast(pl.String) for name in ("features_asked", "gpu_type_asked"))
        features = pl.when(features.str.contains(_FEATURES)).then(features).fill_null("")
        like = pl.concat_str(features, types.fill_null(""), separator=";")
        return pl.when(like != ";").then(like)

    def _demand(self) -> tuple[pl.Expr, ...]:
        gpus, nodes, cpus = pl.col("gpus"), pl.col("nodes"), pl.col("cpus")
        ask_nodes = pl.when(nodes > 0).then(nodes).otherwise(1)
        ask_cpus = cpus.fill_null(0) if self.has_cpus else pl.when(gpus.is_null()).then(ask_nodes).otherwise(0)
        memory, pool_nodes = pl.lit(0, pl.Int64), pl.lit(self.size.nodes, pl.Int64)
        if self.placed is not None:
            basis = pl.lit("placements")
            memory = pl.col("mem_mib").fill_null(0).clip(0) if self.placed.with_memory else memory
            pool = {name: room.nodes for name, room in self.placed.of.items()}
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
            self._like().alias("ask_like"),
            pool_nodes.alias("pool_nodes"), pl.lit(KNOWN_BY[self.size.source]).alias("pool_known_by"),
        )  # fmt: skip

    def room(self, basis: Basis, partition: str | None) -> Counted | Placed:
        """The pool that jobs of a partition are asked about."""
        if self.placed is not None:
            return self.placed.of[partition]
        if basis not in self.counted:
            users = users_in(self.queue)
            self.counted[basis] = Counted(self.held, basis, self.size, users, shows_its_end(self.trace))
        return self.counted[basis]

    def plenty(self, basis: Basis, partition: str | None) -> Steps:
        """1 while the pool has more free than all the jobs in its queue ask for: none keeps another waiting."""
        if (basis, partition) not in self.plenties:
            of = (
                self.queue
                if self.placed is None
                else self.queue.filter(pl.col("partition").eq_missing(pl.lit(partition)))
            )
            asked = {amount: _asked(of, amount) for amount in ("gpus", "cpus", "nodes")}
            self.plenties[basis, partition] = self.room(basis, partition).plenty(asked)
        return self.plenties[basis, partition]

    def fit(self, basis: Basis, partition: str | None, demand: Demand) -> Fit:
        """When the job's pool was too full for it, and when it fitted."""
        room = self.room(basis, partition)
        key = (id(room), demand)
        if key not in self.fits:
            self.fits[key] = room.fit(demand)
            self.kept += self.fits[key].length
            while self.kept > KEPT and len(self.fits) > 1:
                self.kept -= self.fits.pop(next(iter(self.fits))).length
        return self.fits[key]

    def by_shape(self, rows: pl.DataFrame, *also: str) -> Iterator[tuple[Fit, tuple[object, ...], pl.DataFrame]]:
        """The rows of one pool and demand (and of equal `also`), and how they fitted."""
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
        """room_s: seconds of each row, from `from` to `end` (epoch s), in which the job would have fitted."""
        room = np.zeros(len(rows), np.int64)
        for fit, _, group in self.by_shape(rows.select(*SHAPE, "from", end).with_row_index("at")):
            room[group["at"].to_numpy()] = between(fit.fits, *span(group, end))
        return pl.Series("room_s", room, pl.Int64)


def _asked(queue: pl.DataFrame, amount: str) -> Steps:
    """What the jobs in the queue ask for in all, over time."""
    return Steps.of_intervals(*(queue[name].to_numpy().astype(np.int64) for name in ("from", "left", amount)))


def users_in(queue: pl.DataFrame) -> Steps:
    """How many users have a job in the queue, over time; a job whose user the log does not name counts by itself.

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
    """Begin and end of what is asked about, epoch s."""
    return rows["from"].to_numpy(), rows[end].to_numpy()


def between(steps: Steps, begin: Int64s, end: Int64s) -> Int64s:
    """Integral of a step function over each span (value x s)."""
    return steps.area(end) - steps.area(begin)


def both_between(first: Steps, second: Steps, begin: Int64s, end: Int64s) -> Int64s:
    """Seconds of each span in which two step functions of 0 and 1 are both 1."""
    return overlap_area(first, second, end) - overlap_area(first, second, begin)
