"""Every shape that sacct prints, and that a dump is read the same whatever the size of the blocks it is read in."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traces.conftest import HEADER, Lake
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.ingest import ingest
from traces.readers.sacct import reader as sacct
from traces.readers.sacct.typed import node_lists
from traces.slurm import text as slurm_text
from traces.store import warehouse
from traces.store.folder import DataFolder

Row = Callable[..., str]
FIXED = (
    ("JobID", 12), ("JobName", 10), ("State", 10), ("Submit", 19), ("Start", 19), ("End", 19), ("NNodes", 8),
    ("AllocTRES", 10),
)  # fmt: skip


def fixed(*rows: dict[str, str]) -> str:
    """What `sacct --format=...` prints without -P: right-aligned, cut with a `+`, a space after each column."""

    def line(values: list[str]) -> str:
        cut = [v if len(v) <= w else v[: w - 1] + "+" for v, (_, w) in zip(values, FIXED, strict=True)]
        return "".join(f"{v:>{w}} " for v, (_, w) in zip(cut, FIXED, strict=True))

    dashes = ["-" * width for _, width in FIXED]
    return (
        "\n".join([line([n for n, _ in FIXED]), line(dashes), *(line([r[n] for n, _ in FIXED]) for r in rows)]) + "\n"
    )


PLAIN = {
    "JobID": "7", "JobName": "train", "State": "COMPLETED", "Submit": "2024-05-01T10:00:00",
    "Start": "2024-05-01T10:30:00", "End": "2024-05-01T11:30:00", "NNodes": "2", "AllocTRES": "billing=8,gres/gpu=4",
}  # fmt: skip


def test_fixed_width(lake: Lake) -> None:
    """Names and states are cut, TRES too, which are not known then; an id that is cut makes no record."""
    rows = [
        PLAIN,
        {**PLAIN, "JobID": "8", "JobName": "a long name indeed", "State": "OUT_OF_MEMORY"},
        {**PLAIN, "JobID": "9", "JobName": "a b", "State": "CANCELLED by 1000"},
        {**PLAIN, "JobID": "12345678901_42"},
    ]
    (result,) = lake.ingest(lake.put("dump.txt", fixed(*rows)))
    assert (result.rows, result.allocations, result.rejects) == (4, 3, 1)
    jobs = {j["job_key"]: (j["job_name"], j["state"], j["wait_s"], j["allocated_gpus"]) for j in lake.rows("jobs")}
    assert jobs == {
        "7": ("train", "COMPLETED", 1800, None),
        "8": ("a long na+", "OUT_OF_MEMORY", 1800, None),
        "9": ("a b", "CANCELLED", 1800, None),
    }
    assert "12345678901+" in lake.rows("rejects")[0]["raw"]


def _count(number: int, new: bool) -> Any:
    return {"set": True, "infinite": False, "number": number} if new else number


def job(new: bool, **other: Any) -> dict[str, Any]:
    """A record of `sacct --json`: of Slurm 22.05, or as since 23.02, where numbers and states are wrapped."""
    tres = [
        {"type": "cpu", "name": "" if new else None, "id": 1, "count": 8},
        {"type": "mem", "name": "" if new else None, "id": 2, "count": 65_536},
        {"type": "energy", "name": "" if new else None, "id": 3, "count": None},
        {"type": "gres", "name": "gpu", "id": 1001, "count": 4},
        {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 4},
    ]
    times = {
        "elapsed": 3600, "eligible": 1_714_557_600, "end": 1_714_563_000, "start": 1_714_559_400,
        "submission": 1_714_557_600, "suspended": 0, "limit": _count(120, new),
        "total": {"seconds": 90, "microseconds": 24_110},
    }  # fmt: skip
    step = {
        "step": {"id": "100.batch" if new else "batch", "name": "batch"}, "time": {**times, "start": times["start"]},
        "state": ["COMPLETED"] if new else "COMPLETED", "nodes": {"count": 1},
        "tres": {"allocated": tres, "requested": {"max": [{"type": "mem", "count": 4096}]}},
    }  # fmt: skip
    plain = {
        "job_id": 100, "name": "a|b\nc", "user": "alice", "association": {"user": "alice"}, "account": "ml",
        "partition": "gpu", "qos": "normal", "allocation_nodes": 2, "nodes": "n[01-02]", "priority": _count(9, new),
        "array": {"job_id": 0, "task_id": _count(0, new), "task": ""}, "het": {"job_id": 0, "job_offset": None},
        "state": {"current": ["COMPLETED"] if new else "COMPLETED", "reason": "None"}, "time": times,
        "flags": ["STARTED_ON_BACKFILL"], "constraints": "a100&ib",
        "exit_code": {"status": "SUCCESS", "return_code": 0}, "steps": [step],
        "tres": {"allocated": tres, "requested": tres},
    }  # fmt: skip
    return {**plain, **other}


@pytest.mark.parametrize("new", [False, True], ids=["22.05", "23.02"])
def test_json(lake: Lake, new: bool) -> None:
    task = job(new, job_id=105, array={"job_id": 102, "task_id": _count(3, new), "task": ""}, steps=[])
    failed = job(new, job_id=106, state={"current": ["FAILED"] if new else "FAILED"}, steps=[])
    found = {"meta": {"Slurm": {"release": "22.05.8"}}, "jobs": [job(new), task, failed, {"no": "job"}]}
    (result,) = lake.ingest(lake.put("dump.json", json.dumps(found, indent=1)))
    assert (result.format, result.rows, result.allocations, result.steps, result.rejects) == ("sacct", 5, 3, 1, 1)
    first, second, third = lake.rows("jobs")
    expected = {
        "job_key": "100", "job_name": "a|b\nc", "state": "COMPLETED", "wait_s": 1800, "run_s": 3600, "limit_s": 7200,
        "allocated_gpus": 4, "requested_mem_mib": 65_536, "started_by": "backfill", "allocated_nodes": 2,
        "reason": "None", "features_asked": "a100&ib", "allocated_mem_mib": 65_536, "allocated_cpus": 8,
    }  # fmt: skip
    assert {name: first[name] for name in expected} == expected
    assert (second["job_id"], second["array_job_id"], second["array_task_id"]) == ("102_3", 102, 3)
    assert (third["state"], third["exit_code"]) == ("FAILED", None)  # 22.05 prints SUCCESS for it: not to be trusted
    (step,) = lake.rows("steps")
    assert (step["job_key"], step["step_id"], step["max_rss_kib"], step["cpu_time_s"]) == ("100", "batch", 4, 90.024)


def test_json_that_breaks_off_keeps_what_is_whole(lake: Lake) -> None:
    text = json.dumps({"meta": {"Slurm": {}}, "jobs": [job(False, steps=[]), job(False, job_id=101)]})
    (result,) = lake.ingest(lake.put("dump.json", text[:-300]))
    assert (result.rows, result.allocations, result.rejects) == (2, 1, 1)


def test_json_of_another_program_is_named(lake: Lake) -> None:
    live = {"job_id": 7, "job_state": "RUNNING", "submit_time": 1_700_000_000}
    with pytest.raises(InputError, match=r"printed by squeue or scontrol.*sacct -a -D --json"):
        lake.ingest(lake.put("dump.json", json.dumps({"meta": {"Slurm": {}}, "jobs": [live]})))


def test_a_json_record_without_its_state_says_so(lake: Lake) -> None:
    lame = {name: value for name, value in job(False, steps=[]).items() if name != "state"}
    (result,) = lake.ingest(lake.put("dump.json", json.dumps({"jobs": [job(False, job_id=101), lame]})))
    assert result.rejects == 1
    assert lake.table("rejects")["reason"].to_list() == ["not a job record: no field 'state'"]


def test_json_without_jobs_is_refused(lake: Lake) -> None:
    with pytest.raises(InputError, match="without a list of jobs"):
        lake.ingest(lake.put("dump.json", '{"meta": {"Slurm": {}}, "errors": []}'))


def test_zstd_and_standard_input(lake: Lake, sacct_row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{HEADER}\n{sacct_row()}\n{sacct_row(JobID='7')}\n".encode()
    packed = pa.compress(text, codec="zstd", asbytes=True)
    (result,) = lake.ingest(lake.put("dump.psv.zst", packed))
    assert (result.allocations, result.rejects) == (2, 0)
    other = text.replace(b"|alice|", b"|bob|")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(other)))
    (result,) = lake.ingest(Path("-"))
    assert (result.path, result.allocations, result.rejects) == ("-", 2, 0)
    assert not list(lake.data.root.glob(".standard-input*"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))
    with pytest.raises(InputError, match=r"^-:1: unknown format"):
        lake.ingest(Path("-"))


@pytest.mark.parametrize("escaped", [r"\x1f", r"\t"])
def test_a_delimiter_may_be_written_as_an_escape(lake: Lake, sacct_row: Row, escaped: str) -> None:
    delimiter = {r"\x1f": "\x1f", r"\t": "\t"}[escaped]
    lines = [row.replace("|", delimiter) for row in (sacct_row(), sacct_row(JobID="7"))]
    (result,) = lake.ingest(lake.put("dump", "\n".join(lines)), fields=HEADER.split("|"), delimiter=escaped)
    assert (result.allocations, result.rejects) == (2, 0)


def test_blocks_of_any_size_are_read_the_same(lake: Lake, sacct_row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken names, requeues far from their first run, records printed twice, steps: none depends on a block's end."""
    lines = []
    for n in range(900):
        name = {100: "a|b", 301: "two\nlines", 502: "x\n\ny|z", 703: "|"}.get(n, "train.sh")
        lines.append(sacct_row(JobID=str(1000 + n), JobName=name))
        lines.append(sacct_row(JobID=f"{1000 + n}.batch", JobName="batch", ReqTRES=""))
    later = {"Submit": "2024-05-01T11:30:05", "Start": "2024-05-01T12:00:00", "End": "2024-05-01T13:00:00"}
    lines += [sacct_row(JobID="1005", **later), lines[40], lines[41], sacct_row(JobID="1100.0", JobName="python")]
    path = lake.put("dump.psv", "\n".join([HEADER, *lines, "1|cut"]) + "\n")
    (whole,) = lake.ingest(path)
    other = Lake(lake.inbox)
    monkeypatch.setattr(sacct, "BLOCK_BYTES", 40_000)
    (blocks,) = other.ingest(path)
    counts = ("rows", "allocations", "steps", "duplicates", "rejects", "jobs", "attempts")
    assert [getattr(whole, c) for c in counts] == [getattr(blocks, c) for c in counts]
    assert (whole.duplicates, whole.rejects, whole.jobs, whole.attempts) == (2, 1, 900, 901)
    for table in ("jobs", "attempts", "steps", "placements", "rejects"):
        assert lake.table(table).equals(other.table(table)), table


