"""sacct dumps: a row an oddity. Rows are hand-made after Slurm's manual pages and real dumps, with invented names."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.traces.conftest import HEADER, Lake
from traces.errors import InputError

Row = Callable[..., str]
UTC = datetime.fromisoformat


def one_job(lake: Lake, *lines: str, **how: Any) -> dict[str, Any]:
    """The only job of a dump of these lines."""
    lake.ingest(lake.put("dump.psv", "\n".join([HEADER, *lines]) + "\n"), **how)
    (job,) = lake.rows("jobs")
    return job


def test_a_plain_job(lake: Lake, sacct_row: Row) -> None:
    job = one_job(lake, sacct_row())
    expected = {
        "job_key": "100", "job_name": "train.sh", "user_name": "alice", "partition": "gpu", "state": "COMPLETED",
        "state_is_inferred": False, "submit_utc": UTC("2024-05-01T10:00:00"), "start_utc": UTC("2024-05-01T10:30:00"),
        "end_utc": UTC("2024-05-01T11:30:00"), "wait_s": 1800, "eligible_wait_s": 1800, "run_s": 3600, "limit_s": 7200,
        "requested_nodes": 2, "allocated_nodes": 2, "requested_gpus": 4, "allocated_gpus": 4, "gpu_time_s": 14_400,
        "requested_mem_mib": 65_536, "exit_code": 0, "exit_signal": 0, "started_by": "main", "attempts": 1, "line": 2,
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected
    assert [(p["node"], p["gpus"]) for p in lake.rows("placements")] == [("n01", 2), ("n02", 2)]
    (attempt,) = lake.rows("attempts")
    held = {"nodes": 2, "cpus": 8, "gpus": 4, "mem_mib": 65_536}
    assert {name: attempt[name] for name in held} == held


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param({"State": "CANCELLED by 1000"}, {"state": "CANCELLED", "wait_s": 1800}, id="cancelled-by"),
        pytest.param({"State": "OUT_OF_ME+"}, {"state": "OUT_OF_MEMORY"}, id="state-cut-short"),
        pytest.param({"State": "TO"}, {"state": "TIMEOUT"}, id="compact-state"),
        pytest.param({"ExitCode": "0:9", "State": "FAILED"}, {"exit_code": 0, "exit_signal": 9}, id="signal"),
        pytest.param({"TimelimitRaw": "UNLIMITED"}, {"limit_s": None}, id="no-limit"),
        pytest.param({"TimelimitRaw": "Partition_Limit"}, {"limit_s": None}, id="partition-limit"),
        pytest.param({"TimelimitRaw": "2-00:00:00"}, {"limit_s": 172_800}, id="limit-in-days"),
        pytest.param({"ReqTRES": "mem=1G", "ReqMem": ""}, {"requested_mem_mib": 1024}, id="memory-of-tres"),
        pytest.param({"ReqTRES": "", "ReqMem": "48000Mn"}, {"requested_mem_mib": 96_000}, id="memory-a-node"),
        pytest.param({"ReqTRES": "", "ReqMem": "1000Mc"}, {"requested_mem_mib": 8000}, id="memory-a-cpu"),
        pytest.param({"ReqTRES": "", "ReqMem": "0n"}, {"requested_mem_mib": None}, id="memory-unset"),
        pytest.param({"AllocTRES": "gres/gpu:a=1,gres/gpu:b=2"}, {"allocated_gpus": 3}, id="typed-gpus"),
        pytest.param({"Flags": "SchedBackfill,StartRecieved"}, {"started_by": "backfill"}, id="backfill"),
        pytest.param({"Flags": "SchedSubmit"}, {"started_by": "submit"}, id="at-submit"),
        pytest.param({"Flags": ""}, {"started_by": None}, id="no-flags"),
        pytest.param({"JobName": ""}, {"job_name": None}, id="no-name"),
        pytest.param({"JobID": "90_7", "JobIDRaw": "100"}, {"array_job_id": 90, "array_task_id": 7}, id="task"),
        pytest.param({"JobID": "90+1", "JobIDRaw": "91"}, {"job_key": "91", "job_id": "90+1"}, id="het-job"),
        pytest.param({"Submit": "1714557600"}, {"submit_utc": UTC("2024-05-01T10:00:00")}, id="epoch-seconds"),
        pytest.param({"Eligible": "2024-05-01T10:20:00"}, {"wait_s": 1800, "eligible_wait_s": 600}, id="eligible"),
        pytest.param({"Eligible": "Unknown"}, {"eligible_wait_s": None}, id="never-eligible"),
        pytest.param({"Start": "2024-05-01T12:00:00", "ElapsedRaw": "0"}, {"wait_s": 5400}, id="start-after-end"),
        pytest.param({"NNodes": "3", "NodeList": "n[1-3]"}, {"allocated_nodes": 3}, id="gpus-do-not-divide"),
        pytest.param({"ElapsedRaw": "3000"}, {"run_s": 3000}, id="suspended-for-ten-minutes"),
    ],
)  # fmt: skip
def test_one_oddity(lake: Lake, sacct_row: Row, other: dict[str, str], expected: dict[str, Any]) -> None:
    job = one_job(lake, sacct_row(**other))
    assert {name: job[name] for name in expected} == expected


NEVER = {"ElapsedRaw": "0", "AllocTRES": "", "NodeList": "None assigned", "State": "CANCELLED by 7"}
WAITING = {**NEVER, "State": "PENDING", "Start": "Unknown", "End": "Unknown"}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({**NEVER, "Start": "None"}, id="since-22.05"),
        pytest.param({**NEVER, "Start": "2024-05-01T11:30:00"}, id="before-22.05"),
        pytest.param({**WAITING}, id="pending"),
        pytest.param({**WAITING, "JobID": "100_[4-10%2]"}, id="range"),
    ],
)  # fmt: skip
def test_a_job_that_never_ran_has_no_start_and_no_wait(lake: Lake, sacct_row: Row, other: dict[str, str]) -> None:
    job = one_job(lake, sacct_row(**other))
    nothing = {name: job[name] for name in ("start_utc", "wait_s", "eligible_wait_s", "run_s", "gpu_time_s")}
    assert set(nothing.values()) == {None}
    assert (job["attempts"], job["allocated_nodes"], job["allocated_gpus"], job["requested_gpus"]) == (0, 0, 0, 4)
    assert lake.table("attempts").is_empty() and lake.table("placements").is_empty()


def test_a_job_cancelled_in_its_first_second_did_run(lake: Lake, sacct_row: Row) -> None:
    job = one_job(lake, sacct_row(State="CANCELLED by 7", End="2024-05-01T10:30:00", ElapsedRaw="0"))
    assert (job["wait_s"], job["run_s"], job["attempts"]) == (1800, 0, 1)


def test_a_requeue_is_a_second_attempt_of_one_job(lake: Lake, sacct_row: Row) -> None:
    first = sacct_row(State="NODE_FAIL")
    second = sacct_row(Submit="2024-05-01T11:30:05", Start="2024-05-01T12:00:00", End="2024-05-01T13:00:00")
    job = one_job(lake, second, first)
    assert (job["attempts"], job["state"], job["wait_s"], job["run_s"]) == (2, "COMPLETED", 1800, 7200)
    attempts = lake.rows("attempts")
    assert [(a["attempt"], a["state"], a["line"]) for a in attempts] == [(0, "NODE_FAIL", 3), (1, "COMPLETED", 2)]


def test_a_resize_counts_no_second_twice(lake: Lake, sacct_row: Row) -> None:
    """Seen in a dump of 22.05: the record after a resize has the job's own start and elapsed time."""
    before = sacct_row(State="RESIZING", End="2024-05-01T11:00:00", ElapsedRaw="1800")
    after = sacct_row(Submit="2024-05-01T11:00:00", ElapsedRaw="3600", NNodes="1", NodeList="n01")
    job = one_job(lake, before, after)
    assert (job["run_s"], job["attempts"], job["allocated_nodes"]) == (3600, 2, 1)


