"""The canonical tables of one cluster as frames, and conversions to the tables of `traces.schema`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import polars.selectors as cs

from traces import schema
from traces.counted import counted
from traces.errors import WorkError
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.frames import conform, empty
from traces.store.memory import free_bytes


def shaped(frame: pl.DataFrame, table: schema.Table) -> pl.DataFrame:
    """Select the columns of `table` from `frame`, in order and cast; other columns are dropped.

    Raises WorkError for a null in a required column.
    """
    return conform(table, frame.select(name for name in frame.columns if name in table.names))


def left_join(
    frame: pl.DataFrame, other: pl.DataFrame, on: str | list[str], *, nulls_equal: bool = False
) -> pl.DataFrame:
    """Left-join `frame` with `other`, which has at most one row per key, without copying the columns of `frame`."""
    matching = frame.select(on).join(other, on=on, how="left", nulls_equal=nulls_equal, maintain_order="left")
    return frame.hstack(matching.drop(on))


def ordered(frame: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Sort `frame` by those columns, one column at a time, to avoid a second copy of the whole frame.

    `frame` is consumed: it has no columns afterwards.
    """
    order = frame.select(pl.arg_sort_by(*by)).to_series()
    return pl.DataFrame([frame.drop_in_place(name).gather(order) for name in frame.columns])


def moved(frame: pl.DataFrame) -> pl.DataFrame:
    """Take the columns from `frame`, which has none afterwards, so that they are freed although a caller keeps it."""
    return pl.DataFrame([frame.drop_in_place(name) for name in frame.columns])


def narrowed(frame: pl.DataFrame, *kept: str) -> pl.DataFrame:
    """Store the Int64 columns of `frame`, except `kept`, in the narrowest type that holds their values.

    Cast such a column before arithmetic, which could overflow the type.
    """
    return frame.with_columns(
        column.shrink_dtype() for column in frame if column.dtype == pl.Int64 and column.name not in kept
    )


@dataclass(frozen=True)
class Trace:
    """The tables of one cluster that describe jobs, with the requested columns; any of them may be empty."""

    jobs: pl.DataFrame
    attempts: pl.DataFrame
    placements: pl.DataFrame
    nodes: pl.DataFrame


@dataclass(frozen=True)
class NumberedTrace(Trace):
    """A trace whose job_key is the place of the job's key in `keys`, which are in order (UInt32)."""

    keys: pl.Series


def numbered(trace: Trace) -> NumberedTrace:
    """Replace the job keys by numbers, which take 4 bytes per row and sort like the keys.

    An attempt or a placement of an unknown job gets null.
    """
    keys = trace.jobs["job_key"].cast(pl.String).sort()

    def renamed(frame: pl.DataFrame) -> pl.DataFrame:
        asked = frame["job_key"].cast(pl.String)
        numbers = keys.search_sorted(asked)  # a join would take ten times the memory
        is_known = keys.gather(numbers, null_on_oob=True) == asked
        return frame.with_columns(pl.when(is_known).then(numbers).alias("job_key"))

    jobs, attempts, placements = (renamed(frame) for frame in (trace.jobs, trace.attempts, trace.placements))
    return NumberedTrace(jobs, attempts, placements, trace.nodes, keys)


# Columns that `usage.runs`, `usage.horizon` and `capacity.capacity` read. The others are most of the bytes of a long
# log.
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
ASKED_OF_OTHERS = ("requested_cpus", "allocated_cpus", "requested_mem_mib", "allocated_mem_mib")  # of CPUs and memory
READ_MEMORY = "512MB"  # DuckDB's memory limit, in addition to the rows read
READ_ROWS = 100_000  # rows per batch
BYTES_OF_JOB = 450  # least memory that an analysis of a job takes; 4 million jobs take 500 to 750 each


def read_trace(
    data: DataFolder,
    cluster: str,
    *,
    jobs: Sequence[str] = (),
    attempts: Sequence[str] = (),
    by_node: bool = False,
    text_keys: bool = False,
) -> Trace:
    """Read the jobs, attempts, placements and nodes of `cluster` from the warehouse.

    The frames hold the columns that `usage` reads, plus the named columns of jobs and attempts, and all columns of
    nodes. Placements without GPU numbers are included only if `by_node` is set. Text is read as categories, which take
    4 bytes per row rather than 16 plus the text, and sort like text; with `text_keys`, job_key stays text, because
    categories that differ in each row take more memory until the last column of categories is freed.

    Raises WorkError if the machine has too little memory for that many jobs.
    """

    def read(table: schema.Table, names: Sequence[str], condition: str = "true") -> pl.DataFrame:
        columns_read = tuple(column for column in table.columns if column.name in names)
        chosen = schema.Table(table.name, table.meaning, columns_read, table.key)
        columns = ", ".join(f'"{name}"' for name in chosen.names)
        # The names come from the schema, not from a user; the cluster's name is a parameter.
        sql = f"SELECT {columns} FROM {table.name} WHERE cluster = ? AND {condition}"  # noqa: S608
        parts = warehouse.batches(data, sql, (cluster,), rows=READ_ROWS, memory=READ_MEMORY)
        text = cs.string() - cs.by_name("job_key", require_all=False) if text_keys else cs.string()
        # We copy, because a column from Arrow keeps the text of its whole batch in memory.
        rows = empty(chosen).cast({text: pl.Categorical})
        for part in parts:
            rows.extend(shaped(part, chosen).cast({text: pl.Categorical}))
        return rows

    with warehouse.published(data, READ_MEMORY):  # keep one warehouse open for all four tables
        _check_memory(cluster, warehouse.read(data, "SELECT count(*) FROM jobs WHERE cluster = ?", (cluster,)).item())
        return Trace(
            read(schema.JOBS, (*_JOBS, *jobs)),
            read(schema.ATTEMPTS, (*_ATTEMPTS, *attempts)),
            read(schema.PLACEMENTS, _PLACEMENTS, "true" if by_node else "gpu_numbers <> ''"),
            read(schema.NODES, schema.NODES.names),
        )


def _check_memory(cluster: str, jobs: int) -> None:
    needed, free = jobs * BYTES_OF_JOB, free_bytes()
    if needed > free:
        raise WorkError(
            f"the log of cluster {cluster!r} has {counted(jobs, 'job')}, whose analysis takes at least "
            f"{needed / 1e9:.1f} GB of memory; {free / 1e9:.1f} GB are free. Read the log in parts, for example each "
            "year as a cluster of its own (docs/reliability.md, At scale)"
        )
