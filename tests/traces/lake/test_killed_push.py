"""A push killed with SIGKILL at any moment leaves the last version of the shared lake; running again completes it.

BATON_KILLS says how many kills (4 by default; the long form is 60).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.traces.lake.conftest import Machine, Row, dump, equal
from traces.cache.closure import ROOT
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.lake.listing import listing
from traces.lake.options import LakeOptions
from traces.lake.tables import opened
from traces.lake.vacuum import vacuum

KILLS = int(os.environ.get("BATON_KILLS", "4"))
RUN = """
import sys
from pathlib import Path
from traces.lake.options import LakeOptions
from traces.lake.push import push
from traces.lake.shared import SharedLake
from traces.store.folder import DataFolder
import deltalake, polars, pyarrow.fs, pyarrow.parquet
data, lake = DataFolder(Path(sys.argv[1])), SharedLake(LakeOptions(*sys.argv[2:]))
print("ready", flush=True)
for line in sys.stdin:
    path, digest = line.split()
    push(lake, data, {"lab"}, {path: digest}, {digest})
    print("done", flush=True)
"""


def read(writer: Machine, file: Path, row: Row, ids: list[str]) -> str:
    """Ingest new contents of the file into the local lake; return what the process needs for the push."""
    dump(file, row, *map(int, ids))
    (result,) = ingest([file], cluster=ClusterSettings("lab"), data=writer.data)
    return f"{file} {result.sha256}"


def spawn(root: Path, options: LakeOptions) -> subprocess.Popen[str]:
    path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(root), options.url, options.endpoint], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def begin(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin and process.stdout
    if not hasattr(process, "is_ready"):
        assert process.stdout.readline() == "ready\n"
        process.is_ready = True  # type: ignore[attr-defined]
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def finish(process: subprocess.Popen[str], line: str) -> float:
    began = time.perf_counter()
    begin(process, line)
    assert process.stdout and process.stdout.readline() == "done\n"
    return time.perf_counter() - began


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_killed_at_any_moment(
    machine: Callable[[], Machine], options: LakeOptions, sacct_row: Row, tmp_path: Path
) -> None:
    file, writer, draw = tmp_path / "raw", machine(), random.Random(50)
    contents = [[str(n) for n in range(1, 40)], [str(n) for n in range(100, 180)]]
    first = spawn(writer.data.root, options)
    finish(first, read(writer, file, sacct_row, contents[0]))
    took = finish(first, read(writer, file, sacct_row, contents[1]))
    end(first)
    held, spare, changed = 1, spawn(writer.data.root, options), 0
    for kill in range(KILLS):
        version = kill % 2
        line = read(writer, file, sacct_row, contents[version])
        process, spare = spare, spawn(writer.data.root, options)
        begin(process, line)
        time.sleep(draw.uniform(0, took))
        end(process)
        reader = machine()
        reader.pull()
        found = reader.keys()
        before, held = held, version if found == sorted(contents[version]) else held
        assert found == sorted(contents[held]), f"kill {kill}"
        changed += before != held
    assert changed < KILLS, "no kill came before the end"
    finish(spare, read(writer, file, sacct_row, contents[1]))
    end(spare)
    reader = machine()
    reader.pull()
    writer.pull()
    assert reader.keys() == sorted(contents[1]) and equal(reader, writer)
    vacuum(reader.lake, 0)
    jobs = opened(reader.lake, "jobs")
    assert jobs is not None and len(jobs.to_pyarrow_table()) == len(contents[1]), "nothing twice"
    assert sum(file.retired_utc is None for file in listing(reader.lake).files.values()) == 1
