"""CPUs and memory of jobs and nodes, as a log has them, in the vectors of the schedulers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.what_if.gpu_scene import read_scene
from models.what_if.vectors import of_pods, with_vectors
from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.gpu.run import fits, simulate
from tests.pipelines.conftest import Baton, baton  # noqa: F401 - a fixture
from tests.traces.readers.published.logs import PODS
from traces import clusters
from traces.store.folder import DataFolder

OPENB = Path("../shared/traces/openb")


def jobs_of(*gpus: int) -> GpuJobs:
    count = len(gpus)
    return of_arrays(np.zeros(count), np.array(gpus), np.full(count, 10.0))


def sizes(cpus: list[int | None], mib: list[int | None], memory: str = "memory_mib") -> pl.DataFrame:
    return pl.DataFrame({"cpus": cpus, memory: mib}, schema={"cpus": pl.Int64, memory: pl.Int64})


@given(st.integers(1, 8), st.integers(1, 300), st.integers(1, 300), st.integers(1, 10**6), st.integers(1, 10**6))
def test_rounding_keeps_no_job_from_a_place_that_it_fits(
    gpus: int, cpus: int, of_node: int, mib: int, node_mib: int
) -> None:
    """One node of 8 GPUs: the job fits in the vectors if it fits as the log has it, within a thousandth of a CPU."""
    cluster, jobs, said = with_vectors(
        of_nodes(np.array([8])), jobs_of(gpus), sizes([of_node], [node_mib]), sizes([cpus], [mib], "mem_mib")
    )
    assert fits(cluster, jobs).all()
    is_alone = said[-1].endswith("than any place has, by GPUs alone")
    need = jobs.need[0] * gpus
    if cpus <= of_node and mib <= node_mib:
        assert not is_alone
        assert (need <= cluster.capacity[0]).all() and need[1] > 1000 * cpus - gpus and need[2] > mib - gpus
    elif cpus > of_node or mib >= node_mib + gpus:
        assert is_alone and need[1:].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("nodes", "asked", "columns", "lines"),
    [
        (sizes([64, 64], [100, None]), sizes([8], [10], "mem_mib"), [8000], ["jobs wait for it", "not every node's"]),
        (sizes([64, 0], [100, 100]), sizes([8], [10], "mem_mib"), [10], ["not every node's", "jobs wait for it"]),
        (sizes([64, 64], [100, 100]), sizes([8], [None], "mem_mib"), [8000], ["jobs wait", "does not say what jobs"]),
        (None, sizes([8], [10], "mem_mib"), [], ["not every node's", "not every node's"]),
    ],
)
def test_a_resource_counts_where_both_sides_are_known(
    nodes: pl.DataFrame | None, asked: pl.DataFrame, columns: list[int], lines: list[str]
) -> None:
    cluster, jobs, said = with_vectors(of_nodes(np.array([8, 8])), jobs_of(1), nodes, asked)
    assert jobs.need[0, 1:].tolist() == columns and cluster.capacity.shape[1] == 1 + len(columns)
    assert all(line in text for line, text in zip(lines, said, strict=True))


def test_jobs_without_a_request_are_counted() -> None:
    nodes, asked = sizes([64], [100]), sizes([8, None], [10, 10], "mem_mib")
    _cluster, jobs, said = with_vectors(of_nodes(np.array([8])), jobs_of(1, 1), nodes, asked)
    assert jobs.need[:, 1].tolist() == [8000, 0] and said[0].endswith("1 job without a request take none")


def test_gpu_models_and_classes_of_service_of_pods() -> None:
    rows = pl.DataFrame({"partition": ["T4|P100", None, "P100|T4", "G2"], "qos": ["LS", "BE", "Burstable", None]})
    jobs, said = of_pods(jobs_of(1, 1, 1, 1), rows)
    assert jobs.priority.tolist() == [2, 0, 1, 0]
    named = [jobs.models_asked[at] if at >= 0 else () for at in jobs.accepts]
    assert named == [("P100", "T4"), (), ("P100", "T4"), ("G2",)]
    assert said[0].startswith("kubernetes keeps 3 jobs on the GPU models")
    assert [job.accepts for job in jobs.take(np.array([3, 1])).objects()] == [("G2",), ()]


ROWS = """\
a,8000,2048,2,1000,,LS,Succeeded,100,400,100
b,8000,2048,2,1000,,LS,Succeeded,100,500,100
e,4000,1024,1,460,T4,BE,Succeeded,200,300,200
"""


def test_a_gang_of_pods_needs_the_cpus_and_memory_of_its_pods(baton: Baton, tmp_path: Path) -> None:  # noqa: F811
    data = DataFolder(tmp_path / "data")
    nodes = "sn,cpu_milli,memory_mib,gpu,model\nn1,96000,8192,8,G2\nn2,64000,4096,4,T4\n"
    for name, text in (("pods.csv", f"{PODS}\n{ROWS}"), ("nodes.csv", nodes)):
        (tmp_path / name).write_text(text)
        assert baton("ingest", tmp_path / name, "--cluster", "pods", "--data", data.root).code == 0
    scene = read_scene(data, clusters.resolve(data, cluster="pods"))
    assert scene.cluster.capacity.tolist() == [[8, 96000, 8192], [4, 64000, 4096]]
    assert scene.cluster.labels == ("G2", "T4")
    assert scene.jobs.need.tolist() == [[1, 4000, 1024], [1, 4000, 1024]]
    assert scene.jobs.gpus.tolist() == [4, 1] and scene.jobs.gpu_milli.tolist() == [1000, 460]
    assert scene.jobs.objects()[1].accepts == ("T4",)


@pytest.mark.skipif(not OPENB.is_dir(), reason=f"no {OPENB}, which holds Alibaba's openb trace")
def test_the_real_openb_trace(baton: Baton, tmp_path: Path) -> None:  # noqa: F811
    """6,171 pods on GPUs, 2,562 of them on a part of one; every node with its CPUs and memory."""
    data = DataFolder(tmp_path / "data")
    for path in sorted(OPENB.iterdir()):
        assert baton("ingest", path, "--cluster", "openb", "--data", data.root).code == 0
    scene = read_scene(data, clusters.resolve(data, cluster="openb"))
    assert scene.cluster.capacity.shape == (1213, 3) and scene.cluster.gpus == 6212
    assert scene.cluster.capacity[:, 1].sum() == 1000 * 107_018
    assert len(scene.jobs) == 6112 and (scene.jobs.gpu_milli < 1000).sum() == 2562
    assert "CPUs: jobs wait for it as the log records its use" in scene.assumptions
    result = simulate(scene.cluster, scene.jobs, "drf").result
    assert (result.start_s >= 0).all()
