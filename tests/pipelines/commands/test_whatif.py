"""`baton whatif` on a small log: every combination, what was assumed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from simulator.gpu.figures import FIGURES
from tests.pipelines.conftest import Baton, dump
from traces.store import warehouse
from traces.store.folder import DataFolder


@pytest.fixture
def data(baton: Baton, tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    assert baton("ingest", dump(tmp_path / "log.psv"), "--cluster", "small", "--data", folder).code == 0
    return folder


def test_every_combination_with_what_was_assumed(baton: Baton, data: Path) -> None:
    machine = ("--nodes", 2, "--gpus-per-node", 4, "--data", data, "--workers", 1)
    wanted = ("--cluster", "small", "--schedulers", "fifo,tiresias", "--change", "nodes=+1", "--change", "limit=1h")
    result = baton("whatif", *wanted, *machine, "--json").json
    assert (result["jobs"], result["gpus"]) == (6, 8)
    assert len(result["results"]) == 2 * 3 * len(FIGURES)
    found = {(row["scheduler"], row["change"], row["figure"]): row["value"] for row in result["results"]}
    assert found["fifo", "as it is", "mean_jct_s"] == 7200.0  # one job a day never waits
    assert found["tiresias", "limit=1h", "mean_jct_s"] == 3600.0
    assert any("no profiles: each job runs as long as recorded" in line for line in result["said"])
    drawn = baton("whatif", *wanted, *machine, "--profiles", "published", "--json").json
    assert any("each job draws one of resnet18-cifar10, bert" in line and "seed 0" in line for line in drawn["said"])
    assert any("6 jobs are cut" in line for line in result["said"])
    answer = baton("whatif", *wanted, *machine)
    assert "fifo, nodes=+1" in answer.out
    assert "groups whose jobs complete later (the 95 % interval excludes 0): none" in answer.out


MACHINE = ("--nodes", 2, "--gpus-per-node", 4)
SMALL = ("--cluster", "small", *MACHINE, "--workers", 1)


def test_what_was_found_is_kept_and_an_interrupted_run_leaves_it(
    baton: Baton, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = baton(
        "whatif",
        *SMALL,
        "--schedulers",
        "fifo,sjf",
        "--seeds",
        2,
        "--seed",
        5,
        "--profiles",
        "published",
        "--data",
        data,
    )
    assert "saved in the tables what_if_schedulers and what_if_groups" in answer.err
    assert "drawn again with the seeds up to 6: figures are means over 2 draws" in answer.err
    kept = "SELECT place, scheduler, change, seed, draws, jobs, capacity_gpus FROM what_if_schedulers ORDER BY place"
    of_groups = "SELECT DISTINCT scheduler FROM what_if_groups"
    there = [(1, "fifo", "as it is", 5, 2, 6, 8), (2, "sjf", "as it is", 5, 2, 6, 8)]
    folder = DataFolder(data)
    assert warehouse.read(folder, kept).rows() == there
    assert warehouse.read(folder, of_groups).rows() == [("sjf",)]

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("models.what_if.schedulers.replayed", killed)
        assert baton("whatif", *SMALL, "--schedulers", "srtf,fifo", "--data", data).code == 130
    assert warehouse.read(folder, kept).rows() == there
    baton("whatif", *SMALL, "--schedulers", "srtf", "--data", data)
    assert [row[1] for row in warehouse.read(folder, kept).rows()] == ["srtf"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((), "is shorter than a week, which is too little to compare replays"),
        (("--gpus-per-node", 2), "apply only to --schedulers that share GPUs: name them, or omit these"),
        (("--horizon", "10m"), "--horizon '10m' is shorter than an hour"),
        (("--schedulers", "lottery"), "unknown scheduler 'lottery': known are fifo"),
        (("--schedulers", "lottery"), "and fifo, easy, conservative, mirage, sjf, which allocate whole nodes"),
        (("--schedulers", "yarn,easy"), "easy allocates whole nodes and yarn shares GPUs: choose one kind at a time"),
        (("--schedulers", "fifo,slurm"), "use `baton simulate --compare slurm,easy`"),
        (("--schedulers", "fifo,easy", "--change", "type=A100"), "known: nodes=..., limit=..., arrivals=..."),
        (("--schedulers", "fifo,easy", "--change", "limit=soon"), "duration 'soon' is not understood"),
        (("--schedulers", "fifo,easy", "--change", "nodes=-9"), "leaves"),
        (("--schedulers", "fifo,easy", "--from", "2030-01-01"), "has no job that ran in that time"),
        (
            ("--schedulers", "fifo,easy", "--seeds", 2),
            "--seeds, --jobs, --queues and --set apply only to schedulers that share GPUs",
        ),
        (
            ("--schedulers", "fifo", "--nodes", 2, "--gpus-per-node", 4, "--profiles", "mine"),
            "mine cannot be read",
        ),
        (
            ("--schedulers", "fifo"),
            "the number of GPUs of cluster 'small' is unknown: give --nodes and --gpus-per-node",
        ),
        (("--schedulers", "fifo", "--nodes", 2, "--gpus-per-node", 4, "--from", "2030-01-01"), "has no job that ran"),
        (("--schedulers", "fifo", "--nodes", 2, "--gpus-per-node", 4, "--change", "nodes=-2"), "leaves 0 nodes"),
        (("--schedulers", "fifo", "--nodes", 1, "--gpus-per-node", 2), "none of the 6 jobs fits the cluster of 2 GPUs"),
    ],
)
def test_what_is_refused(baton: Baton, data: Path, given: tuple[object, ...], why: str) -> None:
    refused = baton("whatif", "--cluster", "small", "--data", data, *given)
    assert refused.code == 2
    assert why in refused.err


def test_whole_nodes_in_the_base_of_the_report(baton: Baton, data: Path) -> None:
    wanted = ("--cluster", "small", "--schedulers", "mirage,easy", "--nodes", 2, "--data", data)
    changes = ("--change", "limit=0-01:00:00", "--change", "arrivals=+100%", "--change", "nodes=+1")
    result = baton("whatif", *wanted, *changes, "--json").json
    assert (result["jobs"], result["nodes"], result["gpus"]) == (6, 2, None)
    found = {(row["scheduler"], row["change"], row["figure"]): row["value"] for row in result["results"]}
    assert len(found) == 2 * 4 * 6
    assert found["easy", "as it is", "mean_jct_s"] == 7200.0
    assert found["easy", "limit=0-01:00:00", "mean_jct_s"] == 3600.0
    assert found["easy", "arrivals=+100%", "makespan_s"] < found["easy", "as it is", "makespan_s"]
    assert result["base"]["scheduler"] == "mirage" and result["base"]["jobs"] == 6
    assert result["base"]["recorded"]["mean_wait_s"] is not None
    answer = baton("whatif", *wanted)
    assert "small: 6 jobs on 2 nodes" in answer.out and "saved in the tables" not in answer.err


def test_simulate_says_which_command_replays_a_scheduler_of_gpus(baton: Baton, data: Path) -> None:
    refused = baton("simulate", "--cluster", "small", "--scheduler", "yarn", "--data", data)
    assert refused.code == 2 and "use `baton whatif --schedulers yarn`" in refused.err


TRACE = """\
job_id,submit_s,gpus,run_s,start_s,user,model,most_gpus
a,100,4,1000,100,ann,bert,
b,100,4,1000,1100,bob,,
c,150,8,500,2200,ann,,16
"""
ON = ("--machine", "1x4:T4,1x8:A100", "--schedulers", "fifo,srtf", "--workers", 1)


def test_a_trace_file_needs_no_log_and_its_jobs_come_back(baton: Baton, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE.replace("bert", ""))
    out = tmp_path / "new" / "out.parquet"
    given = ("whatif", "--trace", tmp_path / "jobs.csv", *ON, "--jobs-out", out)
    refused = baton(*given)
    assert refused.code == 2 and "add --mkdir to create it" in refused.err
    result = baton(*given, "--mkdir", "--json").json
    assert (result["cluster"], result["jobs"], result["nodes"], result["gpus"]) == ("jobs.csv", 3, 2, 12)
    assert result["base"] == {
        "scheduler": "fifo",
        "jobs": 3,
        "recorded": {
            "mean_wait_s": (0 + 1000 + 2050) / 3,
            "median_wait_s": 1000.0,
            "p90_wait_s": 1840.0,
            "p95_wait_s": 1945.0,
        },
        "replayed": {
            "mean_wait_s": pytest.approx(950 / 3),
            "median_wait_s": 0.0,
            "p90_wait_s": 760.0,
            "p95_wait_s": pytest.approx(855.0),
        },
        "spearman": pytest.approx(0.8660254),
        "trust": {
            "level": "direction",
            "why": "the base's mean wait is off by 69 % and Spearman's rho of its waits is 0.87",
        },
    }
    times = pl.read_parquet(out).filter(pl.col("scheduler") == "fifo")
    assert times.select("job_id", "submit_s", "start_s", "end_s", "preemptions", "gpu_s").rows() == [
        ("a", 100.0, 100.0, 1100.0, 0.0, 4000.0),
        ("b", 100.0, 100.0, 1100.0, 0.0, 4000.0),
        ("c", 150.0, 1100.0, 1600.0, 0.0, 4000.0),
    ]
    assert times.select("gpu_s_A100", "gpu_s_T4").rows() == [(4000.0, 0.0), (4000.0, 0.0), (4000.0, 0.0)]
    said = baton(*given[:-2])
    assert "mean wait recorded: 17 min (median 17 min, p90 31 min); replayed under fifo: 5.3 min" in said.out
    assert "the baseline is off by 12 min in the mean" in said.out


def test_models_that_a_file_names_are_not_drawn(baton: Baton, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE)
    said = baton("whatif", "--trace", tmp_path / "jobs.csv", *ON, "--profiles", "published", "--json").json["said"]
    assert any(line.startswith("2 of 3 jobs name no model and draw one of resnet18-cifar10") for line in said)
    strict = baton("whatif", "--trace", tmp_path / "jobs.csv", *ON, "--profiles", "published", "--strict", "--json")
    assert strict.code == 0
    other = ("--machine", "1x4:T4,1x8:H900", "--schedulers", "fifo", "--profiles", "published", "--strict")
    refused = baton("whatif", "--trace", tmp_path / "jobs.csv", *other)
    assert refused.code == 2 and "was not measured on H900 and runs there as on T4: measure it" in refused.err


@pytest.mark.parametrize(
    ("rows", "given", "why"),
    [
        ("a,0,1,10\na,0,1,10\n", (), "jobs.csv, line 3: job 'a' is named twice"),
        ("a,0,1,0\n", (), "jobs.csv, line 2: run_s '0': give a number above 0"),
        ("a,-1,1,9\n", (), "jobs.csv, line 2: submit_s '-1': give a number of at least 0"),
        ("a,0,1.5,9\n", (), "jobs.csv, line 2: gpus '1.5': give a whole number of at least 1"),
        ("a,0,1,\n", (), "jobs.csv, line 2: run_s is empty: give it, or model and work with --profiles"),
        ("", (), "no job in it"),
        ("a,0,99,9\n", (), "none of the 1 job fits the cluster of 12 GPUs"),
        ("a,0,1,9\n", ("--set", "srtf=1"), "unknown change 'srtf'"),
        ("a,0,1,9\n", ("--set", "nodes=1"), "setting 'nodes=1' is not understood; write SCHEDULER.PARAMETER=VALUE"),
        ("a,0,1,9\n", ("--set", "fifo.pace=1"), "unknown parameter fifo.pace"),
        ("a,0,1,9\n", ("--cluster", "x"), "--trace needs no log: leave --cluster"),
        ("a,0,1,9\n", ("--nodes", 2), "--trace needs the nodes: --nodes and --gpus-per-node, or --machine"),
    ],
)
def test_a_wrong_trace_is_refused_in_one_line(
    baton: Baton, tmp_path: Path, rows: str, given: tuple[object, ...], why: str
) -> None:
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,gpus,run_s\n" + rows)
    refused = baton("whatif", "--trace", tmp_path / "jobs.csv", *ON, *given)
    assert refused.code == 2 and why in refused.err and refused.err.count("\n") == 1


def test_queues_of_a_file_limit_what_a_user_and_a_queue_hold(baton: Baton, tmp_path: Path) -> None:
    rows = "a,0,4,100,ann,lab\nb,0,4,100,bob,lab\nc,1,4,100,ann,lab\nd,2,9,100,ann,lab\n"
    (tmp_path / "jobs.csv").write_text(f"job_id,submit_s,gpus,run_s,user,group\n{rows}e,3,4,100,eve,shop\n")
    queues, out = tmp_path / "queues.toml", tmp_path / "out.parquet"
    machine = ("--machine", "2x8", "--schedulers", "yarn,yarn-fair,fifo", "--workers", 1)
    asked = ("whatif", "--trace", tmp_path / "jobs.csv", *machine, "--queues", queues, "--jobs-out", out)
    queues.write_text("lab = { capacity = 50, most = 50 }\nshop = { capacity = 50 }\n")
    said = baton(*asked, "--change", "nodes=3", "--json").json["said"]
    assert "1 job asks for more than the most capacity of a queue: left out" in said
    times = pl.read_parquet(out).filter(pl.col("change") == "as it is")
    starts = {name: times.filter(pl.col("scheduler") == name)["start_s"].to_list() for name in ("yarn", "yarn-fair")}
    assert starts == {"yarn": [0.0, 0.0, 100.0, 3.0], "yarn-fair": [0.0, 0.0, 100.0, 3.0]}
    for text, change, why in (
        ("lab = { capacity = 90 }\n", "nodes=3", "queues.toml: the capacities of the top queues add up to 90"),
        ("lab = { capacity = 100 }\n", "nodes=3", "group 'shop' has no leaf queue: declare one, or one named default"),
        (
            "lab = { capacity = 50 }\nx = { capacity = 50 }\n",
            "nodes=3",
            "queue 'x' is no group of the trace: known are",
        ),
        (
            "lab = { capacity = 50 }\nshop = { capacity = 50 }\n",
            "quota.lab=4",
            "quotas do not count where queues are d",
        ),
        (
            "lab = { capacity = 40, most = 40 }\nshop = { capacity = 60 }\n",
            "nodes=1",
            "3 jobs ask for more than the most capacity of a queue",
        ),
    ):
        queues.write_text(text)
        refused = baton(*asked, "--change", change)
        assert refused.code == 2 and why in refused.err and refused.err.count("\n") == 1


def test_queues_of_a_cluster_have_the_groups_of_its_log(baton: Baton, data: Path, tmp_path: Path) -> None:
    queues = tmp_path / "queues.toml"
    asked = ("whatif", *SMALL, "--schedulers", "yarn", "--queues", queues, "--data", data)
    queues.write_text("nobody = { capacity = 100 }\n")
    refused = baton(*asked)
    assert refused.code == 2 and "queue 'nobody' is no group of the trace: known are " in refused.err
    group = refused.err.split("known are ")[1].split(",")[0].split(";")[0]
    queues.write_text(f"{group} = {{ capacity = 0, most = 0 }}\ndefault = {{ capacity = 100 }}\n")
    refused = baton(*asked)  # the log has one group
    assert refused.code == 2 and "no job is left within the most capacity of a queue" in refused.err
    queues.write_text("default = { capacity = 100 }\n")
    assert baton(*asked, "--json").json["results"]


@pytest.mark.parametrize("machine", ["", "4", "0x4", "4x0", "4x4:", "9999999x1", "2x4:A 1", "x", "2x4;1x1"])
def test_a_wrong_machine_is_refused(baton: Baton, tmp_path: Path, machine: str) -> None:
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,gpus,run_s\na,0,1,9\n")
    refused = baton("whatif", "--trace", tmp_path / "jobs.csv", "--machine", machine, "--schedulers", "fifo")
    assert refused.code == 2 and "is not understood; write NODESxGPUS:TYPE" in refused.err


def test_facts_beside_the_log_are_joined_by_job_id(baton: Baton, data: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts.csv"
    ids = [row[0] for row in warehouse.read(DataFolder(data), "SELECT job_key FROM jobs ORDER BY job_key").rows()]
    facts.write_text("job_id,model,restart_s\n" + "".join(f"{name},bert,5\n" for name in ids))
    asked = ("whatif", *SMALL, "--schedulers", "fifo", "--jobs", facts, "--data", data)
    without = baton(*asked)
    assert without.code == 2 and "model 'bert' has no profile; known are none: give --profiles" in without.err
    said = baton(*asked, "--profiles", "published", "--json").json["said"]
    assert not any("draw" in line for line in said)
    facts.write_text("job_id,model\nnobody,bert\n")
    refused = baton(*asked, "--profiles", "published")
    assert refused.code == 2 and "line 2: job 'nobody' is not among the replayed ones (6 jobs)" in refused.err
    facts.write_text(f"job_id,most_gpus\n{ids[0]},0\n")
    assert "line 2: most_gpus '0': give a whole number of at least 1" in baton(*asked).err
