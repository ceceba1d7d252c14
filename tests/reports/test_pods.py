"""What the report says of a log of pods: gangs against pods one by one, where both were replayed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from models.what_if import gpu_answers as gpu_what_ifs
from reports.build import section_data
from tests.pipelines.conftest import Baton, baton  # noqa: F401 - a fixture
from traces import clusters
from traces.generate.openb import generate_openb
from traces.store import derived
from traces.store.folder import DataFolder


@pytest.fixture
def pods(baton: Baton, tmp_path: Path) -> DataFolder:  # noqa: F811
    data = DataFolder(tmp_path / "data")
    for path in generate_openb(tmp_path / "raw", weeks=3, nodes=4, load=0.9, seed=3):
        assert baton("ingest", path, "--cluster", "pods", "--data", data.root).code == 0
    return data


def _told(baton: Baton, pods: DataFolder, schedulers: str) -> list[str]:  # noqa: F811
    asked = ("--schedulers", schedulers, "--change", "kubernetes.gang=1", "--profiles", "none", "--workers", "1")
    assert baton("whatif", "--cluster", "pods", "--data", pods.root, *asked).code == 0
    starts = "Placed pod by pod", "With gangs, jobs of"
    return [line for line in section_data(pods, "pods", "change")["sentences"] if line.startswith(starts)]


def test_gangs_have_a_paragraph_with_an_interval_where_kubernetes_is_the_base(baton: Baton, pods: DataFolder) -> None:  # noqa: F811
    first, *groups = _told(baton, pods, "kubernetes")
    held = r"Placed pod by pod, jobs with only some of their pods placed held [\d,]+ GPU hours idle, "
    assert re.match(held + r"and jobs gave up [\d,]+ times", first)
    rows = derived.read(pods, "what_if_schedulers", "pods").sort("place").to_dicts()
    low, high = rows[1]["jct_change_low_s"], rows[1]["jct_change_high_s"]
    assert ("this may be chance" in first) == (low <= 0 <= high) and "interval of the change: " in first
    sizes = derived.read(pods, "what_if_groups", "pods").to_dicts()
    sooner = [
        row["name"]
        for row in sizes
        if row["dimension"] == "size" and row["jct_change_high_s"] < 0 and row["change"] != "as it is"
    ]
    assert any(line.startswith("With gangs, jobs of") and "complete sooner" in line for line in groups) == bool(sooner)


def test_without_kubernetes_as_the_base_there_are_means_alone(baton: Baton, pods: DataFolder) -> None:  # noqa: F811
    (line,) = _told(baton, pods, "fifo,kubernetes")
    assert "no interval: kubernetes is not the base" in line


def test_a_log_of_pods_is_asked_about_gangs_unless_another_question_is_declared(pods: DataFolder) -> None:
    settings = clusters.resolve(pods, cluster="pods")
    assert gpu_what_ifs.declared(pods, settings) == gpu_what_ifs.OF_PODS
    pods.clusters_toml.write_text('[pods.what_if]\nschedulers = ["sia"]\n')
    declared = gpu_what_ifs.declared(pods, clusters.load(pods)["pods"])
    assert declared.schedulers == ("sia",) and declared.changes == gpu_what_ifs.OF_PODS.changes
