"""`baton explain` on a small cluster of four nodes by hand: causes, who was there, how it ran, and the replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from features import queueing
from features.tables.queueing import QUEUEING_DELAY
from reports.source import Source
from tests.pipelines.conftest import Baton
from traces import clusters
from traces.store import derived, warehouse
from traces.store.folder import DataFolder

COLUMNS = (
    "JobID|JobIDRaw|JobName|User|Partition|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocTRES|"
    "ExitCode|NodeList|Reason"
)
HOSTILE = "x\x1b[2J<b>"


def row(job: str, user: str, submit: str, start: str, end: str, nodes: int, limit_min: int, **other: str) -> str:
    """A job of the fourth of March; times as 04:30, `Unknown` for none."""
    day = "2026-03-04T{}:00"
    hours = [0 if text == "Unknown" else int(text[:2]) * 3600 + int(text[3:]) * 60 for text in (start, end)]
    cells = {
        "JobID": job, "JobIDRaw": other.get("JobIDRaw", job), "JobName": "train", "User": user, "Partition": "gpu",
        "State": "COMPLETED", "Submit": day.format(submit), "Eligible": day.format(submit), "Start": day.format(start),
        "End": day.format(end), "ElapsedRaw": str(hours[1] - hours[0]), "TimelimitRaw": str(limit_min),
        "NNodes": str(nodes), "AllocTRES": f"billing=1,cpu={8 * nodes},gres/gpu={4 * nodes},node={nodes}",
        "ExitCode": "0:0", "NodeList": f"n[01-0{nodes}]" if nodes > 1 else "n04", "Reason": "None", **other,
    }  # fmt: skip
    return "|".join(cells[name] for name in COLUMNS.split("|"))


@pytest.fixture
def data(baton: Baton, tmp_path: Path) -> Path:
    """Job 2 holds three nodes until 08:00, 3 needs all four and is next, 4 asks for one node and 8 h: it has to wait.

    It starts after 3, at 12:00. With a limit of up to 4 h it fits beside 2, before 3.
    """
    rows = [
        row("1", "bob", "01:00", "01:00", "02:00", 4, 60),
        row("2", "bob", "04:00", "04:00", "08:00", 3, 240),
        row("3", "cy", "04:10", "08:00", "12:00", 4, 240, Reason="Resources"),
        row("4", "anna", "04:20", "12:00", "13:00", 1, 480, Reason="Priority", JobName=HOSTILE),
        row("5_1", "anna", "14:00", "14:00", "14:30", 1, 60, JobIDRaw="6"),
        row("5_2", "anna", "14:00", "14:00", "14:30", 1, 60, JobIDRaw="5", NodeList="n03"),
    ]
    log, folder = tmp_path / "jobs.psv", tmp_path / "data"
    log.write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert baton("ingest", log, "--cluster", "lab", "--nodes", 4, "--gpus-per-node", 4, "--data", folder).code == 0
    return folder


def test_the_wait_by_cause_and_who_was_there(baton: Baton, data: Path) -> None:
    """From 04:20 to 08:00 its node n04 is free: behind 3. From 08:00 to 12:00 job 3 holds all four: full."""
    found = baton("explain", 4, "--data", data, "--json").json
    assert found["wait_s"] == 27_600 == sum(found["wait_s_by_cause"].values())
    assert (found["wait_s_by_cause"]["behind_s"], found["wait_s_by_cause"]["cluster_full_s"]) == (13_200, 14_400)
    assert (found["main_cause"], found["cause_basis"]) == ("cluster full", "placements")
    there = found["meanwhile"]
    assert there["ahead"] == {"jobs": 1, "nodes": 4, "users": 1} and there["overtook"]["jobs"] == 0
    assert [(one["job_id"], one["held_s"], one["nodes"]) for one in there["held_by"]] == [("3", 14_400, 1)]
    assert [one["job_id"] for one in there["ended_just_before"]] == ["3"]
    ran = found["ran"]
    assert (ran["run_s"], ran["limit_s"], ran["limit_used_share"], ran["node_names"]) == (3600, 28_800, 0.125, ["n04"])


def test_the_replay_says_what_a_shorter_limit_would_have_done(baton: Baton, data: Path) -> None:
    answer = baton("explain", 4, "--limit", "3h", "--data", data, "--json").json["what_if"]
    assert answer["recorded_wait_s"] == 27_600 and abs(answer["distance_s"]) <= 2 and not answer["is_held"]
    (change,) = answer["changes"]
    assert (change["limit_s"], change["nodes"], change["would_be_cut"]) == (10_800, 1, False)
    assert change["wait_s"] <= 2 and change["difference_s"] == change["wait_s"] - answer["replayed_wait_s"]
    longer = baton("explain", 4, "--limit", "5h", "--data", data, "--json").json["what_if"]["changes"][0]
    assert abs(longer["difference_s"]) <= 2
    cut = baton("explain", 4, "--limit", "30m", "--data", data, "--json").json["what_if"]["changes"][0]
    assert cut["would_be_cut"] is True


def test_what_is_proposed_when_nothing_is_asked_for(baton: Baton, data: Path) -> None:
    changes = baton("explain", 3, "--data", data, "--json").json["what_if"]["changes"]
    assert [(change["nodes"], change["limit_s"]) for change in changes] == [(4, 7200), (2, 14_400), (1, 14_400)]
    assert changes[2]["difference_s"] < -10_000  # one node is free at once


def test_the_text_for_a_person_holds_no_control_characters(baton: Baton, data: Path) -> None:
    answer = baton("explain", 4, "--data", data).out
    assert answer.startswith("job 4 of anna on cluster lab, partition gpu: COMPLETED\n")
    assert "waited 7 h 40 min (inferred from placements; scheduler's reason: Priority)" in answer
    assert "52.2 %  cluster full" in answer and "47.8 %  behind others" in answer
    assert "\x1b" not in answer and "\\x1b[2J<b>" in answer
    assert "cluster full: too little was free on the nodes that it could use (4 nodes, seen in use)\n" in answer
    assert "\n  3 of cy (1 node, 4 GPUs) for 4 h\n" in answer  # on the node that job 4 then got, in every line
    assert "\n  3 of cy (1 node, 4 GPUs) ended just before this job started, at 2026-03-04 12:00" in answer
    assert "scheduler's reason" not in baton("explain", "5_1", "--data", data).out  # it is None


def test_a_user(baton: Baton, data: Path) -> None:
    found = baton("explain", "--user", "anna", "--data", data, "--json").json
    assert (found["jobs"], found["wait_s"], found["never_ran"]) == (3, 27_600, 0)
    assert sum(found["wait_s_by_cause"].values()) == found["wait_s"]
    assert found["waited_longest"][0]["job_id"] == "4" and found["states"] == [{"state": "COMPLETED", "jobs": 3}]
    answer = baton("explain", "--user", "anna", "--data", data).out
    assert answer.startswith("user anna on cluster lab: 3 jobs (3 COMPLETED)\n")
    assert (
        "\nwaited longest:\n  4, submitted 2026-03-04 04:20: waited 7 h 40 min, main cause: cluster full\n  5_"
        in answer
    )


def test_the_jobs_that_waited_longest_come_in_that_order(baton: Baton, tmp_path: Path) -> None:
    rows = [row(str(n), "bob", "01:00", f"{n + 1:02}:00", "23:00", 1, 60, NodeList=f"n0{n}") for n in range(1, 7)]
    log, data = tmp_path / "jobs.psv", tmp_path / "data"
    log.write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert baton("ingest", log, "--cluster", "lab", "--nodes", 6, "--data", data).code == 0
    found = baton("explain", "--user", "bob", "--data", data, "--json").json["waited_longest"]
    assert [(one["job_id"], one["wait_s"]) for one in found] == [(str(n), 3600 * n) for n in (6, 5, 4, 3, 2)]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "give JOBID or --user"),
        (("4", "--user", "anna"), "give JOBID or --user"),
        (("",), "give JOBID or --user"),
        (("--user", " "), "give JOBID or --user"),
        (("--user", "anna", "--limit", "1h"), "apply to one job"),
        (("5",), "an array of 2 tasks: name one of them: '5_1', '5_2'"),
        (("44",), "did you mean '4'"),
        (("--user", "ana"), "did you mean 'anna'"),
        (("4", "--limit", "soon"), "'soon'"),
        (("4", "--cluster", "nope"), "holds lab"),
    ],
)
def test_what_is_refused(baton: Baton, data: Path, arguments: tuple[str, ...], part: str) -> None:
    result = baton("explain", *arguments, "--data", data)
    assert result.code == 2 and result.out == "" and result.err.count("\n") == 1 and part in result.err


def test_a_job_that_never_ran(baton: Baton, tmp_path: Path) -> None:
    pending = {"State": "CANCELLED by 7", "ElapsedRaw": "0", "NodeList": "None assigned", "Reason": "Dependency"}
    rows = [row("1", "bob", "01:00", "01:00", "01:30", 4, 60), row("2", "bob", "01:10", "01:30", "01:30", 1, 60)]
    rows[1] = row("2", "bob", "01:10", "01:30", "01:30", 1, 60, **pending).replace("2026-03-04T01:30:00", "Unknown", 1)
    log, data = tmp_path / "jobs.psv", tmp_path / "data"
    log.write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert baton("ingest", log, "--cluster", "lab", "--nodes", 4, "--data", data).code == 0
    result = baton("explain", 2, "--data", data)
    assert result.code == 0 and "it never ran: 20 min in the queue; the scheduler's reason: Dependency" in result.out
    assert "1 of bob (4 nodes, 16 GPUs) ended just before this job left the queue, at 2026-03-04 01:30" in result.out
    found = baton("explain", 2, "--data", data, "--json").json
    assert found["what_if"] is None and "any later job that ran" in found["why_no_what_if"]
    assert found["ran"] is None and found["wait_s"] is None and set(found["wait_s_by_cause"].values()) == {None}


def test_jobs_of_a_dump_without_times_did_run(baton: Baton, tmp_path: Path) -> None:
    log, data = tmp_path / "jobs.psv", tmp_path / "data"
    log.write_text(
        "JobID|User|State|ElapsedRaw|AllocTRES|ExitCode\n1|bob|COMPLETED|7200|gres/gpu=2|0:0\n"
        "2|bob|FAILED|0|gres/gpu=2|1:0\n3|bob|CANCELLED by 7|0||0:0\n4|bob|PENDING|0||0:0\n"
    )
    assert baton("ingest", log, "--cluster", "lab", "--data", data).code == 0
    result = {job: baton("explain", job, "--data", data).out for job in (1, 2, 3, 4)}
    assert "never ran" not in result[1] and "its wait is unknown" in result[1] and "4.00 GPU h" in result[1]
    assert "never ran" not in result[2] and "\nran 0 s on" in result[2]
    assert "\nit never ran" in result[3] and "\nran " not in result[3]
    assert "\nit still waits" in result[4] and "never ran" not in result[4]
    found = baton("explain", "--user", "bob", "--data", data, "--json").json
    assert (found["never_ran"], found["gpu_time_s"], found["gpu_time_share"]) == (2, 14_400, 1)


def test_a_second_file_is_explained_before_the_features_are_made_again(baton: Baton, data: Path) -> None:
    """The warehouse's queueing_delay is of the first file: it lacks the job that still waits, and 8, which runs."""
    folder = DataFolder(data)
    of_first = queueing.compute(folder, clusters.resolve(folder, cluster="lab"))["queueing_delay"]
    derived.write(folder, QUEUEING_DELAY, "lab", of_first, "first")
    rows = [
        row("7", "dan", "14:05", "Unknown", "Unknown", 2, 60, State="PENDING", AllocTRES="", NodeList="None assigned"),
        row("8", "dan", "14:10", "15:00", "16:00", 1, 60, State="COMPLETED"),
    ]
    more = data.parent / "more.psv"
    more.write_text("\n".join([COLUMNS, *rows]).replace("2026-03-04TUnknown:00", "Unknown") + "\n")
    assert baton("ingest", more, "--cluster", "lab", "--data", data).code == 0
    found = baton("explain", 8, "--data", data, "--json")
    assert found.code == 0, found.err
    assert found.json["wait_s"] == 3000 and found.json["ran"]["gpu_time_s"] == 4 * 3600
    assert found.json["meanwhile"]["ahead"] == {"jobs": 1, "nodes": 2, "users": 1}  # 7, which never started
    assert warehouse.read(folder, "SELECT job_key FROM queueing_delay").height == 6
    assert Source(folder, "lab").jobs["gpu_time_s"].sum() == of_first["gpu_time_s"].sum() + 4 * 3600


