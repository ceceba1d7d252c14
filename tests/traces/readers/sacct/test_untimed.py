"""Dumps of sacct that print no submissions, no starts, or no time at all: what they say stands, the rest is null."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.traces.conftest import Lake

SHORT = "JobID|JobName|State|ExitCode\n"
NO_SUBMIT = "JobID|User|JobName|State|Start|End|Reason\n"
# As `sacct` prints them: a default dump with a requeued job, and one that went on while it was dumped.
DEFAULT = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
1                  a.sh        gpu    physics          2  COMPLETED      0:0
1.batch           batch               physics          2  COMPLETED      0:0
2                  b.sh        gpu    physics          4  NODE_FAIL      0:0
2                  b.sh        gpu    physics          4 OUT_OF_ME+    0:125
3                  c.sh        gpu    physics          1    RUNNING      0:0
3                  c.sh        gpu    physics          1     FAILED      1:0
4                  d.sh        gpu    physics          0 CANCELLED+      0:0
5                  e.sh        gpu    physics          1  COMPLETED      0:0
5                  e.sh        gpu    physics          1  COMPLETED      0:0
"""


def jobs_of(lake: Lake, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(job[name] for name in columns) for job in lake.rows("jobs")]


def test_a_dump_without_any_time_tells_how_jobs_ended(lake: Lake) -> None:
    lines = [line.ljust(77) if line[0].isdigit() else line for line in DEFAULT.splitlines()]
    (result,) = lake.ingest(lake.put("default.txt", "\n".join(lines) + "\n"))
    assert (result.rows, result.allocations, result.steps, result.duplicates, result.jobs) == (9, 6, 1, 2, 5)
    assert jobs_of(lake, "job_id", "state", "attempts", "allocated_cpus") == [
        ("1", "COMPLETED", 1, 2),
        ("2", "OUT_OF_MEMORY", 2, 4),
        ("3", "FAILED", 1, 1),  # the record of the running job is superseded
        ("4", "CANCELLED", 0, 0),  # nothing says that it ran
        ("5", "COMPLETED", 1, 1),  # printed twice
    ]
    for name in ("submit_utc", "start_utc", "end_utc", "wait_s", "run_s", "gpu_time_s"):
        assert {job[name] for job in lake.rows("jobs")} == {None}, name
    assert [(a["job_key"], a["attempt"], a["state"]) for a in lake.rows("attempts")][1:3] == [
        ("2", 0, "NODE_FAIL"), ("2", 1, "OUT_OF_MEMORY"),
    ]  # fmt: skip


def test_a_short_dump_written_after_another_is_read_on(lake: Lake) -> None:
    (result,) = lake.ingest(lake.put("two.psv", f"{SHORT}1|a|COMPLETED|0:0\n{SHORT}2|b|FAILED|1:0\n"))
    assert (result.rows, result.jobs, result.rejects) == (2, 2, 0)


def test_elapsed_seconds_say_who_ran_where_no_start_does(lake: Lake) -> None:
    text = "JobID|State|ElapsedRaw|AllocCPUS\n1|CANCELLED|60|2\n2|CANCELLED|0|2\n3|FAILED|0|1\n"
    lake.ingest(lake.put("elapsed.psv", text))
    assert jobs_of(lake, "attempts", "run_s", "allocated_cpus") == [(1, 60, 2), (0, None, 0), (1, 0, 1)]


