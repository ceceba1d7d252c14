"""Join of utilization samples with the attempts that held the sampled resources: exact, and linear in the samples.

The join handles one node at a time. The samples of a node form a matrix of GPUs by sampled minutes. An attempt is a
rectangle of that matrix: the GPUs it held by the minutes in [start, end). CPU and memory are matrices with one row,
because a node has one reading of each for all its jobs. Nodes are read in batches, so memory does not grow with the
trace. Where the placement names no GPUs, all GPUs of the node count for each attempt there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.resources.usage import next_allocation, seconds
from features.trace import Trace
from traces.arrays import Float64s, Int64s
from traces.units import MINUTE_S

Batch = TypeVar("Batch")
Read = TypeVar("Read")
# Runs one SELECT on the tables of samples and yields its rows in batches, at least one frame.
Fetch = Callable[[str, Sequence[Any]], Iterable[pl.DataFrame]]
_Histogram = tuple[Float64s, Int64s]  # distinct values in rising order, and the count of each

# Resource -> (table of samples, expression that numbers the rows of a node, reading in percent).
RESOURCES: dict[str, tuple[str, str, str]] = {
    "GPU": ("gpu_utilization", "gpu", "utilization_percent"),
    "CPU": ("cpu_utilization", "0", "utilization_percent"),
    "memory": ("memory_utilization", "0", "100.0 * (total_kib - free_kib) / nullif(total_kib, 0)"),
}
ROWS_AT_ONCE = 6_000_000  # samples held in memory; a node with more is read in one batch
NODES_AT_ONCE = 64  # kept small, because a sample's node is looked up in a list
MICROSECONDS = 1_000_000
SPARSE = 16  # a grid of minutes with more cells per sample is mostly gaps
UNCOUNTED = 4_000_000  # readings collected before they are sorted and counted
NO_END = np.iinfo(np.int64).max
PERCENTILES = {"p50_percent": 0.5, "p90_percent": 0.9, "p95_percent": 0.95}

COUNTS = (
    "samples", "offline_samples", "repeated_samples", "node_minutes", "shared_node_minutes", "online_node_minutes",
    "idle_node_minutes", "idle_samples",
)  # fmt: skip


@dataclass(frozen=True)
class Joined:
    """The samples of one resource, joined with the attempts that held it.

    attempts: job_key, attempt, names_gpus, COUNTS, mean_percent, PERCENTILES; one row per attempt with samples.
    readings: the caller's attributes of the attempt, `sharing` (dedicated or shared node-minute), value (percent), n
    (number of samples with that value). It covers every online sample, so percentiles of any group are exact.
    """

    attempts: pl.DataFrame
    readings: pl.DataFrame


@dataclass(frozen=True)
class _Placed:
    """Placements on one node, arrays of shape (n,).

    identity: number of the attempt; kind: number of its kind; on_one_node: whether the attempt runs only on this node;
    names_gpus: whether the log names its GPUs.
    """

    identity: Int64s
    kind: Int64s
    on_one_node: NDArray[np.bool_]
    names_gpus: NDArray[np.bool_]

    def __getitem__(self, part: slice) -> _Placed:
        return _Placed(self.identity[part], self.kind[part], self.on_one_node[part], self.names_gpus[part])


@dataclass(frozen=True)
class _Node:
    """Readings of one node.

    ticks (k,): epoch s, rising; values (rows, k): percent, NaN where offline or not sampled; times_read (rows, k),
    uint8: number of samples of that cell.
    """

    ticks: Int64s
    values: Float64s
    times_read: NDArray[np.uint8]


def join(trace: Trace, cluster: str, resource: str, attributes: pl.DataFrame, fetch: Fetch) -> Joined:
    """Join the samples of `resource` with attempts. `attributes`: job_key, attempt and the groups of `readings`."""
    sizes = _sampled(cluster, resource, fetch)
    if not sizes:
        trace = replace(trace, placements=trace.placements.clear())  # a join of millions of rows would find nothing
    kind_columns = [name for name in attributes.columns if name not in ("job_key", "attempt")]
    kinds = attributes.select(kind_columns).unique(maintain_order=True).with_row_index("kind")
    named = attributes.join(kinds, on=kind_columns, nulls_equal=True).with_row_index("id")
    held = (
        held_on_nodes(trace)
        .join(named.select("id", "kind", "job_key", "attempt"), on=["job_key", "attempt"])
        .with_columns((pl.len() == 1).over("id").alias("on_one_node"))
        .sort("node", "start_epoch")
    )
    sums = _Sums()
    by_node = {str(name): rows for (name,), rows in held.group_by("node", maintain_order=True)}
    for node, samples in _by_node(cluster, resource, list(by_node), sizes, fetch):
        _one_node(by_node[node], samples, resource, sums)
    online = pl.col("samples") - pl.col("offline_samples")
    attempts = (
        sums.counts()
        .join(sums.percentiles(), on="id", how="left")
        .join(named.select("id", "job_key", "attempt"), on="id")
        .with_columns(pl.when(online > 0).then(pl.col("total") / online).alias("mean_percent"))
        .sort("job_key", "attempt")
        .drop("id", "total")
    )
    return Joined(attempts, sums.readings().join(kinds, on="kind").drop("kind"))


def held_on_nodes(trace: Trace) -> pl.DataFrame:
    """List placements: job_key, attempt, node, start_epoch, end_epoch, gpus (numbers, null where the log names none).

    An attempt without a recorded end ends when one of its GPUs is next allocated, else never.
    """
    numbers = (
        pl.col("gpu_numbers").cast(pl.String).replace("", None).str.split(",").cast(pl.List(pl.Int64), strict=False)
    )
    return (
        trace.placements.select("job_key", "attempt", "node", numbers.alias("gpus"))
        .join(
            trace.attempts.select("job_key", "attempt", "start_utc", "end_utc").drop_nulls("start_utc"),
            on=["job_key", "attempt"],
        )
        .join(next_allocation(trace), on=["job_key", "attempt"], how="left")
        .select(
            "job_key", "attempt", "node", "gpus", seconds("start_utc"),
            pl.coalesce("end_utc", "next_utc").dt.epoch("s").fill_null(NO_END).alias("end_epoch"),
        )
    )  # fmt: skip


def quantiles(readings: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Compute PERCENTILES of `value`, weighted by `n`, in each group; interpolation is linear, as numpy's default."""
    parts = []
    for key, rows in readings.group_by(by):
        summed = rows.group_by("value").agg(pl.col("n").sum()).sort("value")
        percentiles = _percentiles(summed["value"].to_numpy(), summed["n"].to_numpy())
        parts.append((*key, *percentiles))
    kinds: dict[str, Any] = {**{name: readings.schema[name] for name in by}, **dict.fromkeys(PERCENTILES, pl.Float64)}
    return pl.DataFrame(parts, schema=kinds, orient="row")


