"""The asset of GPU schedulers: what is declared is replayed, what was asked by hand is kept, and why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.shared.resources import Baton as Resource
from assets.simulation import simulation_what_if_schedulers
from models.what_if import gpu_answers as gpu_what_ifs
from models.what_if.schedulers import replays
from tests.pipelines.conftest import Baton, baton, dump  # noqa: F401 - a fixture
from traces import clusters
from traces.errors import InputError
from traces.store import derived
from traces.store.folder import DataFolder


@pytest.fixture
def data(baton: Baton, tmp_path: Path) -> DataFolder:  # noqa: F811
    folder = tmp_path / "data"
    assert baton("ingest", dump(tmp_path / "log.psv"), "--cluster", "small", "--data", folder).code == 0
    return DataFolder(folder)


def made(data: DataFolder, **flags: Any) -> dict[str, Any]:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("clusters", ["small"])
        result = dg.materialize(
            [simulation_what_if_schedulers],
            instance=instance,
            partition_key="small",
            resources={"baton": Resource(data=str(data.root), **flags)},
        )
    (event,) = result.get_asset_materialization_events()
    return {name: getattr(value, "value", value) for name, value in event.materialization.metadata.items()}


def test_a_cluster_whose_gpus_nobody_counts_is_told_why(data: DataFolder) -> None:
    assert "give --nodes and --gpus-per-node" in made(data, nodes=2)["why"]


def test_what_is_declared_is_replayed_once_and_what_was_asked_by_hand_is_kept(data: DataFolder) -> None:
    declared = '[small]\nnodes = 2\ngpus_per_node = 4\n[small.what_if]\nschedulers = ["fifo", "sjf"]\nchanges = []\n'
    data.clusters_toml.write_text(declared)
    first, again = made(data), made(data)
    assert (first["dagster/row_count"], first["reused"], again["reused"]) == (2, False, True)
    assert first["best_mean_jct_h"] == 2.0 and "no profiles" in first["assumed"]

    settings = clusters.load(data)["small"]
    question = gpu_what_ifs.Question(schedulers=("srtf",), changes=(), draws=1)
    asked = gpu_what_ifs.asked(data, settings, question)
    gpu_what_ifs.keep(data, settings, question, asked, replays(asked, lambda _: None, 1))
    by_hand = made(data)
    assert (by_hand["asked_by"], by_hand["reused"]) == ("baton whatif", True)
    assert derived.read(data, "what_if_schedulers", "small")["scheduler"].to_list() == ["srtf"]

    data.clusters_toml.write_text(declared.replace('"fifo", ', ""))  # another question is declared: it is asked
    assert not made(data)["reused"]
    assert derived.read(data, "what_if_schedulers", "small")["scheduler"].to_list() == ["sjf"]


def test_gpus_of_several_types_are_declared_and_another_mix_is_replayed_anew(data: DataFolder) -> None:
    start = "[small]\nnodes = 2\ngpus_per_node = 4\n"
    question = '[small.what_if]\nschedulers = ["fifo"]\nchanges = []\nseeds = 1\n'
    data.clusters_toml.write_text(start + question)
    alike = made(data)
    assert "all GPUs are of one type" in alike["assumed"] and "(generated)" not in alike["assumed"]
    data.clusters_toml.write_text(start + question + 'profiles = "published"\n')
    drawn = made(data)
    assert "all GPUs are of one type, taken as T4" in drawn["assumed"] and "(generated)" in drawn["assumed"]
    data.clusters_toml.write_text(f"{start}gpu_types = {{ A100 = 1, K80 = 1 }}\n{question}")
    mixed = made(data)
    assert not mixed["reused"]
    assert "nodes are 1 of A100, 1 of K80, as declared; run times are taken as those of A100" in mixed["assumed"]
    scene = gpu_what_ifs.scene_of(data, clusters.load(data)["small"], gpu_what_ifs.Question())
    assert scene.cluster.types == ("A100", "K80") and scene.cluster.reference == "A100"
    data.clusters_toml.write_text(f"{start}gpu_types = {{ K80 = 1, A100 = 1 }}\n{question}")
    assert not made(data)["reused"]  # the order is that of the nodes


def test_gpu_types_that_cannot_be_are_refused_in_one_line(baton: Baton, data: DataFolder) -> None:  # noqa: F811
    data.clusters_toml.write_text("[small]\nnodes = 2\ngpus_per_node = 4\ngpu_types = { A100 = 2, T4 = 1 }\n")
    why = "gpu_types of cluster 'small' in clusters.toml are for 3 nodes, but it has 2"
    ended = baton("whatif", "--cluster", "small", "--schedulers", "fifo", "--data", data.root)
    assert ended.code == 2 and why in ended.err and ended.err.count("\n") == 1


def test_an_unknown_scheduler_that_is_declared_is_refused_by_name(data: DataFolder) -> None:
    data.clusters_toml.write_text('[small]\nwhat_if.schedulers = ["lottery"]\n')
    with pytest.raises(InputError, match="unknown scheduler 'lottery': known are fifo"):
        gpu_what_ifs.declared(data, clusters.load(data)["small"])
