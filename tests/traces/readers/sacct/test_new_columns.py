"""SLUIDs, Restarts, exit codes of steps, GPU usage, unknown flags and versions, records forged in the last column.

Dumps of a real Slurm where one has the column; records with GPU usage are made by hand after Slurm's documentation of
TRESUsageIn and its source, because no Slurm of ours has GPUs to measure.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.traces.conftest import HEADER, Lake
from tests.traces.readers.sacct.test_versions import FIXTURES, VERSIONS, tables_of
from traces.readers.sacct.json import PROVEN, unproven
from traces.readers.sacct.ran import WHOLE
from traces.schema import REDUCED

Row = Callable[..., str]
LATER = {"Submit": "2024-07-01T10:00:00", "Start": "2024-07-01T12:00:00", "End": "2024-07-01T13:00:00"}
SOON = {"Submit": "2024-05-01T11:30:05", "Start": "2024-05-01T12:00:00", "End": "2024-05-01T13:00:00"}


def dump(*lines: str, columns: str) -> str:
    return "\n".join([f"{HEADER}|{columns}", *lines]) + "\n"


@pytest.fixture(params=["one file", "two files", "two files, the later first"])
def ingest_runs(request: pytest.FixtureRequest, lake: Lake) -> Callable[..., None]:
    """Put records of one id into one dump, or into dumps of their own, and ingest these."""

    def ingest(columns: str, *runs: str) -> None:
        dumps = [runs] if request.param == "one file" else [[run] for run in runs]
        if request.param == "two files, the later first":
            dumps.reverse()
        for name, lines in enumerate(dumps):
            lake.ingest(lake.put(f"{name}.psv", dump(*lines, columns=columns)))

    return ingest


@pytest.mark.parametrize(
    ("columns", "first", "second", "jobs"),
    [
        ("SLUID|OriginalSLUID|Restarts", "s1A|s1A|0", "s2B|s2B|0", 2),  # the same id for another job of this user
        ("SLUID|OriginalSLUID|Restarts", "s1A|s1A|0", "s2B|s2B|1", 1),  # requeued
        ("SLUID|OriginalSLUID|Restarts", "s1A|s1A|0", "s2B|s1A|0", 1),  # resized
        ("SLUID|Restarts", "s1A|0", "s2B|0", 1),  # Slurm 24.11 has no original: times decide
    ],
)
def test_sluids_tell_a_requeue_from_an_id_used_again(
    lake: Lake, ingest_runs: Callable[..., None], sacct_row: Row, columns: str, first: str, second: str, jobs: int
) -> None:
    ingest_runs(columns, f"{sacct_row()}|{first}", f"{sacct_row(**SOON)}|{second}")
    assert len(lake.rows("jobs")) == jobs
    assert len(lake.rows("attempts")) == 2


def test_restarts_tell_a_late_requeue_from_an_id_used_again(
    lake: Lake, ingest_runs: Callable[..., None], sacct_row: Row
) -> None:
    """Two months between the runs: without Restarts, and for another user, they are two jobs."""
    runs = sacct_row(), sacct_row(**LATER)
    expected = {"": 2, "|0 |1": 1, "|0 |0": 2, "|1 |1": 2}
    for restarts, jobs in expected.items():
        one, two = restarts.split() or ("|", "|")
        ingest_runs("Restarts", runs[0] + one, runs[1] + two)
        assert len(lake.rows("jobs")) == jobs, restarts
    bob = sacct_row(User="bob", **LATER)
    ingest_runs("Restarts", runs[0] + "|0", bob + "|1")
    assert len(lake.rows("jobs")) == 2


def test_a_submit_line_that_ends_in_the_delimiter_is_read(lake: Lake, sacct_row: Row) -> None:
    """As a real 22.05 prints `sbatch --comment='|'` in --format=ALL; the column after it is never empty."""
    text = dump(f"{sacct_row()}|sbatch --comment=||00:00:00||", columns="SubmitLine|Suspended|SystemComment|WorkDir")
    (result,) = lake.ingest(lake.put("dump.psv", text))
    assert result.rejects == 0
    assert [row["submit_line"] for row in lake.rows("jobs")] == ["sbatch --comment=|"]


def test_a_resize_a_month_before_the_next_dump_is_of_one_job(
    lake: Lake, ingest_runs: Callable[..., None], sacct_row: Row
) -> None:
    columns = "SLUID|OriginalSLUID|Restarts"
    ingest_runs(columns, f"{sacct_row(State='RESIZING')}|s1A|s1A|0", f"{sacct_row(**LATER)}|s2B|s1A|0")
    assert [(job["sluid"], job["original_sluid"], job["attempts"]) for job in lake.rows("jobs")] == [("s2B", "s1A", 2)]


def test_two_runs_of_one_second_are_two_in_several_dumps(lake: Lake, sacct_row: Row) -> None:
    runs = f"{sacct_row(State='REQUEUED', End='2024-05-01T10:30:00', ElapsedRaw='0')}|s1A", f"{sacct_row()}|s2B"
    for name, lines in {"whole": runs, "last": runs[1:], "first": runs[:1]}.items():
        lake.ingest(lake.put(f"{name}.psv", dump(*lines, columns="SLUID")))
    assert [(run["attempt"], run["run_s"]) for run in lake.rows("attempts")] == [(0, 0), (1, 3600)]


def test_records_of_one_sluid_are_one_run(lake: Lake, sacct_row: Row) -> None:
    """Two runs began in the same second; a record without SLUID belongs to the run with its times."""
    runs = sacct_row(State="RESIZING", End="2024-05-01T10:30:00", ElapsedRaw="0"), sacct_row()
    text = dump(f"{runs[0]}|s1A|s1A", f"{runs[1]}|s2B|s1A", f"{runs[1]}|s2B|s1A", columns="SLUID|OriginalSLUID")
    (result,) = lake.ingest(lake.put("dump.psv", text))
    assert (result.duplicates, len(lake.rows("jobs")), len(lake.rows("attempts"))) == (1, 1, 2)
    mixed = dump(f"{sacct_row()}|", f"{sacct_row()}|s2B", columns="SLUID")
    (result,) = lake.ingest(lake.put("dump.psv", mixed))
    assert (result.duplicates, len(lake.rows("attempts"))) == (1, 1)


def test_a_step_belongs_to_the_job_of_its_sluid(lake: Lake, sacct_row: Row) -> None:
    """The id was used again, and the clock was set back: by its times, the step would belong to the second job."""
    step = sacct_row(JobID="100.batch", JobName="batch", **{**SOON, "Submit": "2024-05-01T12:00:00"})
    columns = "SLUID|OriginalSLUID|Restarts"
    lines = f"{sacct_row()}|s1A|s1A|0", f"{sacct_row(**SOON)}|s2B|s2B|0", f"{step}|s1A|s1A|"
    lake.ingest(lake.put("dump.psv", dump(*lines, columns=columns)))
    (step_row,) = lake.rows("steps")
    assert step_row["job_key"] == "100@1714557600"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", ["-all.psv", ".json", "-complex.json"])
def test_requeues_and_resizes_of_a_real_slurm(version: str, form: str, tmp_path: Path) -> None:
    """Text of 24.11 and 26.05 has SLUIDs, JSON of 26.05 too."""
    jobs, attempts = (tables_of(version + form, tmp_path)[name] for name in ("jobs", "attempts"))
    named = jobs.select("job_key", "job_name", "restarts", "submit_line", "attempts")
    expected = {"requeuer": (1, 2), "resized": (0, 2), "plain": (0, 1), "cancelled": (0, 0)}
    for name, (restarts, runs) in expected.items():
        # 24.11 gives an id of an earlier experiment to each of the first two
        of_name = named.filter(pl.col("job_name") == name).sort("job_key").tail(1).row(0, named=True)
        assert (of_name["restarts"], of_name["attempts"]) == (restarts, runs), name
        assert f"-J {name}" in of_name["submit_line"]
    assert attempts["failed_node"].null_count() == len(attempts)


def test_failed_nodes_are_those_of_their_run(lake: Lake, sacct_row: Row) -> None:
    lines = sacct_row(State="NODE_FAIL") + "|n02", sacct_row(**SOON) + "|"
    lake.ingest(lake.put("dump.psv", dump(*lines, columns="FailedNode")))
    assert [run["failed_node"] for run in lake.rows("attempts")] == ["n02", None]


@pytest.mark.parametrize("form", ["22.05-recorded.psv", "24.11.psv", "24.11.json", "26.05.psv", "26.05.json"])
def test_exit_codes_of_runs_and_steps_say_how_they_are_printed(form: str, tmp_path: Path) -> None:
    tables = tables_of(form, tmp_path)
    reduced = form in ("22.05-recorded.psv", "24.11.psv")
    for name in ("attempts", "steps"):
        failed = tables[name].filter((pl.col("state") == "FAILED") & (pl.col("exit_signal") == 0))
        assert len(failed) and set(failed["exit_code_form"]) == {REDUCED if reduced else WHOLE}, name
    jobs = tables["jobs"].filter(pl.col("attempts") == 1).select("job_key", "exit_code", "exit_code_form")
    runs = jobs.join(tables["attempts"].select("job_key", "exit_code", "exit_code_form"), on="job_key")
    assert len(runs) and runs.filter(~pl.col("exit_code").eq_missing(pl.col("exit_code_right"))).is_empty()
    assert runs.filter(~pl.col("exit_code_form").eq_missing(pl.col("exit_code_form_right"))).is_empty()


@pytest.mark.parametrize(
    ("columns", "texts", "percent", "most", "memory_kib"),
    [
        ("TRESUsageInTot|TRESUsageInMax", "cpu=1,gres/gpumem=9G,gres/gpuutil=180|gres/gpumem=21794M,gres/gpuutil=97",
         180.0, 97.0, 21_794 * 1024),
        ("TRESUsageInAve|NTasks", "cpu=00:52:45,gres/gpumem=1K,gres/gpuutil=45,mem=9K|4", 180.0, None, None),
        ("TRESUsageInAve", "gres/gpuutil=45", None, None, None),  # the mean over tasks whose number is not known
        ("TRESUsageInMax", "gres/gpumem=22853713920,gres/gpuutil=0", None, 0.0, 22_318_080),  # sacct --noconvert
        ("TRESUsageInTot", "cpu=1,mem=2G", None, None, None),
        ("TRESUsageInTot|TRESUsageInMax", "gres/gpuutil=a lot|gres/gpumem=some", None, None, None),
    ],
)  # fmt: skip
def test_gpu_usage(
    lake: Lake, sacct_row: Row, columns: str, texts: str, percent: float | None, most: float | None,
    memory_kib: int | None,
) -> None:  # fmt: skip
    step = sacct_row(JobID="100.batch", JobName="batch")
    blank = "|" * texts.count("|")
    (result,) = lake.ingest(lake.put("dump.psv", dump(f"{sacct_row()}|{blank}", f"{step}|{texts}", columns=columns)))
    assert (result.allocations, result.steps, result.rejects) == (1, 1, 0)
    (row,) = lake.rows("steps")
    assert (row["gpu_percent"], row["gpu_max_percent"], row["gpu_mem_max_kib"]) == (percent, most, memory_kib)


def with_json(version: str, change: Callable[[dict[str, Any]], None], form: str = ".json") -> str:
    found = json.loads(gzip.decompress((FIXTURES / f"slurm-{version}{form}.gz").read_bytes()))
    change(found)
    return json.dumps(found)


@pytest.mark.parametrize("form", [".json", "-complex.json"])
def test_gpu_usage_in_json(lake: Lake, form: str) -> None:
    """GPU usage written into a real dump, in the form of its other TRES."""

    def change(found: dict[str, Any]) -> None:
        (step,) = (s for job in found["jobs"] for s in job["steps"] if s["step"]["id"] == "15.batch")
        for name, count in (("total", 150), ("max", 80)):
            gpu = {"type": "gres", "name": "gpuutil", "id": 1003, "count": count}
            memory = {"type": "gres", "name": "gpumem", "id": 1004, "count": 4 << 30}
            step["tres"]["requested"][name] += [gpu, memory]

    lake.ingest(lake.put("dump.json", with_json("26.05", change, form)))
    used = [step for step in lake.rows("steps") if step["gpu_percent"] is not None]
    (step,) = used
    assert (step["job_key"], step["step_id"]) == ("15", "batch")
    assert (step["gpu_percent"], step["gpu_max_percent"], step["gpu_mem_max_kib"]) == (150.0, 80.0, 4 << 20)


def test_flags_that_nobody_knows_are_kept_and_named(
    lake: Lake, sacct_row: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "SchedMain", "SchedBackfill,Teleported,Undone", "Teleported", "StartRecieved"
    lines = [sacct_row(JobID=str(n), Flags=text) for n, text in enumerate(flags, 1)]
    lines.append(sacct_row(JobID="5", State="WARP2"))
    (result,) = lake.ingest(lake.put("dump.psv", "\n".join([HEADER, *lines]) + "\n"))
    assert (result.allocations, result.rejects) == (5, 0)
    jobs = lake.rows("jobs")
    assert [job["other_flags"] for job in jobs] == [None, "Teleported,Undone", "Teleported", None, "WARP2"]
    assert [job["started_by"] for job in jobs] == ["main", "backfill", None, None, "main"]
    said = "flags that Baton does not know are in jobs.other_flags: Teleported (2), Undone (1): is it a newer Slurm?"
    assert capsys.readouterr().err.count(said) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_words_of_a_json_state_that_nobody_knows_are_kept(
    version: str, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(found: dict[str, Any]) -> None:
        jobs = {job["name"]: job for job in found["jobs"]}
        jobs["plain"]["state"]["current"] = ["HAUNTED", "COMPLETED", "LAUNCH_FAILED"]
        jobs["plain"]["flags"] += ["REDACTED"]
        jobs["exit9"]["state"]["current"] = ["HAUNTED"]

    lake.ingest(lake.put("dump.json", with_json(version, change)))
    jobs = {job["job_name"]: job for job in lake.rows("jobs")}
    assert (jobs["plain"]["state"], jobs["plain"]["other_flags"]) == ("COMPLETED", "REDACTED,HAUNTED")
    assert (jobs["exit9"]["state"], jobs["exit9"]["other_flags"]) == ("UNKNOWN", "HAUNTED")
    err = capsys.readouterr().err
    assert "REDACTED (1), HAUNTED (1)" in err and "read as UNKNOWN: HAUNTED (1)" in err


@pytest.mark.parametrize("is_last", [False, True])
def test_json_of_another_version_is_read_and_named(
    lake: Lake, is_last: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Newer versions of Slurm print `meta` after the jobs."""

    def change(found: dict[str, Any]) -> None:
        meta = found.pop("meta")
        meta["slurm"]["release"], meta["plugin"]["data_parser"] = "27.11.0", "data_parser/v0.0.48"
        rest = dict(found)
        found.clear()
        found.update({**rest, "meta": meta} if is_last else {"meta": meta, **rest})

    (result,) = lake.ingest(lake.put("dump.json", with_json("26.05", change)))
    assert (result.jobs, result.rejects) == (34, 0)
    said = (
        "dump.json: no test has read JSON of these versions: Slurm 27.11.0, data_parser data_parser/v0.0.48: "
        "proven are Slurm 22.05, 24.11, 26.05 and data_parser v0.0.38, v0.0.40, v0.0.41, v0.0.42, v0.0.43, v0.0.44, "
        "v0.0.45"
    )
    assert capsys.readouterr().err.count(said) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_proven_json_is_read_in_silence(version: str, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.ingest(FIXTURES / f"slurm-{version}.json.gz")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ({"plugin": {"type": "openapi/dbv0.0.38"}, "Slurm": {"release": "22.05.8"}}, []),
        ({"plugin": {"data_parser": "data_parser/v0.0.39"}, "slurm": {"release": "24.11.0-0rc1"}},
         ["data_parser data_parser/v0.0.39"]),
        ({"slurm": {"release": 25}, "plugin": []}, ["Slurm 25"]), ({}, []), (None, []), ([], []), ({"Slurm": {}}, []),
    ],
)  # fmt: skip
def test_versions_of_a_document(meta: Any, found: list[str]) -> None:
    assert unproven(meta) == found
    assert all(PROVEN.values())


