"""The canonical tables of one cluster as frames, and their way to and from `traces.schema`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from traces import schema
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.frames import conform, empty


def shaped(frame: pl.DataFrame, table: schema.Table) -> pl.DataFrame:
    """`frame` with exactly the columns of `table`, in order and cast; other columns are left out.

    Raises WorkError for a null in a required column.
    """
    return conform(table, frame.select(name for name in frame.columns if name in table.names))


def beside(frame: pl.DataFrame, other: pl.DataFrame, on: str | list[str]) -> pl.DataFrame:
    """`frame` left-joined with `other`, which has at most one row a key; the columns of `frame` are not copied."""
    matching = frame.select(on).join(other, on=on, how="left", maintain_order="left")
    return frame.hstack(matching.drop(on))


def ordered(frame: pl.DataFrame, *by: str) -> pl.DataFrame:
    """`frame` in rising order of those columns, a column at a time, so that the whole is not there twice.

    `frame` is used up: it has no columns afterwards.
    """
    order = frame.select(pl.arg_sort_by(*by)).to_series()
    return pl.DataFrame([frame.drop_in_place(name).gather(order) for name in frame.columns])


@dataclass(frozen=True)
class Trace:
    """The tables of one cluster that describe jobs, of each the columns asked for; any of them may hold no row."""

    jobs: pl.DataFrame
    attempts: pl.DataFrame
    placements: pl.DataFrame
    nodes: pl.DataFrame


# What `usage.runs`, `usage.horizon` and `usage.capacity` read. The other columns are most of the bytes of a long log.
_JOBS = ("cluster", "job_key", "user_name", "account", "partition", "state", "submit_utc", "start_utc", "end_utc")
_ATTEMPTS = (
    "job_key",
    "attempt",
    "submit_utc",
    "start_utc",
    "end_utc",
    "state",
    "nodes",
    "gpus",
    "gpu_part",
    "cpus",
    "mem_mib",
)
_PLACEMENTS = ("job_key", "attempt", "node", "gpus", "gpu_numbers")
ASKED = ("eligible_utc", "requested_nodes", "allocated_nodes", "requested_gpus", "allocated_gpus")
ASKED_OF_OTHERS = ("requested_cpus", "allocated_cpus", "requested_mem_mib", "allocated_mem_mib")  # than GPUs, nodes
READ_MEMORY = "512MB"  # DuckDB's, beside what is read
READ_ROWS = 100_000  # at a time


def read_trace(
    data: DataFolder, cluster: str, *, jobs: Sequence[str] = (), attempts: Sequence[str] = (), by_node: bool = False
) -> Trace:
    """The warehouse's jobs, attempts, placements and nodes of `cluster`: the columns that `usage` reads, those that are
    named of jobs and attempts beside, and all of nodes. Placements without GPU numbers only where `by_node` asks.

    Text is read as categories: 4 bytes a row in place of 16 and its letters, sorted as text is.
    """

    def table(of: schema.Table, names: Sequence[str], condition: str = "true") -> pl.DataFrame:
        chosen = schema.Table(of.name, of.meaning, tuple(c for c in of.columns if c.name in names), of.key)
        columns = ", ".join(f'"{name}"' for name in chosen.names)
        # Names come from the schema, not from a user; the cluster's name is a parameter.
        sql = f"SELECT {columns} FROM {of.name} WHERE cluster = ? AND {condition}"  # noqa: S608
        parts = warehouse.batches(data, sql, (cluster,), rows=READ_ROWS, memory=READ_MEMORY)
        # Copied: what comes of Arrow keeps the text of its whole batch for as long as any of its columns is kept.
        rows = empty(chosen).cast({pl.String: pl.Categorical})
        for part in parts:
            rows.extend(shaped(part, chosen).cast({pl.String: pl.Categorical}))
        return rows

    with warehouse.published(data, READ_MEMORY):  # held open: of one warehouse, and opened once
        return Trace(
            table(schema.JOBS, (*_JOBS, *jobs)),
            table(schema.ATTEMPTS, (*_ATTEMPTS, *attempts)),
            table(schema.PLACEMENTS, _PLACEMENTS, "true" if by_node else "gpu_numbers <> ''"),
            table(schema.NODES, schema.NODES.names),
        )
