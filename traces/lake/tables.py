"""The Delta tables of the shared lake: one for each canonical table, with the local Parquet files as they are.

Partitions are named by cluster, file (start of the raw file's digest) and reading (a random word for each time that a
file was pushed). A push only adds partitions, so that writers never conflict; `traces.lake.listing` says which count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from traces import schema
from traces.lake.shared import SharedLake

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

PARTITION = ("cluster", "file", "reading")
TRIES = 5  # of a commit that adds
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
    """Open a table; make it if there is none. Another process may make it at the same time."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if (table := opened(lake, name)) is not None:
        return table
    days = f"interval {lake.options.keep_days} days"
    configuration: dict[str, Any] = {
        VERSION: str(schema.SCHEMA_VERSION), "delta.deletedFileRetentionDuration": days,
        "delta.logRetentionDuration": days,
    }  # fmt: skip
    try:
        return DeltaTable.create(
            lake.uri(name), delta_schema(columns), mode="error", partition_by=list(partition), name=name,
            description=meaning, configuration=configuration, storage_options=lake.storage,
            raise_if_key_not_exists=False,
        )  # fmt: skip
    except DeltaError:
        if (table := opened(lake, name)) is None:
            raise
        return table


def add(lake: SharedLake, table: schema.Table, files: list[Added]) -> int:
    """Add partitions whose files were sent to a table in one commit; return the version that has them."""
    from deltalake.exceptions import CommitFailedError
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
    for tries_left in reversed(range(TRIES)):
        delta = created(lake, table.name, table.meaning, columns, PARTITION)
        try:
            delta.create_write_transaction(actions, "append", delta.schema(), list(PARTITION))
            break
        except CommitFailedError:  # another process made the table meanwhile; nothing was added
            if not tries_left:
                raise
    delta.update_incremental()
    return int(delta.version())


def remove(lake: SharedLake, table_name: str, parts: Iterable[Part]) -> None:
    """Remove partitions from a table in one commit. Their files stay until `vacuum`."""
    chosen = " OR ".join(
        f"({' AND '.join(f'{name} = {value!r}' for name, value in part._asdict().items())})" for part in parts
    )
    if chosen and (delta := opened(lake, table_name)) is not None:
        delta.delete(chosen)
