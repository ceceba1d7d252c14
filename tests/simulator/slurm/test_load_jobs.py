"""A cluster's tables as the jobs of a world: who queues, with what, until when, and what is said about it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from simulator.slurm import world as w
from simulator.slurm.inputs.jobs import Loaded, from_tables
from traces.errors import InputError
from traces.schema import ATTEMPTS, JOBS, PLACEMENTS, Table
from traces.slurm.conf import SlurmConf, read_slurm_conf

EPOCH = datetime(1970, 1, 1)
CONF = """SelectType=select/cons_tres
DefMemPerCPU=100
NodeName=n[1-4] CPUs=8 RealMemory=6400 Gres=gpu:a100:4
PartitionName=gpu Nodes=ALL Default=YES MaxTime=100 DefaultTime=10 DefMemPerNode=3000
PartitionName=wide Nodes=ALL MaxNodes=2
"""
TYPES: dict[str, Any] = {"TIMESTAMP": pl.Datetime("us"), "VARCHAR": pl.String, "BIGINT": pl.Int64, "DOUBLE": pl.Float64}


@pytest.fixture
def conf(tmp_path: Path) -> SlurmConf:
    path = tmp_path / "slurm.conf"
    path.write_text(CONF, encoding="utf-8")
    return read_slurm_conf(path)


def at(seconds: int | None) -> datetime | None:
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)


def table(declared: Table, rows: list[dict[str, Any]]) -> pl.DataFrame:
    types = {column.name: TYPES.get(column.type, pl.Boolean) for column in declared.columns}
    return pl.DataFrame([{name: row.get(name) for name in types} for row in rows], schema=types)


def job(key: str, submit: int | None, start: int | None, end: int | None, **more: Any) -> dict[str, Any]:
    run = end - start if start is not None and end is not None else None
    row = {
        "job_key": key, "job_id": key, "job_id_raw": int(key.split("_")[0]), "submit_utc": at(submit),
        "eligible_utc": at(submit), "start_utc": at(start), "end_utc": at(end), "run_s": run, "state": "COMPLETED",
        "partition": "gpu", "qos": "normal", "account": "lab", "user_name": "ann", "limit_s": 600,
        "requested_nodes": 1, "requested_cpus": 4, "requested_gpus": 2, "requested_mem_mib": 500,
        "allocated_nodes": 1, "allocated_cpus": 4, "allocated_gpus": 2,
    }  # fmt: skip
    return {**row, **more}


def loaded(conf: SlurmConf, jobs: list[dict[str, Any]], attempts: list[dict[str, Any]] | None = None) -> Loaded:
    if attempts is None:
        attempts = [
            {"job_key": row["job_key"], "attempt": 0, "submit_utc": row["submit_utc"], "start_utc": row["start_utc"],
             "end_utc": row["end_utc"], "run_s": row["run_s"], "state": row["state"], "nodes": row["allocated_nodes"],
             "gpus": row["allocated_gpus"]}
            for row in jobs if row["start_utc"] is not None
        ]  # fmt: skip
    return from_tables(conf, table(JOBS, jobs), table(ATTEMPTS, attempts))


def test_a_job_that_ran(conf: SlurmConf) -> None:
    row = job("7", 100, 160, 400, allocated_nodes=3, allocated_cpus=16, allocated_gpus=7, eligible_utc=at(130))
    found = loaded(conf, [row])
    jobs = found.world.jobs
    assert (jobs.submit_s[0], jobs.eligible_s[0], jobs.run_s[0], jobs.limit_s[0]) == (100, 130, 240, 600)
    assert (jobs.nodes[0], jobs.cpus_per_node[0], jobs.gpus_per_node[0], jobs.memory_per_node_mb[0]) == (3, 6, 3, 167)
    assert (jobs.cancel_s[0], jobs.pinned_s[0], jobs.failed[0]) == (w.NEVER, 160, False)
    assert (found.keys, found.attempts.tolist(), found.remarks, found.left_out) == (("7",), [0], (), {})


def test_jobs_that_never_started_wait_until_they_are_cancelled(conf: SlurmConf) -> None:
    found = loaded(conf, [
        job("1", 10, 20, 900),
        job("2", 50, None, 300, state="CANCELLED"),
        job("3", 60, None, 310, state="CANCELLED", eligible_utc=None),  # held to the end
        job("4", 70, None, None, state="PENDING"),
        job("5", 80, 90, None, state="RUNNING"),
    ])  # fmt: skip
    jobs = found.world.jobs
    assert jobs.cancel_s.tolist() == [w.NEVER, 300, 310, 900, w.NEVER]
    assert jobs.eligible_s.tolist() == [10, 50, w.NEVER, 70, 80]
    assert jobs.run_s.tolist() == [880, 0, 0, 0, 600]
    assert jobs.failed.tolist() == [False, True, True, True, True]


def test_each_run_of_a_requeued_job_is_a_row(conf: SlurmConf) -> None:
    row = job("9", 10, 20, 500, attempts=2)
    runs = [
        {"job_key": "9", "attempt": 0, "submit_utc": at(10), "start_utc": at(20), "end_utc": at(50), "run_s": 30,
         "state": "NODE_FAIL", "nodes": 1, "gpus": 2},
        {"job_key": "9", "attempt": 1, "submit_utc": at(60), "start_utc": at(400), "end_utc": at(500), "run_s": 100,
         "state": "COMPLETED", "nodes": 2, "gpus": 2},
    ]  # fmt: skip
    found = loaded(conf, [row], runs)
    jobs = found.world.jobs
    assert (jobs.submit_s.tolist(), jobs.eligible_s.tolist(), jobs.run_s.tolist()) == ([10, 60], [10, 60], [30, 100])
    assert (jobs.nodes.tolist(), found.attempts.tolist(), jobs.failed.tolist()) == ([1, 2], [0, 1], [True, False])
    runs[0]["state"] = "RESIZING"  # a resized job never went back to the queue
    resized = loaded(conf, [{**row, "run_s": 480}], runs)
    assert (len(resized.world.jobs), resized.world.jobs.run_s.tolist()) == (1, [480])


def test_arrays(conf: SlurmConf) -> None:
    task = {"array_job_id": 30, "state": "CANCELLED"}
    found = loaded(conf, [
        job("30", 10, 20, 50, job_id="30_1", array_job_id=30, array_task_id=1),
        job("31", 10, None, 90, job_id="30_[2-4,7%2]", **task),
        job("40", 10, 20, 50, job_id="40_1", array_job_id=40, array_task_id=1),
        job("41", 10, None, 90, job_id="40_[2-4,6-1", **{**task, "array_job_id": 40}),
    ])  # fmt: skip
    assert len(found.world.jobs) == 1 + 4 + 1 + 1
    assert found.world.jobs.array.tolist() == [0, 0, 0, 0, 0, 1, 1] and found.world.array_throttle.tolist() == [2, 0]
    assert found.keys == ("30", "31", "31", "31", "31", "40", "41")
    assert any("1 record of pending array tasks" in remark for remark in found.remarks)


def test_tasks_of_a_throttled_array_age_from_its_first_eligible_time(conf: SlurmConf) -> None:
    tasks = [
        job("30", 10, 20, 50, job_id="30_1", array_job_id=30, array_task_id=1),
        job("31", 10, 51, 80, job_id="30_2", array_job_id=30, array_task_id=2, eligible_utc=at(50)),
        job("32", 10, None, 90, job_id="30_[3%1]", array_job_id=30, state="CANCELLED", eligible_utc=None),
        job("40", 10, 20, 50, job_id="40_1", array_job_id=40, array_task_id=1),
        job("41", 10, 51, 80, job_id="40_2", array_job_id=40, array_task_id=2, eligible_utc=at(50)),
    ]
    # nothing tells the throttle of array 40
    assert loaded(conf, tasks).world.jobs.eligible_s.tolist() == [10, 10, 10, 10, 50]


def test_names_and_defaults(conf: SlurmConf) -> None:
    found = loaded(conf, [
        job("1", 10, 20, 50, partition=None, qos=None, account=None, user_name=None, limit_s=None,
            requested_mem_mib=None),
        job("2", 10, 20, 50, partition="wide,gpu", limit_s=None, requested_mem_mib=None, job_name="x"),
        job("3", 10, 20, 50, partition="gone", job_name="x"),
    ])  # fmt: skip
    jobs = found.world.jobs
    assert jobs.partition.tolist() == [0, 1, w.NONE]
    assert jobs.limit_s.tolist() == [600, 365 * 86_400, 600]
    assert jobs.memory_per_node_mb.tolist() == [3000, 400, 500]  # DefMemPerNode of gpu, DefMemPerCPU of the cluster
    assert jobs.name[1] == jobs.name[2] and jobs.name[0] != jobs.name[1]
    assert any("several partitions" in remark for remark in found.remarks)


def test_recorded_runs_raise_the_limits_that_they_exceed(conf: SlurmConf) -> None:
    found = loaded(conf, [
        job("1", 10, 20, 50, limit_s=9_000),
        job("2", 10, 20, 50, partition="wide", allocated_nodes=4),
        job("3", 10, None, 50, limit_s=9_900, state="CANCELLED"),
    ])  # fmt: skip
    assert found.world.partitions.max_time_s.tolist() == [9_000, w.NO_LIMIT]
    assert found.world.partitions.max_nodes.tolist() == [w.NO_LIMIT, 4]
    assert [remark for remark in found.remarks if "MaxTime" in remark or "MaxNodes" in remark]


def test_what_is_left_out_is_counted(conf: SlurmConf) -> None:
    bad = [job("1", None, 20, 50), job("2", 10, 20, 50, run_s=-5)]
    found = loaded(conf, [*bad, job("3", 10, 20, 50)])
    assert found.left_out == {"without a submission time": 1, "with a negative run time": 1}
    assert found.keys == ("3",)
    with pytest.raises(InputError, match="no job of the cluster can be replayed: 1 without a submission time, 1 with"):
        loaded(conf, bad)


def test_recorded_nodes(conf: SlurmConf) -> None:
    rows = [job("1", 10, 20, 50, allocated_nodes=2), job("2", 11, None, 40, state="CANCELLED"), job("3", 12, 20, 50)]
    held = [{"job_key": key, "attempt": 0, "node": node} for key, node in (("1", "n4"), ("1", "n2"), ("3", "n1"))]
    runs = [{"job_key": key, "attempt": 0, "start_utc": at(20), "run_s": 30, "state": "COMPLETED"} for key in "13"]
    found = from_tables(conf, table(JOBS, rows), table(ATTEMPTS, runs), table(PLACEMENTS, held))
    assert found.world.pinned_first.tolist() == [0, 2, 2, 3] and found.world.pinned_nodes.tolist() == [1, 3, 0]
    held[1]["node"] = "elsewhere"  # not in slurm.conf
    found = from_tables(conf, table(JOBS, rows), table(ATTEMPTS, runs), table(PLACEMENTS, held))
    assert found.world.pinned_first.tolist() == [0, 0, 0, 1] and found.world.pinned_nodes.tolist() == [0]


def test_a_wall_caps_the_limit(conf: SlurmConf) -> None:
    rows = [job("1", 10, 20, 50, limit_s=900), job("2", 11, 20, 50, limit_s=300), job("3", 12, 20, 50, limit_s=900)]
    jobs = table(JOBS, rows).with_columns(wall_s=pl.Series([600, 600, None]))
    assert from_tables(conf, jobs, table(ATTEMPTS, [])).world.jobs.limit_s.tolist() == [600, 300, 900]
