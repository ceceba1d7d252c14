"""A run killed with SIGKILL at any moment leaves the last good state; the next one ends where an undisturbed one does.

BATON_KILLS says how many kills (12 by default; the long form is 60).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.traces.conftest import HEADER
from tests.traces.readers.published.logs import HELIOS
from traces import schema
from traces.files import locks
from traces.store import raw_files, staging, warehouse
from traces.store.folder import LAKE, DataFolder
from traces.store.raw_files import lake_files

KILLS = int(os.environ.get("BATON_KILLS", "12"))
REPOSITORY = Path(__file__).resolve().parents[3]
# The modules are imported before the run is told to begin, so that a kill falls into the work and not into the start.
RUN = """
import sys
from pathlib import Path
from traces import ingest
from traces.clusters import ClusterSettings
from traces.store import warehouse
from traces.store.folder import DataFolder
import traces.readers.registry, duckdb, polars
data = DataFolder(Path(sys.argv[2]))
print("ready", flush=True)
for folder in sys.stdin:
    ingest.ingest([Path(folder.strip())], cluster=ClusterSettings("lab"), data=data)
    warehouse.build(data)
    print("done", flush=True)
"""
Row = Callable[..., str]


def spawn(data: DataFolder) -> subprocess.Popen[str]:
    """A process that ingests folders, one for each line of its standard input, once it says that it is ready."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN, "run", str(data.root)], cwd=REPOSITORY, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip


