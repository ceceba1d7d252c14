"""The join of utilization samples with the attempts that held what was sampled: exact, and linear in the samples.

A node at a time: its samples are a matrix of GPUs by sampled minutes, and an attempt on it is a rectangle of that
matrix, the GPUs it held by the minutes in [start, end). CPU and memory are matrices of one row: a node has one reading
of each, whoever holds it. Nodes are read some at a time, so memory does not grow with the trace.
Where the placement names no GPUs, all GPUs of the node count for each attempt there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.trace import Trace
from features.usage import Float64s, Int64s, given_out_again, seconds

Fetch = Callable[[str, Sequence[Any]], pl.DataFrame]  # runs one SELECT on the tables of samples
Flags = NDArray[np.bool_]

# Resource: table of samples, what numbers its rows in a node, reading in percent.
RESOURCES: dict[str, tuple[str, str, str]] = {
    "GPU": ("gpu_utilization", "gpu", "utilization_percent"),
    "CPU": ("cpu_utilization", "0", "utilization_percent"),
    "memory": ("memory_utilization", "0", "100.0 * (total_kib - free_kib) / nullif(total_kib, 0)"),
}
ROWS_AT_ONCE = 6_000_000  # samples held in memory: whole nodes, so one node with more is read alone
MINUTE_S = 60
SPARSE = 16  # a grid of minutes with over so many times as many cells as samples is mostly gaps
NO_END = np.iinfo(np.int64).max
PERCENTILES = {"p50_percent": 0.5, "p90_percent": 0.9, "p95_percent": 0.95}

COUNTS = (
    "samples", "offline_samples", "repeated_samples", "node_minutes", "shared_node_minutes", "online_node_minutes",
    "idle_node_minutes", "idle_samples",
)  # fmt: skip


@dataclass(frozen=True)
class Joined:
    """What the samples of one resource say.

    attempts: job_key, attempt, names_gpus, COUNTS, mean_percent, PERCENTILES; one row an attempt with samples.
    readings: the caller's attributes of the attempt, `sharing` (dedicated or shared node-minute), value (percent),
    n (samples that read it): every online sample, so that percentiles of any group of attempts are exact.
    """

    attempts: pl.DataFrame
    readings: pl.DataFrame


@dataclass(frozen=True)
class _Node:
    """Readings of one node. ticks (k,): epoch s, rising; values (rows, k): percent, NaN where offline or not sampled;
    times_read (rows, k): samples of that cell."""

    ticks: Int64s
    values: Float64s
    times_read: Int64s


def join(trace: Trace, cluster: str, resource: str, attributes: pl.DataFrame, fetch: Fetch) -> Joined:
    """The samples of `resource` by attempt. `attributes`: job_key, attempt and what `readings` are told apart by."""
    held = held_on_nodes(trace)
    named = attributes.with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))
    held = held.join(named.select("id", "job_key", "attempt"), on=["job_key", "attempt"]).sort("node", "start_epoch")
    on_one_node = (pl.len() == 1).over("id").alias("on_one_node")
    held = held.with_columns(on_one_node)
    told = [name for name in attributes.columns if name not in ("job_key", "attempt")]
    counts: list[pl.DataFrame] = [_no_counts()]
    whole: list[pl.DataFrame] = [_no_readings()]  # of attempts on several nodes, until their last node is read
    percentiles: list[pl.DataFrame] = [_no_readings().group_by("id").agg(*_quantiles())]
    groups = _no_readings().join(named, on="id").select(*told, "sharing", "value", "n")
    for nodes, samples in _some_nodes(cluster, resource, held["node"].unique().sort().to_list(), fetch):
        part, readings = _on_nodes(held, nodes, samples, resource)
        counts.append(part)
        alone = readings.join(held.filter("on_one_node").select("id"), on="id", how="semi")
        percentiles.append(quantiles(alone, ["id"]))
        whole.append(readings.join(held.filter(~pl.col("on_one_node")).select("id"), on="id", how="semi"))
        grouped = readings.join(named, on="id").select(groups.columns)
        groups = pl.concat([groups, grouped]).group_by(*told, "sharing", "value").agg(pl.col("n").sum())
    percentiles.append(quantiles(pl.concat(whole), ["id"]))
    by_attempt = (
        pl.concat(counts).group_by("id").agg(pl.col("names_gpus").all(), pl.col(*COUNTS).sum(), pl.col("total").sum())
    )
    online = pl.col("samples") - pl.col("offline_samples")
    attempts = (
        by_attempt.join(pl.concat(percentiles), on="id", how="left")
        .join(named.select("id", "job_key", "attempt"), on="id")
        .with_columns(pl.when(online > 0).then(pl.col("total") / online).alias("mean_percent"))
        .sort("job_key", "attempt")
        .drop("id", "total")
    )
    return Joined(attempts, groups)


def held_on_nodes(trace: Trace) -> pl.DataFrame:
    """job_key, attempt, node, start_epoch, end_epoch, gpus (list of numbers, null where the log names none).

    An attempt with no recorded end ends when one of its GPUs is next given out, else not at all.
    """
    numbers = pl.col("gpu_numbers").replace("", None).str.split(",").cast(pl.List(pl.Int64), strict=False)
    return (
        trace.placements.select("job_key", "attempt", "node", numbers.alias("gpus"))
        .join(
            trace.attempts.select("job_key", "attempt", "start_utc", "end_utc").drop_nulls("start_utc"),
            on=["job_key", "attempt"],
        )
        .join(given_out_again(trace), on=["job_key", "attempt"], how="left")
        .select(
            "job_key", "attempt", "node", "gpus", seconds("start_utc"),
            pl.coalesce("end_utc", "next_utc").dt.epoch("s").fill_null(NO_END).alias("end_epoch"),
        )
    )  # fmt: skip


def quantiles(readings: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """PERCENTILES of `value` weighted by `n` in each group, linear between neighbours as numpy's default."""
    summed = readings.group_by(*by, "value").agg(pl.col("n").sum()).sort("value")
    return summed.group_by(by).agg(*_quantiles())