def test_without_submissions_id_and_start_tell_runs_apart(lake: Lake) -> None:
    rows = [
        "1|alice|a|NODE_FAIL|2024-05-01T10:00:00|2024-05-01T11:00:00|None",
        "1|alice|a|COMPLETED|2024-05-01T11:05:00|2024-05-01T12:00:00|Dependency",  # its requeue
        "1|bob|b|COMPLETED|2024-06-01T11:05:00|2024-06-01T12:00:00|",  # the id, used again
        "1|bob|b|COMPLETED|2024-06-01T11:05:00|2024-06-01T12:00:00|",  # the line twice
    ]
    (result,) = lake.ingest(lake.put("dump.psv", NO_SUBMIT + "\n".join(rows) + "\n"))
    assert (result.rows, result.allocations, result.duplicates, result.jobs) == (4, 3, 1, 2)
    first, again = lake.rows("jobs")
    assert (first["attempts"], first["run_s"], first["wait_s"]) == (2, 3600 + 3300, None)
    assert (first["reason"], again["reason"]) == ("Dependency", None)
    assert first["start_utc"] == datetime(2024, 5, 1, 10) and again["job_key"] == "1@1717239900"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_one_job_in_a_short_dump_and_a_whole_one_is_one_job(lake: Lake, order: tuple[int, int]) -> None:
    whole = "JobID|User|JobName|State|Submit|Start|End\n"
    whole += "1|alice|a|COMPLETED|2024-05-01T09:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00\n"
    later = NO_SUBMIT + "1|alice|a|COMPLETED|2024-05-01T10:00:00|2024-05-01T11:00:00|None\n"
    paths = [lake.put("whole.psv", whole), lake.put("later.psv", later)]
    lake.ingest(*(paths[n] for n in order), lake.put("short.psv", f"{SHORT}1|a|COMPLETED|0:0\n"))
    assert jobs_of(lake, "job_key", "attempts", "wait_s", "run_s") == [("1", 1, 3600, 3600)]
    assert len(lake.rows("attempts")) == 1


def test_the_reason_is_kept_as_written(lake: Lake) -> None:
    text = "JobID|Submit|Start|End|State|Reason|JobName\n"
    text += "1|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED|JobHeldUser|a\n"
    text += "2|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED|None|a|b\n"  # a pipe in the name
    (result,) = lake.ingest(lake.put("dump.psv", text))
    assert result.rejects == 0
    assert jobs_of(lake, "reason", "job_name") == [("JobHeldUser", "a"), ("None", "a|b")]


def test_features_and_dependency_are_kept_as_written(lake: Lake) -> None:
    """sbatch(1): `--constraint="a100|h100"` may hold the delimiter; squeue's form of `--dependency`."""
    text = "JobID|Submit|Start|End|State|Dependency|Constraints\n"
    text += "1|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED||a100&ib\n"
    text += "2|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED|afterok:1_*(failed),singleton|x\n"
    text += "3|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED||a100|h100\n"
    (result,) = lake.ingest(lake.put("dump.psv", text))
    assert result.rejects == 0
    assert jobs_of(lake, "dependency", "features_asked") == [
        (None, "a100&ib"),
        ("afterok:1_*(failed),singleton", "x"),
        (None, "a100|h100"),
    ]


def test_a_record_whose_features_have_several_readings_is_kept_without_them(lake: Lake) -> None:
    """sacct --format=ALL prints Comment and Constraints side by side, both user text."""
    text = "JobID|Submit|Start|End|State|Comment|Constraints|ExitCode\n"
    text += "1|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED|a|ib|0:0\n"
    text += "2|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED|a|b|ib|0:0\n"
    (result,) = lake.ingest(lake.put("dump.psv", text))
    assert result.rejects == 0
    assert jobs_of(lake, "job_key", "features_asked", "exit_code") == [("1", "ib", 0), ("2", None, 0)]


@pytest.mark.parametrize(
    ("state", "attempts"),
    [("FAILED", 1), ("COMPLETED", 1), ("OUT_OF_MEMORY", 1), ("CANCELLED by 7", 0), ("DEADLINE", 0)],
)
def test_a_state_that_only_a_run_ends_in_says_that_a_job_of_no_length_ran(
    lake: Lake, state: str, attempts: int
) -> None:
    """Without NodeList and gres there is nothing else to tell it from one cancelled in the queue."""
    text = "JobID|JobName|State|Start|End|ElapsedRaw|AllocNodes|ReqTRES|ExitCode\n"
    text += f"1|a|{state}|2024-05-01T01:00:00|2024-05-01T01:00:00|0|1|cpu=4,node=1|1:0\n"
    lake.ingest(lake.put("dump.psv", text))
    assert jobs_of(lake, "attempts", "run_s") == [(attempts, 0 if attempts else None)]
