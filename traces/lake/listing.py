"""The table `files` of the shared lake: which reading of each raw file counts. Writing it commits a change.

A change reads the newest version, edits it and writes the next one. If another process writes that version first, the
change is made again on what is there then. So no change is lost, and a process that is killed has changed nothing.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from traces import schema
from traces.clusters import NAME, RESERVED
from traces.errors import BatonError, InputError, WorkError
from traces.lake import tables
from traces.lake.shared import SharedLake
from traces.lake.tables import TRIES
from traces.schema import INT, TEXT, Column

if TYPE_CHECKING:
    from deltalake import DeltaTable

_WORD = re.compile(r"[0-9a-f]{16}")  # names a file or a reading
FILES = schema.Table(
    "files",
    "One row per raw file: the reading that counts. Join every other table on cluster, file and reading",
    (
        Column("cluster", TEXT, "", "cluster name"),
        Column("file", TEXT, "", "first 16 characters of the raw file's digest"),
        Column("reading", TEXT, "", "names the partition that counts"),
        Column("sha256", TEXT, "", "digest of the raw file"),
        Column("path", TEXT, "", "path given at ingest"),
        Column("host", TEXT, "", "machine that read the file"),
        Column("rows", INT, "records", "records read"),
        Column("jobs", INT, "jobs", "distinct jobs"),
        Column("rejects", INT, "records", "rejected records"),
        Column("rules", TEXT, "", "digest of the rules of reading"),
        Column("retired_utc", schema.UTC, "", "when other contents of the same path replaced it; null while it counts"),
        Column("versions", TEXT, "", "JSON: for each table, the version from which on it holds the partition"),
        Column("description", TEXT, "", "JSON: file.json of the local lake"),
    ),
    key=("cluster", "file"),
)  # fmt: skip


class SharedFile(NamedTuple):
    """One row of `files`. `described` is file.json of the local lake."""

    part: tables.Part
    host: str
    described: dict[str, Any]
    versions: dict[str, int]
    retired_utc: datetime | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Return cluster and file."""
        return self.part[:2]

    def row(self) -> dict[str, Any]:
        """Return the values of FILES."""
        described = self.described
        counts = described["result"]
        return {
            **self.part._asdict(), "sha256": described["sha256"], "path": described["path"], "host": self.host,
            "rows": counts["rows"], "jobs": counts["jobs"], "rejects": counts["rejects"],
            "rules": described["fingerprint"],
            "retired_utc": self.retired_utc, "versions": json.dumps(self.versions, sort_keys=True),
            "description": json.dumps(described),
        }  # fmt: skip


class Listing(NamedTuple):
    """One version of `files`; version -1 and no table before the first push."""

    version: int
    files: dict[tuple[str, str], SharedFile]
    table: DeltaTable | None = None

    def of(self, clusters: set[str] | None) -> list[SharedFile]:
        """Return the rows of those clusters, None: of all; retired ones too."""
        return [file for file in self.files.values() if clusters is None or file.part.cluster in clusters]


def listing(lake: SharedLake, kind: type[BatonError] = InputError) -> Listing:
    """Read the newest version. Raises InputError for a lake of another schema version, `kind` if it does not answer."""
    with lake.answers(kind):
        table = tables.opened(lake, FILES.name)
        if table is None:
            return Listing(-1, {})
        found = table.metadata().configuration.get(tables.VERSION)
        if found != str(schema.SCHEMA_VERSION):
            raise InputError(
                f"shared lake {lake.options.url} has schema version {found}, but this program uses "
                f"{schema.SCHEMA_VERSION}: use the program that wrote it, or name another lake.url and push to it"
            )
        rows = table.to_pyarrow_table().to_pylist()
    try:
        files = [_shared_file(row) for row in rows]
    except (ValueError, TypeError) as error:
        raise WorkError(f"shared lake {lake.options.url}: its table `files` has an invalid row: {error}") from None
    return Listing(table.version(), {file.key: file for file in files}, table)


def _shared_file(row: dict[str, Any]) -> SharedFile:
    """Return a row; it becomes paths of the local lake. Raises ValueError, TypeError."""
    part = tables.Part(row["cluster"], row["file"], row["reading"])
    described, versions = json.loads(row["description"]), json.loads(row["versions"])
    is_known = NAME.fullmatch(part.cluster) and part.cluster not in RESERVED and versions.keys() <= schema.TABLES.keys()
    if not (is_known and _WORD.fullmatch(part.file) and _WORD.fullmatch(part.reading)):
        raise ValueError(f"{'/'.join(part)!r:.100}")
    return SharedFile(part, row["host"], described, versions, row["retired_utc"])


Edit = Callable[[dict[tuple[str, str], SharedFile]], dict[tuple[str, str], SharedFile]]


def change(lake: SharedLake, edit: Edit, *, is_new: bool) -> tuple[Listing, Listing]:
    """Replace the rows by `edit` of them; return the listing before and after. `is_new`: there was no table before.

    Raises WorkError, also if the table vanished.
    """
    if is_new:
        with lake.answers():
            tables.created(lake, FILES.name, FILES.meaning, FILES.columns)
    for _ in range(TRIES):
        before = listing(lake, WorkError)
        if before.table is None:
            raise WorkError(f"shared lake {lake.options.url}: its table `files` vanished; nothing was shared")
        files = edit(before.files)
        if files == before.files:
            return before, before
        if replaced(lake, before.table, FILES, [file.row() for file in files.values()]):
            return before, Listing(before.version + 1, files)
        time.sleep(random.uniform(0.0, 0.2))
    raise WorkError(f"shared lake {lake.options.url}: {TRIES} changes by others came first; try again later")


def replaced(lake: SharedLake, table: DeltaTable, declared: schema.Table, rows: list[dict[str, Any]]) -> bool:
    """Replace all rows of a table by one commit; return False if the opened version is no longer the newest."""
    import polars as pl
    from deltalake import CommitProperties, write_deltalake
    from deltalake.exceptions import CommitFailedError

    from traces.store.frames import conform

    frame = conform(declared, pl.DataFrame(rows, infer_schema_length=None))
    with lake.answers():
        try:
            write_deltalake(
                table, frame.to_arrow(), mode="overwrite", commit_properties=CommitProperties(max_commit_retries=0)
            )
        except CommitFailedError:
            return False
    return True


def now_utc() -> datetime:
    """Return the time, naive UTC."""
    return datetime.now(UTC).replace(tzinfo=None)
