"""A disk or memory that does not do: one line, exit 1, and what was there stays; DuckDB spills into the data folder."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.traces.conftest import HEADER, Lake
from traces import ingest, schema
from traces.clusters import ClusterSettings
from traces.errors import WorkError
from traces.store import memory, warehouse
from traces.store.connections import in_memory
from traces.store.folder import LAKE, DataFolder
from traces.store.raw_files import lake_files

Row = Callable[..., str]
SORT = "SELECT range AS n FROM range(3_000_000) ORDER BY hash(range)"  # 60 MB and more in memory


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, for this process: writing fails as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def log(lake: Lake, sacct_row: Row) -> Path:
    """A log of 3,000 jobs, one of 10 being in already."""
    rows = [sacct_row(JobID=str(number), JobName=f"name{number * 7919}") for number in range(1, 3_001)]
    lake.ingest(lake.put("first", "\n".join([HEADER, *rows[:300]]) + "\n"))
    return lake.put("log", "\n".join([HEADER, *rows]) + "\n")


def hidden(data: DataFolder) -> set[str]:
    return {path.name for path in data.root.rglob(".*")}


def read_in(data: DataFolder, path: Path) -> None:
    ingest.ingest([path], cluster=ClusterSettings("lab", timezone="UTC"), data=data)


@pytest.mark.parametrize("size", [0, 30_000])
def test_a_disk_full_while_a_log_is_read(lake: Lake, log: Path, size: int) -> None:
    with files_up_to(size), pytest.raises(WorkError) as caught:
        read_in(lake.data, log)
    message = str(caught.value)
    assert "File too large" in message and str(lake.data.root) in message and "\n" not in message
    assert len(lake_files(lake.data)) == 1 and hidden(lake.data) == {".locks"}
    read_in(lake.data, log)
    warehouse.build(lake.data)
    assert len(lake.rows("jobs")) == 3_000


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_a_disk_full_while_the_warehouse_is_built(lake: Lake, log: Path, size: int) -> None:
    read_in(lake.data, log)
    with (
        files_up_to(size),
        pytest.raises(WorkError, match=r"warehouse\.duckdb could not be built.*File too large") as raised,
    ):
        warehouse.build(lake.data)
    assert "\n" not in str(raised.value) and "is unchanged" in str(raised.value)
    assert len(lake.rows("jobs")) == 300 and hidden(lake.data) == {".locks"}
    warehouse.build(lake.data)
    assert len(lake.rows("jobs")) == 3_000


def test_memory_short_while_the_warehouse_is_built(lake: Lake, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_in(lake.data, log)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "duckdb_limit", lambda: 3 << 20)
        with pytest.raises(WorkError, match=r"warehouse\.duckdb could not be built and is unchanged.*Memory"):
            warehouse.build(lake.data)
        assert len(lake.rows("trace_files")) == 1
    warehouse.build(lake.data)
    assert len(lake.rows("jobs")) == 3_000 and hidden(lake.data) == {".locks"}


def test_what_memory_does_not_hold_goes_into_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, seen = DataFolder(tmp_path / "it's"), set[str]()
    warehouse.build(data)
    monkeypatch.setattr(memory, "duckdb_limit", lambda: 32 << 20)
    for batch in warehouse.batches(data, SORT):
        seen |= {path.name.partition("_storage")[0] for path in data.root.glob(".*.spill/*")}
        assert batch.columns == ["n"]
    assert seen == {"duckdb_temp"}
    assert hidden(data) == {".locks"}, "and is gone in the end"


def test_a_reader_told_how_much_it_may_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = DataFolder(tmp_path)
    warehouse.build(data)
    monkeypatch.setattr(memory, "duckdb_limit", lambda: 64 << 20)
    setting = "SELECT current_setting('memory_limit') AS m"
    assert warehouse.read(data, setting)["m"].to_list() == ["64.0 MiB"]
    assert warehouse.read(data, setting, memory="700MB")["m"].to_list() == ["667.5 MiB"]
    with warehouse.published(data, "100MB") as outer, warehouse.published(data):
        assert outer.execute(setting).fetchone() == ("95.3 MiB",), "the first one's limit stands"
    with in_memory() as other:
        assert other.execute(setting).fetchone() == ("64.0 MiB",)


def test_a_folder_that_cannot_be_written_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so the refusal is made here."""
    data = DataFolder(tmp_path / "data")
    warehouse.build(data)
    (data.root / ".locks" / LAKE).unlink()
    (data.root / ".locks").rmdir()
    (data.root / ".locks").write_text("in the way, as a file system that is read-only")
    monkeypatch.setattr(memory, "duckdb_limit", lambda: 32 << 20)
    assert len(warehouse.read(data, SORT)) == 3_000_000
    assert len(warehouse.read(data, "SELECT * FROM jobs")) == 0
    assert warehouse.read(data, "SELECT version FROM schema_version")["version"].to_list() == [schema.SCHEMA_VERSION]


MEMINFO = "MemTotal: 24000 kB\nMemFree: 100 kB\nMemAvailable:   20000 kB\n"


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("", {}, 20_000 << 10),
        ("0::/job/step\n", {"memory.max": "max\n", "memory.current": "5\n"}, 20_000 << 10),
        ("0::/job/step\n", {"job/memory.max": "9000000\n", "job/memory.current": "1000000\n"}, 8_000_000),
        (
            "0::/job/step\n",
            {
                "job/memory.max": "9000000\n", "job/memory.current": "1000000\n",
                "job/step/memory.max": "5000000\n", "job/step/memory.current": "4000000\n",
                "job/step/memory.stat": "anon 7\ninactive_file 2000000\n",
            },
            3_000_000,
        ),
        ("0::/../other\n", {"memory.max": "7000000\n", "memory.current": "0\n"}, 7_000_000),
        ("0::/job\n", {"job/memory.max": "7000000\n", "job/memory.current": "9000000\n"}, 0),
        (
            "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.usage_in_bytes": "1\n",
                "memory/job/memory.limit_in_bytes": "6000000\n", "memory/job/memory.usage_in_bytes": "500000\n",
                "memory/job/memory.stat": "inactive_file 1\ntotal_inactive_file 100000\n",
            },
            5_600_000,
        ),
    ],
)  # fmt: skip
def test_how_much_memory_is_free(tmp_path: Path, group: str, files: dict[str, str], expected: int) -> None:
    """The tightest of the machine and every control group above this process, versions 1 and 2."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(MEMINFO)
    (proc / "self/cgroup").write_text(group)
    for name, content in files.items():
        (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / name).write_text(content)
    assert memory.free_bytes(proc, cgroups) == expected


def test_a_limit_on_the_address_space_counts(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/statm").write_text("1000 10 10 1 0 10 0\n")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, before[1]))
    try:
        assert memory.free_bytes(tmp_path, tmp_path) == (1 << 40) - 1000 * resource.getpagesize()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_where_nothing_tells_and_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.free_bytes(tmp_path, tmp_path) == 2 * memory.MOST
    for free, limit in ((0, memory.LEAST), (1 << 30, 1 << 29), (1 << 50, memory.MOST)):
        monkeypatch.setattr(memory, "free_bytes", lambda free=free: free)
        assert memory.duckdb_limit() == limit
