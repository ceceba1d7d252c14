"""The Delta tables of the shared lake: one for each canonical table, with the local Parquet files as they are.

Partitions are named by cluster, file (start of the raw file's digest) and reading (a random word for each time that a
file was pushed). A push only adds partitions, so that writers never conflict; `traces.lake.listing` says which count.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from traces import schema
from traces.lake.shared import SharedLake

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

PARTITION = ("cluster", "file", "reading")
TRIES = 100  # of a commit, while other processes commit
VERSION = "baton.schema_version"  # in the configuration of every table
_TYPES = {
    schema.UTC: "timestamp_ntz",
    schema.TEXT: "string",
    schema.INT: "long",
    schema.FLOAT: "double",
    schema.FLAG: "boolean",
}


class Part(NamedTuple):
    """One partition: a reading of a raw file."""

    cluster: str
    file: str
    reading: str

    def path(self, table_name: str) -> str:
        """Return the path of its Parquet file, relative to the table."""
        return f"{'/'.join(f'{k}={v}' for k, v in self._asdict().items())}/{table_name}.parquet"


class Added(NamedTuple):
    """A Parquet file that was sent and belongs to no version of its table yet."""

    part: Part
    size: int
    rows: int


def delta_schema(columns: Iterable[schema.Column]) -> Schema:
    """Return the columns as Delta types, with their meanings as comments."""
    from deltalake import Field, Schema

    return Schema([Field(c.name, _TYPES[c.type], nullable=True, metadata={"comment": c.meaning}) for c in columns])


def opened(lake: SharedLake, name: str) -> DeltaTable | None:
    """Return the newest version of a table; None where there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(lake.uri(name), storage_options=lake.storage)
    except TableNotFoundError:
        return None


def created(
    lake: SharedLake, name: str, meaning: str, columns: Iterable[schema.Column], partition: tuple[str, ...] = ()
) -> DeltaTable:
    """Open a table; make it if there is none. Of several processes that make it at once, one does."""
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import CommitFailedError

    if (table := opened(lake, name)) is not None:
        return table
    days = f"interval {lake.options.keep_days} days"
    configuration: dict[str, Any] = {
        VERSION: str(schema.SCHEMA_VERSION), "delta.deletedFileRetentionDuration": days,
        "delta.logRetentionDuration": days,
    }  # fmt: skip
    try:
        return DeltaTable.create(
            lake.uri(name), delta_schema(columns), mode="ignore", partition_by=list(partition), name=name,
            description=meaning, configuration=configuration, storage_options=lake.storage,
            raise_if_key_not_exists=False, commit_properties=CommitProperties(max_commit_retries=0),
        )  # fmt: skip
    except CommitFailedError:  # another process made it meanwhile. With retries, deltalake would make it again on top
        return DeltaTable(lake.uri(name), storage_options=lake.storage)


def add(lake: SharedLake, table: schema.Table, files: list[Added]) -> int:
    """Add partitions whose files were sent to a table in one commit; return a version that has them."""
    from deltalake.transaction import AddAction

    own = [column for column in table.columns if column.name not in PARTITION]
    columns = [*(schema.Column(name, schema.TEXT, "", "") for name in PARTITION), *own]
    now_ms = round(time.time() * 1000)
    actions = [
        AddAction(
            file.part.path(table.name), file.size, file.part._asdict(), now_ms, True,
            json.dumps({"numRecords": file.rows}),
        )
        for file in files
    ]  # fmt: skip

    def commit(delta: DeltaTable) -> None:
        delta.create_write_transaction(actions, "append", delta.schema(), list(PARTITION))

    delta = _committed(lambda: created(lake, table.name, table.meaning, columns, PARTITION), commit)
    assert delta is not None
    delta.update_incremental()
    return int(delta.version())


def remove(lake: SharedLake, table_name: str, parts: Iterable[Part]) -> None:
    """Remove partitions from a table in one commit. Their files stay until `vacuum`."""
    chosen = " OR ".join(
        f"({' AND '.join(f'{name} = {value!r}' for name, value in part._asdict().items())})" for part in parts
    )
    if chosen:
        _committed(lambda: opened(lake, table_name), lambda delta: delta.delete(chosen))


def _committed(newest: Callable[[], DeltaTable | None], commit: Callable[[DeltaTable], object]) -> DeltaTable | None:
    """Commit on the newest version of a table, if there is one, and return it.

    deltalake refuses a commit if another process removed partitions meanwhile. Then nothing was committed.
    """
    from deltalake.exceptions import CommitFailedError

    for tries_left in reversed(range(TRIES)):
        delta = newest()
        try:
            if delta is not None:
                commit(delta)
            break
        except CommitFailedError:
            if not tries_left:
                raise
            time.sleep(random.uniform(0.0, 0.2))
    return delta