def test_an_id_used_again_is_another_job(lake: Lake, sacct_row: Row) -> None:
    later = sacct_row(User="bob", Submit="2024-09-01T10:00:00", Start="2024-09-01T10:00:01", End="2024-09-01T10:00:09")
    lake.ingest(lake.put("dump.psv", "\n".join([HEADER, sacct_row(), later]) + "\n"))
    assert [job["user_name"] for job in lake.rows("jobs")] == ["alice", "bob"]
    assert len({job["job_key"] for job in lake.rows("jobs")}) == 2


def test_a_running_record_gives_way_to_the_finished_one(lake: Lake, sacct_row: Row) -> None:
    running = sacct_row(State="RUNNING", End="Unknown", ElapsedRaw="60")
    (result,) = lake.ingest(lake.put("dump.psv", "\n".join([HEADER, running, sacct_row(), sacct_row()]) + "\n"))
    assert (result.rows, result.allocations, result.duplicates) == (3, 1, 2)
    assert [job["state"] for job in lake.rows("jobs")] == ["COMPLETED"]


def test_a_running_job_has_no_end(lake: Lake, sacct_row: Row) -> None:
    job = one_job(lake, sacct_row(State="RUNNING", End="Unknown", ElapsedRaw="60"))
    assert (job["end_utc"], job["run_s"], job["wait_s"]) == (None, 60, 1800)