PARTS = st.one_of(
    st.text("n0123456789-", min_size=1, max_size=4),
    st.builds(
        lambda name, items, tail: f"{name}[{','.join(items)}]{tail}",
        st.text("abn-", max_size=3),
        st.lists(st.from_regex(r"[0-9]{1,3}(-[0-9]{1,3})?", fullmatch=True), min_size=1, max_size=3),
        st.sampled_from(["", "", "", "x", "[1-2]", "]"]),
    ),
)


@settings(deadline=None)
@given(st.lists(st.lists(PARTS, min_size=1, max_size=3).map(",".join), min_size=1, max_size=6, unique=True))
def test_node_lists_in_bulk_are_those_of_the_plain_function(texts: list[str]) -> None:
    lists, valid = node_lists(pl.Series(texts, dtype=pl.String))
    for text, nodes, is_valid in zip(texts, lists.to_list(), valid.to_list(), strict=True):
        try:
            expected = list(dict.fromkeys(slurm_text.expand_nodes(text)))
        except ValueError:
            assert not is_valid
        else:
            assert is_valid and (nodes or []) == expected


def test_a_dump_without_ends_takes_them_from_the_elapsed_time(tmp_path: Path) -> None:
    """A finished job that was taken to run until the log's end would hold its nodes for days."""
    dump = tmp_path / "no-end.psv"
    dump.write_text(
        "JobID|User|State|Submit|Start|ElapsedRaw|NNodes\n"
        "1|a|COMPLETED|2026-01-01T00:00:00|2026-01-01T01:00:00|600|1\n"
        "2|a|RUNNING|2026-01-01T00:00:00|2026-01-05T00:00:00|60|1\n"
    )
    data = DataFolder(tmp_path / "data")
    ingest([dump], cluster=ClusterSettings("lab", timezone="UTC"), data=data)
    warehouse.build(data)
    ends = warehouse.read(data, "SELECT end_utc FROM attempts ORDER BY start_utc")["end_utc"].to_list()
    assert [str(end) for end in ends] == ["2026-01-01 01:10:00", "None"]


