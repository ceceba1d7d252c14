"""Replays of a changed cluster: the base against figures of its own, and directions that must hold."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from models.what_if.answers import what_if
from models.what_if.cluster import changes
from simulator.flat.replay import simulate
from simulator.metrics import schedule_summary
from simulator.workload import Workload, workload_of
from tests.reports import warehouse
from traces import schema
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.store.frames import conform
from traces.store.warehouse import read

NODES = 6


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """Five weeks of jobs of 1 to 4 nodes on 6: more than it can hold, in bursts."""
    rng = np.random.default_rng(3)
    rows = []
    for number, at in enumerate(np.sort(rng.uniform(0, 35 * 86_400, 700))):
        nodes, run = int(rng.choice([1, 1, 2, 4])), int(rng.exponential(9000)) + 60
        rows.append(
            warehouse.job(
                "busy", number, submit_utc=datetime(2024, 1, 1) + timedelta(seconds=int(at)), run_s=run,
                requested_nodes=nodes, allocated_nodes=nodes, limit_s=run * int(rng.integers(1, 6)),
            )
        )  # fmt: skip
    jobs = conform(schema.JOBS, pl.DataFrame(rows))
    folder = DataFolder(tmp_path_factory.mktemp("what-if"))
    files = conform(schema.TRACE_FILES, pl.DataFrame([warehouse.trace_file("busy", len(rows))]))
    warehouse.write(folder, {"jobs": jobs, "trace_files": files})
    return folder


def test_each_change_is_the_replay_that_it_names(data: DataFolder) -> None:
    found = what_if(data, ClusterSettings("busy", nodes=NODES))
    rows = {row["change"]: row for row in found.to_dicts()}
    assert list(rows) == [
        "as it is", "fifo scheduling", "easy scheduling", "-1 node (-10 %)", "+1 node (+10 %)", "+2 nodes (+25 %)",
        "exact time limits", "half the slack in time limits",
    ]  # fmt: skip
    jobs = read(data, "SELECT * FROM jobs")
    workload, _keys = workload_of(jobs, default_limit_s=1)
    base = simulate(workload, scheduler="mirage", capacity=NODES)
    fifo = simulate(workload, scheduler="fifo", capacity=NODES)
    assert rows["as it is"]["mean_wait_s"] == schedule_summary(workload, base, NODES)["mean_wait_s"]
    assert rows["fifo scheduling"]["wait_change_s"] == pytest.approx(float((fifo - base).mean()))
    assert rows["as it is"]["wait_change_s"] == 0


def test_more_nodes_wait_less_and_the_interval_holds_the_figure(data: DataFolder) -> None:
    rows = {row["change"]: row for row in what_if(data, ClusterSettings("busy", nodes=NODES)).to_dicts()}
    assert rows["+2 nodes (+25 %)"]["wait_change_high_s"] < 0 < rows["-1 node (-10 %)"]["wait_change_low_s"]
    for row in rows.values():
        assert row["wait_change_low_s"] <= row["wait_change_s"] <= row["wait_change_high_s"]


def test_a_cluster_smaller_than_its_largest_job_is_not_offered() -> None:
    one = np.ones(1, np.int64)
    workload = Workload(one, one * 0, one * 10, one * 60, one * 60, one * 0)
    names = [change.name for change in changes(workload, 10)]
    assert not any(name.startswith("-") for name in names) and "+1 node (+10 %)" in names
    limits = {change.name: int(change.workload.limit_s[0]) for change in changes(workload, 10)}
    assert set(limits.values()) == {60}


def test_without_declared_nodes_the_most_in_use_stand_for_them(data: DataFolder, tmp_path: Path) -> None:
    found = what_if(data, ClusterSettings("busy"))
    jobs = read(data, "SELECT start_utc, end_utc, allocated_nodes AS n FROM jobs")
    events = pl.concat(
        [
            jobs.select(pl.col("start_utc").alias("at"), "n", pl.lit(1).alias("order")),
            jobs.select(pl.col("end_utc").alias("at"), -pl.col("n"), pl.lit(0).alias("order")),
        ]
    ).sort("at", "order")
    assert found.filter(pl.col("change") == "as it is")["capacity_nodes"][0] == events["n"].cum_sum().max()
