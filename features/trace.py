"""The canonical tables of one cluster as frames, and their way to and from `traces.schema`."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from traces import schema
from traces.store import DataFolder, conform, read


def shaped(frame: pl.DataFrame, table: schema.Table) -> pl.DataFrame:
    """`frame` with exactly the columns of `table`, in order and cast; other columns are left out.

    Raises WorkError for a null in a required column.
    """
    return conform(table, frame.select(name for name in frame.columns if name in table.names))


@dataclass(frozen=True)
class Trace:
    """The tables of one cluster that describe jobs; any of them may hold no row."""

    jobs: pl.DataFrame
    attempts: pl.DataFrame
    placements: pl.DataFrame
    nodes: pl.DataFrame


def read_trace(data: DataFolder, cluster: str) -> Trace:
    """The warehouse's jobs, attempts, placements and nodes of `cluster`."""

    def table(of: schema.Table) -> pl.DataFrame:
        names = ", ".join(f'"{name}"' for name in of.names)
        # Names come from the schema, not from a user; the cluster's name is a parameter.
        return shaped(read(data, f"SELECT {names} FROM {of.name} WHERE cluster = ?", (cluster,)), of)  # noqa: S608

    return Trace(table(schema.JOBS), table(schema.ATTEMPTS), table(schema.PLACEMENTS), table(schema.NODES))