def test_a_requeued_job_tells_the_wait_of_each_attempt(baton: Baton, tmp_path: Path) -> None:
    rows = [
        row("1", "bob", "01:00", "01:10", "02:00", 1, 60, State="NODE_FAIL"),
        row("1", "bob", "02:00", "03:30", "04:00", 1, 60),
    ]
    log, data = tmp_path / "jobs.psv", tmp_path / "data"
    log.write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert baton("ingest", log, "--cluster", "lab", "--nodes", 4, "--data", data).code == 0
    answer = baton("explain", 1, "--data", data).out
    assert "attempt 0: waited 10 min, started 2026-03-04 01:10" in answer
    assert "attempt 1: waited 1 h 30 min, started 2026-03-04 03:30" in answer


def test_what_still_runs_counts_until_the_log_ends(baton: Baton, tmp_path: Path) -> None:
    """Job 2 was last seen running at 03:00, two hours after its start; its recorded run time is 0."""
    rows = [
        row("1", "bob", "01:00", "01:00", "03:00", 1, 60),
        row("2", "cy", "01:00", "01:00", "01:00", 1, 60, State="RUNNING").replace(
            "|2026-03-04T01:00:00|0|", "|Unknown|0|"
        ),
    ]
    log, data = tmp_path / "jobs.psv", tmp_path / "data"
    log.write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert baton("ingest", log, "--cluster", "lab", "--nodes", 4, "--gpus-per-node", 4, "--data", data).code == 0
    of_user = baton("explain", "--user", "cy", "--data", data, "--json").json
    of_job = baton("explain", 2, "--data", data, "--json").json
    assert of_user["gpu_time_s"] == of_job["ran"]["gpu_time_s"] == 4 * 7200 and of_user["gpu_time_share"] == 0.5


