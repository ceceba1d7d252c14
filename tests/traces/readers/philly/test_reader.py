"""Philly's five files in Microsoft's schema: defects one by one. Entries are hand-made after the public README."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from typing import Any

import polars as pl
import pytest

from assets.rules import CANONICAL
from tests.traces.conftest import Lake
from tests.traces.readers.philly.oddities import ROWS, Row
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.ingest import ingest
from traces.store import warehouse

UTC = datetime.fromisoformat
PACIFIC: dict[str, Any] = {"timezone": "America/Los_Angeles"}


def attempt(start: str | None, end: str | None, **machines: int) -> dict[str, Any]:
    detail = [{"ip": name, "gpus": [f"gpu{n}" for n in range(count)]} for name, count in machines.items()]
    return {"start_time": start, "end_time": end, "detail": detail}


def entry(job: str, *attempts: dict[str, Any], **other: Any) -> dict[str, Any]:
    plain = {
        "status": "Pass", "vc": "ee9e8c", "jobid": f"application_1_{job}", "attempts": list(attempts),
        "submitted_time": "2017-10-07 01:00:00", "user": "ce2f4c",
    }  # fmt: skip
    return {**plain, **other}


ONE = attempt("2017-10-07 01:10:00", "2017-10-07 02:10:00", m1=8, m2=8)
TWO = attempt("2017-10-07 02:20:00", "2017-10-07 03:20:00", m3=8)


def jobs_of(lake: Lake, *entries: Any, zone: str = "America/Los_Angeles") -> list[dict[str, Any]]:
    lake.ingest(lake.put("cluster_job_log", json.dumps(list(entries))), timezone=zone)
    return lake.rows("jobs")


def test_a_job_with_two_attempts(lake: Lake) -> None:
    (job,) = jobs_of(lake, entry("1", ONE, TWO))
    expected = {
        "job_key": "application_1_1", "partition": "ee9e8c", "user_name": "ce2f4c", "state": "COMPLETED",
        "submit_utc": UTC("2017-10-07T08:00:00"), "start_utc": UTC("2017-10-07T08:10:00"),
        "end_utc": UTC("2017-10-07T10:20:00"), "wait_s": 600, "run_s": 7200, "requested_gpus": 16,
        "requested_nodes": 2, "allocated_gpus": 8, "gpu_time_s": 3600 * 24, "attempts": 2,
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected
    assert [(a["attempt"], a["state"], a["gpus"]) for a in lake.rows("attempts")] == [
        (0, "FAILED", 16),
        (1, "COMPLETED", 8),
    ]
    placed = {(p["attempt"], p["node"]): p["gpu_numbers"] for p in lake.rows("placements")}
    assert placed[0, "m1"] == "0,1,2,3,4,5,6,7" and len(placed) == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            entry("1"), {"attempts": 0, "wait_s": None, "requested_gpus": None, "state": "COMPLETED"}, id="none"
        ),
        pytest.param(entry("1", ONE, status="Killed"), {"state": "CANCELLED"}, id="killed"),
        pytest.param(entry("1", ONE, status="Failed"), {"state": "FAILED"}, id="failed"),
        pytest.param(
            entry("1", attempt("2017-10-07 01:10:00", None, m1=1)),
            {"state": "RUNNING", "end_utc": None, "wait_s": 600, "run_s": None},
            id="still-running",
        ),
        pytest.param(
            entry("1", attempt("None", "None", m1=1)),
            {"start_utc": None, "wait_s": None, "attempts": 1},
            id="none-text",
        ),
        pytest.param(
            entry("1", attempt(None, "2017-10-07 02:10:00", m1=1), TWO),
            {"wait_s": None, "attempts": 2, "run_s": 3600},
            id="no-first-start",
        ),
        pytest.param(entry("1", ONE, user=None, vc=None), {"user_name": None, "partition": None}, id="nobody"),
    ],
)
def test_one_defect(lake: Lake, given: dict[str, Any], expected: dict[str, Any]) -> None:
    (job,) = jobs_of(lake, given)
    assert {name: job[name] for name in expected} == expected


@pytest.mark.parametrize(
    "broken",
    [
        "no job",
        entry("2", status="Dead"),
        entry("2", jobid=None),
        entry("2", submitted_time="soon"),
        entry("2", attempts="one"),
        entry("2", attempt("2017-10-07 02:00:00", "2017-10-07 01:00:00", m1=1)),
        entry("2", {"detail": [{"gpus": []}]}),
        entry("2", {"detail": [{"ip": "m1", "gpus": ["cpu0"]}]}),
    ],
)
def test_a_broken_entry_is_rejected_and_the_rest_is_read(lake: Lake, broken: Any) -> None:
    assert len(jobs_of(lake, entry("1", ONE), broken, entry("3", TWO))) == 2
    (reject,) = lake.rows("rejects")
    assert reject["line"] == 2 and reject["raw"]


def test_a_list_cut_short_is_read_up_to_there(lake: Lake) -> None:
    text = json.dumps([entry("1", ONE), entry("2", TWO)], indent=1)
    (result,) = lake.ingest(lake.put("cluster_job_log", text[:-100]), **PACIFIC)
    assert (result.rows, result.allocations, result.rejects) == (2, 1, 1)


def test_a_job_told_of_twice_is_a_duplicate(lake: Lake) -> None:
    running = entry("1", attempt("2017-10-07 01:10:00", None, m1=1))
    done = entry("1", attempt("2017-10-07 01:10:00", "2017-10-07 01:40:00", m1=1))
    (job,) = jobs_of(lake, running, done, running)
    assert (job["state"], job["run_s"]) == ("COMPLETED", 1800)
    (found,) = lake.rows("trace_files")
    assert (found["records"], found["allocations"], found["duplicates"]) == (3, 1, 2)


def test_the_order_of_events_settles_the_doubled_hour(lake: Lake) -> None:
    night = {"submitted_time": "2017-11-05 00:30:00"}
    wraps = attempt("2017-11-05 01:50:00", "2017-11-05 01:10:00", m1=1)  # twenty minutes over the change
    open_ = attempt("2017-11-05 01:10:00", "2017-11-05 05:00:00", m1=1)
    first, second = jobs_of(lake, entry("1", wraps, **night), entry("2", open_, **night))
    assert (first["run_s"], first["is_time_ambiguous"]) == (1200, False)
    assert second["is_time_ambiguous"]


GPU = "time,machineId,gpu0_util,gpu1_util,gpu2_util,gpu3_util,gpu4_util,gpu5_util,gpu6_util,gpu7_util\n"


@pytest.mark.parametrize("packed", [False, True])
def test_gpu_utilization(lake: Lake, packed: bool) -> None:
    lines = [
        "2017-11-05 01:30:00 PDT,m29,60.8,99.366666667,100.0,NA,0.0,0,1e1,100.0,",
        "2017-11-05 01:30:00 PST,m29,1,2,3,4,5,6,7,8",
        "2017-11-05 01:30:00 PST,m30,1,2,,,,,,,",  # a machine with two GPUs
        "2017-11-05 01:30:00 PST,m29,1,2,3,4,5,6,7,8",
        "2017-11-05 01:30:00 PST,m31,many,2,3,4,5,6,7,8",
        "2017-11-05 01:30:00 PST,m31",
        "2017-11-05 01:30:00 CET,m31,1,2,3,4,5,6,7,8",
    ]
    raw = (GPU + "\n".join(lines) + "\n").encode()
    (result,) = lake.ingest(lake.put("cluster_gpu_util", gzip.compress(raw) if packed else raw), **PACIFIC)
    assert (result.rows, result.samples, result.duplicates, result.rejects) == (7, 3, 1, 3)
    rows = {(r["node"], r["sample_utc"], r["gpu"]): r["utilization_percent"] for r in lake.rows("gpu_utilization")}
    summer, winter = UTC("2017-11-05T08:30:00"), UTC("2017-11-05T09:30:00")
    assert len(rows) == 18
    assert rows["m29", summer, 0] == 60.8 and rows["m29", summer, 3] is None and rows["m29", summer, 6] == 10
    assert rows["m29", winter, 7] == 8 and ("m30", winter, 2) not in rows
    assert {reject["line"] for reject in lake.rows("rejects")} == {6, 7, 8}


def test_cpu_and_memory_utilization(lake: Lake) -> None:
    cpu = lake.put(
        "cluster_cpu_util",
        "time,machine_id,cpu_util\n2017-11-27 00:04:00 PST,m29,31.845\n2017-11-27 00:05:00 PST,m29,NA\n",
    )
    memory = lake.put(
        "cluster_mem_util",
        "time,machine_id,mem_total,mem_free\n"
        "2017-10-03 00:06:00 PDT,m29,528272672.0,2030730.6667\n2017-10-03 00:07:00 PDT,m29,NA,NA\n",
    )
    lake.ingest(cpu, memory, **PACIFIC)
    assert [r["utilization_percent"] for r in lake.rows("cpu_utilization")] == [31.845, None]
    assert [(r["total_kib"], r["free_kib"]) for r in lake.rows("memory_utilization")] == [
        (528_272_672, 2_030_731),
        (None, None),
    ]


def test_machine_list(lake: Lake) -> None:
    text = "machineId, number of GPUs, single GPU mem\nm0,2, 12GB\nm31,8, 24GB\nm31,8, 24GB\nm32,some, 24GB\n"
    (result,) = lake.ingest(lake.put("cluster_machine_list", text))
    assert (result.rows, result.samples, result.duplicates, result.rejects) == (4, 2, 1, 1)
    assert [(n["node"], n["gpus"], n["gpu_mem_gb"]) for n in lake.rows("nodes")] == [("m0", 2, 12.0), ("m31", 8, 24.0)]
    assert [n["gpu_type"] for n in lake.rows("nodes")] == [None, None]


@pytest.mark.parametrize("text", ["[]", GPU, "time,machine_id,mem_total\n", "machineId, number of GPUs\n"])
def test_a_file_without_a_record_is_refused(lake: Lake, text: str) -> None:
    with pytest.raises(InputError):
        lake.ingest(lake.put("some", text), format="philly-jobs" if text == "[]" else "auto")


def test_a_large_file_is_read_in_pieces(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.readers.philly.samples.PIECE_BYTES", 200)
    lines = [f"2017-11-27 {n // 60:02}:{n % 60:02}:00 PST,m1,{n}.5\n" for n in range(100)]
    text = "time,machine_id,cpu_util\n" + "".join(lines) + "broken"
    (result,) = lake.ingest(lake.put("cluster_cpu_util", text), **PACIFIC)
    assert (result.samples, result.rejects) == (100, 1)
    assert lake.table("cpu_utilization")["utilization_percent"].to_list() == [n + 0.5 for n in range(100)]
    assert lake.rows("rejects")[0]["line"] == 102


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.format}: {row.name}")
def test_one_oddity(lake: Lake, row: Row) -> None:
    """The table of docs/oddities.md."""
    good = {"philly-jobs": json.dumps(entry("9", ONE)), "philly-gpu-util": "2017-11-05 01:30:00 PST,m1,1,1"}
    lines = row.lines if row.row is not None else f"{row.lines}\n{good[row.format]}"
    text = f"{row.header}\n{lines}\n" if row.header else "[" + lines.replace("\n", ",") + "]"
    (result,) = ingest([lake.put("log", text)], cluster=ClusterSettings("lab", **PACIFIC), data=lake.data)
    assert result.format == row.format and result.rejects == (row.row is None)
    if row.row is not None:
        first = pl.read_parquet(next(lake.data.lake.glob(f"lab/*/{row.table}.parquet"))).row(0, named=True)
        assert {name: first[name] for name in row.row} == row.row


def test_a_machine_list_that_contradicts_the_log_is_reported_and_both_counts_are_kept(lake: Lake) -> None:
    two, eight = attempt("2017-10-07 01:10:00", None, m0=2), attempt("2017-10-07 01:10:00", None, m51=8)
    machines = "machineId, number of GPUs, single GPU mem\nm0,2, 12GB\nm51,2, 12GB\nm52,2, 12GB\n"
    samples = GPU + "2017-11-05 01:30:00 PST,m52,1,2,3,4,,,,\n"
    log = json.dumps([entry("1", two), entry("2", eight)])
    lake.ingest(lake.put("log", log), lake.put("list", machines), lake.put("util", samples), **PACIFIC)
    (rule,) = [rule for rule in CANONICAL if (rule.table, rule.name) == ("nodes", "gpus_in_use")]
    assert rule.only_warns
    found = [tuple(row.values())[1:] for row in warehouse.read(lake.data, rule.sql).to_dicts()]
    assert found == [("m51", 2, 8, None), ("m52", 2, None, 4)]
    assert [node["gpus"] for node in lake.rows("nodes")] == [2, 2, 2]
    assert {place["node"]: place["gpus"] for place in lake.rows("placements")} == {"m0": 2, "m51": 8}
