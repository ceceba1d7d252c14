"""Bad input through the command line: exit code, one line that names file, place and remedy, nothing half-written."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.pipelines.conftest import HEADER, Baton, Result, dump


def written(data: Path) -> list[str]:
    """Every file of the data folder that a reader of it could meet."""
    return sorted(str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()) if data.exists() else []


def assert_one_line(result: Result, *parts: str) -> None:
    """Exit code 2, nothing on standard output, one line that begins with the program's name."""
    assert result.code == 2, result
    assert result.out == ""
    assert result.err.startswith("baton: ") and result.err.count("\n") == 1, result.err
    for part in parts:
        assert part in result.err


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("notes.txt", b"Dear all,\nthe cluster is down.\n", ("notes.txt:1", "unknown format", "sacct")),
        ("empty.psv", b"", ("empty.psv", "empty")),
        ("blank.psv", b"\n\n", ("blank.psv", "empty")),
        ("core.psv", b"\x7fELF\x00\x00\x01\x02" * 400, ("core.psv", "binary")),
        ("short.psv", b"JobID|User|Account\n1|anna|lab\n", ("short.psv", "State or Start")),
        ("cut.gz", b"\x1f\x8b\x08\x00\x00", ("cut.gz",)),
    ],
)
def test_a_file_that_cannot_be_read(
    baton: Baton, tmp_path: Path, name: str, content: bytes, parts: tuple[str, ...]
) -> None:
    raw = tmp_path / name
    raw.write_bytes(content)
    result = baton("ingest", raw, "--cluster", "lab", "--data", tmp_path / "data", "--json")
    assert_one_line(result, *parts)
    assert written(tmp_path / "data") == []


def test_one_bad_file_keeps_the_good_one_out(baton: Baton, tmp_path: Path) -> None:
    good, bad = dump(tmp_path / "good.psv"), tmp_path / "bad.psv"
    bad.write_bytes(b"")
    assert_one_line(baton("ingest", good, bad, "--cluster", "lab", "--data", tmp_path / "data"), "bad.psv")
    assert written(tmp_path / "data") == []


def test_a_missing_column_is_named(baton: Baton, tmp_path: Path) -> None:
    raw = dump(tmp_path / "jobs.psv")
    lines = [line.split("|") for line in raw.read_text().splitlines()]
    assert HEADER.startswith("JobID|JobIDRaw|")
    raw.write_text("\n".join("|".join(cells[2:]) for cells in lines) + "\n")
    result = baton("ingest", raw, "--cluster", "lab", "--data", tmp_path / "data")
    assert_one_line(result, "jobs.psv", "JobID or JobIDRaw")


@pytest.mark.parametrize("options", [(), ("--fields", "JobID,User")])
def test_a_dump_of_the_wrong_columns_is_refused_before_the_pipeline_is_started(
    baton: Baton, tmp_path: Path, options: tuple[str, ...]
) -> None:
    raw = tmp_path / "jobs.psv"
    raw.write_text("\n".join(["User|State|Start"] * (not options) + ["bob|COMPLETED|2026-03-01T00:00:00"] * 3) + "\n")
    data = tmp_path / "data"
    assert_one_line(baton("analyze", raw, *options, "--data", data), "jobs.psv:1: ")
    assert list(data.iterdir()) == []


def test_a_truncated_last_line_is_rejected_and_counted(baton: Baton, tmp_path: Path) -> None:
    raw = dump(tmp_path / "jobs.psv")
    raw.write_text(raw.read_text()[:-70])
    result = baton("ingest", raw, "--cluster", "lab", "--data", tmp_path / "data", "--json")
    assert result.code == 0
    (file,) = result.json["files"]
    assert (file["rows"], file["allocations"], file["rejects"]) == (6, 5, 1)
    assert re.match(r"line 7: \S", file["first_reject"])