def test_a_cluster_without_gpus_is_described_in_cores(baton: Baton, tmp_path: Path) -> None:
    """bob held 3 nodes for 2 h and 1 for 2 h, cy 2 for 4 h: half of 16 node hours and of 128 core hours each."""
    cpu = "billing=1,cpu={},node={}"
    rows = [
        row("1", "bob", "01:00", "01:00", "03:00", 3, 240, AllocTRES=cpu.format(24, 3)),
        row("2", "cy", "01:10", "03:00", "07:00", 2, 240, AllocTRES=cpu.format(16, 2)),
        row("3", "bob", "01:20", "07:00", "09:00", 1, 240, AllocTRES=cpu.format(8, 1), NodeList="n01"),
    ]
    log, data = tmp_path / "jobs.psv", tmp_path / "data"
    log.write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert baton("ingest", log, "--cluster", "lab", "--nodes", 3, "--data", data).code == 0
    of_user = baton("explain", "--user", "bob", "--data", data).out
    assert "\nheld 64.00 core h, 50.0 % of all\n" in of_user and "GPU" not in of_user
    of_job = baton("explain", 2, "--data", data).out
    assert "\nasked for 2 nodes, 16 cores, limit 4 h;" in of_job
    assert "ran 4 h on 2 nodes (n01, n02), 16 cores, 64.00 core h; exit status 0" in of_job and "GPU" not in of_job
    assert "  1 of bob (2 nodes, 16 cores) for" in of_job  # on the nodes that it then got
    found = baton("explain", 2, "--data", data, "--json").json
    assert found["has_gpus"] is False and found["ran"]["node_time_s"] == 8 * 3600