def test_steps_belong_to_their_job(lake: Lake, sacct_row: Row) -> None:
    step = sacct_row(JobID="100.batch", JobName="batch", ReqTRES="", ReqMem="")
    (result,) = lake.ingest(lake.put("dump.psv", "\n".join([HEADER, sacct_row(), step]) + "\n"))
    assert (result.allocations, result.steps, result.jobs) == (1, 1, 1)
    assert [(s["job_key"], s["step_id"], s["run_s"]) for s in lake.rows("steps")] == [("100", "batch", 3600)]


@pytest.mark.parametrize("name", ["a|b", "two\nlines", "|", "x\n\ny", "tab\there", "a|b\nc|d", "100|100|forged"])
def test_user_text_that_breaks_a_record_is_mended(lake: Lake, sacct_row: Row, name: str) -> None:
    neighbours = [sacct_row(JobID="99"), sacct_row(JobName=name), sacct_row(JobID="101")]
    (result,) = lake.ingest(lake.put("dump.psv", "\n".join([HEADER, *neighbours]) + "\n"))
    assert (result.allocations, result.rejects) == (3, 0)
    assert {job["job_key"]: job["job_name"] for job in lake.rows("jobs")} == {
        "99": "train.sh",
        "100": name,
        "101": "train.sh",
    }


def test_a_broken_record_swallows_no_other(lake: Lake, sacct_row: Row) -> None:
    lines = [HEADER, "98|98|cut|ali", sacct_row(JobID="99"), sacct_row(JobName="a|b")]
    (result,) = lake.ingest(lake.put("dump.psv", "\n".join(lines) + "\n"))
    assert (result.allocations, result.rejects) == (2, 1)
    assert {job["job_name"] for job in lake.rows("jobs")} == {"train.sh", "a|b"}


def test_a_whole_record_forged_in_a_job_name_is_not_believed(lake: Lake, sacct_row: Row) -> None:
    forged = sacct_row(JobID="666", User="mallory")
    (result,) = lake.ingest(lake.put("dump.psv", "\n".join([HEADER, sacct_row(JobName=f"x\n{forged}\ny")]) + "\n"))
    assert (result.allocations, result.rejects) == (1, 0)
    assert [job["user_name"] for job in lake.rows("jobs")] == ["alice"]


