"""Two processes at one data folder: whatever one does while the other is stopped, nothing of either is lost.

BATON_AT_ONCE says how often three processes ingest together (2 by default; the long form is 30).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from tests.traces.conftest import HEADER, Lake
from traces import schema
from traces.files.locks import locked
from traces.store import derived, raw_files, warehouse
from traces.store.folder import LAKE, DataFolder
from traces.store.raw_files import lake_files

REPOSITORY = Path(__file__).resolve().parents[3]
ROUNDS = int(os.environ.get("BATON_AT_ONCE", "2"))
Row = Callable[..., str]
# Says "here" and stops when it comes to the function of its first argument, once, until it gets a line.
STOPPED = """
import sys
from pathlib import Path
from traces import ingest
from traces.clusters import ClusterSettings
from traces.files import locks
from traces.store import raw_files, settle, staging, warehouse
from traces.store.folder import DataFolder

def stop_at(owner, name):
    true = getattr(owner, name)

    def stopped(*args, **kwargs):
        setattr(owner, name, true)
        print("here", flush=True)
        sys.stdin.readline()
        return true(*args, **kwargs)

    setattr(owner, name, stopped)

if sys.argv[1] != "nowhere":
    owner, name = sys.argv[1].split(".")
    stop_at(globals()[owner], name)
data = DataFolder(Path(sys.argv[2]))
ingest.ingest([Path(sys.argv[3])], cluster=ClusterSettings(sys.argv[4]), data=data)
warehouse.build(data)
print("done", flush=True)
"""


def start(*arguments: object, code: str = STOPPED) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=REPOSITORY, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip


@contextmanager
def stopped(at: str, data: DataFolder, path: Path, cluster: str = "lab") -> Iterator[subprocess.Popen[str]]:
    """An ingest of the file that has come so far; killed in the end if it is still there."""
    process = start(at, data.root, path, cluster)
    assert process.stdout
    assert process.stdout.readline() == "here\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def go_on(process: subprocess.Popen[str]) -> str:
    """Let it come to its end, and well; what it said on standard error."""
    out, said = process.communicate("\n", timeout=60)
    assert (process.returncode, out) == (0, "done\n"), said
    return said


def waits(process: subprocess.Popen[str]) -> str:
    """Its first line on standard error, which says that it waits."""
    assert process.stderr
    return process.stderr.readline()


def dump(path: Path, row: Row, *ids: int, **other: str) -> Path:
    path.write_text("\n".join([HEADER, *(row(JobID=str(number), **other) for number in ids)]) + "\n")
    return path


def held(data: DataFolder) -> list[tuple[str, str]]:
    """Cluster and key of every job in the warehouse."""
    return warehouse.read(data, "SELECT cluster, job_key FROM jobs ORDER BY ALL").rows()


def test_an_ingest_waits_for_a_build_and_neither_loses_a_row(lake: Lake, sacct_row: Row) -> None:
    """An older build renamed over a newer one took the newer one's rows away, with exit 0 on both sides."""
    lake.ingest(dump(lake.inbox / "old", sacct_row, 1))
    a, b = dump(lake.inbox / "a", sacct_row, 2), dump(lake.inbox / "b", sacct_row, 3)
    with stopped("settle.fill", lake.data, a) as first:
        second = start("nowhere", lake.data.root, b, "other")
        try:
            found = waits(second)
            assert found.startswith(f"waiting for the lake of {lake.data.root}: process {first.pid} (")
            assert held(lake.data) == [("lab", "1")], "who reads the warehouse does not wait"
            assert second.poll() is None
            go_on(first)
            go_on(second)
        finally:
            second.kill()
    assert held(lake.data) == [("lab", "1"), ("lab", "2"), ("other", "3")]