def test_each_line_says_what_a_job_held_on_the_nodes_asked_about(baton: Baton, tmp_path: Path) -> None:
    """Job 1 holds 16 GPUs of four nodes; 2 then starts on one of them. Both lines about 1 are of that node: 4 GPUs."""
    rows = [
        row("1", "bob", "01:00", "01:00", "02:00", 4, 60),
        row("2", "cy", "01:10", "02:01", "03:00", 1, 60, NodeList="n02"),
    ]
    log, data = tmp_path / "jobs.psv", tmp_path / "data"
    log.write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert baton("ingest", log, "--cluster", "lab", "--nodes", 4, "--gpus-per-node", 4, "--data", data).code == 0
    there = baton("explain", 2, "--data", data, "--json").json["meanwhile"]
    for rows_of in (there["held_by"], there["ended_just_before"]):
        assert [(one["job_id"], one["nodes"], one["gpus"], one["cpus"]) for one in rows_of] == [("1", 1, 4, 8)]
    said = [line for line in baton("explain", 2, "--data", data).out.splitlines() if "1 of bob" in line]
    assert len(said) == 2 and all("1 of bob (1 node, 4 GPUs)" in line for line in said)


def test_what_was_used_of_cores_and_memory(baton: Baton, tmp_path: Path) -> None:
    """8 cores for an hour, of which the steps used 2 core hours; 1 GiB of the 4 GiB asked for."""
    log, data = tmp_path / "jobs.psv", tmp_path / "data"
    log.write_text(
        "JobID|User|State|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|AllocTRES|ReqMem|TotalCPU|MaxRSS|ExitCode\n"
        "1|bob|COMPLETED|2026-03-04T01:00:00|2026-03-04T01:10:00|2026-03-04T02:10:00|3600|1|8|cpu=8,mem=4G,node=1|4Gn"
        "|02:00:00||0:0\n"
        "1.batch||COMPLETED|2026-03-04T01:10:00|2026-03-04T01:10:00|2026-03-04T02:10:00|3600|1|8|cpu=8,mem=4G,node=1|"
        "|02:00:00|1048576K|0:0\n"
    )
    assert baton("ingest", log, "--cluster", "lab", "--data", data).code == 0
    ran = baton("explain", 1, "--data", data, "--json").json["ran"]
    assert (ran["cpu_used_share"], ran["memory_used_share"], ran["core_time_s"]) == (0.25, 0.25, 8 * 3600)
    assert "used 25.0 % of its CPU time, 25.0 % of its memory\n" in baton("explain", 1, "--data", data).out
    of_user = baton("explain", "--user", "bob", "--data", data).out
    assert "\nheld 8.00 core h, 100.0 % of all\nused 25.0 % of that core time, where the log records it\n" in of_user
    assert "\nused 25.0 % of the memory asked for in the median (largest task)\n" in of_user and "GPU" not in of_user


