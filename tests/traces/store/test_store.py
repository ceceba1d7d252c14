"""The warehouse: every table with its comments, renamed over the old one under a reader's feet, derived tables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tests.conftest import REPOSITORY
from tests.traces.conftest import HEADER, Lake
from traces import schema
from traces.clusters import ClusterSettings
from traces.errors import InputError, WorkError
from traces.ingest import ingest
from traces.readers.philly.json_list import json_batches
from traces.store import derived, warehouse
from traces.store.folder import DataFolder
from traces.store.frames import conform, empty, query, write_parquet
from traces.store.raw_files import lake_digest

Row = Callable[..., str]
FIGURES = schema.Table(
    "figures",
    "One row a figure; it's derived",
    (
        schema.CLUSTER,
        schema.Column("wait_h", schema.FLOAT, "h", "mean wait"),
        schema.Column("n", schema.INT, "", "jobs", nullable=False),
    ),
    key=("cluster",),
)


def test_an_empty_warehouse_has_every_table_with_comments(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    assert set(warehouse.build(data)) == set(schema.TABLES)
    for table in schema.CANONICAL:
        frame = warehouse.read(data, f"SELECT * FROM {table.name}")
        assert frame.columns == list(table.names) and frame.is_empty()
        assert dict(frame.schema) == dict(empty(table).schema)
    comments = warehouse.read(data, "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'jobs'")
    found = dict(comments.iter_rows())
    assert found["wait_s"].endswith("[s]") and all(found[name] for name in schema.JOBS.names)


def test_reading_takes_parameters_and_leaves_nothing_open(lake: Lake, sacct_row: Row) -> None:
    lake.ingest(lake.put("a", f"{HEADER}\n{sacct_row(JobName=chr(39) + '; DROP TABLE jobs; --')}\n"))
    found = warehouse.read(lake.data, "SELECT job_name FROM jobs WHERE user_name = ?", ["alice"])
    assert found["job_name"].to_list() == ["'; DROP TABLE jobs; --"]
    duckdb.connect(str(lake.data.warehouse)).close()  # a writer gets in


@pytest.mark.parametrize("name", ["a*b", "a[X]b", "**", "it's", "a b", "{a,X}"])
def test_a_data_folder_is_no_pattern_of_others(tmp_path: Path, sacct_row: Row, name: str) -> None:
    """DuckDB takes a path for a pattern: the rows of folders beside it came in too."""
    (tmp_path / "log").write_text(f"{HEADER}\n{sacct_row()}\n")
    for folder in ("aXb", "X", name):
        data = DataFolder(tmp_path / folder)
        ingest([tmp_path / "log"], cluster=ClusterSettings("lab"), data=data)
        derived.write(data, FIGURES, "lab", pl.DataFrame({"n": [1], "cluster": ["lab"]}), "now")
        rows = warehouse.build(data)
        assert (rows["jobs"], rows["attempts"], rows["figures"]) == (1, 1, 1)


def test_a_reader_of_the_old_file_keeps_reading(lake: Lake, sacct_row: Row) -> None:
    lake.ingest(lake.put("a", f"{HEADER}\n{sacct_row()}\n"))
    reader = duckdb.connect(str(lake.data.warehouse), read_only=True)
    lake.ingest(lake.put("b", f"{HEADER}\n{sacct_row(JobID='101')}\n"))
    assert reader.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    reader.close()
    assert len(lake.table("jobs")) == 2


def test_no_warehouse_or_one_of_another_version_is_refused(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    with pytest.raises(InputError, match="baton analyze"):
        warehouse.read(data, "SELECT 1")
    warehouse.build(data)
    with duckdb.connect(str(data.warehouse)) as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    with pytest.raises(InputError, match="schema version 99"):
        warehouse.read(data, "SELECT 1")
    data.warehouse.write_bytes(b"no database")
    with pytest.raises(InputError, match="cannot be opened"):
        warehouse.read(data, "SELECT 1")


def test_a_derived_table_of_an_older_declaration_is_left_out_until_it_is_made_again(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    wider = schema.Table(
        FIGURES.name, "The same, said anew", (*FIGURES.columns, schema.Column("p", schema.FLOAT, "", "new"))
    )
    for cluster in ("a", "b"):
        derived.write(data, FIGURES, cluster, pl.DataFrame({"n": [1], "cluster": [cluster]}), "old code")
    os.utime(data.lake / "derived" / "figures" / "b.json", (1, 1))  # the order of writing, not of names, decides
    derived.write(data, wider, "a", pl.DataFrame({"n": [2], "cluster": ["a"], "p": [0.5]}), "new code")
    assert warehouse.build(data)["figures"] == 1
    assert warehouse.read(data, "SELECT cluster, n, p FROM figures").rows() == [("a", 2, 0.5)]
    derived.write(data, wider, "b", pl.DataFrame({"n": [3], "cluster": ["b"], "p": [None]}), "new code")
    assert warehouse.build(data)["figures"] == 2


def test_categories_are_written_as_text_and_read_in_its_order(tmp_path: Path) -> None:
    data, names = DataFolder(tmp_path), ["b", "a", "ä", "B", ""]
    frame = pl.DataFrame({"n": range(5), "cluster": pl.Series(names, dtype=pl.Categorical)})
    derived.write(data, FIGURES, "a", frame, "now")
    found = derived.read(data, "figures", "a")
    assert found.schema["cluster"] == pl.String and found["cluster"].to_list() == names
    assert frame.sort("cluster")["cluster"].to_list() == sorted(names)


def test_derived_tables_enter_the_warehouse(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    for cluster, n in (("a", 1), ("b", 2)):
        derived.write(data, FIGURES, cluster, pl.DataFrame({"n": [n], "cluster": [cluster]}), f"from {n}")
    assert derived.made_from(data, "figures", "b") == "from 2"
    assert derived.made_from(data, "figures", "c") is None
    assert warehouse.build(data)["figures"] == 2
    assert warehouse.read(data, "SELECT * FROM figures ORDER BY n").rows() == [("a", None, 1), ("b", None, 2)]
    derived.write(data, FIGURES, "b", pl.DataFrame({"n": [3], "cluster": ["b"]}), "from 3")
    warehouse.build(data)
    assert warehouse.read(data, "SELECT n FROM figures ORDER BY n")["n"].to_list() == [1, 3]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pl.DataFrame({"n": [1]}), "cluster is missing"),
        (pl.DataFrame({"n": [None], "cluster": ["a"]}, schema={"n": pl.Int64, "cluster": pl.String}), "1 nulls"),
        (pl.DataFrame({"n": [1], "cluster": ["a"], "m": [1]}), "unknown columns"),
    ],
)
def test_a_frame_that_does_not_fit_its_table_is_refused(frame: pl.DataFrame, message: str) -> None:
    with pytest.raises(WorkError, match=message):
        conform(FIGURES, frame)


def test_queries_over_frames_and_files(tmp_path: Path) -> None:
    path = tmp_path / "it's.parquet"
    write_parquet(path, pl.DataFrame({"x": [1, 2]}))
    joined = query(
        "SELECT sum(a.x * b.y) AS s FROM a JOIN b USING (x) WHERE x < ?",
        {"a": path, "b": pl.DataFrame({"x": [1, 2], "y": [10, 20]})},
        [2],
    )
    assert joined["s"].to_list() == [10]


def test_the_digest_follows_the_files(lake: Lake, sacct_row: Row) -> None:
    lake.ingest(lake.put("a", f"{HEADER}\n{sacct_row()}\n"))
    one = lake_digest(lake.data, "lab")
    lake.ingest(lake.put("copy", f"{HEADER}\n{sacct_row()}\n"))
    assert lake_digest(lake.data, "lab") == one != lake_digest(lake.data, "other")
    lake.ingest(lake.put("b", f"{HEADER}\n{sacct_row(JobID='7')}\n"))
    assert lake_digest(lake.data, "lab") != one


@pytest.mark.parametrize("before", range(40))
def test_a_broken_list_is_refused_wherever_its_message_is_cut(tmp_path: Path, before: int) -> None:
    """DuckDB quotes so many bytes of the file, and what it says is no text where that ends within a letter."""
    path = tmp_path / "log.json"
    path.write_text("x" * before + "\u00e9" * 200, encoding="utf-8")
    with pytest.raises(InputError, match=r"log\.json: "):
        list(json_batches(path, {"status": "VARCHAR"}, 10))


def test_a_long_query_draws_nothing_on_standard_output() -> None:
    """DuckDB takes a program without a file, as under `python -c`, for one that a person watches."""
    program = (
        "from traces.store import connections\n"
        "with connections.in_memory() as connection:\n"
        "    print(connection.execute(\"SELECT current_setting('enable_progress_bar')\").fetchone())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "(False,)\n"
