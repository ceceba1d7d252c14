"""`baton wait` on a small generated dump."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.agent.fake_slurm import ME, FakeSlurm
from tests.agent.programs import programs
from tests.pipelines.conftest import Baton
from traces import instants


def test_every_method_is_scored_on_a_window(lab: Baton) -> None:
    window = ("--cluster", "lab", "--from", "2023-12-05", "--to", "2023-12-14")
    methods = "limits,expected,partition-mean,partition-median,boosting"
    found = lab("wait", *window, "--methods", methods, "--json").json
    assert [row["method"] for row in found["results"]] == methods.split(",")
    keys = {"method", "n", "crps_h", "balanced_accuracy", "brier", "median_ae_h", "within_factor_2", "spearman",
            "coverage", "width_h", "ci95", "difference_to_best_naive"}  # fmt: skip
    for row in found["results"]:
        assert keys <= row.keys() and row["n"] == found["jobs"] > 50
        assert row["coverage"].keys() == {"0.5", "0.8", "0.95"}
        assert {"crps_h", "ci95"} <= row["difference_to_best_naive"].keys()
    answer = lab("wait", *window, "--methods", "limits,expected").out
    assert "limits*" in answer and "fitted on" in answer and "expected*" in answer
    again = lab("wait", *window, "--methods", "partition-mean", "--refit", "4d", "--json").json
    assert again["refitted_utc"] == ["2023-12-09T00:00", "2023-12-13T00:00"]
    corrected = lab("wait", *window, "--methods", "partition-mean", "--rolling", "--json").json["results"]
    assert [(row["method"], row["is_naive"]) for row in corrected] == [
        ("partition-mean", True),
        ("partition-mean, rolling", False),
    ]
    assert corrected[0]["crps_h"] != corrected[1]["crps_h"] and corrected[1]["difference_to_best_naive"] is not None
    assert again["jobs"] == found["jobs"] and again["fitted_on"] > found["fitted_on"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "2023-12-05"), "--from and --to go together"),
        (("--from", "2023-12-05", "--to", "2023-12-01"), "is not after --from"),
        (("--from", "2023-12-05", "--to", "2023-12-09", "--until", "2023-12-06"), "must not know"),
        (("--from", "2030-01-01", "--to", "2030-02-01"), "0 jobs that started"),
        (
            ("--from", "2023-12-05", "--to", "2023-12-14", "--methods", "qbets"),
            "unknown method 'qbets'; known: limits, expected",
        ),
        (("--from", "2023-11-15", "--to", "2023-11-20"), "can be used to fit"),
        (("--from", "2023-12-05", "--to", "2023-12-14", "--refit", "1h"), "at least 20 are needed"),
        (("--refit", "7d", "--nodes", "2", "--limit", "1h"), "--refit, --rolling and --methods need"),
        (("--rolling", "--nodes", "2", "--limit", "1h"), "--rolling and --methods need"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_a_line(lab: Baton, arguments: tuple[str, ...], said: str) -> None:
    refused = lab("wait", "--cluster", "lab", *arguments)
    assert refused.code == 2 and said in refused.err and refused.out == ""


@pytest.mark.slow
def test_one_job_is_answered_and_what_is_missing_is_said(lab: Baton, tmp_path: Path) -> None:
    answer = lab("wait", "--cluster", "lab", "--nodes", "2", "--limit", "6h", "--json").json
    assert {"quantiles_s", "p_under_600s", "reasons", "sooner"} <= answer.keys()
    assert {"0.1", "0.5", "0.9"} <= answer["quantiles_s"].keys() and answer["request"]["nodes"] == 2
    text = lab("wait", "--cluster", "lab", "--like", "40").out
    assert "50 %: within" in text and "under ten minutes:" in text and "because" in text
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --time=2:00:00 -N 3\n#SBATCH -p p1\nsleep 1\n")
    asked = lab("wait", "--cluster", "lab", "--script", script, "--json").json["request"]
    assert (asked["nodes"], asked["limit_s"], asked["partition"]) == (3, 7200, "p1")
    assert "never: it asks for 99 nodes" in lab("wait", "--cluster", "lab", "--nodes", "99", "--limit", "1h").out
    script.write_text("#!/bin/sh\nsleep 1\n")
    for arguments, said in (
        (("--script", script), "has no #SBATCH lines"),
        (("--nodes", "2"), "the time limit is missing"),
        (("--gpus", "2", "--limit", "1h"), "does not declare its GPUs per node"),
        (("--like", "40", "--script", script), "both define the request"),
        (("--like", "nope"), "no job 'nope'"),
        (("--nodes", "2", "--from", "2023-12-01"), "give one or the other"),
        (("--limit", "1h", "--until", "2023-12-01"), "need --from and --to"),
        (("--live", "--from", "2023-12-01", "--to", "2023-12-05"), "--live describe one job"),
    ):
        refused = lab("wait", "--cluster", "lab", *arguments)
        assert refused.code == 2 and said in refused.err and refused.out == ""


@pytest.mark.slow
def test_the_slurm_of_this_machine_is_asked(lab: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm(nodes=4, now_s=int(time.time()))
    with programs(slurm, tmp_path / "bin") as running:
        monkeypatch.setenv("PATH", str(running.folder), prepend=os.pathsep)
        with running.lock:
            for user, nodes in (("u1", 3), ("u2", 2), (ME, 2), ("u3", 4)):
                slurm.submit("job", user=user, nodes=nodes)
        asked = ("wait", "--cluster", "lab", "--nodes", "2", "--limit", "2h", "--live")
        answer = lab(*asked, "--json").json
        assert answer["live"] and answer["request"]["user"] == ME and answer["request"]["partition"] == "gpu"
        submitted_s = instants.epoch_s(instants.parse(answer["submitted_utc"]))
        assert 0 <= slurm.now_s - submitted_s < 120, "to the minute"
        assert any(
            "live: the outcomes of earlier jobs are from the log, which ends at 2023-12" in n for n in answer["notes"]
        )
        assert ", now\n" in lab(*asked).out
        assert "never: it asks for 5 nodes, and the cluster has 4" in lab(*asked, "--nodes", "5").out
        refused = lab(*asked, "--partition", "cpu")
        assert refused.code == 2 and "--live: unknown partition cpu; known: gpu" in refused.err
    monkeypatch.setenv("PATH", str(tmp_path))
    away = lab(*asked)
    assert away.code == 1 and away.out == "" and away.err.startswith("baton: --live: ")