def test_the_evidence_of_an_inferred_cause_is_printed(baton: Baton, tmp_path: Path) -> None:
    """Five jobs of one name, one after the other on a cluster of four nodes of which three stay free."""
    hours = range(1, 7)
    rows = [row(str(n), "bob", "01:00", f"{n:02}:00", f"{n:02}:59", 1, 60, NodeList=f"n0{n % 4 + 1}") for n in hours]
    rows += [row(str(n), "cy", "00:10", "00:10", "00:20", 1, 60, NodeList=f"n0{n - 20}") for n in range(21, 25)]
    log, data = tmp_path / "jobs.psv", tmp_path / "data"
    log.write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert baton("ingest", log, "--cluster", "lab", "--nodes", 4, "--gpus-per-node", 4, "--data", data).code == 0
    found = baton("explain", 5, "--data", data, "--json").json
    assert found["main_cause"] in ("likely dependency", "own jobs") and "job 4" in found["evidence"]
    assert f"; {found['evidence']}\n" in baton("explain", 5, "--data", data).out
    of_user = baton("explain", "--user", "bob", "--data", data, "--json").json
    assert of_user["waited_longest"][0]["evidence"] and of_user["pools"] == []


def test_a_cluster_with_gpus_counts_them_where_a_job_holds_none(baton: Baton, data: Path) -> None:
    found = baton("explain", 2, "--data", data, "--json").json
    assert found["has_gpus"] is True and found["ran"]["node_time_s"] is None and found["ran"]["gpus"] == 12
    assert "node h" not in baton("explain", 2, "--data", data).out
