"""The registered model: that it needs nothing but itself, and that its folder may be moved."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import agent.artifact
from agent.artifact import Artifact
from features.observe import FEATURES
from models.provisioning.policies.lightgbm import LightGBMQuantile
from models.tracking import exported, moved, registered
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from models.tracking.kinds import POLICY
from models.tracking.pyfuncs import requirements, save_pyfunc
from tests.conftest import REPOSITORY
from tests.models.generated import queue_table
from tests.models.pair_tables import artifact, random_pairs
from traces.cache.closure import present
from traces.errors import WorkError
from traces.store.folder import DataFolder


def registered_policy(data: DataFolder, cluster: str, number: int) -> Artifact:
    return Artifact.load(tracking.download(data, cluster, number) / "artifacts" / "policy")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A data folder with one initialised store (making one takes seconds)."""
    folder = DataFolder(tmp_path_factory.mktemp("data"))
    mlflow_store.initialise(folder)
    return folder


@pytest.fixture
def global_store(data: DataFolder) -> Iterator[None]:
    """What a consumer with the project's environment does: `mlflow.set_tracking_uri`; put back afterwards."""
    import mlflow

    before = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    mlflow.set_tracking_uri(mlflow_store.store_uri(data))
    mlflow.set_registry_uri(mlflow_store.store_uri(data))
    yield
    mlflow.set_tracking_uri(before[0])
    mlflow.set_registry_uri(before[1])
    os.environ.pop("MLFLOW_TRACKING_URI")  # MLflow sets it too, and the command line reads it