def test_what_a_width_cut_is_null_and_named(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """sacct prints TRES 30 characters wide: what was requested is not what was held."""
    widths = {"JobID": 9, "State": 10, "Submit": 19, "Start": 19, "End": 19, "NNodes": 8, "AllocCPUS": 9, "ReqTRES": 30}
    asked = {"7": "billing=4,cpu=4,gres/gpu=2,mem+", "8": "cpu=2,gres/gpu=1,node=1"}
    values = [
        {**PLAIN, "JobID": name, "AllocCPUS": "8", "ReqTRES": text[:29] + "+" * (name == "7")}
        for name, text in asked.items()
    ]
    lines = [{name: name for name in widths}, {name: "-" * width for name, width in widths.items()}, *values]
    text = "".join("".join(f"{row[name]:>{width}} " for name, width in widths.items()) + "\n" for row in lines)
    lake.ingest(lake.put("dump.txt", text))
    cut, whole = lake.rows("jobs")
    names = ("requested_nodes", "requested_cpus", "requested_gpus", "allocated_nodes", "allocated_cpus")
    assert [cut[name] for name in names] == [None, None, None, 2, 8]
    assert [whole[name] for name in names] == [1, 2, 1, 2, 8]
    assert (
        "dump.txt: texts cut short by their column's width are not read: ReqTRES (1): use sacct -P"
        in capsys.readouterr().err
    )