def begin(process: subprocess.Popen[str], folder: Path) -> None:
    """Let it begin to ingest a folder."""
    assert process.stdin and process.stdout
    if not hasattr(process, "is_ready"):
        assert process.stdout.readline() == "ready\n"
        process.is_ready = True  # type: ignore[attr-defined]
    process.stdin.write(f"{folder}\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def work(process: subprocess.Popen[str], folder: Path) -> float:
    """Let it ingest a folder to the end; seconds."""
    begin(process, folder)
    began = time.perf_counter()
    assert process.stdout
    assert process.stdout.readline() == "done\n"
    return time.perf_counter() - began


def tables(data: DataFolder) -> dict[str, pl.DataFrame]:
    """Every table, but for how long reading took."""
    found = {name: warehouse.read(data, f"SELECT * FROM {name} ORDER BY ALL") for name in schema.TABLES}
    found["trace_files"] = found["trace_files"].drop("seconds")
    return found


def equal(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> bool:
    return all(frame.equals(other[name]) for name, frame in one.items())


def put(folder: Path, row: Row, version: int) -> None:
    """A file that stays as it is, one that changes with the version, and one of each version's own format."""
    folder.mkdir(exist_ok=True)
    steady = [row(JobID=str(n)) for n in range(1, 400)]
    changed = [row(JobID=str(1_000 + n), User=f"user{version}") for n in range(200 + 100 * version)]
    helios = [
        f"{n},u,v,1,1,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0" for n in range(300)
    ]
    (folder / "steady.psv").write_text("\n".join([HEADER, *steady]) + "\n")
    (folder / "changed.psv").write_text("\n".join([HEADER, *changed, "broken|line"]) + "\n")
    (folder / "helios.csv").write_text("\n".join([HELIOS, *helios[: 100 * version + 50]]) + "\n")


def test_killed_at_any_moment(tmp_path: Path, sacct_row: Row) -> None:
    folder = tmp_path / "raw"
    states = []
    undisturbed = spawn(DataFolder(tmp_path / "undisturbed"))
    for version in (0, 1):
        put(folder, sacct_row, version)
        took = work(undisturbed, folder)
        states.append(tables(DataFolder(tmp_path / "undisturbed")))
    end(undisturbed)
    assert not equal(*states)

    data = DataFolder(tmp_path / "data")
    put(folder, sacct_row, 0)
    first = spawn(data)
    work(first, folder)
    end(first)
    assert equal(tables(data), states[0])
    draw = random.Random(20171105)
    held, interrupted, spare = 0, 0, spawn(data)
    for kill in range(KILLS):
        version = (kill + 1) % 2
        put(folder, sacct_row, version)
        process, spare = spare, spawn(data)  # the next one imports its modules meanwhile
        begin(process, folder)
        time.sleep(draw.uniform(0, took))
        end(process)
        now = tables(data)  # whole at any moment: what it was, or what it was to be
        before, held = held, version if equal(now, states[version]) else held
        assert equal(now, states[held]), f"kill {kill}: neither the state before nor the one after"
        interrupted += before == held and before != version
        for described in lake_files(data):  # and so is every file of the lake
            rows = pl.read_parquet(described["folder"] / "trace_files.parquet")
            assert rows["records"].to_list() == [described["result"]["rows"]]
    assert interrupted >= KILLS // 4, "too few of the kills came before the end"

    put(folder, sacct_row, 1)
    work(spare, folder)
    end(spare)
    assert equal(tables(data), states[1])
    left = [path for path in data.root.rglob(".*") if path.name != locks.FOLDER]
    assert left == [], "nothing of the killed runs is left"
    assert [path.name for path in (data.root / locks.FOLDER).iterdir()] == [LAKE]


def test_killed_while_another_works_or_waits(tmp_path: Path, sacct_row: Row) -> None:
    """Whatever the killed one held is free, and what the other one does is whole and all there."""
    data, whole = DataFolder(tmp_path / "data"), DataFolder(tmp_path / "undisturbed")
    mine, other = tmp_path / "mine", tmp_path / "other"
    put(mine, sacct_row, 0)
    other.mkdir()
    draw = random.Random(13)
    undisturbed, lasting, spare = spawn(whole), spawn(data), spawn(data)
    took = work(undisturbed, mine)
    for kill in range(max(2, KILLS // 4)):
        rows = [sacct_row(JobID=str(10_000 * (kill + 1) + n)) for n in range(50)]
        (other / f"{kill}.psv").write_text("\n".join([HEADER, *rows]) + "\n")
        put(mine, sacct_row, (kill + 1) % 2)
        process, spare = spare, spawn(data)
        begin(process, mine)
        begin(lasting, other)
        time.sleep(draw.uniform(0, took))
        end(process)
        assert lasting.stdout
        assert lasting.stdout.readline() == "done\n"
        keys = warehouse.read(data, "SELECT job_key FROM jobs WHERE TRY_CAST(job_key AS BIGINT) >= 10000")
        assert len(keys) == 50 * (kill + 1), f"kill {kill}"
        raw_files.check(data.lake)
    put(mine, sacct_row, 1)
    for folder in (mine, other):
        work(spare, folder)
        work(undisturbed, folder)
    for process in (undisturbed, lasting, spare):
        end(process)
    assert equal(tables(data), tables(whole))


def test_a_folder_takes_the_place_of_another_in_one_step(tmp_path: Path) -> None:
    for name, content in (("final", "old"), (".final.1.0", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(content)
    staging.publish(tmp_path / ".final.1.0", tmp_path / "final")
    assert (tmp_path / "final/file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


# A process that says under which name it is at work, and is so until it is killed.
AT_WORK = """
import sys, time
from pathlib import Path
from traces.store import staging
with staging.at_work(Path(sys.argv[1])) as name:
    print(name, flush=True)
    time.sleep(60)
"""


def at_work(root: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", AT_WORK, str(root)], cwd=REPOSITORY, text=True, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert process.stdout
    return process, process.stdout.readline().strip()


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    """Alive is who holds its lock: a process id says nothing where the folder is another container's too."""
    living, alive = at_work(tmp_path)
    killed, dead = at_work(tmp_path)
    end(killed)
    never = "0123456789abcdef"  # whose lock's file is gone: somebody has removed it
    lake = tmp_path / "lake"
    with staging.at_work(tmp_path) as own:
        left = {f".{dead}.work.0", f".{dead}.spill", f".{never}.work.1"}
        kept = {f".{alive}.work.0", f".{alive}.spill", f".{own}.work.7", ".a", ".a.work.0", "a"}
        for name in left | kept:
            (lake / "lab" / name).mkdir(parents=True)
            (tmp_path / name).mkdir()
        assert sorted(staging.sweep(tmp_path, lake)) == sorted([*left, *left])
        for folder in (tmp_path, lake / "lab"):
            assert {path.name for path in folder.iterdir()} - {"lake", locks.FOLDER} == kept
        assert {path.stem for path in (tmp_path / locks.FOLDER).iterdir()} == {alive, own}
    end(living)
    assert staging.sweep(tmp_path, lake)
    assert not list((tmp_path / locks.FOLDER).iterdir())


def test_a_name_is_shared_within_a_process_and_gone_with_the_last(tmp_path: Path) -> None:
    with staging.at_work(tmp_path) as one:
        with staging.at_work(tmp_path / ".") as two:
            assert one == two
        (tmp_path / f".{one}.spill").mkdir()
        assert staging.sweep(tmp_path, tmp_path / "lake") == []
    assert staging.sweep(tmp_path, tmp_path / "lake") == [f".{one}.spill"]
    with staging.at_work(tmp_path) as three:
        assert three != one


@pytest.mark.parametrize("kept", [True, False])
def test_only_the_older_content_of_a_changed_file_goes(tmp_path: Path, kept: bool) -> None:
    for digest, source in (("old", "/raw/a"), ("new", "/raw/a"), ("other", "/raw/b"), ("unsourced", None)):
        (tmp_path / digest).mkdir()
        found = {"schema_version": 2, "fingerprint": "", "sha256": digest, "path": "a", "source": source}
        raw_files.write(tmp_path / digest, {**found, "result": {"rows": 1, "rejects": 0, "jobs": 1}})
    place = tmp_path / ".place"
    removed = staging.retire(tmp_path, {"/raw/a": "new"}, {"old"} if kept else set(), place)
    assert removed == ([] if kept else ["old"])
    there = {path.name for path in tmp_path.iterdir()} - {".place"}
    assert there == {"new", "other", "unsourced"} | ({"old"} if kept else set())
    assert [path.name for path in place.glob("*")] == removed