def forged_in(text: str, job_id: str, after: str) -> str:
    """The dump with a record of that id inserted after the line of job `after`: a copy of it but for id and name."""
    lines = text.split("\n")
    header = lines[0].split("|")
    place = {name: header.index(name) for name in ("JobID", "JobIDRaw")}
    (at,) = (n for n, line in enumerate(lines) if (line.split("|") + [""] * 99)[place["JobID"]] == after)
    fields = lines[at].split("|")
    for name in place:
        fields[place[name]] = job_id
    return "\n".join([*lines[: at + 1], "|".join([*fields[:-1], "evil"]), *lines[at + 1 :]])


@pytest.mark.parametrize("job_id", ["999", "1"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_in_the_last_column_makes_no_job(version: str, job_id: str, lake: Lake, tmp_path: Path) -> None:
    """--format=ALL ends in WorkDir; the forged record has the SLUID of the job before it, or of none."""
    text = gzip.decompress((FIXTURES / f"slurm-{version}-all.psv.gz").read_bytes()).decode()
    real = tables_of(f"{version}-all.psv", tmp_path)["jobs"].drop("line", "trace_sha256")
    (result,) = lake.ingest(lake.put("dump.psv", forged_in(text, job_id, "12")))
    assert result.rejects == 4
    jobs = lake.table("jobs").sort("job_key").drop("cluster", "line", "trace_sha256")
    assert jobs.equals(real.select(jobs.columns))
    reason = f"record {job_id} may be text of the record before it: its id is out of order"
    assert [row["reason"] for row in lake.rows("rejects")].count(reason) == 1


def test_dumps_in_any_order_keep_their_records(lake: Lake, sacct_row: Row) -> None:
    """Ids that are sorted otherwise, or begin again at 1, forge nothing; neither does a requeue among newer jobs."""
    orders = {
        "down": [*range(60, 0, -1)],
        "by user": [n for user in range(3) for n in range(user, 60, 3) if n],
        "wrapped": [*range(1000, 1030), *range(1, 31)],
        "interleaved": [(n * 37) % 61 for n in range(1, 61)],
        "shuffled": np.random.default_rng(1).permutation(60).tolist(),
    }
    for name, ids in orders.items():
        lines = [f"{sacct_row(JobID=str(n))}|/tmp" for n in ids]
        (result,) = lake.ingest(lake.put(f"{name}.psv", dump(*lines, columns="WorkDir")))
        assert (result.rejects, result.allocations) == (0, len(ids)), name
    steps = [sacct_row(JobID=f"{n}{step}") for n in (1, 2, 3) for step in ("", ".batch", ".extern", ".0", ".1", ".2")]
    (result,) = lake.ingest(lake.put("few.psv", dump(*(f"{line}|/tmp" for line in steps), columns="WorkDir")))
    assert (result.rejects, result.steps) == (0, 15)
    first = sacct_row(JobID="3", State="PREEMPTED")
    lines = [sacct_row(JobID=str(n)) if n != 3 else first for n in range(1, 40)]
    lines.insert(30, sacct_row(JobID="3", **SOON))
    (result,) = lake.ingest(lake.put("requeued.psv", dump(*(f"{line}|/tmp" for line in lines), columns="WorkDir")))
    assert (result.rejects, result.attempts) == (0, 40)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_with_several_readings_is_rejected_with_the_column(version: str, lake: Lake) -> None:
    """The name, and the command line with the same text, hold a Submit: it may be that of the job."""
    lake.ingest(FIXTURES / f"slurm-{version}-all.psv.gz")
    reasons = [row["reason"] for row in lake.rows("rejects")]
    assert len(reasons) == 3
    assert all("it may be read in several ways: Submit is '2026-11-27T07:5" in reason for reason in reasons)