def test_of_many_rejects_the_first_is_told_with_its_line(baton: Baton, tmp_path: Path) -> None:
    raw = dump(tmp_path / "jobs.psv", jobs=1)
    raw.write_text(raw.read_text() + "".join(f"no job {number}\n" for number in range(300)))
    result = baton("ingest", raw, "--cluster", "lab", "--data", tmp_path / "data")
    assert (result.code, result.out.count("\n")) == (0, 1)
    assert re.search(r"1 allocation, 300 rejects; 1 job; first reject: line 3: \S", result.out), result.out


def test_a_file_that_is_not_there(baton: Baton, tmp_path: Path) -> None:
    assert_one_line(baton("ingest", tmp_path / "no.psv", "--cluster", "lab", "--data", tmp_path / "data"), "no.psv")


def test_an_unknown_zone(baton: Baton, tmp_path: Path) -> None:
    raw = dump(tmp_path / "jobs.psv")
    result = baton("ingest", raw, "--cluster", "lab", "--timezone", "Mars/Olympus", "--data", tmp_path / "data")
    assert_one_line(result, "'Mars/Olympus'", "America/Chicago")


@pytest.mark.parametrize("name", ["../up", "derived", "a/b", ""])
def test_a_cluster_name_that_could_leave_the_lake(baton: Baton, tmp_path: Path, name: str) -> None:
    raw = dump(tmp_path / "jobs.psv")
    assert_one_line(baton("ingest", raw, "--cluster", name, "--data", tmp_path / "data"), "cluster name")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_without_permission(baton: Baton, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    result = baton("ingest", dump(tmp_path / "jobs.psv"), "--cluster", "lab", "--data", tmp_path / "data")
    assert_one_line(result, "not writable", "--data")


def test_a_data_folder_that_is_a_file(baton: Baton, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    raw = dump(tmp_path / "jobs.psv")
    assert_one_line(baton("ingest", raw, "--cluster", "lab", "--data", tmp_path / "data" / "sub"), "not writable")
    assert_one_line(baton("run", "--raw", tmp_path, "--cluster", "lab", "--data", tmp_path / "data"), "not writable")


def test_a_trace_with_no_finished_job(baton: Baton, tmp_path: Path) -> None:
    raw, data = dump(tmp_path / "jobs.psv"), tmp_path / "data"
    text = raw.read_text().replace("COMPLETED", "PENDING")
    for day in range(1, 7):
        text = text.replace(f"2026-03-0{day}T01:00:00|2026-03-0{day}T03:00:00|7200", "Unknown|Unknown|0")
    raw.write_text(text)
    assert baton("ingest", raw, "--cluster", "lab", "--data", data).code == 0
    result = baton("simulate", "--cluster", "lab", "--scheduler", "fifo", "--capacity", 4, "--data", data, "--json")
    assert_one_line(result, "jobs.psv:", "'lab'", "ran")


def test_a_cluster_smaller_than_its_largest_job(baton: Baton, tmp_path: Path) -> None:
    raw, data = dump(tmp_path / "jobs.psv", nodes=9), tmp_path / "data"
    assert baton("ingest", raw, "--cluster", "lab", "--data", data).code == 0
    for command in (
        ("simulate", "--scheduler", "easy"),
        ("train", "--policies", "reactive"),
    ):
        result = baton(*command, "--cluster", "lab", "--capacity", 4, "--data", data)
        assert_one_line(result, "jobs.psv:2", "9 nodes", "--capacity")
    assert not (data / "artifacts").exists()


def test_a_job_larger_than_the_declared_cluster_leaves_nothing_behind(baton: Baton, tmp_path: Path) -> None:
    raw, data = tmp_path / "raw", tmp_path / "data"
    raw.mkdir()
    dump(raw / "jobs.psv", nodes=9)
    for command in (("ingest", raw), ("run", "--raw", raw, "--timezone", "UTC")):
        result = baton(*command, "--cluster", "lab", "--nodes", 4, "--data", data)
        assert result.code == 2 and result.out == ""
        assert result.err.splitlines()[-1].startswith("baton: ") and "jobs.psv:2: job '101'" in result.err
        assert "--nodes" in result.err
        assert not list(data.rglob("*.parquet")) and not (data / "warehouse.duckdb").exists()


def test_a_trace_too_short_for_pairs(baton: Baton, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert baton("ingest", dump(tmp_path / "jobs.psv"), "--cluster", "lab", "--data", data).code == 0
    result = baton("train", "--cluster", "lab", "--policies", "reactive", "--capacity", 9, "--data", data)
    assert_one_line(result, "5.0 days", "longer trace")


CHAINS = ("evaluate", "--world", "calibrated", "--from", "2026-03-02", "--to", "2026-03-03", "--chains")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("train", "--policies", "magic"), "reactive, average-wait"),
        (("train", "--policies", ","), "policy names"),
        (("train", "--policies", "champion"), "no champion"),
        (("train", "--policies", "reactive", "--scheduler", "magic"), "sjf, slurm"),
        (("train", "--policies", "reactive", "--world", "real"), "plain"),
        (("train", "--policies", "reactive", "--pair-nodes", "64"), "--pair-nodes 64"),
        (("train", "--policies", "reactive", "--limit", "two days"), "'two days'"),
        (("train", "--policies", "reactive", "--until", "soon"), "'soon'"),
        (("evaluate", "--policies", "magic", "--from", "2026-03-02", "--to", "2026-03-03"), "reactive, average-wait"),
        (("evaluate", "--policies", "forest", "--from", "2026-03-02", "--to", "2026-03-03"), "baton train"),
        (("evaluate", "--policies", "forest", "--from", "2026-03-03", "--to", "2026-03-02"), "not before"),
        ((*CHAINS, "10d", "--policies", "magic"), "unknown policy 'magic' for --chains; known: plan, "),
        ((*CHAINS, "10d", "--policies", ","), "--policies is empty"),
        (
            (*CHAINS, "10d", "--policies", "reactive", "--world", "recorded-wait"),
            "--chains 10d with --world recorded-wait; chains are played in --world calibrated and plain",
        ),
        ((*CHAINS, "10d", "--policies", "reactive", "--world", "plain", "--limit", "20m"), "600 s is over a third"),
        ((*CHAINS, "10d", "--policies", "reactive", "--limit", "20m"), "over a third of a link of 0.333333 h"),
        (
            (*CHAINS, "10d", "--policies", "plan", "--world", "plain", "--agents", "30%"),
            "--agents 30% with --world plain; agents are simulated in --world calibrated",
        ),
        ((*CHAINS, "90d", "--policies", "reactive"), "--chains 90d: give 1 to 60 days"),
        ((*CHAINS, "10", "--policies", "reactive"), "--chains 0.000116d: give 1 to 60 days, such as 10d"),
        ((*CHAINS[:-1], "--policies", "plan"), "policy 'plan' plans chains, which pairs cannot judge: give --chains"),
        (
            (*CHAINS, "2d", "--policies", "reactive", "--world", "plain"),
            "--chains 2d: the first link does all of the work, because it asks for at least 48 h",
        ),
        ((*CHAINS, "a month", "--policies", "reactive"), "'a month'"),
        ((*CHAINS, "10d", "--policies", "reactive", "--restart-cost", "5h"), "--restart-cost 18000 s is over a third"),
        ((*CHAINS, "10d", "--policies", "reactive", "--limits", ","), "--limits is empty"),
        ((*CHAINS, "10d", "--policies", "forest"), "baton train"),
        ((*CHAINS, "10d", "--policies", "plan", "--hidden", "held"), "--hidden held with --chains 10d"),
        ((*CHAINS, "10d", "--policies", "plan", "--cap", "1"), "--cap 1 without --agents"),
        ((*CHAINS, "10d", "--policies", "plan", "--agents", "0%"), "--agents 0%: give a share over 0%"),
        ((*CHAINS, "10d", "--policies", "plan", "--agents", "30"), "--agents 30: give a share over 0%"),
        ((*CHAINS, "10d", "--policies", "plan", "--agents", ","), "--agents is empty"),
        ((*CHAINS, "10d", "--policies", "plan", "--agents", "30%", "--cap", "101%"), "--cap 101%: give a share"),
        ((*CHAINS, "10d", "--policies", "plan", "--agents", "30%", "--cap", "few"), "few"),
        ((*CHAINS, "10d", "--policies", "plan", "--agents", "30%", "--cap", ","), "--cap is empty"),
        ((*CHAINS, "10d", "--policies", "oracle", "--agents", "30%"), "--policies oracle with --agents"),
        (
            (*CHAINS, "10d", "--policies", "plan-time-min", "--agents", "30%"),
            "--policies plan-time-min with --agents 30%: it plays chains one at a time",
        ),
        ((*CHAINS[:-1], "--policies", "plan", "--agents", "30%"), "--agents 30% without --chains"),
        ((*CHAINS[:-1], "--policies", "forest", "--plots", "page.html"), "--plots page.html without --chains"),
        ((*CHAINS, "10d", "--policies", "plan", "--plots", "nowhere/page.html"), "not exist; make it first"),
        (
            ("evaluate", "--policies", "forest", "--from", "2026-03-02", "--to", "2026-03-03", "--hidden", "x,held"),
            "--hidden 'x'; give one or several of recent, limits, nodes, held",
        ),
        (("simulate", "--scheduler", "magic"), "mirage"),
        (("simulate", "--scheduler", "easy", "--pass", "never"), "instant"),
        (("simulate", "--scheduler", "easy", "--estimate", "guess"), "exact"),
    ],
)
def test_a_wrong_value_lists_what_is_allowed(
    baton: Baton, tmp_path: Path, arguments: tuple[str, ...], part: str
) -> None:
    data = tmp_path / "data"
    assert baton("ingest", dump(tmp_path / "jobs.psv", jobs=9), "--cluster", "lab", "--data", data).code == 0
    assert_one_line(baton(*arguments, "--cluster", "lab", "--capacity", 9, "--data", data), part)


