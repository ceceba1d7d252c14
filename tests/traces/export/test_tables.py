"""Tables of the warehouse as CSV and Parquet: formulas defused, every row there, one line for what is not there."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from traces.clusters import ClusterSettings
from traces.errors import InputError, WorkError
from traces.export.tables import write_csv, write_tables
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

NAMES = ["=1+1", "@SUM(A1)", "-2", "+3", "plain", "\ttab", None, "a=b", 'quo"te,comma']
PADDED = [" =1+1", "\r\t @SUM(A1)", "\u00a0+3", "\ufeff\u200b-2", "\x00=1", "\u3000\uff1d1", "  plain", "a =1", " \n=1"]


def test_formulas_become_text_and_nothing_else_changes(tmp_path: Path) -> None:
    frame = pl.DataFrame({"name": NAMES, "n": range(-4, 5)})
    assert write_csv(tmp_path / "out.csv", [frame, frame.clear(), frame.head(1)]) == 10
    with (tmp_path / "out.csv").open(newline="") as stream:
        head, *rows = csv.reader(stream)
    expected = ["'=1+1", "'@SUM(A1)", "'-2", "'+3", "plain", "'\ttab", "", "a=b", 'quo"te,comma', "'=1+1"]
    assert head == ["name", "n"] and [row[0] for row in rows] == expected
    assert [int(row[1]) for row in rows] == [*range(-4, 5), -4]


def test_a_formula_behind_what_a_spreadsheet_trims_becomes_text_too(tmp_path: Path) -> None:
    write_csv(tmp_path / "out.csv", [pl.DataFrame({"name": PADDED})])
    with (tmp_path / "out.csv").open(newline="") as stream:
        cells = [row[0] for row in csv.reader(stream)][1:]
    harmless = {"  plain", "a =1"}
    assert cells == [cell if cell in harmless else "'" + cell for cell in PADDED]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    def frames() -> Iterator[pl.DataFrame]:
        yield pl.DataFrame({"a": [1]})
        raise OSError(28, "No space left on device")

    (tmp_path / "out.csv").write_text("old")
    with pytest.raises(WorkError, match=r"out\.csv: No space left"):
        write_csv(tmp_path / "out.csv", frames())
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert (tmp_path / "out.csv").read_text() == "old"


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    log = tmp_path / "log"
    head = "JobID|User|JobName|Partition|Submit|Start|End|State|AllocNodes|ExitCode\n"
    times = "2023-01-01T00:00:00|2023-01-01T00:01:00|2023-01-01T00:02:00"
    log.write_text(head + "".join(f"{i}|=cmd{i}|n|p|{times}|COMPLETED|1|0:0\n" for i in (1, 2, 3)))
    folder = DataFolder(tmp_path / "data")
    ingest([log], cluster=ClusterSettings("toy"), data=folder)
    warehouse.build(folder)
    return folder


def unchanged(_: str, frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def test_files_hold_every_row(data: DataFolder, tmp_path: Path) -> None:
    jobs = warehouse.read(data, "SELECT * FROM jobs")
    for format in ("csv", "parquet"):
        files = write_tables(data, ["jobs", "steps"], tmp_path / format, format, cluster="toy", change=unchanged)
        assert [(file.table, file.rows, file.path.name) for file in files] == [
            ("jobs", 3, f"jobs.{format}"),
            ("steps", 0, f"steps.{format}"),
        ]
    assert pl.read_parquet(tmp_path / "parquet" / "jobs.parquet").equals(jobs)
    assert (
        pl.read_parquet(tmp_path / "parquet" / "steps.parquet").schema
        == warehouse.read(data, "SELECT * FROM steps").schema
    )
    with (tmp_path / "csv" / "jobs.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["user_name"] for row in rows] == ["'=cmd1", "'=cmd2", "'=cmd3"]
    assert rows[0]["start_utc"] == "2023-01-01T00:01:00" and list(rows[0]) == jobs.columns
    assert len((tmp_path / "csv" / "steps.csv").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("names", "format", "cluster", "message"),
    [
        (["nothing"], "csv", None, "no table 'nothing'.*known are agent_decisions, "),
        (["job"], "csv", None, "no table 'job'.*did you mean jobs"),
        ([], "csv", None, "names no table"),
        (["jobs"], "xlsx", None, "allowed are csv"),
        (["jobs"], "csv", "other", "unknown cluster 'other'.*holds toy"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(
    data: DataFolder, names: list[str], format: str, cluster: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        write_tables(data, names, data.root / "out", format, cluster=cluster, change=unchanged)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_a_file(data: DataFolder, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="--out"):
        write_tables(data, ["jobs"], tmp_path / "out", "csv", cluster=None, change=unchanged)
