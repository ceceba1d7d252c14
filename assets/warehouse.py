"""Warehouse: the lake's Parquet files as one DuckDB file, built in a temporary file and renamed over the old one.

A run builds it twice: after ingest, so that features can read it, and after all derived tables are in the lake.
"""

from collections.abc import Iterator

import dagster as dg

from assets.shared.metadata import materialization, table
from assets.shared.promises import computed_by
from assets.shared.resources import OWNERS, Baton
from traces import schema
from traces.store import warehouse
from traces.store.refresh import refresh_warehouse

KINDS = {"duckdb", "sql"}
BUILT_BY = warehouse.__name__


def key(table_name: str) -> dg.AssetKey:
    """Return the asset key of a canonical table."""
    return dg.AssetKey(["warehouse", table_name])


def _meaning(column: schema.Column) -> str:
    return f"{column.meaning} [{column.unit}]" if column.unit else column.meaning


@dg.multi_asset(
    name="warehouse",
    specs=[
        dg.AssetSpec(
            key(declared.name),
            deps=["trace_files"],
            group_name="warehouse",
            kinds=KINDS,
            owners=OWNERS,
            description=declared.meaning,
            metadata={
                **computed_by(BUILT_BY),
                "dagster/column_schema": dg.TableSchema(
                    [
                        dg.TableColumn(column.name, column.type, description=_meaning(column))
                        for column in declared.columns
                    ]
                ),
            },
        )
        for declared in schema.CANONICAL
    ],
)
def canonical_tables(baton: Baton) -> Iterator[dg.MaterializeResult[None]]:
    rows, reused = refresh_warehouse(baton.folder)
    made_from = warehouse.made_from(baton.folder)
    with warehouse.published(baton.folder):  # one connection: all tables come from the same warehouse
        first = {
            name: table(warehouse.read(baton.folder, f"SELECT * FROM {name} LIMIT 5"))  # noqa: S608 - our own names
            for name in schema.TABLES
        }
    for name in schema.TABLES:
        yield materialization(key=key(name), rows=rows[name], reused=reused, version=made_from, first_rows=first[name])
