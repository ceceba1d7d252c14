"""Files of a data folder that are missing, cut or garbage: named in one line, or made again.

What is damaged stays on disk until somebody mends it, and the last warehouse stays readable. BATON_DAMAGED says how
often a file is changed at random (3 by default; the long form is 300).
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.traces.conftest import HEADER, Lake
from traces import ingest as module
from traces import schema
from traces.clusters import ClusterSettings
from traces.errors import BatonError, WorkError
from traces.readers.staged import FileResult
from traces.store import derived, warehouse
from traces.store.folder import DataFolder

Row = Callable[..., str]
FIGURES = schema.Table("figures", "", (schema.CLUSTER, schema.Column("n", schema.INT, "", "jobs")))


def dump(lake: Lake, row: Row, name: str = "a.psv", jobs: int = 30) -> Path:
    rows = [row(JobID=str(number), JobName=f"name{number}") for number in range(1, jobs + 1)]
    return lake.put(name, "\n".join([HEADER, *rows, "broken|line"]) + "\n")


def read_in(lake: Lake, path: Path) -> FileResult:
    """Ingest, without a build."""
    (result,) = module.ingest([path], cluster=ClusterSettings("lab", timezone="UTC"), data=lake.data)
    return result


def delete(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def garble(path: Path) -> None:
    """Other bytes of the same number."""
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


def turn_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)


def empty_object(path: Path) -> None:
    path.write_text("{}")


def deep(path: Path) -> None:
    path.write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("name", "harm"),
    [("jobs", delete), ("jobs", garble), ("jobs", turn_a_bit), ("rejects", delete), ("trace_files", cut)],
)
def test_a_parquet_file_of_the_lake(lake: Lake, sacct_row: Row, harm: Callable[[Path], None], name: str) -> None:
    path = dump(lake, sacct_row)
    lake.ingest(path)
    before = {table: lake.table(table) for table in ("jobs", "attempts", "rejects")}
    (harmed,) = lake.data.lake.glob(f"lab/*/{name}.parquet")
    harm(harmed)
    if harm in (delete, cut):  # by its size; a bit that turned is noticed by who reads the file
        with pytest.raises(WorkError) as caught:
            warehouse.build(lake.data)
        message = str(caught.value)
        assert message.startswith(str(harmed)) and f"ingest {path} again" in message and "\n" not in message
    if harm is garble:
        with pytest.raises(WorkError) as caught:
            warehouse.build(lake.data)
        assert f"{harmed} cannot be read (" in str(caught.value) and "is unchanged" in str(caught.value)
    assert all(lake.table(table).equals(frame) for table, frame in before.items())
    assert read_in(lake, path).duplicates == 0, "it is read again"
    warehouse.build(lake.data)
    assert all(lake.table(table).equals(frame) for table, frame in before.items())
    assert read_in(lake, path).duplicates == 31, "and now it is in"


@pytest.mark.parametrize("harm", [delete, garble, empty_object, deep])
def test_the_list_of_a_folder(lake: Lake, sacct_row: Row, harm: Callable[[Path], None]) -> None:
    path = dump(lake, sacct_row)
    lake.ingest(path)
    (side,) = lake.data.lake.glob("lab/*/file.json")
    harm(side)
    with pytest.raises(WorkError, match=r"file\.json (is missing|cannot be read): ingest its raw file again, or del"):
        warehouse.build(lake.data)
    assert len(lake.table("jobs")) == 30, "the last warehouse stays"
    lake.ingest(path)
    assert len(lake.table("jobs")) == 30


def test_a_folder_that_is_deleted_is_a_file_less(lake: Lake, sacct_row: Row) -> None:
    lake.ingest(dump(lake, sacct_row), dump(lake, sacct_row, "b.psv", 40))
    shutil.rmtree(next(lake.data.lake.glob("lab/*")))
    warehouse.build(lake.data)
    assert len(lake.table("trace_files")) == 1


@pytest.mark.parametrize("harm", [delete, cut, garble, empty_object])
@pytest.mark.parametrize("suffix", ["parquet", "json"])
def test_a_derived_table_is_computed_again(tmp_path: Path, harm: Callable[[Path], None], suffix: str) -> None:
    data, computed = DataFolder(tmp_path), []

    def compute() -> list[pl.DataFrame]:
        computed.append(1)
        return [pl.DataFrame({"cluster": ["lab"] * 100, "n": range(100)})]

    def rows() -> int:
        ((frame,), _) = derived.read_or_compute(data, [FIGURES], "lab", "now", compute)
        return len(frame)

    assert (rows(), rows(), len(computed)) == (100, 100, 1)
    harm(tmp_path / "lake" / "derived" / "figures" / f"lab.{suffix}")
    if suffix == "parquet" and harm is not delete:
        with pytest.raises(WorkError, match=r"lab\.parquet cannot be read \(.* makes it again"):
            warehouse.build(data)
    else:
        assert "figures" not in warehouse.build(data), "as one that was never computed"
    assert (rows(), rows(), len(computed)) == (100, 100, 2)
    assert warehouse.build(data)["figures"] == 100


@pytest.mark.parametrize("seed", range(int(os.environ.get("BATON_DAMAGED", "3"))))
def test_garbage_anywhere_gives_one_line(lake: Lake, sacct_row: Row, seed: int) -> None:
    """Bytes of one file of the lake, or of the warehouse, changed at random: no other error than the program's own."""
    lake.ingest(dump(lake, sacct_row))
    frame = pl.DataFrame({"cluster": ["lab"] * 100, "n": range(100)})
    derived.write(lake.data, FIGURES, "lab", frame, "now")
    draw = random.Random(seed)
    files = [path for path in sorted(lake.data.lake.rglob("*")) if path.is_file()] + [lake.data.warehouse]
    harmed = draw.choice(files)
    content = bytearray(harmed.read_bytes())
    for _ in range(draw.choice((1, 20, 400))):
        content[draw.randrange(len(content))] = draw.randrange(256)
    harmed.write_bytes(content)
    for work in (
        lambda: warehouse.read(lake.data, "SELECT * FROM jobs"),
        lambda: derived.read(lake.data, "figures", "lab"),
        lambda: warehouse.build(lake.data),
        lambda: read_in(lake, lake.inbox / "a.psv"),
    ):
        message = str(lake.data.root)
        try:
            work()
        except BatonError as error:
            message = str(error)
        assert "\n" not in message and str(lake.data.root) in message
