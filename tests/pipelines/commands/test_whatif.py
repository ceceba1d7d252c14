"""`baton whatif` on a small log: every combination, what was assumed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.what_if.cluster import BASE
from models.what_if.cluster import SCHEDULERS as OFFERED
from reports.advice import advice
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
        ((), "whatif needs schedulers"),
        (("--schedulers", "lottery"), "unknown scheduler 'lottery': known are fifo"),
        (("--schedulers", "lottery"), "and fifo, easy, conservative, mirage, sjf, which allocate whole nodes"),
        (("--schedulers", "yarn,easy"), "easy allocates whole nodes and yarn shares GPUs: choose one kind at a time"),
        (("--schedulers", "fifo,slurm"), "use `baton simulate --compare slurm,easy`"),
        (("--schedulers", "fifo,easy", "--change", "type=A100"), "known: nodes=..., limit=..., arrivals=..."),
        (("--schedulers", "fifo,easy", "--change", "limit=soon"), "duration 'soon' is not understood"),
        (("--schedulers", "fifo,easy", "--change", "nodes=-9"), "leaves"),
        (("--schedulers", "fifo,easy", "--from", "2030-01-01"), "has no job that ran in that time"),
        (("--schedulers", "fifo,easy", "--seeds", 2), "--seeds apply only to schedulers that share GPUs"),
        (
            ("--schedulers", "fifo", "--nodes", 2, "--gpus-per-node", 4, "--profiles", "mine"),
            "mine: profiles cannot be read",
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
    assert any("recorded mean wait" in line and "replayed under mirage" in line for line in result["said"])
    answer = baton("whatif", *wanted)
    assert "small: 6 jobs on 2 nodes" in answer.out and "saved in the tables" not in answer.err


def test_every_scheduler_that_the_report_may_name_can_be_asked_for(baton: Baton, data: Path) -> None:
    names = ",".join((BASE, *OFFERED))
    assert baton("whatif", "--cluster", "small", "--schedulers", names, "--data", data, "--json").code == 0
    assert "--schedulers mirage,easy`" in advice._WORDS["easy scheduling"]


def test_simulate_says_which_command_replays_a_scheduler_of_gpus(baton: Baton, data: Path) -> None:
    refused = baton("simulate", "--cluster", "small", "--scheduler", "yarn", "--data", data)
    assert refused.code == 2 and "use `baton whatif --schedulers yarn`" in refused.err
