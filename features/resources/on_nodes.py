"""What attempts held on each node, for some nodes at a time to save memory. No table of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from features.trace import Trace

ROWS = 250_000  # placements of `OnNodes.parts`, and those of one more node


@dataclass(frozen=True)
class OnNodes:
    """The placements of attempts that ran.

    placed: node, placed_gpus (GPUs by the log, null where it does not divide them) and run, the row of the attempt in
    `held`. held: see `usage.runs`.
    """

    placed: pl.DataFrame
    held: pl.DataFrame

    def only(self, chosen: pl.Series) -> OnNodes:
        """Keep the placements of the chosen rows of `held`."""
        return self if chosen.all() else OnNodes(self.placed.filter(chosen.gather(self.placed["run"])), self.held)

    def parts(self, *columns: str) -> Iterator[pl.DataFrame]:
        """Yield the named columns of some nodes at a time, with all placements of each of these nodes.

        The columns are those of `placed` and `held`, but gpus (null where the log does not divide them), cpus and
        mem_mib are what the attempt holds on that node (CPUs and memory: an equal share per node, rounded up).
        """
        nodes = pl.col("nodes").clip(1)
        chosen = {
            # A job without GPUs holds none on each of its nodes.
            "gpus": pl.when(pl.col("gpus") == 0).then(0).otherwise("placed_gpus").alias("gpus"),
            **{name: (-(-pl.col(name) // nodes)).alias(name) for name in ("cpus", "mem_mib")},
        }
        held = self.held.select("nodes", *(name for name in self.held.columns if name in columns and name != "nodes"))
        for placed in self._some_nodes():
            yield placed.hstack(held[placed["run"]]).select(chosen.get(name, pl.col(name)) for name in columns)

    def _some_nodes(self) -> Iterator[pl.DataFrame]:
        if self.placed.height <= ROWS:
            yield self.placed
            return
        counts = self.placed["node"].value_counts().sort("node")
        number = ((pl.col("count").cum_sum() - pl.col("count")) // ROWS).alias("number")
        for nodes in counts.with_columns(number).partition_by("number", maintain_order=True):
            yield self.placed.filter(pl.col("node").is_in(nodes["node"].implode()))


def by_node(trace: Trace, held: pl.DataFrame) -> OnNodes:
    """List the placements of attempts that ran (`held`: see `usage.runs`)."""
    attempt = ["job_key", "attempt"]
    placed = trace.placements.lazy().select(*attempt, "node", pl.col("gpus").alias("placed_gpus"))
    ran = held.lazy().select(attempt).with_row_index("run")
    joined = placed.join(ran, on=attempt).select("node", "placed_gpus", "run")
    return OnNodes(joined.collect(engine="streaming"), held)
