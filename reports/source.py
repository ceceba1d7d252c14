"""Read access to one cluster's rows of the warehouse, with names hidden on request."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from features.resources.capacity import Resource
from features.resources.resource import PLURALS, UNITS, WORDS
from reports import format as fmt
from traces.counted import counted
from traces.errors import InputError
from traces.quality import COLUMNS, Missing, missing_fields
from traces.store import warehouse
from traces.store.folder import DataFolder

MOST_KEPT = 50_000  # rows of a table that is kept for several sections; a larger table is read again
NAME_COLUMNS = {"user_name": "user", "account": "account", "group_name": "account", "job_name": "job"}


@dataclass(frozen=True)
class Names:
    """The keyed hashes that replace names throughout a report; with `key` None names stay as they are."""

    key: bytes | None = None

    def hide(self, kind: str, name: str | None) -> str | None:
        """Return the hash of a name; `kind` (user, account, job) keeps equal names of different kinds apart."""
        if self.key is None or name is None:
            return name
        digest = hmac.new(self.key, f"{kind}\0{name}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"{kind}-{digest.hexdigest()[:10]}"

    @property
    def are_hidden(self) -> bool:
        """Whether names are replaced by keyed hashes."""
        return self.key is not None


def table_names(data: DataFolder) -> frozenset[str]:
    """Return the names of the tables in the warehouse.

    Raises InputError if there is no warehouse.
    """
    if not data.warehouse.exists():
        raise InputError(f"no warehouse at {data.warehouse}: run `baton analyze FILE...` first")
    tables = warehouse.read(data, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'")
    return frozenset(tables["table_name"].to_list())


class Remarks(NamedTuple):
    """Facts about a cluster that its tables do not hold; None where there is none, or none was looked up."""

    no_policies: str | None = None  # why no policies can be compared
    uncalibrated: str | None = None  # the part of a long record that calibration leaves out
    why_plain: str | None = None  # why policies are compared in the plain world
    development_until: datetime | None = None  # methods and settings were developed on the record before this time


class Source:
    """One cluster of the warehouse, with remarks that its tables do not hold."""

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
        """Return the cluster's rows of `table`, names hidden on request; an empty frame if there is no such table."""
        if table not in self.tables:
            return pl.DataFrame()
        if table in self._kept:
            return self._kept[table]
        frame = self.read(f'SELECT * FROM "{table}" WHERE cluster = ?')  # noqa: S608 - our own names
        if frame.height <= MOST_KEPT:
            self._kept[table] = frame
        return frame

    def free(self) -> None:
        """Free the rows that were read so far; they are read again when needed."""
        self._kept.clear()
        self.__dict__.pop("jobs", None)

    def columns(self, table: str, *names: str) -> pl.DataFrame:
        """Return the columns that the table has, text as categories; an empty frame if there is no such table.

        Meant for tables with a row per job: 4 million rows take a fraction of what `rows` takes.
        """
        if table not in self.tables:
            return pl.DataFrame()
        known = self.read(f'SELECT * FROM "{table}" WHERE cluster = ? LIMIT 0').columns  # noqa: S608 - our own names
        listed = ", ".join(f'"{name}"' for name in names if name in known)
        return self.compact(f'SELECT {listed} FROM "{table}" WHERE cluster = ?')  # noqa: S608 - our own names

    def compact(self, sql: str) -> pl.DataFrame:
        """Run a statement like `read`, but in batches, and keep each distinct text once (as a category)."""
        parts = warehouse.batches(self.data, sql, [self.cluster])
        texts = pl.col(pl.String).cast(pl.Categorical)
        return pl.concat([self.hide(part).with_columns(texts) for part in parts], rechunk=True)

    def whole(self, table: str) -> dict[str, Any] | None:
        """Return the row of the whole cluster of a table by dimension; None if there is none."""
        frame = self.rows(table)
        rows = frame.filter(pl.col("dimension") == "all").to_dicts() if not frame.is_empty() else []
        return rows[0] if rows else None

    def hidden(self, column: str, name: str | None) -> str | None:
        """Hide one name of `column` if names are hidden and the column is one of NAME_COLUMNS."""
        return self.names.hide(NAME_COLUMNS[column], name) if column in NAME_COLUMNS else name

    def read(self, sql: str) -> pl.DataFrame:
        """Run a statement whose one parameter is the cluster, with names hidden on request."""
        return self.hide(warehouse.read(self.data, sql, [self.cluster]))

    def hide(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Replace the name columns of a frame by keyed hashes if names are hidden."""
        if not self.names.are_hidden:
            return frame
        for column, kind in NAME_COLUMNS.items():
            if column in frame.columns:
                known = frame[column].unique().to_list()
                hidden = [self.names.hide(kind, name) for name in known]
                frame = frame.with_columns(pl.col(column).replace_strict(known, hidden, return_dtype=pl.String))
        return frame

    def why_empty(self, table: str, field: str, why: str) -> str:
        """Explain why a derived table has no rows of this cluster.

        Returns `why` if no job has a value in `field` of `jobs`. Otherwise only `baton ingest` has run so far.
        """
        if self.jobs[field].null_count() == self.jobs.height:
            return why
        return f"The table {table} has not been computed for this cluster yet: run `baton analyze`."

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """The cluster's jobs, with the columns that several sections need."""
        if "jobs" not in self.tables:
            raise InputError(f"the warehouse {self.data.warehouse} has no table jobs: rebuild it with `baton ingest`")
        # Every section takes GPU time from queueing_delay, which counts running jobs until the end of the log.
        # For jobs that are not in it yet (only `baton ingest` has run), the GPU time that the log records is used.
        has_delays = "queueing_delay" in self.tables
        gpu_time = "coalesce(q.gpu_time_s, j.gpu_time_s)" if has_delays else "j.gpu_time_s"
        unit_time = "q.unit_time_s" if has_delays else "NULL::BIGINT AS unit_time_s"
        joined = "LEFT JOIN queueing_delay q USING (cluster, job_key)" if has_delays else ""
        return self.compact(
            "SELECT j.user_name, j.state, j.submit_utc, start_utc, end_utc, run_s, j.wait_s, "  # noqa: S608 - our own names
            f"{gpu_time} AS gpu_time_s, {unit_time}, is_time_ambiguous, is_end_before_start, attempts, trace_sha256 "
            f"FROM jobs j {joined} WHERE cluster = ?"
        )

    @cached_property
    def machine(self) -> dict[str, Any]:
        """The row of `resources` for the whole cluster; {} before `baton analyze`.

        Its keys are resource, why, known_by, nodes, gpus, cpus, mem_mib, since_utc, until_utc and contradictions.
        """
        rows = self.rows("resources")
        rows = rows.filter(pl.col("scope") == "cluster") if not rows.is_empty() else rows
        return {} if rows.is_empty() else rows.to_dicts()[0]

    @cached_property
    def missing_fields(self) -> Missing | None:
        """What no job of the log has, and the fields to add to its dump; None if nothing is missing."""
        some = ", ".join(f"any_value({name}) AS {name}" for name in COLUMNS if name != "attempts")  # null if all are
        jobs = self.read(
            f"SELECT cluster, (attempts > 0)::BIGINT AS attempts, {some} FROM jobs WHERE cluster = ? GROUP BY ALL"  # noqa: S608 - our own names
        )
        has_placements = "placements" in self.tables
        placed = self.read("SELECT DISTINCT cluster FROM placements WHERE cluster = ?").rows() if has_placements else []
        return missing_fields(jobs, self.files, [name for (name,) in placed]).get(self.cluster)

    @property
    def shown_since(self) -> datetime | None:
        """When the log begins to show every running job (naive UTC), if jobs started before that; else None."""
        since, first = self.machine.get("since_utc"), self.jobs["start_utc"].min()
        return since if since is not None and isinstance(first, datetime) and first < since else None

    @property
    def binding(self) -> Resource:
        """The main resource of the cluster; nodes before `baton analyze`."""
        resource: Resource = self.machine.get("resource", "node")
        return resource

    @property
    def unit(self) -> str:
        """The unit of the cluster's capacity and shares: GPU, core, GiB or node."""
        return UNITS[self.binding]

    @property
    def units(self) -> str:
        """The plural of `unit`: GPUs, cores, GiB or nodes."""
        return PLURALS[self.binding]

    @property
    def time_kind(self) -> str:
        """The key of `format.FORMATS` that formats seconds of `unit` as hours."""
        return f"{self.unit.lower()}_time"

    @property
    def resource(self) -> str:
        """The main resource of the cluster in words: GPUs, cores, memory or whole nodes."""
        return WORDS[self.binding]

    @cached_property
    def files(self) -> pl.DataFrame:
        """The raw files of the cluster, one row each."""
        return self.rows("trace_files")

    @cached_property
    def window(self) -> tuple[datetime | None, datetime | None]:
        """The first submission and the last known time of any job, naive UTC."""
        if self.jobs.is_empty():
            return None, None
        last = [self.jobs[column].max() for column in ("submit_utc", "start_utc", "end_utc")]
        first = self.jobs["submit_utc"].min()
        return first, max((moment for moment in last if moment is not None), default=None)  # type: ignore[return-value]

    @cached_property
    def mean_wait_s(self) -> float | None:
        """The mean wait of the jobs that have one, s."""
        mean = self.jobs["wait_s"].mean()
        return float(mean) if isinstance(mean, int | float) else None

    @cached_property
    def timezone(self) -> str:
        """The local time zone of the cluster: the most frequent one of its raw files."""
        zones = [] if self.files.is_empty() else self.files["timezone"].to_list()
        return max(set(zones), key=zones.count) if zones else "UTC"

    @property
    def is_generated(self) -> bool:
        """Whether `baton generate` made a raw file of the cluster, so that it is not recorded."""
        return not self.files.is_empty() and bool(self.files["is_generated"].any())

    @cached_property
    def slug(self) -> str:
        """A short id for the page's anchors, free of user text."""
        return "c" + hashlib.sha256(self.cluster.encode()).hexdigest()[:8]

    @cached_property
    def digest(self) -> str:
        """A short digest over the digests of the raw files."""
        files = [] if self.files.is_empty() else sorted(self.files["sha256"].to_list())
        return hashlib.sha256("".join(files).encode()).hexdigest()[:12]

    def caption(
        self, n: int, unit: str, seeds: int | None = None, window: tuple[datetime, datetime] | None = None
    ) -> str:
        """Return the end of a caption: trace, window (default: the whole trace), n and seeds."""
        kind = "Generated trace" if self.is_generated else "Trace"
        first, last = window or self.window
        seeds_in_words = counted(seeds, "seed") if seeds else "no seeds"
        return (
            f"{kind} {fmt.text(self.cluster)} ({self.digest}), {fmt.day(first)} to {fmt.day(last)}, "
            f"n = {n:,} {unit.removesuffix('s') if n == 1 else unit}, {seeds_in_words}."
        )