def _percentiles(values: Float64s, n: Int64s | None = None) -> list[float]:
    """Compute PERCENTILES of values (k,) in rising order, with counts `n` (k,); None means that each counts once."""
    upto = None if n is None else np.cumsum(n)
    last = (len(values) if upto is None else int(upto[-1])) - 1
    percentiles = []
    for share in PERCENTILES.values():
        rank = last * share
        low = int(rank)
        places = np.array([low, min(low + 1, last)])
        a, b = values[places if upto is None else np.searchsorted(upto, places, side="right")].tolist()
        percentiles.append(a + (b - a) * (rank - low))
    return percentiles


def _sampled(cluster: str, resource: str, fetch: Fetch) -> dict[str, int]:
    """Count the samples of each node that has some."""
    sql = f"SELECT node, count(*) AS n FROM {RESOURCES[resource][0]} WHERE cluster = $1 GROUP BY node"  # noqa: S608 - our own names
    return dict(pl.concat(fetch(sql, [cluster])).iter_rows())


def _by_node(
    cluster: str, resource: str, nodes: list[str], sizes: Mapping[str, int], fetch: Fetch
) -> Iterator[tuple[str, tuple[Int64s, Int64s, Float64s]]]:
    """Yield each node that has samples, with their times (epoch s), numbers and values.

    Memory holds up to twice ROWS_AT_ONCE samples, because a thread reads ahead while the caller computes. A batch holds
    neighbouring nodes by name, so that zone maps let a table ordered by node be read only once.
    """
    table, number, value = RESOURCES[resource]
    parts: list[list[str]] = []
    rows = 0
    for node in nodes:
        if node in sizes:
            if not parts or rows + sizes[node] > ROWS_AT_ONCE or len(parts[-1]) == NODES_AT_ONCE:
                parts.append([])
                rows = 0
            parts[-1].append(node)
            rows += sizes[node]
    # The code is the node's index among the names, from 1; 0 for any other node.
    sql = f"""
        SELECT coalesce(list_position($2::VARCHAR[], node), 0)::USMALLINT AS code, epoch_us(sample_utc) AS time_us,
            ({number})::BIGINT AS number, ({value})::DOUBLE AS value
        FROM {table} WHERE cluster = $1 AND node BETWEEN $3 AND $4
    """  # noqa: S608 - our own names

    def read(part: list[str]) -> tuple[list[str], Int64s, list[NDArray[Any]]]:
        samples = list(fetch(sql, [cluster, part, part[0], part[-1]]))
        code, *columns = (np.concatenate([rows[name].to_numpy() for rows in samples]) for name in samples[0].columns)
        if (code[1:] < code[:-1]).any():
            order = np.argsort(code, kind="stable")
            code, columns = code[order], [column[order] for column in columns]
        columns[0] //= MICROSECONDS
        return part, np.searchsorted(code, np.arange(1, len(part) + 2, dtype=code.dtype)), columns

    for part, bounds, columns in _ahead(read, parts):
        for i, node in enumerate(part):
            times, numbers, values = (column[bounds[i] : bounds[i + 1]] for column in columns)
            yield node, (times, numbers, values)