def test_user_text_with_several_readings_is_rejected_whole(lake: Lake) -> None:
    header = "JobID|JobName|User|Account|Submit|Start|End|State"
    times = "2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00"
    # the name may end before or after any of the words: user and account are blank in steps, so nothing settles it
    lines = f"{header}\n1|ok|u|a|{times}|COMPLETED\n2|a|b\nc|d|e|{times}|COMPLETED|x\n"
    (result,) = lake.ingest(lake.put("dump.psv", lines))
    assert (result.allocations, result.rejects) == (1, 1)
    (reject,) = lake.rows("rejects")
    assert reject["line"] == 3 and "fields" in reject["reason"] and "\n" in reject["raw"]


def test_a_line_cut_short_is_rejected(lake: Lake, sacct_row: Row) -> None:
    whole = "\n".join([HEADER, sacct_row(), sacct_row(JobID="101")])
    (result,) = lake.ingest(lake.put("dump.psv", whole[:-80]))
    assert (result.allocations, result.rejects) == (1, 1)
    (reject,) = lake.rows("rejects")
    assert reject["line"] == 3 and "cut short" in reject["reason"]


def test_an_odd_value_is_rejected_by_column_and_value(lake: Lake, sacct_row: Row) -> None:
    lake.ingest(
        lake.put("dump.psv", "\n".join([HEADER, sacct_row(), sacct_row(JobID="101", Submit="yesterday")]) + "\n")
    )
    (reject,) = lake.rows("rejects")
    assert "Submit" in reject["reason"] and "yesterday" in reject["reason"]


def test_bad_utf8_is_replaced(lake: Lake, sacct_row: Row) -> None:
    raw = f"{HEADER}\n{sacct_row(JobName='NAME')}\n".encode().replace(b"NAME", b"caf\xe9")
    lake.ingest(lake.put("dump.psv", raw))
    assert [job["job_name"] for job in lake.rows("jobs")] == ["caf\ufffd"]


