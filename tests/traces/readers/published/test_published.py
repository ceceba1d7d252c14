"""Readers of published job logs: every oddity, the contract that all readers keep, and what no reader knows."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.traces.conftest import Lake
from tests.traces.readers.agent_lines import agent_line
from tests.traces.readers.node_lists.oddities import BARE, NODE
from tests.traces.readers.published.logs import DERIVED, GRAHAM, HELIOS, PODS, ROWS, SEREN, SWF, Row
from traces import ingest as module
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.readers.registry import READERS
from traces.readers.staged import FileResult
from traces.store.folder import DataFolder

NODES = "sn,cpu_milli,memory_mib,gpu,model"
GOOD = {row.header: next(r.lines for r in ROWS if r.header == row.header and r.job) for row in ROWS}
# A whole file of every format, and how many records it holds.
WHOLE: dict[str, tuple[str, int]] = {
    "helios": (f"{HELIOS}\n{GOOD[HELIOS]}\n", 1),
    "acme": (f"{SEREN}\n{GOOD[SEREN]}\n", 1),
    "openb-pods": (f"{PODS}\n{GOOD[PODS]}\n", 1),
    "openb-nodes": (f"{NODES}\nn1,96000,786432,8,V100M32\nn2,32000,262144,0,\n", 2),
    "graham": (f"{GRAHAM}\n{GOOD[GRAHAM]}\n", 1),
    "philly-derived": (f"{DERIVED}\n{GOOD[DERIVED]}\n", 1),
    "swf": (f"{SWF}\n{GOOD[SWF]}\n", 1),
    "philly-jobs": (
        '[{"status": "Pass", "vc": "v", "jobid": "a", "attempts": [], "submitted_time": "2017-10-07 01:00:00", '
        '"user": "u"}]',
        1,
    ),
    "philly-gpu-util": ("time,machineId,gpu0_util,gpu1_util\n2017-11-27 00:04:00 PST,m29,3.5,NA\n", 1),
    "philly-cpu-util": ("time,machine_id,cpu_util\n2017-11-27 00:04:00 PST,m29,31.845\n", 1),
    "philly-mem-util": ("time,machine_id,mem_total,mem_free\n2017-11-27 00:04:00 PST,m29,4.0,2.0\n", 1),
    "philly-machines": ("machineId, number of GPUs, single GPU mem\nm0,2, 12GB\n", 1),
    "agent": (f"{agent_line()}\n{agent_line('started')}\n", 2),
    "scontrol-nodes": (f"{BARE}\n{BARE.replace('c01', 'c02')}\n", 2),
    "sinfo": ("NODELIST|PARTITION|CPUS|MEMORY|GRES\nn1|gpu*|64|512000|gpu:a100:4\n", 1),
    "sinfo-json": (json.dumps({"meta": {"Slurm": {}}, "nodes": [NODE]}) + "\n", 1),
    "sacct": (
        "JobID|Submit|Start|End|State\n1|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|FAILED\n",
        1,
    ),
}


def in_lake(lake: Lake, content: str, timezone: str = "UTC") -> FileResult:
    """What became of a file; no warehouse is built."""
    cluster = ClusterSettings("lab", timezone=timezone)
    (result,) = module.ingest([lake.put("log", content)], cluster=cluster, data=lake.data)
    assert result.rows == result.allocations + result.steps + result.samples + result.duplicates + result.rejects
    return result


def rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    """A table of the one file in the lake."""
    return pl.read_parquet(next(lake.data.lake.glob(f"lab/*/{table}.parquet"))).to_dicts()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.format}: {row.name}")
def test_one_oddity(lake: Lake, row: Row) -> None:
    good = GOOD[row.header]  # after a refused line the next is read
    lines = f"{row.lines}\n{good}" if row.job is None else row.lines
    result = in_lake(lake, f"{row.header}\n{lines}\n", row.timezone)
    assert result.format == row.format
    if row.job is None:
        (reject,) = rows(lake, "rejects")
        assert reject["raw"] == row.lines and (result.rejects, result.jobs) == (1, 1), result
        return
    first = min(rows(lake, "jobs"), key=lambda job: job["line"])
    assert {name: first[name] for name in row.job} == row.job
    assert result.jobs == len({line.split(",")[0] if row.format != "swf" else 1 for line in lines.split("\n")}) or (
        row.format == "philly-derived" and result.jobs == len(lines.split("\n"))
    )


def test_every_reader_has_a_whole_file_here() -> None:
    assert set(WHOLE) == set(READERS)


@pytest.mark.parametrize("name", WHOLE)
def test_lines_may_end_as_on_windows(lake: Lake, name: str) -> None:
    content, records = WHOLE[name]
    result = in_lake(lake, content.replace("\n", "\r\n"))
    assert (result.format, result.rows, result.rejects) == (name, records, 0)


@pytest.mark.parametrize("name", WHOLE)
def test_a_reader_is_found_by_content_counts_every_record_and_takes_a_file_once(lake: Lake, name: str) -> None:
    content, records = WHOLE[name]
    path = lake.put("some file", content)
    (result,) = lake.ingest(path)
    assert (result.format, result.rows, result.rejects, result.duplicates) == (name, records, 0, 0)
    assert result.allocations + result.samples == records and result.seconds > 0
    (again,) = lake.ingest(path)
    assert (again.duplicates, again.jobs) == (records, 0)
    (found,) = lake.rows("trace_files")
    assert (found["format"], found["records"]) == (name, records)


@pytest.mark.parametrize("name", WHOLE)
def test_format_overrides_and_a_file_of_another_format_is_refused_in_one_line(lake: Lake, name: str) -> None:
    other = "philly-machines" if name != "philly-machines" else "helios"
    path = lake.put("file", WHOLE[other][0])
    with pytest.raises(InputError) as caught:
        lake.ingest(path, format=name)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "sacct"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused_and_its_counts_add_up(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    content = WHOLE[name][0] * 2
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        put = data.draw(st.text(st.sampled_from('",|\n\r\t 0-9aN:{}[]é\0'), max_size=6))
        content = content[:at] + put + content[at + data.draw(st.integers(0, 9)) :]
    folder = tmp_path_factory.mktemp("mutated")
    (folder / "file").write_text(content, encoding="utf-8")
    try:
        (result,) = module.ingest(
            [folder / "file"], cluster=ClusterSettings("lab", timezone="America/Chicago"),
            data=DataFolder(folder / "data"), format=name,
        )  # fmt: skip
    except InputError:
        return
    counted = result.allocations + result.samples + result.duplicates + result.rejects
    assert result.rows == counted and result.allocations >= result.jobs


def test_the_error_for_an_unknown_file_says_what_was_tried_and_what_is_nearest(lake: Lake) -> None:
    path = lake.put("log.csv", "job_id,user,vc,gpu_num,cpu_num,state,submit_time,start_time,end_time\n")
    with pytest.raises(InputError) as caught:
        lake.ingest(path)
    message = str(caught.value)
    assert all(name in message for name in READERS)
    assert "nearest is helios, but the file lacks duration, node_num, queue" in message


def test_the_newest_of_several_rows_of_one_id_stands(lake: Lake) -> None:
    started = "2020-06-09 18:41:01,2020-06-09 18:41:01"
    rows = [f"7,u,v,1,1,1,RUNNING,{started},,,0", f"7,u,v,1,1,1,COMPLETED,{started},2020-06-09 18:51:01,600,0"]
    (result,) = lake.ingest(lake.put("log", "\n".join([HELIOS, rows[1], rows[0], rows[1]]) + "\n"))
    (job,) = lake.rows("jobs")
    assert (job["state"], job["run_s"], result.duplicates, result.allocations) == ("COMPLETED", 600, 2, 1)


def test_a_pod_of_openb_holds_a_part_of_its_gpu(lake: Lake) -> None:
    pods = ("whole,6000,12288,2,1000", "part,6000,12288,1,460", "none,6000,12288,0,0")
    lake.ingest(lake.put("pods", "\n".join([PODS, *(f"{pod},,LS,Succeeded,0,1000,0" for pod in pods)]) + "\n"))
    held = {(one["gpus"], one["gpu_part"], one["gpu_time_s"]) for one in lake.rows("attempts")}
    assert held == {(2, None, 2000), (1, 0.46, 460), (0, None, 0)}


def test_nodes_of_openb(lake: Lake) -> None:
    text = f"{NODES}\nn1,96000,786432,8,V100M32\nn2,1,1,some,T4\nn1,96000,786432,8,V100M32\nn3,64000,262144,2,P100\n"
    (result,) = lake.ingest(lake.put("nodes", text))
    assert (result.rows, result.samples, result.duplicates, result.rejects) == (4, 2, 1, 1)
    columns = ("node", "gpus", "gpu_type", "gpu_mem_gb", "cpus", "memory_mib")
    found = [tuple(node[name] for name in columns) for node in lake.rows("nodes")]
    assert found == [("n1", 8, "V100M32", 32.0, 96, 786_432), ("n3", 2, "P100", None, 64, 262_144)]


def test_a_node_of_openb_beyond_any_machine_is_refused(lake: Lake) -> None:
    (result,) = lake.ingest(lake.put("nodes", f"{NODES}\nn1,96000,786432,8,T4\nn2,{10**14},1,1,T4\n"))
    assert (result.samples, result.rejects) == (1, 1)
    assert lake.rows("rejects")[0]["reason"].startswith("cpus 100000000000 is not from 0 to")


def test_runs_of_an_swf_job_that_was_stopped_and_went_on(lake: Lake) -> None:
    rest = " -1" * 7
    parts = [f"4 0 10 100 8 -1 -1 8 200 -1 2{rest}", f"4 -1 30 50 8 -1 -1 8 200 -1 4{rest}"]
    (result,) = lake.ingest(lake.put("log.swf", "\n".join([SWF, *parts, f"5 0 1 2 8 -1 -1 8 200 -1 1{rest}"]) + "\n"))
    assert (result.rows, result.allocations, result.jobs, result.attempts) == (3, 3, 2, 3)
    job = lake.rows("jobs")[0]
    assert (job["state"], job["run_s"], job["wait_s"], job["attempts"]) == ("FAILED", 150, 10, 2)
    runs = [a for a in lake.rows("attempts") if a["job_key"] == "4"]
    waits = [(a["start_utc"] - a["submit_utc"]).total_seconds() for a in runs]
    assert waits == [10, 30] and runs[0]["end_utc"] == runs[1]["submit_utc"]
    assert job["end_utc"] == runs[1]["end_utc"]
    assert [a["cpus"] for a in runs] == [8, 8]


def test_a_piece_at_a_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.readers.raw_text.PIECE_BYTES", 300)
    line = GOOD[HELIOS].split(",", 1)[1]
    rows = [f"{n},{line}" for n in range(40)] + ["broken"] + [f"{n},{line}" for n in range(50)]
    (result,) = lake.ingest(lake.put("log", "\n".join([HELIOS, *rows]) + "\n"))
    assert (result.rows, result.jobs, result.duplicates, result.rejects) == (91, 50, 40, 1)
    assert lake.rows("rejects")[0]["line"] == 42