def _quantiles() -> list[pl.Expr]:
    """Over rows in order of `value`: n equal samples stand in each."""
    value, upto = pl.col("value"), pl.col("n").cum_sum()
    found = []
    for name, share in PERCENTILES.items():
        rank = (pl.col("n").sum() - 1) * share
        low = value.filter(upto > rank.floor()).first()
        high = value.filter(upto > rank.ceil()).first()
        found.append((low + (high - low) * (rank - rank.floor())).alias(name))
    return found


def _some_nodes(
    cluster: str, resource: str, nodes: list[str], fetch: Fetch
) -> Iterator[tuple[list[str], pl.DataFrame]]:
    """(names, their samples as code, time_s, number, value) of all those nodes, ROWS_AT_ONCE samples at a time.

    Nodes are neighbours by name, so that a table that is ordered by node is read once in all, by its zone maps.
    """
    table, number, value = RESOURCES[resource]
    counted = fetch(f"SELECT node, count(*) AS n FROM {table} WHERE cluster = $1 GROUP BY node", [cluster])  # noqa: S608 - our own names
    sizes = dict(counted.iter_rows())
    parts: list[list[str]] = []
    rows = 0
    for node in nodes:
        if node in sizes:
            if not parts or rows + sizes[node] > ROWS_AT_ONCE:
                parts.append([])
                rows = 0
            parts[-1].append(node)
            rows += sizes[node]
    sql = f"""
        SELECT n.code::USMALLINT AS code, epoch_us(s.sample_utc) // 1000000 AS time_s, ({number})::BIGINT AS number,
            ({value})::DOUBLE AS value
        FROM {table} AS s
        JOIN (SELECT unnest($2::VARCHAR[]) AS node, unnest(range(len($2::VARCHAR[]))) AS code) AS n USING (node)
        WHERE s.cluster = $1 AND s.node BETWEEN $3 AND $4
    """  # noqa: S608 - our own names
    for part in parts:
        yield part, fetch(sql, [cluster, part, part[0], part[-1]])


