"""Several clusters of one command at once (`[dagster] at_once` of deployment.toml), each in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from models.deployment import FILE
from pipelines.runs.home import prepared_home
from tests.pipelines.conftest import dump
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store.folder import DataFolder

pytestmark = pytest.mark.slow
CLUSTERS = ("one", "two")


def analyze(data: DataFolder) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("baton")), "analyze", "--data", str(data.root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    """Two clusters in the lake, and a deployment that allows two at once."""
    data = DataFolder(tmp_path / "data")
    for name, jobs in zip(CLUSTERS, (6, 5), strict=True):
        ingest([dump(tmp_path / f"{name}.psv", jobs=jobs)], cluster=ClusterSettings(name), data=data)
    (data.root / FILE).write_text("[dagster]\nat_once = 2\n")
    return data


def tables(data: DataFolder) -> dict[str, pl.DataFrame]:
    """The analytics of both clusters, by path; not the replays, whose run times differ."""
    paths = sorted((data.lake / "derived").glob("*/*.parquet"))
    return {str(path.relative_to(data.lake)): pl.read_parquet(path) for path in paths}


def test_clusters_at_once_have_the_same_tables_and_one_report(data: DataFolder, tmp_path: Path) -> None:
    in_turn = DataFolder(tmp_path / "in-turn")
    shutil.copytree(data.root, in_turn.root)
    (in_turn.root / FILE).unlink()
    for one in (data, in_turn):
        process = analyze(one)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.endswith(f"{one.reports / 'report.html'}\n")
        page = (one.reports / "report.html").read_text(encoding="utf-8")
        assert all(f"<h1><bdi>{name}</bdi>" in page for name in CLUSTERS)
        if one is data:
            assert all(f"{name}: cluster {name}: logs already read\n" in err for name in CLUSTERS), err
            assert err.count("report of all clusters\n") == 1
    made, expected = tables(data), tables(in_turn)
    assert made.keys() == expected.keys() and len(made) > 30
    unequal = [name for name, frame in made.items() if not frame.equals(expected[name])]
    assert not unequal
    with dg.DagsterInstance.from_config(str(prepared_home(data))) as instance:
        records = instance.get_run_records()
    spans = {
        record.dagster_run.tags["dagster/partition"]: record for record in records[1:]
    }  # the first wrote the report
    assert len(records) == 3 and {record.dagster_run.status for record in records} == {dg.DagsterRunStatus.SUCCESS}
    assert max(spans[name].start_time or 0 for name in CLUSTERS) < min(spans[name].end_time or 0 for name in CLUSTERS)


def children(process: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(process), "-f", "spawn_main"], stdout=subprocess.PIPE, text=True)
    return [int(line) for line in found.stdout.split()]


def test_after_a_cluster_is_killed_the_command_says_so_and_the_next_one_goes_on(data: DataFolder) -> None:
    process = analyze(data)
    while not (found := children(process.pid)):
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(found[0], signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert err.splitlines()[-1].endswith(
        "the process of a cluster was killed; memory may have run out; run again to resume"
    )
    again = analyze(data)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
