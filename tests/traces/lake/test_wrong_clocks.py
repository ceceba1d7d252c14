"""Machines whose clocks are ten minutes ahead and behind, under libfaketime: nothing is lost, hidden or removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, skip_or_fail
from tests.live.clock import LIBRARY
from tests.traces.lake.conftest import Machine, Row, dump
from tests.traces.lake.test_shared import counted
from traces.lake.options import LakeOptions
from traces.lake.shared import SharedLake
from traces.store import warehouse

OFF_S = 600
RUN = """
import os, sys
from pathlib import Path
from tests.traces.lake.conftest import Machine
from traces.errors import BatonError
from traces.lake.checks import lake_checks
from traces.lake.options import LakeOptions
from traces.lake.shared import SharedLake
from traces.lake.vacuum import vacuum
root, url, endpoint, what, *paths = sys.argv[1:]
one = Machine(Path(root), SharedLake(LakeOptions(url, endpoint)))
try:
    one.pull()
    if what == "ingest":
        one.ingest(*map(Path, paths))
    else:
        print(*(vacuum(one.lake, float(days)) for days in what.split(",")), sep="; ")
        print(*(check.finding for check in lake_checks(one.lake) if check.mend))
except BatonError as error:
    print(error)
sys.stdout.flush()
os._exit(0)  # a thread of pyarrow may abort the interpreter's own end (github.com/apache/arrow/issues/34314)
"""
At = Callable[..., str]


@pytest.fixture
def at(tmp_path: Path, options: LakeOptions) -> At:
    """Run a machine whose clock is so many seconds off; returns what it prints."""
    if not LIBRARY.exists():
        skip_or_fail("slurm", f"no {LIBRARY} on this machine (make system installs Debian's faketime)")

    def run(off_s: int, what: str, *paths: Path) -> str:
        faked = {"LD_PRELOAD": str(LIBRARY), "FAKETIME": f"{off_s:+}", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                 "NO_FAKE_STAT": "1"}  # fmt: skip
        where = (str(tmp_path / f"clock{off_s}"), options.url, options.endpoint)
        done = subprocess.run(
            [sys.executable, "-c", RUN, *where, what, *map(str, paths)], cwd=REPOSITORY, env={**os.environ, **faked},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_clocks_ten_minutes_off(
    at: At, machine: Callable[[], Machine], shared: SharedLake, sacct_row: Row, tmp_path: Path
) -> None:
    lists = [tmp_path / name / "cluster_machine_list" for name in ("older", "newer")]
    for path, gpus in zip(lists, (2, 8), strict=True):
        path.parent.mkdir()
        path.write_text(f"machineId, number of GPUs, single GPU mem\nm0,{gpus}, 12GB\n")
    changing = tmp_path / "changing"
    assert at(OFF_S, "ingest", lists[0], dump(changing, sacct_row, 1, 2)) == ""
    assert at(-OFF_S, "ingest", lists[1], dump(tmp_path / "other", sacct_row, 3)) == ""
    assert at(OFF_S, "ingest", dump(changing, sacct_row, 1, 4)) == ""
    for off_s, side in ((OFF_S, "behind"), (-OFF_S, "ahead of")):
        removed, doctor = at(off_s, "1,0" if off_s > 0 else "1").splitlines()
        assert removed.startswith("Vacuumed(partitions=0, files=0)"), "nothing is older than a day"
        assert off_s < 0 or removed.count("files=0") == 1, "what no version needs is removed"
        assert f" s {side} this machine's" in doctor and abs(float(doctor.split(" is ")[1].split()[0]) - OFF_S) < 30
    one = machine()
    one.pull()
    assert one.keys() == ["1", "3", "4"] and counted(shared) == (3, 3)
    assert warehouse.read(one.data, "SELECT gpus FROM nodes")["gpus"].to_list() == [8], "the list ingested last counts"


@pytest.mark.parametrize("options", ["s3"], indirect=True)
def test_a_clock_that_the_store_refuses_is_named(at: At, machine: Callable[[], Machine]) -> None:
    machine().pull()
    url = machine().lake.options.url
    for off_s in (-3600, 3600):
        line = "the clocks of this machine and of the server differ by minutes: set both by NTP"
        assert at(off_s, "ingest") == f"shared lake {url}: {line}\n"