def frame_of(observations: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(observations.astype(np.float64), columns=list(FEATURES))


def test_initialising_again_changes_nothing(data: DataFolder) -> None:
    before = mlflow_store.client(data).get_experiment_by_name(mlflow_store.EXPERIMENT)
    mlflow_store.initialise(data)
    after = mlflow_store.client(data).get_experiment_by_name(mlflow_store.EXPERIMENT)
    assert (after.experiment_id, after.tags) == (before.experiment_id, before.tags)
    assert before.artifact_location == (data.mlflow / "artifacts").as_uri()
    assert before.tags["mlflow.experimentKind"] == "custom_model_development"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_a_store_of_another_release_of_mlflow_is_made_ready_again(
    data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = data.mlflow / mlflow_store.READY
    before = mark.read_text()
    monkeypatch.setattr(mlflow_store, "version", lambda _package: "0.0.1")
    mlflow_store.initialise(data)
    assert json.loads(mark.read_text())["release"] == "0.0.1"
    monkeypatch.undo()
    mlflow_store.initialise(data)
    assert mark.read_text() == before


def test_an_empty_data_folder_has_no_champion_and_is_left_empty(tmp_path: Path) -> None:
    empty = DataFolder(tmp_path)
    assert tracking.champion(empty, "toy") is None and tracking.versions(empty, "toy") == []
    assert tracking.model_tag(empty, "toy", "history") is None
    with pytest.raises(WorkError, match="version 1 of baton-policy-toy is not registered in"):
        tracking.download(empty, "toy", 1)
    assert list(tmp_path.iterdir()) == []


def test_the_released_model_predicts_what_the_artifact_decides(data: DataFolder, global_store: None) -> None:
    import mlflow.pyfunc

    one = artifact()
    number = tracking.register(
        data, "toy", one, tags={"policy": "start-estimate"}, description="d", metrics={"cost": 1.0}
    )
    tracking.set_alias(data, "toy", registered.CHAMPION, number)
    champion = tracking.champion(data, "toy")
    assert (
        champion is not None
        and champion.version == number
        and champion.tags == {"policy": "start-estimate", "cluster": "toy"}
    )
    assert tracking.tagged(data, "toy", "policy", "start-estimate") == [champion]
    assert tracking.tagged(data, "toy", "policy", "forest") == []
    tracking.set_model_tag(data, "toy", "history", "[1]")
    assert tracking.model_tag(data, "toy", "history") == "[1]" and tracking.model_tag(data, "toy", "other") is None
    observations = random_pairs(4, 5).observations
    model = mlflow.pyfunc.load_model(tracking.champion_uri("toy"))
    mixed = frame_of(observations)[list(reversed(FEATURES))]
    for setting in (None, *one.settings):
        found = model.predict(mixed, params=None if setting is None else {"setting": setting})
        assert found["submit"].dtype == bool
        np.testing.assert_array_equal(found["submit"], one.decide(observations, setting))
        np.testing.assert_array_equal(found["score"], one.score(observations, setting))
    with pytest.raises(mlflow.exceptions.MlflowException, match="remaining_h"):
        model.predict(mixed.drop(columns="remaining_h"))
    assert registered_policy(data, "toy", number) == one


def test_two_versions_in_one_process_each_run_their_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `code_paths` and a package, every version loaded after the first ran the code of the first."""
    import mlflow.pyfunc

    one, observations = artifact(), random_pairs(4, 5).observations
    save_pyfunc(one, tmp_path / "first", POLICY)
    source = Path(str(agent.artifact.__file__)).read_text()
    other = tmp_path / "artifact.py"
    other.write_text(source.replace("submit: NDArray[np.bool_] = self.scores(rows, settings) >= 0.0",
                                    "submit: NDArray[np.bool_] = self.scores(rows, settings) < 0.0"))  # fmt: skip
    assert other.read_text() != source
    sources = present()
    monkeypatch.setattr("models.tracking.pyfuncs.present", lambda: SimpleNamespace(
        path=lambda module: other if module == "agent.artifact" else sources.path(module)
    ))  # fmt: skip
    save_pyfunc(one, tmp_path / "second", POLICY)
    rows = observations[observations[:, FEATURES.index("remaining_h")] > 0]
    expected = one.decide(rows)
    first, second = (mlflow.pyfunc.load_model(str(tmp_path / name)) for name in ("first", "second"))
    np.testing.assert_array_equal(first.predict(frame_of(rows))["submit"], expected)
    np.testing.assert_array_equal(second.predict(frame_of(rows))["submit"], ~expected)
    np.testing.assert_array_equal(first.predict(frame_of(rows))["submit"], expected)


def test_requirements_are_pinned_and_name_no_full_mlflow() -> None:
    one = artifact()
    one.manifest["requirements"][:] = ["LightGBM==4.7.0", "numpy==2.4.6"]
    assert requirements(one) == [
        "LightGBM==4.7.0",
        "numpy==2.4.6",
        f"mlflow-skinny=={version('mlflow-skinny')}",
        f"pandas=={version('pandas')}",
    ]


def test_a_damaged_release_is_told_in_one_line(data: DataFolder) -> None:
    number = tracking.register(data, "toy", artifact(default=2.0), tags={}, description="d", metrics={})
    (tracking.download(data, "toy", number) / "artifacts" / "policy" / "arrays.npz").write_bytes(b"")
    with pytest.raises(WorkError, match=r"cannot be released: .*arrays\.npz is damaged") as caught:
        exported.export(data, "toy", number)
    assert "\n" not in str(caught.value)


def test_a_copied_data_folder_works_without_the_old_one(data: DataFolder, tmp_path: Path) -> None:
    """Runs, versions and their files are found where the folder is now; the old place is gone."""
    number = tracking.register(data, "toy", artifact(), tags={}, description="d", metrics={})
    old = DataFolder(tmp_path / "50%_of 'a' data")
    shutil.copytree(data.root, old.root)
    mlflow_store.initialise(old)
    client = mlflow_store.client(old)
    run_id = client.get_model_version(tracking.model_name("toy"), str(number)).run_id
    assert client.get_run(run_id).info.artifact_uri.startswith((old.mlflow / "artifacts").as_uri())

    new = DataFolder(tmp_path / "moved" / "data")
    shutil.move(old.root, new.root)
    tracking.set_alias(new, "toy", registered.CHAMPION, number)
    assert registered_policy(new, "toy", number) == artifact()
    assert mlflow_store.store_uri(new).endswith("/moved/data/mlflow/mlflow.db")
    with closing(sqlite3.connect(new.mlflow / "mlflow.db")) as connection:
        dump = "\n".join(connection.iterdump())
    assert old.root.as_uri() not in dump and str(old.root) not in dump
    later = tracking.register(new, "toy", artifact(default=2.0), tags={}, description="d", metrics={})
    assert new.root in tracking.download(new, "toy", later).parents
    assert data.root in tracking.download(data, "toy", number).parents  # the one it was copied from is as it was


def test_a_path_that_a_uri_would_read_otherwise_is_one_store(data: DataFolder, tmp_path: Path) -> None:
    odd = DataFolder(tmp_path / "5%41" / "who? x=1#2")
    shutil.copytree(data.root, odd.root)
    number = tracking.register(odd, "toy", artifact(), tags={}, description="d", metrics={})
    tracking.set_alias(odd, "toy", registered.CHAMPION, number)
    champion = tracking.champion(odd, "toy")
    assert champion is not None and champion.version == number
    assert registered_policy(odd, "toy", number) == artifact()
    assert [one.name for one in tmp_path.iterdir()] == ["5%41"], "no second store beside it"


def test_a_store_that_cannot_be_written_says_so(data: DataFolder, tmp_path: Path) -> None:
    copy = DataFolder(tmp_path / "copy")
    shutil.copytree(data.root, copy.root)
    with closing(sqlite3.connect(copy.mlflow / "mlflow.db")) as connection, connection:
        connection.execute("CREATE TRIGGER no BEFORE UPDATE ON experiments BEGIN SELECT raise(ABORT, 'read-only'); END")
    with pytest.raises(WorkError, match=r"mlflow\.db holds runs .* make the file writable"):
        moved.follow(copy.mlflow / "mlflow.db", mlflow_store.EXPERIMENT, "file:///elsewhere")


LOOK_FROM_OUTSIDE = """
import importlib.util, json, sys
assert not any(importlib.util.find_spec(name) for name in ("agent", "models", "features", "torch", "sqlalchemy"))
import mlflow.pyfunc, numpy, pandas
model = mlflow.pyfunc.load_model(sys.argv[1])
observations = pandas.DataFrame(numpy.load(sys.argv[2]), columns=model.metadata.get_input_schema().input_names())
found = [model.predict(observations, params={"setting": float(setting)}) for setting in sys.argv[4:]]
json.dump([[one["submit"].tolist(), one["score"].tolist()] for one in found], open(sys.argv[3], "w"))
"""


@pytest.mark.slow
def test_the_champion_predicts_in_an_empty_environment(data: DataFolder, global_store: None, tmp_path: Path) -> None:
    """Fetched with the project's environment, then loaded where only its own requirements are installed."""
    import mlflow.artifacts

    policy = LightGBMQuantile()
    policy.rounds = 20
    one, _ = policy.fit(queue_table(0, starts=40), 0)
    tracking.set_alias(
        data, "toy", registered.CHAMPION, tracking.register(data, "toy", one, tags={}, description="d", metrics={})
    )
    fetched = mlflow.artifacts.download_artifacts(
        artifact_uri=tracking.champion_uri("toy"), dst_path=str(tmp_path / "got")
    )
    observations = queue_table(1, starts=5).observations
    np.save(tmp_path / "observations.npy", observations.astype(np.float64))
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MLFLOW", "VIRTUAL_ENV", "BATON"))}
    uv, python = str(Path(sys.executable).with_name("uv")), str(tmp_path / "venv" / "bin" / "python")
    for command in (
        [uv, "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")],
        [uv, "pip", "install", "-q", "--python", python, "-r", f"{fetched}/requirements.txt"],
    ):
        subprocess.run(command, check=True, cwd=tmp_path, env=outside, timeout=300)
    settings = (one.settings[0], one.settings[-1])
    arguments = [fetched, "observations.npy", "answer.json", *map(str, settings)]
    done = subprocess.run(
        [python, "-I", "-c", LOOK_FROM_OUTSIDE, *arguments],
        cwd=tmp_path, env={**outside, "MLFLOW_DISABLE_TELEMETRY": "true"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(REPOSITORY) not in json.dumps([str(tmp_path), fetched])
    for setting, (submit, score) in zip(settings, json.loads((tmp_path / "answer.json").read_text()), strict=True):
        assert any(submit) and not all(submit)
        np.testing.assert_array_equal(submit, one.decide(observations, setting))
        np.testing.assert_allclose(score, one.score(observations, setting), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_two_processes_may_initialise_a_fresh_store_at_once(tmp_path: Path) -> None:
    code = "import sys, pathlib\nfrom models.tracking.store import initialise\n" \
           "from traces.store.folder import DataFolder\ninitialise(DataFolder(pathlib.Path(sys.argv[1])))"  # fmt: skip
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    client = mlflow_store.client(DataFolder(tmp_path))
    assert [e.name for e in client.search_experiments()].count(mlflow_store.EXPERIMENT) == 1


def shared(data: DataFolder, *clusters: str) -> None:
    """What an older version of this program left: one model for all clusters, its last version the champion."""
    client = mlflow_store.client(data)
    for cluster in clusters:
        number = tracking.register(data, cluster, artifact(), tags={}, description="d", metrics={})
        source = client.get_model_version(tracking.model_name(cluster), str(number))
        client.delete_registered_model(tracking.model_name(cluster))
        if not any(model.name == tracking.SHARED_MODEL for model in client.search_registered_models()):
            client.create_registered_model(tracking.SHARED_MODEL)
        made = client.create_model_version(
            tracking.SHARED_MODEL, source.source, source.run_id, tags={"cluster": cluster}
        )
        client.set_registered_model_alias(tracking.SHARED_MODEL, registered.CHAMPION, made.version)


def test_the_model_of_an_older_store_becomes_its_one_clusters(data: DataFolder, tmp_path: Path) -> None:
    old = DataFolder(tmp_path / "old")
    shutil.copytree(data.root, old.root)
    shared(old, "lab", "lab")
    tracking.take_over(old, "another")
    assert tracking.versions(old, "another") == tracking.versions(old, "lab") == []
    tracking.take_over(old, "lab")
    champion = tracking.champion(old, "lab")
    assert champion is not None and champion.version == 2 and tracking.versions(old, "lab") == [1, 2]
    assert registered_policy(old, "lab", 1) == artifact()
    tracking.take_over(old, "lab")


def test_the_model_of_several_clusters_is_refused_by_name(data: DataFolder, tmp_path: Path) -> None:
    old = DataFolder(tmp_path / "old")
    shutil.copytree(data.root, old.root)
    shared(old, "lab", "other")
    for cluster in ("lab", "other", "third"):
        with pytest.raises(WorkError, match=r"'provisioning-policy', one model for the clusters lab, other") as caught:
            tracking.take_over(old, cluster)
        assert "\n" not in str(caught.value)


def test_a_champion_is_one_clusters(data: DataFolder) -> None:
    ours = tracking.register(data, "ours", artifact(), tags={}, description="d", metrics={})
    theirs = tracking.register(data, "theirs", artifact(default=2.0), tags={}, description="d", metrics={})
    tracking.set_alias(data, "ours", registered.CHAMPION, ours)
    assert tracking.champion(data, "theirs") is None
    tracking.set_alias(data, "theirs", registered.CHAMPION, theirs)
    assert [registered_policy(data, name, 1).manifest["default_setting"] for name in ("ours", "theirs")] == [1, 2]