def test_who_waits_goes_on_when_the_holder_is_killed(lake: Lake, sacct_row: Row) -> None:
    a, b = dump(lake.inbox / "a", sacct_row, 2), dump(lake.inbox / "b", sacct_row, 3)
    with stopped("settle.fill", lake.data, a) as first:
        second = start("nowhere", lake.data.root, b, "other")
        assert "waiting" in waits(second)
        first.kill()
        go_on(second)
    assert held(lake.data) == [("lab", "2"), ("other", "3")]
    assert sorted(path.name for path in lake.data.root.iterdir() if path.name[0] == ".") == [".locks"]


def test_what_was_read_first_and_comes_later_does_not_take_out_newer_rows(lake: Lake, sacct_row: Row) -> None:
    path = dump(lake.inbox / "log", sacct_row, 1)
    with stopped("raw_files.write", lake.data, path) as first:
        made = list(lake.data.lake.glob("lab/.*/0/*.parquet"))
        lake.ingest(dump(path, sacct_row, 1, 2))
        assert made and all(table.is_file() for table in made), "what a living process is making is not swept"
        said = go_on(first)
    assert held(lake.data) == [("lab", "1"), ("lab", "2")]
    assert f"{path} changed while it was being read: reading it again" in said


def test_a_file_that_was_in_and_is_taken_out_meanwhile_is_read_again(lake: Lake, sacct_row: Row) -> None:
    """The first has found its file in the lake already; before it commits, another ingest retires that folder."""
    path, copy = dump(lake.inbox / "log", sacct_row, 1), dump(lake.inbox / "copy", sacct_row, 1)
    lake.ingest(path)
    with stopped("ingest.locked", lake.data, copy) as process:
        lake.ingest(dump(path, sacct_row, 2))  # its older rows go, which the copy relies on
        assert [described["path"] for described in lake_files(lake.data)] == [str(path)]
        go_on(process)
    assert held(lake.data) == [("lab", "1"), ("lab", "2")]


def test_a_derived_table_is_not_replaced_in_mid_build(tmp_path: Path) -> None:
    data, table = DataFolder(tmp_path), schema.Table("figures", "", (schema.CLUSTER,))
    rows = pl.DataFrame({"cluster": ["lab"]})
    writer = threading.Thread(target=derived.write, args=(data, table, "lab", rows, "now"))
    with locked(data.root, LAKE):
        writer.start()
        writer.join(0.5)
        assert derived.made_from(data, "figures", "lab") is None
    writer.join(10)
    assert derived.made_from(data, "figures", "lab") == "now"


TOGETHER = """
import sys
from pathlib import Path
from traces import ingest
from traces.clusters import ClusterSettings
from traces.store import warehouse
from traces.store.folder import DataFolder
import traces.readers.registry, duckdb, polars
data = DataFolder(Path(sys.argv[1]))
for line in sys.stdin:
    ingest.ingest([Path(line.strip())], cluster=ClusterSettings(sys.argv[2]), data=data)
    warehouse.build(data)
    print("done", flush=True)
"""


def test_many_that_begin_together(tmp_path: Path, sacct_row: Row) -> None:
    data, expected = DataFolder(tmp_path / "data"), list[tuple[str, str]]()
    clusters = ("a", "b", "b")
    processes = [start(data.root, cluster, code=TOGETHER) for cluster in clusters]
    try:
        for n in range(ROUNDS):
            for number, (cluster, process) in enumerate(zip(clusters, processes, strict=True)):
                ids = range(1_000 * n + 100 * number + 1, 1_000 * n + 100 * number + 5 + n)
                path = dump(tmp_path / f"{n}-{number}.psv", sacct_row, *ids)
                expected += [(cluster, str(key)) for key in ids]
                assert process.stdin
                process.stdin.write(f"{path}\n")
                process.stdin.flush()
            for process in processes:
                assert process.stdout
                assert process.stdout.readline() == "done\n"
            assert held(data) == sorted(expected), f"round {n}"
            raw_files.check(data.lake)
    finally:
        for process in processes:
            process.kill()
            process.wait()
