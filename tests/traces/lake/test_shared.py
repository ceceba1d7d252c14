"""Several data folders share one lake, in a folder and on S3."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tests.traces.lake.conftest import Machine, Row, dump, equal
from traces import schema
from traces.errors import InputError, WorkError
from traces.lake import listing as listing_module
from traces.lake import pull as pull_module
from traces.lake.listing import change, listing
from traces.lake.pull import read_version
from traces.lake.push import push
from traces.lake.shared import SharedLake
from traces.lake.status import status
from traces.lake.tables import VERSION, Added, Part, add, created, opened, remove
from traces.lake.vacuum import vacuum
from traces.lake.warehouses import fetch_warehouse, publish_warehouse
from traces.store import raw_files, warehouse

Make = Callable[[], Machine]
SEEN_BY_ALL = (
    "SELECT count(*) FROM jobs SEMI JOIN (FROM files WHERE retired_utc IS NULL) USING (cluster, file, reading)"
)


def counted(lake: SharedLake) -> tuple[int, int]:
    """Jobs as polars and DuckDB read them without Baton."""
    server = {name: value for name, value in lake.storage.items() if name.startswith("aws")}
    files = pl.scan_delta(lake.uri("files"), storage_options=server).filter(pl.col("retired_utc").is_null())
    jobs = pl.scan_delta(lake.uri("jobs"), storage_options=server)
    by_polars = jobs.join(files, on=["cluster", "file", "reading"], how="semi").select(pl.len()).collect().item()
    opened_tables = {name: opened(lake, name) for name in ("jobs", "files")}
    with duckdb.connect() as connection:
        for name, table in opened_tables.items():
            assert table is not None
            connection.register(name, table.to_pyarrow_dataset())
        by_duckdb = connection.execute(SEEN_BY_ALL).fetchone()
    assert by_duckdb is not None
    return by_polars, by_duckdb[0]


def test_two_machines_end_with_equal_warehouses_and_others_read_the_same(
    machine: Make, shared: SharedLake, sacct_row: Row, tmp_path: Path
) -> None:
    one, two = machine(), machine()
    one.ingest(dump(tmp_path / "1/a", sacct_row, 1, 2), dump(tmp_path / "1/b", sacct_row, 3))
    two.ingest(dump(tmp_path / "2/c", sacct_row, 2, 4, State="FAILED"))
    assert one.pull().fetched == 1
    assert one.keys() == ["1", "2", "3", "4"] and equal(one, two)
    assert counted(shared) == (5, 5), "job 2 is in two files"
    files = [{path.name: path.read_bytes() for path in f["folder"].iterdir()} for f in raw_files.lake_files(one.data)]
    assert files == [
        {path.name: path.read_bytes() for path in f["folder"].iterdir()} for f in raw_files.lake_files(two.data)
    ]
    assert two.pull()[1:] == (0, 0) and push(shared, two.data).sent == 0
    assert read_version(two.data, "lab") == (shared.options.url, listing(shared).version)


def test_a_changed_file_retires_its_earlier_contents_everywhere(
    machine: Make, shared: SharedLake, sacct_row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, path = machine(), machine(), tmp_path / "a"
    one.ingest(dump(path, sacct_row, 1, 2))
    two.pull()
    pushed, _ = one.ingest(dump(path, sacct_row, 3))
    assert (pushed.sent, pushed.retired) == (1, 1) and counted(shared) == (1, 1)
    assert len(opened(shared, "jobs").to_pyarrow_table()) == 1, "without the join too"  # type: ignore[union-attr]
    assert two.pull()[1:] == (1, 1) and two.keys() == ["3"]
    pushed, _ = one.ingest(dump(path, sacct_row, 1, 2))  # the first contents come back
    assert (pushed.sent, pushed.retired) == (1, 1) and two.pull().fetched == 1 and two.keys() == ["1", "2"]
    for module in ("push", "pull"):
        monkeypatch.setattr(f"traces.lake.{module}.host", lambda: "elsewhere")
    two.data.lake.rename(tmp_path / "old")
    two.pull()
    assert two.ingest(dump(path, sacct_row, 4))[0].retired == 0, "on another machine the path is another file"
    assert two.keys() == ["1", "2", "4"]


def test_two_writers_at_once_lose_nothing(machine: Make, shared: SharedLake, sacct_row: Row, tmp_path: Path) -> None:
    machines = [machine() for _ in range(3)]
    same = dump(tmp_path / "same", sacct_row, 99)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(3):
                mine = dump(tmp_path / f"{number}/{n}", sacct_row, 10 * number + n)
                machines[number].ingest(same, mine)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for one in machines:
        one.pull()
    assert machines[0].keys() == sorted(["99", *(str(10 * number + n) for number in range(3) for n in range(3))])
    assert equal(machines[0], machines[1]) and equal(machines[0], machines[2]) and counted(shared) == (10, 10)
    assert len(opened(shared, "jobs").to_pyarrow_table()) == 10  # type: ignore[union-attr]


def test_a_table_that_several_make_at_once_is_made_once(shared: SharedLake) -> None:
    """A second making on top of the first would make the commits of other writers fail."""
    with ThreadPoolExecutor(4) as pool:
        for name in schema.TABLES:
            barrier = threading.Barrier(4)

            def make(_: int, name: str = name, barrier: threading.Barrier = barrier) -> int:
                barrier.wait()
                return int(created(shared, name, "", schema.JOBS.columns).version())

            assert list(pool.map(make, range(4))) == [0] * 4, name


def test_partitions_that_several_remove_at_once_are_removed(shared: SharedLake) -> None:
    """Each removes one of its own and one that all remove."""
    parts = [Part("lab", f"{number:016}", "0" * 16) for number in range(5)]
    add(shared, schema.JOBS, [Added(part, 1, 1) for part in parts])
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        remove(shared, "jobs", [parts[number], parts[4]])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert opened(shared, "jobs").get_add_actions().num_rows == 0  # type: ignore[union-attr]


def test_a_change_on_an_older_version_is_made_again(
    machine: Make, shared: SharedLake, sacct_row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = machine(), machine()
    one.ingest(dump(tmp_path / "a", sacct_row, 1))
    true, calls = listing_module.replaced, []

    def meanwhile(*arguments: object) -> bool:
        calls.append(1)
        if len(calls) == 1:
            monkeypatch.setattr(listing_module, "replaced", true)
            two.ingest(dump(tmp_path / "b", sacct_row, 2))
            monkeypatch.setattr(listing_module, "replaced", meanwhile)
        return true(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(listing_module, "replaced", meanwhile)
    one.ingest(dump(tmp_path / "c", sacct_row, 3))
    assert len(calls) == 2 and one.keys() == ["1", "2", "3"]
    monkeypatch.setattr(listing_module, "replaced", lambda *_: False)
    monkeypatch.setattr(listing_module, "TRIES", 2)
    with pytest.raises(WorkError, match="2 changes by others came first"):
        change(shared, lambda _: {}, is_new=False)


def test_damage_on_the_way_changes_nothing(machine: Make, shared: SharedLake, sacct_row: Row, tmp_path: Path) -> None:
    one, two = machine(), machine()
    one.ingest(dump(tmp_path / "a", sacct_row, 1))
    (file,) = listing(shared).files.values()
    shared.send(tmp_path / "a", f"jobs/{file.part.path('jobs')}")
    with pytest.raises(WorkError, match=r"differs from its listing; nothing changed"):
        two.pull()
    assert raw_files.lake_files(two.data) == [] and not list(two.data.lake.glob("*/*"))


def test_vacuum_removes_what_killed_pushes_left_and_keeps_the_newest_version(
    machine: Make, shared: SharedLake, sacct_row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    one, two, path = machine(), machine(), tmp_path / "a"
    one.ingest(dump(path, sacct_row, 1))
    one.ingest(dump(path, sacct_row, 2))
    monkeypatch.setattr("traces.lake.push.change", killed)
    with pytest.raises(KeyboardInterrupt):
        one.ingest(dump(tmp_path / "b", sacct_row, 3))
    monkeypatch.setattr("traces.lake.push.change", change)
    assert len(opened(shared, "jobs").to_pyarrow_table()) == 2 and counted(shared) == (1, 1)  # type: ignore[union-attr]
    publish = push(shared, one.data)
    assert publish.sent == 1 and vacuum(shared, 30) == (0, 0), "nothing is old"
    found = publish_warehouse(shared, one.data)
    removed = vacuum(shared, 0)
    assert removed.partitions >= 1 and removed.files >= 3, removed
    assert counted(shared) == (2, 2) and two.pull().fetched == 2 and equal(one, two)
    assert fetch_warehouse(shared, two.data).sha256 == found.sha256


def test_the_published_warehouse_is_of_the_newest_version(
    machine: Make, shared: SharedLake, sacct_row: Row, tmp_path: Path
) -> None:
    one, two, reader = machine(), machine(), machine()
    with pytest.raises(InputError, match="has no warehouse: run `baton lake publish`"):
        fetch_warehouse(shared, reader.data)
    one.ingest(dump(tmp_path / "a", sacct_row, 1))
    two.ingest(dump(tmp_path / "b", sacct_row, 2))
    with pytest.raises(InputError, match=r"differs from .*: run `baton lake push` and `baton lake pull`"):
        publish_warehouse(shared, one.data)
    found = publish_warehouse(shared, two.data)
    assert fetch_warehouse(shared, reader.data)[:4] == found[:4]
    assert warehouse.read(reader.data, "SELECT job_key FROM jobs ORDER BY 1")["job_key"].to_list() == ["1", "2"]
    answer = status(shared, two.data)
    assert answer["clusters"]["lab"] == {
        "files": 2, "retired": 0, "to_pull": 0, "to_push": 0, "local_version": answer["version"],
    }  # fmt: skip
    assert (
        answer["warehouse"]["version"] == answer["version"]
        and status(shared, one.data)["clusters"]["lab"]["to_pull"] == 1
    )


def test_another_schema_version_is_refused(
    machine: Make, shared: SharedLake, sacct_row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine().ingest(dump(tmp_path / "a", sacct_row, 1))
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
    with pytest.raises(InputError, match=f"has schema version {schema.SCHEMA_VERSION - 1}, but this program uses"):
        machine().pull()
    assert opened(shared, "files").metadata().configuration[VERSION]  # type: ignore[union-attr]
    assert pull_module.STAMP