def _ahead(read: Callable[[Batch], Read], batches: Iterable[Batch]) -> Iterator[Read]:
    """Yield `read` of each batch in order, while a thread already reads the next one."""
    with ThreadPoolExecutor(1) as reader:
        coming: Future[Read] | None = None
        for batch in batches:
            this, coming = coming, reader.submit(read, batch)
            if this is not None:
                yield this.result()
        if coming is not None:
            yield coming.result()


def _matrix(times: Int64s, numbers: Int64s, values: Float64s) -> _Node:
    """Arrange the samples of one node, (n,) each, as a matrix. A cell that is sampled twice keeps the later value."""
    ticks, place = _grid(times)
    cell = numbers * len(ticks) + place
    shape = (int(numbers.max()) + 1, len(ticks))
    matrix = np.full(shape, np.nan)
    matrix.reshape(-1)[cell] = values
    return _Node(
        ticks, matrix, np.minimum(np.bincount(cell, minlength=matrix.size), 255).astype(np.uint8).reshape(shape)
    )


def _grid(times: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct instants in rising order, (k,), and the index of each time among them (shape of `times`).

    Samples that are whole minutes apart need no sort: their grid is every minute from the first to the last.
    """
    since = times - times.min()
    minutes = since // MINUTE_S
    cells = int(minutes.max()) + 1
    if cells > SPARSE * len(times) or (minutes * MINUTE_S != since).any():
        ticks, place = np.unique(times, return_inverse=True)
        return ticks, place
    return times.min() + MINUTE_S * np.arange(cells, dtype=np.int64), minutes


class _Sums:
    """Sums over nodes: COUNTS per placement, percentiles per attempt, readings per kind of attempt."""

    def __init__(self) -> None:
        self._counts: list[list[NDArray[Any]]] = []  # id, names_gpus, *COUNTS, total
        self._percentiles: list[list[NDArray[Any]]] = []  # id, *PERCENTILES
        self._unfinished: dict[int, list[_Histogram]] = {}  # attempts on several nodes
        self._seen: dict[tuple[int, bool], list[Float64s]] = {}
        self._waiting = 0
        self._readings: dict[tuple[int, bool], _Histogram] = {}

    def add(
        self, placed: _Placed, counts: Int64s, totals: Float64s, readings: Int64s, places: Int64s, seen: Float64s
    ) -> None:
        """Add placements with the counts, totals and readings from `tally` (see there for shapes)."""
        from features.resources.tally import sample_quantiles as quantiles_of

        sampled = counts[:, 0] > 0
        columns = [placed.identity, placed.names_gpus, *counts.T, totals]
        self._counts.append([column[sampled] for column in columns])
        n = readings.sum(axis=1)
        alone = placed.on_one_node & (n > 0)
        percentiles = np.empty((int(alone.sum()), len(PERCENTILES)))
        shares = np.array(list(PERCENTILES.values()))
        quantiles_of(seen, places[alone], n[alone], shares, np.empty(int(n.max(initial=0))), percentiles)
        self._percentiles.append([placed.identity[alone], *percentiles.T])
        ends = places + n
        for i in np.flatnonzero((n > 0) & ~alone).tolist():
            histogram = np.unique(seen[places[i] : ends[i]], return_counts=True)
            self._unfinished.setdefault(int(placed.identity[i]), []).append(histogram)
        middles = places + readings[:, 0]
        for is_shared, begins, stops in ((False, places, middles), (True, middles, ends)):
            some = stops > begins
            for kind, begin, stop in zip(
                placed.kind[some].tolist(), begins[some].tolist(), stops[some].tolist(), strict=True
            ):
                self._see(kind, is_shared, seen[begin:stop])

    def _see(self, kind: int, is_shared: bool, values: Float64s) -> None:
        """Collect online samples of a kind of attempt; sort and count them once there are UNCOUNTED."""
        self._seen.setdefault((kind, is_shared), []).append(values)
        self._waiting += len(values)
        if self._waiting > UNCOUNTED:
            self._count()

    def _count(self) -> None:
        for key, parts in self._seen.items():
            known = [self._readings[key]] if key in self._readings else []
            self._readings[key] = _summed([*known, np.unique(np.concatenate(parts), return_counts=True)])
        self._seen, self._waiting = {}, 0

    def counts(self) -> pl.DataFrame:
        kinds = {"id": pl.UInt32, "names_gpus": pl.Boolean, **dict.fromkeys(COUNTS, pl.Int64), "total": pl.Float64}
        return (
            _frame(self._counts, kinds).group_by("id").agg(pl.col("names_gpus").all(), pl.col(*COUNTS, "total").sum())
        )

    def percentiles(self) -> pl.DataFrame:
        kinds = {"id": pl.UInt32, **dict.fromkeys(PERCENTILES, pl.Float64)}
        rows = [(identity, *_percentiles(*_summed(parts))) for identity, parts in self._unfinished.items()]
        return pl.concat([pl.DataFrame(rows, schema=kinds, orient="row"), _frame(self._percentiles, kinds)])

    def readings(self) -> pl.DataFrame:
        """Count the samples of each value: columns kind, sharing (dedicated or shared), value (percent), n."""
        self._count()
        parts = [
            pl.DataFrame({"value": values, "n": n}).select(
                pl.lit(kind, pl.UInt32).alias("kind"),
                pl.lit("shared" if is_shared else "dedicated").alias("sharing"),
                pl.col("value").cast(pl.Float64),
                pl.col("n").cast(pl.Int64),
            )
            for (kind, is_shared), (values, n) in self._readings.items()
        ]
        kinds = {"kind": pl.UInt32, "sharing": pl.String, "value": pl.Float64, "n": pl.Int64}
        return pl.concat([pl.DataFrame(schema=kinds), *parts])


def _frame(parts: list[list[NDArray[Any]]], kinds: dict[str, Any]) -> pl.DataFrame:
    """Concatenate parts with the same columns into one frame."""
    if not parts:
        return pl.DataFrame(schema=kinds)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return pl.DataFrame(
        [pl.Series(name, values).cast(kind) for (name, kind), values in zip(kinds.items(), columns, strict=True)]
    )


def _summed(parts: list[_Histogram]) -> _Histogram:
    """Add up several histograms (values and their counts)."""
    if len(parts) == 1:
        return parts[0]
    values, place = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    n = np.zeros(len(values), dtype=np.int64)
    np.add.at(n, place, np.concatenate([part[1] for part in parts]))
    return values, n


def _one_node(held: pl.DataFrame, samples: tuple[Int64s, Int64s, Float64s], resource: str, sums: _Sums) -> None:
    """Add every placement on the node that has a sample. `held`: of that node, by start."""
    node = _matrix(*samples)
    low = np.searchsorted(node.ticks, held["start_epoch"].to_numpy())
    high = np.maximum(low, np.searchsorted(node.ticks, held["end_epoch"].to_numpy()))
    changes = np.bincount(low, minlength=len(node.ticks) + 1) - np.bincount(high, minlength=len(node.ticks) + 1)
    is_shared = np.cumsum(changes[:-1]) > 1
    every = list(range(len(node.values)))
    named = [gpus if resource == "GPU" else None for gpus in held["gpus"].to_list()]
    gpu_rows = [every if gpus is None else [g for g in gpus if 0 <= g < len(every)] for gpus in named]
    cells = (np.array([len(rows) for rows in gpu_rows], dtype=np.int64) * (high - low)).astype(np.int64)
    identity, kind, on_one_node = (held[name].to_numpy() for name in ("id", "kind", "on_one_node"))
    placed = _Placed(identity, kind, on_one_node, np.array([gpus is not None for gpus in named]))
    for part in _parts(cells):
        _tallied(node, is_shared, low[part], high[part], gpu_rows[part], placed[part], sums)


def _parts(cells: Int64s) -> Iterator[slice]:
    """Cut the placements into slices of at most UNCOUNTED cells each; a placement with more gets its own slice.

    Trailing placements without cells belong to the last slice. If no placement has a cell, there is no slice.
    """
    begin, total = 0, 0
    for i, more in enumerate(cells.tolist()):
        if total and total + more > UNCOUNTED:
            yield slice(begin, i)
            begin, total = i, 0
        total += more
    if total:
        yield slice(begin, len(cells))


def _tallied(
    node: _Node, is_shared: NDArray[np.bool_], low: Int64s, high: Int64s, gpu_rows: list[list[int]], placed: _Placed,
    sums: _Sums,
) -> None:  # fmt: skip
    """Tally placements: placement i holds gpu_rows[i] of the node's matrix in its ticks [low[i], high[i])."""
    from features.resources.tally import tally  # imported here to compile only where samples exist

    bounds = np.cumsum([0, *map(len, gpu_rows)], dtype=np.int64)
    rows = np.fromiter(itertools.chain.from_iterable(gpu_rows), dtype=np.int64, count=int(bounds[-1]))
    ends = np.cumsum(np.diff(bounds) * (high - low))
    places = np.concatenate([[0], ends[:-1]])
    counts, totals = np.zeros((len(gpu_rows), len(COUNTS)), dtype=np.int64), np.zeros(len(gpu_rows))
    readings, seen = np.zeros((len(gpu_rows), 2), dtype=np.int64), np.empty(int(ends[-1]))
    tally(node.values, node.times_read, is_shared, low, high, rows, bounds, places, counts, totals, readings, seen)
    sums.add(placed, counts, totals, readings, places, seen)