def test_an_unknown_cluster_lists_the_known(baton: Baton, tmp_path: Path) -> None:
    result = baton("simulate", "--cluster", "nowhere", "--scheduler", "fifo", "--data", tmp_path / "data")
    assert result.code == 2 and result.err.count("\n") == 1
    known = baton("train", "--cluster", "nowhere", "--policies", "reactive", "--data", tmp_path / "data")
    assert_one_line(known, "'nowhere'", "ls6")


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest",),
        ("no-such-command",),
        ("simulate", "--capacity", "many"),
        ("run", "--no-such-option"),
        ("promote", "0", "--cluster", "lab", "--reason", "tried"),
        ("promote", "1", "--cluster", "lab"),
        ("promote", "1", "--reason", "tried"),
        ("rollback",),
    ],
)
def test_wrong_usage_exits_2(baton: Baton, arguments: tuple[str, ...]) -> None:
    result = baton(*arguments)
    assert result.code == 2 and result.out == "" and "Error" in result.err


def test_flags_of_a_cluster_need_raw_logs(baton: Baton, tmp_path: Path) -> None:
    assert_one_line(baton("run", "--nodes", 4, "--data", tmp_path / "data"), "raw logs")
    assert_one_line(baton("run", "--raw", tmp_path / "none", "--data", tmp_path / "data"), "no such file or folder")
    notes = tmp_path / "notes.txt"
    notes.write_text("Dear all,\nthe cluster is down.\n")
    assert_one_line(baton("analyze", notes, "--data", tmp_path / "data"), "notes.txt:1", "unknown format")


@pytest.mark.parametrize(
    "command",
    [
        ("promote", 3, "--cluster", "lab", "--reason", "tried"),
        ("rollback", "--cluster", "lab"),
        ("rollback", "--cluster", "../x"),
    ],
)
def test_nothing_registered(baton: Baton, tmp_path: Path, command: tuple[object, ...]) -> None:
    result = baton(*command, "--data", tmp_path / "data", "--json")
    assert result.code in (1, 2) and result.out == "" and result.err.count("\n") == 1
