"""Cluster settings: declared, overlaid, found by name or folder, refused with the known ones."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from traces import clusters
from traces.errors import InputError
from traces.store.folder import DataFolder


def test_the_declared_clusters() -> None:
    known = clusters.load(DataFolder(Path("nowhere")))
    ls6 = known["ls6"]
    assert (ls6.timezone, ls6.nodes, ls6.gpus_per_node) == ("America/Chicago", 80, 3)
    assert (ls6.fit_from, ls6.report_until) == (datetime(2022, 11, 1), datetime(2023, 2, 21))
    assert known["sample"].folder == "slurm" and known["philly-sample"].folder == "philly"


def test_the_data_folder_overlays_key_by_key(tmp_path: Path) -> None:
    text = "[ls6]\nnodes = 72\nnodes_by_date = [[2023-01-01, 76], [2022-11-01, 40]]\n[mine]\nquotas = {gpu = 8}\n"
    (tmp_path / "clusters.toml").write_text(text)
    known = clusters.load(DataFolder(tmp_path))
    assert known["ls6"].nodes == 72 and known["ls6"].timezone == "America/Chicago"
    assert known["ls6"].nodes_by_date == ((datetime(2022, 11, 1), 40), (datetime(2023, 1, 1), 76))
    assert known["mine"].quotas == {"gpu": 8} and known["mine"].timezone == "UTC"


def test_hyperparameters_are_tables_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "clusters.toml").write_text("[mine.hyperparameters.dqn]\nupdates = 900\nlearning_rate = 0.01\n")
    known = clusters.load(DataFolder(tmp_path))
    assert known["mine"].hyperparameters == {"dqn": {"updates": 900, "learning_rate": 0.01}}
    assert known["ls6"].hyperparameters == {}


def test_what_is_asked_of_gpu_schedulers_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "clusters.toml"
    path.write_text('[mine.what_if]\nschedulers = ["fifo"]\nchanges = []\nseeds = 2\njobs = 500\n')
    known = clusters.load(DataFolder(tmp_path))
    assert known["mine"].what_if == {"schedulers": ["fifo"], "changes": [], "seeds": 2, "jobs": 500}
    for line, found in {
        "what_if = 3": "a table with some of schedulers, changes, seeds, jobs, profiles, got 3",
        "what_if.schedulers = []": "what_if.schedulers: must be a list of 1 to 8 texts",
        "what_if.changes = [1]": "what_if.changes: must be a list of 0 to 8 texts",
        "what_if.seeds = 0": "what_if.seeds: must be at least 1",
        "what_if.jobs = 9000000": "what_if.jobs: must be a whole number from 0 to 1,000,000",
        "what_if.draws = 3": "unknown setting 'draws': allowed are schedulers",
    }.items():
        path.write_text(f"[mine]\n{line}\n")
        with pytest.raises(InputError, match=found):
            clusters.load(DataFolder(tmp_path))


def test_gpu_types_are_nodes_of_each_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "clusters.toml"
    path.write_text("[mine]\ngpu_types = { T4 = 12, A100 = 4 }\n")
    assert list(clusters.load(DataFolder(tmp_path))["mine"].gpu_types.items()) == [("T4", 12), ("A100", 4)]
    for value, found in {
        '"T4:12,A100:4"': (
            "gpu_types: must be a table of 1 to 16 types such as { T4 = 12, A100 = 4 }, got 'T4:12,A100:4'"
        ),
        "{}": "gpu_types: must be a table of 1 to 16 types",
        "{ T4 = 0 }": r"gpu_types\.T4: must be at least 1 node, got 0",
        "{ T4 = -3 }": r"gpu_types\.T4: must be a whole number from 0 to",
        '{ T4 = "all" }': r"gpu_types\.T4: must be a whole number from 0 to",
        "{ T4 = true }": r"gpu_types\.T4: must be a whole number from 0 to",
    }.items():
        path.write_text(f"[mine]\ngpu_types = {value}\n")
        with pytest.raises(InputError, match=found):
            clusters.load(DataFolder(tmp_path))


def test_the_resource_and_the_size_of_a_node_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "clusters.toml"
    lines = ['resource = "core"', 'resources = { gpu = "gpu", "long name" = "node" }']
    path.write_text("\n".join(["[mine]", *lines, "cpus_per_node = 64", "memory_gib_per_node = 500"]))
    mine = clusters.load(DataFolder(tmp_path))["mine"]
    assert (mine.resource, mine.resources) == ("core", {"gpu": "GPU", "long name": "node"})
    assert (mine.cpus_per_node, mine.memory_gib_per_node) == (64, 500)
    for line, found in {
        'resource = "disk"': r"\[mine\] resource: must be one of GPU, core, memory, node, got 'disk'",
        "resource = 1": "resource: must be one of GPU, core, memory, node, got 1",
        'resources = "core"': "resources: must be a table of partition = resource, got 'core'",
        'resources.gpu = "disk"': r"resources\.gpu: must be one of GPU, core, memory, node, got 'disk'",
        "cpus_per_node = 0": "cpus_per_node: must be at least 1, got 0",
        "memory_gib_per_node = -1": "memory_gib_per_node: must be a whole number from 0 to 1,073,741,824, got -1",
        "cpus_per_node = 1.5": r"cpus_per_node: must be a whole number from 0 to 268,435,456, got 1\.5",
    }.items():
        path.write_text(f"[mine]\n{line}\n")
        with pytest.raises(InputError, match=found):
            clusters.load(DataFolder(tmp_path))


def test_found_by_name_or_folder_and_flags_override(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    assert clusters.resolve(data, raw=tmp_path / "tacc-lonestar6").name == "ls6"
    assert clusters.resolve(data, cluster="ls6", nodes=72, timezone="UTC").nodes == 72
    assert clusters.resolve(data, cluster="fresh", new=True).timezone == "UTC"
    fresh = clusters.resolve(data, cluster="fresh", cpus_per_node=64, resource="CORE")
    assert (fresh.cpus_per_node, fresh.resource) == (64, "core")
    (data.lake / "seen").mkdir(parents=True)
    assert clusters.resolve(data, cluster="seen").name == "seen"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"cluster": "unheard"}, "known are .*ls6"),
        ({"raw": Path("elsewhere")}, "known: .*ls6"),
        ({}, "--cluster"),
        ({"cluster": "../up"}, "not allowed"),
        ({"cluster": "derived"}, "not allowed"),
        ({"cluster": "ls6", "timezone": "Mars/Olympus"}, "Mars"),
        ({"cluster": "ls6", "nodes": 0}, "--nodes 0"),
        ({"cluster": "ls6", "cpus_per_node": 0}, "--cpus-per-node 0: must be a whole number from 1 to 268,435,456"),
        ({"cluster": "ls6", "resource": "disk"}, "--resource: must be one of GPU, core, memory, node, got 'disk'"),
    ],
)
def test_refused(tmp_path: Path, how: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        clusters.resolve(DataFolder(tmp_path), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["[a]\nnods = 1\n", "[a]\nnodes = -1\n", "[a]\nfit_from = 3\n", "[a]\ntimezone = 'X/Y'\n", "a = 1\n", "[a\n",
     "[a]\nnodes_by_date = [1]\n", "[a]\nquotas = 1\n", "[a]\nfolder = 1\n", "[a]\nhyperparameters = 1\n",
     "[a.hyperparameters]\ndqn = 1\n", "[a.hyperparameters.dqn]\nupdates = 'many'\n", "['a/b']\nnodes = 1\n"],
)  # fmt: skip
def test_a_settings_file_that_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "clusters.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        clusters.load(DataFolder(tmp_path))
    assert "\n" not in str(caught.value)
