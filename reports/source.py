"""What a report reads: one cluster's rows of the warehouse, and names hidden where that was asked for."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from features.capacity import Resource
from features.resource import MANY, UNITS, WORDS
from reports import format as fmt
from traces.counted import counted
from traces.errors import InputError
from traces.quality import COLUMNS, Missing, missing_fields
from traces.store import warehouse
from traces.store.folder import DataFolder

MOST_KEPT = 50_000  # rows of a table that several sections read: larger ones are read again
NAME_COLUMNS = {"user_name": "user", "account": "account", "group_name": "account", "job_name": "job"}


@dataclass(frozen=True)
class Names:
    """Turns a name into a keyed hash, the same one everywhere in a report; `key` None leaves names as they are."""

    key: bytes | None = None

    def hide(self, kind: str, name: str | None) -> str | None:
        """`kind` (user, account, job) keeps equal names of different kinds apart."""
        if self.key is None or name is None:
            return name
        digest = hmac.new(self.key, f"{kind}\0{name}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"{kind}-{digest.hexdigest()[:10]}"

    @property
    def are_hidden(self) -> bool:
        """Whether names are replaced by keyed hashes."""
        return self.key is not None


def table_names(data: DataFolder) -> frozenset[str]:
    """Names of the tables that the warehouse holds.

    Raises InputError where there is no warehouse.
    """
    if not data.warehouse.exists():
        raise InputError(f"no warehouse at {data.warehouse}: run `baton analyze FILE...` first")
    tables = warehouse.read(data, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'")
    return frozenset(tables["table_name"].to_list())


def cluster_names(data: DataFolder) -> list[str]:
    """Clusters of which at least one raw file was read, in order of name."""
    if "trace_files" not in table_names(data):
        return []
    return warehouse.read(data, "SELECT DISTINCT cluster FROM trace_files ORDER BY cluster")["cluster"].to_list()


class Remarks(NamedTuple):
    """What the tables of a cluster do not say of it; None where there is nothing to say, or nobody asked."""

    no_policies: str | None = None  # why none can be compared
    uncalibrated: str | None = None  # what calibration leaves out of a long record
    why_plain: str | None = None  # why policies are judged in the plain world
    development_until: datetime | None = None  # methods and settings were made with the record up to there in view


class Source:
    """One cluster of the warehouse, and what its tables do not say."""

    def __init__(
        self,
        data: DataFolder,
        cluster: str,
        names: Names | None = None,
        remarks: Remarks = Remarks(),  # noqa: B008 - a tuple
    ) -> None:
        self.data, self.cluster, self.names, self.remarks = data, cluster, names or Names(), remarks
        self.tables = table_names(data)
        self._kept: dict[str, pl.DataFrame] = {}

    def rows(self, table: str) -> pl.DataFrame:
        """The cluster's rows of `table` with names hidden where asked; an empty frame where there is no such table."""
        if table not in self.tables:
            return pl.DataFrame()
        if table in self._kept:
            return self._kept[table]
        frame = self.read(f'SELECT * FROM "{table}" WHERE cluster = ?')  # noqa: S608 - our own names
        if frame.height <= MOST_KEPT:
            self._kept[table] = frame
        return frame

    def columns(self, table: str, *names: str) -> pl.DataFrame:
        """Those of the columns that the table has, text as categories; an empty frame where there is no such table.

        For tables with a row a job: 4 million rows take a fraction of what `rows` takes.
        """
        if table not in self.tables:
            return pl.DataFrame()
        known = self.read(f'SELECT * FROM "{table}" WHERE cluster = ? LIMIT 0').columns  # noqa: S608 - our own names
        listed = ", ".join(f'"{name}"' for name in names if name in known)
        return self.compact(f'SELECT {listed} FROM "{table}" WHERE cluster = ?')  # noqa: S608 - our own names

    def compact(self, sql: str) -> pl.DataFrame:
        """`read` some rows at a time, each distinct text kept once (as a category)."""
        parts = warehouse.batches(self.data, sql, [self.cluster])
        texts = pl.col(pl.String).cast(pl.Categorical)
        return pl.concat([self.hide(part).with_columns(texts) for part in parts], rechunk=True)

    def whole(self, table: str) -> dict[str, Any] | None:
        """Of a table by dimensions the row of the whole cluster; None where there is none."""
        frame = self.rows(table)
        rows = frame.filter(pl.col("dimension") == "all").to_dicts() if not frame.is_empty() else []
        return rows[0] if rows else None

    def hidden(self, column: str, name: str | None) -> str | None:
        """One name of a column of NAME_COLUMNS, hidden where that was asked for."""
        return self.names.hide(NAME_COLUMNS[column], name) if column in NAME_COLUMNS else name

    def read(self, sql: str) -> pl.DataFrame:
        """Any statement with one parameter, the cluster."""
        return self.hide(warehouse.read(self.data, sql, [self.cluster]))

    def hide(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Replace the name columns of a frame by keyed hashes."""
        if not self.names.are_hidden:
            return frame
        for column, kind in NAME_COLUMNS.items():
            if column in frame.columns:
                known = frame[column].unique().to_list()
                hidden = [self.names.hide(kind, name) for name in known]
                frame = frame.with_columns(pl.col(column).replace_strict(known, hidden, return_dtype=pl.String))
        return frame

    def why_empty(self, table: str, field: str, why: str) -> str:
        """Why a derived table has no rows of this cluster: `why`, where no job has that `field` of `jobs`.

        Where one has, `baton ingest` alone has been here: the table is not made yet.
        """
        if self.jobs[field].null_count() == self.jobs.height:
            return why
        return f"The table {table} is not made yet for this cluster: run `baton analyze`."

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """The cluster's jobs, the columns that any section needs."""
        if "jobs" not in self.tables:
            raise InputError(f"the warehouse {self.data.warehouse} has no table jobs: rebuild it with `baton ingest`")
        # GPU time as every section counts it: what still runs at the log's end counts until there. Jobs that
        # `baton ingest` alone brought are not counted yet: of them the log's own stands.
        counted = "queueing_delay" in self.tables
        gpu_time = "coalesce(q.gpu_time_s, j.gpu_time_s)" if counted else "j.gpu_time_s"
        unit_time = "q.unit_time_s" if counted else "NULL::BIGINT AS unit_time_s"
        joined = "LEFT JOIN queueing_delay q USING (cluster, job_key)" if counted else ""
        return self.compact(
            "SELECT j.user_name, j.state, j.submit_utc, start_utc, end_utc, run_s, j.wait_s, "  # noqa: S608 - our own names
            f"{gpu_time} AS gpu_time_s, {unit_time}, is_time_ambiguous, is_end_before_start, attempts, trace_sha256 "
            f"FROM jobs j {joined} WHERE cluster = ?"
        )

    @cached_property
    def machine(self) -> dict[str, Any]:
        """The row of `resources` about the whole cluster: resource, why, known_by, nodes, gpus, cpus, mem_mib and
        contradictions; {} before `baton analyze`."""
        rows = self.rows("resources")
        rows = rows.filter(pl.col("scope") == "cluster") if not rows.is_empty() else rows
        return {} if rows.is_empty() else rows.to_dicts()[0]

    @cached_property
    def missing_fields(self) -> Missing | None:
        """What no job of the log has, and the fields to add to its dump; None where it lacks nothing."""
        jobs = self.read(f"SELECT {', '.join(('cluster', *COLUMNS))} FROM jobs WHERE cluster = ?")  # noqa: S608 - our own names
        known = "placements" in self.tables
        placed = self.read("SELECT DISTINCT cluster FROM placements WHERE cluster = ?").rows() if known else []
        return missing_fields(jobs, self.files, [name for (name,) in placed]).get(self.cluster)

    @property
    def shown_since(self) -> datetime | None:
        """From when on the log shows all that ran (naive UTC), where jobs started before; else None."""
        since, first = self.machine.get("since_utc"), self.jobs["start_utc"].min()
        return since if since is not None and isinstance(first, datetime) and first < since else None

    @property
    def binding(self) -> Resource:
        """The resource that the cluster is about; nodes before `baton analyze`."""
        resource: Resource = self.machine.get("resource", "node")
        return resource

    @property
    def unit(self) -> str:
        """What the cluster's capacity and shares are counted in: GPU, core, GiB or node."""
        return UNITS[self.binding]

    @property
    def units(self) -> str:
        """Several of `unit`: GPUs, cores, GiB or nodes."""
        return MANY[self.binding]

    @property
    def time_kind(self) -> str:
        """The key of `format.FORMATS` that prints seconds of `unit` as hours."""
        return f"{self.unit.lower()}_time"

    @property
    def resource(self) -> str:
        """What the cluster is about, in the plural: GPUs, cores, memory or whole nodes."""
        return WORDS[self.binding]

    @cached_property
    def files(self) -> pl.DataFrame:
        """The raw files of the cluster, a row each."""
        return self.rows("trace_files")

    @cached_property
    def window(self) -> tuple[datetime | None, datetime | None]:
        """First submission and last known moment of any job, naive UTC."""
        if self.jobs.is_empty():
            return None, None
        last = [self.jobs[column].max() for column in ("submit_utc", "start_utc", "end_utc")]
        first = self.jobs["submit_utc"].min()
        return first, max((moment for moment in last if moment is not None), default=None)  # type: ignore[return-value]

    @cached_property
    def mean_wait_s(self) -> float | None:
        """Mean wait of the jobs that have one, s."""
        mean = self.jobs["wait_s"].mean()
        return float(mean) if isinstance(mean, int | float) else None

    @cached_property
    def timezone(self) -> str:
        """The zone in which the cluster's people live: that of its raw files."""
        zones = [] if self.files.is_empty() else self.files["timezone"].to_list()
        return max(set(zones), key=zones.count) if zones else "UTC"

    @property
    def is_generated(self) -> bool:
        """True where a raw file of the cluster was made by `baton generate` and not recorded."""
        return not self.files.is_empty() and bool(self.files["is_generated"].any())

    @cached_property
    def slug(self) -> str:
        """A short id for the page's anchors, made of no user text."""
        return "c" + hashlib.sha256(self.cluster.encode()).hexdigest()[:8]

    @cached_property
    def digest(self) -> str:
        """Short digest over the digests of the raw files."""
        files = [] if self.files.is_empty() else sorted(self.files["sha256"].to_list())
        return hashlib.sha256("".join(files).encode()).hexdigest()[:12]

    def caption(
        self, n: int, unit: str, seeds: int | None = None, window: tuple[datetime, datetime] | None = None
    ) -> str:
        """Trace, window (default: the whole trace), n and seeds, the end of every caption."""
        kind = "Generated trace" if self.is_generated else "Trace"
        first, last = window or self.window
        drawn = f"{counted(seeds, 'seed')}" if seeds else "no seeds"
        return (
            f"{kind} {fmt.text(self.cluster)} ({self.digest}), {fmt.day(first)} to {fmt.day(last)}, "
            f"n = {n:,} {unit.removesuffix('s') if n == 1 else unit}, {drawn}."
        )