def _on_nodes(
    held: pl.DataFrame, nodes: list[str], samples: pl.DataFrame, resource: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """COUNTS and readings of every placement on those nodes."""
    code = samples["code"].to_numpy()
    order = np.argsort(code, kind="stable")
    columns = [samples[name].to_numpy()[order] for name in ("time_s", "number", "value")]
    bounds = np.searchsorted(code[order], np.arange(len(nodes) + 1))
    found = _Found()
    for i, node in enumerate(nodes):
        times, numbers, values = (column[bounds[i] : bounds[i + 1]] for column in columns)
        _one_node(held.filter(pl.col("node") == node), _matrix(times, numbers, values), resource, found)
    return found.frames()


def _matrix(times: Int64s, numbers: Int64s, values: Float64s) -> _Node:
    """The samples of one node, each of shape (n,), as a matrix. A cell that is sampled twice keeps the later value."""
    ticks, place = _grid(times)
    cell = numbers * len(ticks) + place
    shape = (int(numbers.max()) + 1, len(ticks))
    matrix = np.full(shape, np.nan)
    matrix.reshape(-1)[cell] = values
    return _Node(ticks, matrix, np.bincount(cell, minlength=matrix.size).reshape(shape))


def _grid(times: Int64s) -> tuple[Int64s, Int64s]:
    """(rising instants that hold all times, place of each among them), without a sort for samples by the minute."""
    since = times - times.min()
    minutes = since // MINUTE_S
    cells = int(minutes.max()) + 1
    if cells > SPARSE * len(times) or (minutes * MINUTE_S != since).any():
        ticks, place = np.unique(times, return_inverse=True)
        return ticks, place
    return times.min() + MINUTE_S * np.arange(cells, dtype=np.int64), minutes


class _Found:
    """Rows in the making: COUNTS by placement, readings by placement and sharing."""

    def __init__(self) -> None:
        self.counts: list[tuple[Any, ...]] = []
        self.readings: list[tuple[int, bool, Float64s, Int64s]] = []

    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        counts = pl.DataFrame(self.counts, schema=_no_counts().schema, orient="row")
        if not self.readings:
            return counts, _no_readings()
        lengths = [len(values) for _, _, values, _ in self.readings]
        readings = pl.DataFrame(
            {
                "id": np.repeat(np.array([row[0] for row in self.readings], dtype=np.int64), lengths),
                "sharing": np.repeat(np.array([row[1] for row in self.readings]), lengths),
                "value": np.concatenate([row[2] for row in self.readings]),
                "n": np.concatenate([row[3] for row in self.readings]).astype(np.int64),
            }
        )
        sharing = pl.when("sharing").then(pl.lit("shared")).otherwise(pl.lit("dedicated")).alias("sharing")
        return counts, readings.with_columns(sharing)


def _no_counts() -> pl.DataFrame:
    return pl.DataFrame(
        schema={
            "id": pl.Int64,
            "names_gpus": pl.Boolean,
            **dict.fromkeys(COUNTS, pl.Int64),
            "total": pl.Float64,
        }
    )


def _no_readings() -> pl.DataFrame:
    return pl.DataFrame(schema={"id": pl.Int64, "sharing": pl.String, "value": pl.Float64, "n": pl.Int64})


def _one_node(held: pl.DataFrame, node: _Node, resource: str, found: _Found) -> None:
    """Add every placement on the node that has a sample."""
    low = np.searchsorted(node.ticks, held["start_epoch"].to_numpy())
    high = np.searchsorted(node.ticks, held["end_epoch"].to_numpy())
    changes = np.zeros(len(node.ticks) + 1, dtype=np.int64)
    np.add.at(changes, low, 1)
    np.add.at(changes, np.maximum(low, high), -1)
    is_shared = np.cumsum(changes[:-1]) > 1
    every = np.arange(len(node.values))
    for key, gpus, a, b in zip(held["id"].to_list(), held["gpus"].to_list(), low.tolist(), high.tolist(), strict=True):
        if b <= a:
            continue
        names_gpus = gpus is not None and resource == "GPU"
        rows = np.array([g for g in gpus if g in range(len(every))], dtype=np.int64) if names_gpus else every
        read = node.times_read[rows, a:b]
        samples = int(np.count_nonzero(read))
        if not samples:
            continue
        values = node.values[rows, a:b]
        online = ~np.isnan(values)
        of_minute = online.any(axis=0)
        idle = of_minute & ~(online & (values != 0)).any(axis=0)
        sampled, shared = read.any(axis=0), is_shared[a:b]
        seen = values[online]
        found.counts.append(
            (
                key, names_gpus, samples, samples - len(seen), int(read.sum()) - samples,
                int(sampled.sum()), int((sampled & shared).sum()), int(of_minute.sum()), int(idle.sum()),
                int(online[:, idle].sum()), float(seen.sum()),
            )
        )  # fmt: skip
        for with_others in (False, True):
            kept = values[online & (shared == with_others)]
            if len(kept):
                value, n = np.unique(kept, return_counts=True)
                found.readings.append((key, with_others, value, n))