@pytest.mark.parametrize("delimiter", ["|", "\t", "\x1f", "^|^", ",;"])
@pytest.mark.parametrize("trailing", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_any_delimiter(lake: Lake, sacct_row: Row, delimiter: str, trailing: bool, packed: bool) -> None:
    lines = [
        line.replace("|", delimiter) + delimiter * trailing for line in (HEADER, sacct_row(), sacct_row(JobID="7"))
    ]
    raw = ("\n".join(lines) + "\n").encode()
    (result,) = lake.ingest(lake.put("dump", gzip.compress(raw) if packed else raw))
    assert (result.allocations, result.rejects) == (2, 0)


@pytest.mark.parametrize("trailing", [False, True])
@pytest.mark.parametrize("delimiter", [None, "|"])
def test_without_a_header_the_columns_are_named(
    lake: Lake, sacct_row: Row, trailing: bool, delimiter: str | None
) -> None:
    lines = [line + "|" * trailing for line in (sacct_row(), sacct_row(JobID="7"))]
    path = lake.put("dump", "\n".join(lines) + "\n")
    fields = [name.lower() + "%20" for name in HEADER.split("|")]
    (result,) = lake.ingest(path, fields=fields, delimiter=delimiter)
    assert (result.allocations, result.rejects) == (2, 0)


def test_columns_in_any_order_and_number(lake: Lake) -> None:
    lake.ingest(
        lake.put(
            "dump", "Start|End|Whatever|JobID|Submit\n2024-05-01T10:00:05|2024-05-01T10:01:05|?|5|2024-05-01T10:00:00\n"
        )
    )
    (job,) = lake.rows("jobs")
    assert (job["wait_s"], job["run_s"], job["state"], job["state_is_inferred"]) == (5, 60, "COMPLETED", True)


FIXED = """3
       JobID    JobName    UID               Start              Submit                 End TimelimitR ExitCode   NNodes
------------ ---------- ------ ------------------- ------------------- ------------------- ---------- -------- --------
"""


def fixed(*rows: str) -> str:
    return FIXED + "\n".join(row.replace(" ", "\t") for row in rows) + "\n"


def test_tab_rows_under_a_fixed_header(lake: Lake) -> None:
    """The form of the A100 log: no state, no GPUs, whole nodes, naive local times."""
    rows = [
        "1 done 7 2022-11-01T15:00:00 2022-11-01T14:00:00 2022-11-01T16:00:00 2880 0:0 2",
        "2 failed 7 2022-11-01T15:00:00 2022-11-01T14:00:00 2022-11-01T16:00:00 2880 1:0 2",
        "3 limit 7 2022-11-01T15:00:00 2022-11-01T14:00:00 2022-11-01T16:00:20 60 0:0 2",
        "4 cancelled 7 2022-11-01T15:00:00 2022-11-01T14:00:00 2022-11-01T15:00:00 60 0:0 2",
        "5 across 7 2022-11-05T12:00:00 2022-11-05T12:00:00 2022-11-06T11:00:10 1440 0:0 1",
        "6 doubled 7 2022-11-06T01:30:00 2022-11-06T00:10:00 2022-11-06T03:00:00 1440 0:0 1",
        "7 settled 7 2022-11-06T01:30:00 2022-11-06T00:10:00 2022-11-06T03:00:00 95 0:0 1",
    ]
    lake.ingest(lake.put("a100.log", fixed(*rows)), timezone="America/Chicago", gpus_per_node=3)
    jobs = {job["job_name"]: job for job in lake.rows("jobs")}
    assert {name: job["state"] for name, job in jobs.items()} == {
        "done": "COMPLETED", "failed": "FAILED", "limit": "TIMEOUT", "cancelled": "CANCELLED", "across": "TIMEOUT",
        "doubled": "COMPLETED", "settled": "COMPLETED",
    }  # fmt: skip
    assert jobs["done"]["allocated_gpus"] == 6 and jobs["done"]["start_utc"] == UTC("2022-11-01T20:00:00")
    assert jobs["cancelled"]["start_utc"] is None and jobs["cancelled"]["wait_s"] is None
    assert jobs["across"]["run_s"] == 86_410  # 23 hours and 10 seconds on the wall clock
    assert [name for name, job in jobs.items() if job["is_time_ambiguous"]] == ["doubled"]
    assert jobs["settled"]["start_utc"] == UTC("2022-11-06T07:30:00")  # the later 01:30, or it overran its limit


def test_elapsed_seconds_settle_the_doubled_hour(lake: Lake, sacct_row: Row) -> None:
    times = {"Submit": "2022-11-06T00:10:00", "Eligible": "2022-11-06T00:10:00", "Start": "2022-11-06T01:30:00"}
    early = sacct_row(JobID="1", **times, End="2022-11-06T03:00:00", ElapsedRaw=str(9000))
    late = sacct_row(JobID="2", **times, End="2022-11-06T03:00:00", ElapsedRaw=str(5400))
    lake.ingest(lake.put("dump", "\n".join([HEADER, early, late]) + "\n"), timezone="America/Chicago")
    jobs = lake.rows("jobs")
    assert [job["start_utc"] for job in jobs] == [UTC("2022-11-06T06:30:00"), UTC("2022-11-06T07:30:00")]
    assert not any(job["is_time_ambiguous"] for job in jobs)


def test_the_hour_that_spring_leaves_out(lake: Lake, sacct_row: Row) -> None:
    times = {"Submit": "2023-03-12T01:50:00", "Eligible": "2023-03-12T01:50:00", "Start": "2023-03-12T01:59:00"}
    job = one_job(lake, sacct_row(**times, End="2023-03-12T03:59:00", ElapsedRaw="3600"), timezone="America/Chicago")
    assert (job["end_utc"] - job["start_utc"]).total_seconds() == 3600
    other = Lake(lake.inbox)
    job = one_job(other, sacct_row(**times, End="2023-03-12T02:59:00", ElapsedRaw="3600"), timezone="America/Chicago")
    assert (job["end_utc"] - job["start_utc"]).total_seconds() == 3600


@pytest.mark.parametrize(
    ("text", "how", "message"),
    [
        ("JobID|User|Submit|End\n1|u|a|b\n", {}, "column State or Start is missing"),
        ("State|Submit|Start|End\nCOMPLETED|a|b|c\n", {}, "JobID"),
        ("JobID|Submit|Start|User\n1|a|b|c\n", {}, "column State or End or ElapsedRaw or Elapsed is missing"),
        ("JOBID|STATE|REASON|SUBMIT_TIME\n1|PENDING|None|a\n", {}, "squeue"),
        ("1|2|3\n", {"fields": ["JobID", "Foo", "End"]}, "Foo"),
        ("1|2|3\n", {"fields": ["JobID", "JobID", "End"]}, "twice"),
        ("1|2|3\n", {"fields": ["JobID", "Submit"]}, "columns of --fields"),
        ("JobID|Submit|Start|End\n", {}, "no record"),
        ("JobID|Submit|Start|End\n1|2\n", {}, r"cut short \(line 2\): .*again with sacct -P --delimiter '\^\|\^'"),
        ("JobID|Submit|Start|End\n1|2|3|4|5\n", {}, r"text \(line 2\): .*again with sacct -P --delimiter '\^\|\^'"),
        ("JobID|Submit|Start|End\n1|x|y|z\n", {}, r"column Submit: .*\(line 2\)$"),
        ("JobID     JobName    User \n--------- ---------- -----\n1         a          u\n", {}, "State or Start"),
    ],
)
def test_a_file_of_no_use_is_refused_and_nothing_written(
    lake: Lake, text: str, how: dict[str, Any], message: str
) -> None:
    path = lake.put("dump", text)
    with pytest.raises(InputError, match=message) as caught:
        lake.ingest(path, **how)
    assert str(path) in str(caught.value) or "--fields" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(lake.data.lake.glob("*/*"))


def test_a_dump_of_two_clusters_is_refused_by_name(lake: Lake, sacct_row: Row) -> None:
    """Their jobs have the same ids: merged, half of them would be lost."""
    lines = [f"{sacct_row(JobID=str(n))}|{name}" for n, name in ((7, "east"), (8, "east"), (7, "west"), (9, ""))]
    one, both = lines[:2], lines
    (result,) = lake.ingest(lake.put("one.psv", "\n".join([f"{HEADER}|Cluster", *one]) + "\n"))
    assert (result.allocations, result.rejects) == (2, 0)
    with pytest.raises(InputError, match=r"both.psv:4: a record of cluster 'west', but line 2 is of 'east'"):
        lake.ingest(lake.put("both.psv", "\n".join([f"{HEADER}|Cluster", *both]) + "\n"))


def test_a_state_that_nobody_knows_is_read_and_named(
    lake: Lake, sacct_row: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [sacct_row(JobID=str(n), State=state) for n, state in enumerate(("FLYING", "FLYING", "?", "COMPLETED"), 1)]
    (result,) = lake.ingest(lake.put("dump.psv", "\n".join([HEADER, *lines]) + "\n"))
    assert (result.allocations, result.rejects) == (4, 0)
    assert [job["state"] for job in lake.rows("jobs")] == ["UNKNOWN", "UNKNOWN", "UNKNOWN", "COMPLETED"]
    said = "dump.psv: states that Baton does not know are read as UNKNOWN: FLYING (2): is it a newer Slurm?"
    assert capsys.readouterr().err.count(said) == 1


def test_columns_that_nobody_knows_are_named_and_the_rest_is_read(
    lake: Lake, sacct_row: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known columns that are not read (Layout) are not named."""
    text = f"{HEADER}|Layout|Warp|Flux\n{sacct_row(JobID='1')}|a|b|c\n"
    (result,) = lake.ingest(lake.put("dump.psv", text))
    assert (result.allocations, result.rejects) == (1, 0)
    said = "dump.psv: columns that Baton does not know are not read: Warp, Flux: is it a newer Slurm?"
    assert capsys.readouterr().err.count(said) == 1
