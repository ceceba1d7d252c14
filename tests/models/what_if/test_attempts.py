"""Failed attempts are read from the log: Philly's JSON log with the tails of its jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.failures import failures
from features.failures.signatures import tails_folder
from features.tables.failures import FAILURES
from models.what_if.gpu_scene import read_scene
from models.what_if.job_files import with_facts
from simulator.gpu.run import simulate
from tests.traces.readers.philly.test_reader import attempt, entry
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import derived, warehouse
from traces.store.folder import DataFolder

CLUSTER = ClusterSettings("philly", timezone="UTC", nodes=2, gpus_per_node=8)
RUNS = (("01:10:00", "01:20:00"), ("01:30:00", "02:30:00"), ("02:40:00", "02:50:00"))  # 600, 3,600 and 600 s
TAILS = {  # job -> the last lines of each attempt
    "syntax": ("SyntaxError: invalid syntax", "SyntaxError: invalid syntax"),
    "later": ("Segmentation fault (core dumped)", "ModuleNotFoundError: No module named 'x'"),
    "network": ("Connection timed out",),
    "good": (),
}


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    runs = [attempt(*(f"2017-10-07 {time}" for time in times), m1=4) for times in RUNS]
    log = tmp_path / "cluster_job_log"
    log.write_text(json.dumps([entry(job, *runs, status="Failed") for job in TAILS]))
    found = DataFolder(tmp_path / "data")
    ingest([log], cluster=CLUSTER, data=found)
    warehouse.build(found)
    folder = tails_folder(found, CLUSTER.name)
    folder.mkdir(parents=True)
    for job, tails in TAILS.items():
        for number, tail in enumerate(tails):
            (folder / f"application_1_{job}.{number}.err").write_text(tail)
    return found


def with_failures(data: DataFolder) -> None:
    derived.write(data, FAILURES, CLUSTER.name, failures.compute(data, CLUSTER)["failures"], "now")
    warehouse.build(data)


def test_attempts_of_a_philly_log_with_tails(data: DataFolder) -> None:
    before = read_scene(data, CLUSTER)
    assert before.jobs.hopeless_s is not None and np.isnan(before.jobs.hopeless_s).all()
    assert not any("no retry cures" in line for line in before.assumptions)
    with_failures(data)
    scene = read_scene(data, CLUSTER)
    jobs = scene.jobs
    assert jobs.ids is not None and jobs.fails_s is not None and jobs.hopeless_s is not None
    found = {
        name.removeprefix("application_1_"): (fails_s, hopeless_s, run_s)
        for name, fails_s, hopeless_s, run_s in zip(
            jobs.ids.tolist(), jobs.fails_s.tolist(), jobs.hopeless_s.tolist(), jobs.run_s.tolist(), strict=True
        )
    }
    nan = pytest.approx(np.nan, nan_ok=True)
    assert found == {
        "syntax": (600.0, 600.0, 4800.0),
        "later": (600.0, 4200.0, 4800.0),  # a core dump may not come again; a missing module does
        "network": (nan, nan, 4800.0),
        "good": (nan, nan, 4800.0),
    }
    line = "the first attempt of 2 jobs failed by an error of the program, and 2 jobs had a failure that no retry cures"
    assert any(line in one for one in scene.assumptions)


def test_a_rule_of_retries_saves_what_the_log_shows(data: DataFolder) -> None:
    with_failures(data)
    scene = read_scene(data, CLUSTER)
    held = [
        float(simulate(scene.cluster, scene.jobs, "guided", {"no_retry": flag}).result.gpu_s.sum())
        for flag in (0.0, 1.0)
    ]
    assert held == [4 * 4 * 4800.0, 4 * (600.0 + 4200.0 + 2 * 4800.0)]


def test_a_file_of_facts_names_failures_and_keeps_those_of_the_log(data: DataFolder, tmp_path: Path) -> None:
    with_failures(data)
    jobs = read_scene(data, CLUSTER).jobs
    (tmp_path / "jobs.csv").write_text("job_id,fails_s,hopeless_s\napplication_1_network,60,\n")
    given = with_facts(jobs, tmp_path / "jobs.csv", {})
    assert given.fails_s is not None and given.hopeless_s is not None and jobs.fails_s is not None
    assert np.sort(given.fails_s)[:3].tolist() == [60.0, 600.0, 600.0]
    assert np.isnan(jobs.fails_s).sum() == 2, "the log's jobs are left alone"
    np.testing.assert_array_equal(given.hopeless_s, jobs.hopeless_s)
    assert replace(jobs).take(np.array([0])).hopeless_s is not None
