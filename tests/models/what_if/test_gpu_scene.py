"""A log of pods is replayed as gangs: pods of one second and one request, whole GPUs alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from models.what_if.gpu_scene import read_scene
from models.what_if.profiled import NO_PROFILES
from models.what_if.schedulers import PlannedGpuReplay, replays
from simulator.gpu.profiles.table import published
from simulator.gpu.scheduler import Setting
from tests.pipelines.conftest import Baton, baton  # noqa: F401 - a fixture
from tests.traces.readers.published.logs import PODS
from traces import clusters
from traces.generate.openb import generate_openb
from traces.store.folder import DataFolder

ROWS = """\
a,8000,1024,2,1000,,LS,Succeeded,100,400,100
b,8000,1024,2,1000,,LS,Succeeded,100,500,100
c,8000,2048,2,1000,,LS,Succeeded,100,400,100
d,8000,1024,2,1000,,LS,Succeeded,101,400,101
e,4000,1024,1,500,,LS,Succeeded,200,300,200
f,4000,1024,1,500,,LS,Succeeded,200,300,200
g,4000,1024,0,0,,LS,Succeeded,200,300,200
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,96000,1024,8,T4\nn2,96000,1024,3,T4\nn3,32000,1024,0,\n"


def test_pods_of_one_second_and_request_are_one_gang(baton: Baton, tmp_path: Path) -> None:  # noqa: F811
    data = DataFolder(tmp_path / "data")
    for name, text in (("pods.csv", f"{PODS}\n{ROWS}"), ("nodes.csv", NODES)):
        (tmp_path / name).write_text(text)
        assert baton("ingest", tmp_path / name, "--cluster", "pods", "--data", data.root).code == 0
    scene = read_scene(data, clusters.resolve(data, cluster="pods"))
    assert scene.cluster.capacity[:, 0].tolist() == [8, 3]
    jobs = scene.jobs
    rows = sorted(zip(jobs.submit_s.tolist(), jobs.gpus.tolist(), jobs.pod_gpus.tolist(), jobs.run_s, strict=True))
    assert rows == [(100, 2, 2, 300), (100, 4, 2, 400), (101, 2, 2, 299), (200, 1, 1, 100), (200, 1, 1, 100)]
    assert (
        "6 pods, of which" in scene.assumptions[1] and "are one, make 5 jobs, 1 of several pods" in scene.assumptions[1]
    )


@pytest.mark.parametrize(
    ("models", "types", "line"),
    [
        (("V100M32", "T4"), ("V100", "T4"), "1 of V100, 1 of T4, by the machine list; run times"),
        (("", "A100"), ("GPU", "A100"), "1 of GPU, 1 of A100, by the machine list"),
        (("", ""), ("GPU", "GPU"), "all GPUs are of one type"),
        (("\x1b[2J" + "x" * 9, "T4"), (r"\x1b[2J" + "x" * 9, "T4"), r"1 of \x1b[2J" + "x" * 9 + ", 1 of T4"),
    ],
)
def test_gpu_types_of_a_machine_list(
    baton: Baton,  # noqa: F811
    tmp_path: Path,
    models: tuple[str, str],
    types: tuple[str, str],
    line: str,
) -> None:
    data = DataFolder(tmp_path / "data")
    machines = "".join(f"n{n},96000,1024,{8 - n},{name}\n" for n, name in enumerate(models))
    for name, text in (("pods.csv", f"{PODS}\n{ROWS}"), ("nodes.csv", NODES.partition("\n")[0] + "\n" + machines)):
        (tmp_path / name).write_text(text)
        assert baton("ingest", tmp_path / name, "--cluster", "pods", "--data", data.root).code == 0
    scene = read_scene(data, clusters.resolve(data, cluster="pods"))
    assert scene.cluster.types == types and scene.cluster.capacity[:, 0].tolist() == [8, 7]
    assert any(line in said for said in scene.assumptions), scene.assumptions
    assert NO_PROFILES in scene.assumptions and (scene.jobs.model == -1).all()
    drawn = read_scene(data, clusters.resolve(data, cluster="pods"), profiles=published())
    kinds = [kind for kind in dict.fromkeys(types) if kind != "GPU"] or ["T4"]
    measured = [profile for profile in drawn.jobs.profiles if set(kinds) <= profile.steps.keys()]
    is_known = set(types) <= published()["bert"].steps.keys() or types == ("GPU", "GPU")
    assert any("was not measured on" in said for said in drawn.assumptions) != is_known
    if is_known:
        assert {drawn.jobs.profiles[model].model for model in drawn.jobs.model} <= {one.model for one in measured}


@pytest.fixture
def generated_pods(baton: Baton, tmp_path: Path) -> DataFolder:  # noqa: F811
    data = DataFolder(tmp_path / "data")
    for path in generate_openb(tmp_path / "raw", weeks=1, nodes=4, load=0.9, seed=3):
        assert baton("ingest", path, "--cluster", "pods", "--data", data.root).code == 0
    return data


def test_gang_against_pod_by_pod_on_generated_pods(generated_pods: DataFolder, tmp_path: Path) -> None:
    scene = read_scene(generated_pods, clusters.resolve(generated_pods, cluster="pods"))
    assert (scene.jobs.gpus % scene.jobs.pod_gpus == 0).all() and (scene.jobs.gpus > scene.jobs.pod_gpus).any()
    again = generate_openb(tmp_path / "again", weeks=1, nodes=4, load=0.9, seed=3)
    assert all(path.read_bytes() == (tmp_path / "raw" / path.name).read_bytes() for path in again)
    packed: list[dict[str, Setting]] = [
        {"pack": 1.0},
        {"pack": 1.0, "gang": 1.0},
    ]  # LeastAllocated leaves no node whole for a pod of 8 GPUs
    asked = [PlannedGpuReplay(replace(scene, parameters={"kubernetes": own}), "kubernetes", f"{own}") for own in packed]
    alone, together = replays(asked, lambda _: None, workers=1)
    assert alone.figures["fragmentation"] > together.figures["fragmentation"]
    assert "held" in alone.assumptions[-1] and "holds nothing until" in together.assumptions[-1]
