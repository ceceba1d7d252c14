"""The artifact: what it writes, what it refuses, and that it decides as it says."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agent import kinds
from agent.artifact import Artifact

FEATURES = ["remaining_h", "free_nodes", "start_estimate_h"]
OBSERVATIONS = np.asarray([[5, 0, 2], [1, 0, 2], [0, 9, 0], [2, 4, 0]], np.float32)


def manifest(kind: str, **changes: Any) -> dict[str, Any]:
    return {
        "policy": "test",
        "kind": kind,
        "knob": "lead, h",
        "settings": [0.0, 1.0, 4.0],
        "default_setting": 1.0,
        "features": FEATURES,
        "format_version": 1,
        "requirements": ["numpy==2.4.6"],
        **changes,
    }


def constant_lead(**changes: Any) -> Artifact:
    return Artifact(manifest("constant-lead", **changes))


def trees(**changes: Any) -> Artifact:
    """One tree: free_nodes <= 3 ? log 2 : 0 (over an estimate of start_estimate_h)."""
    arrays: dict[str, NDArray[Any]] = {
        "feature": np.asarray([0, 0, 0], np.int16),
        "threshold": np.asarray([3.0, np.inf, np.inf], np.float32),
        "child": np.asarray([1, 1, 2], np.int32),
        "value": np.asarray([0.0, np.log(2.0), 0.0]),
        "root": np.asarray([0], np.int32),
    }
    parameters = {"base": "start_estimate_h", "inputs": ["free_nodes"]}
    return Artifact(manifest("trees", parameters=parameters), {**arrays, **changes})


def network(**changes: Any) -> Artifact:
    """One layer: logit = start_estimate / remaining in logs, less the log of the weight."""
    arrays = {
        "column": np.asarray([2]),
        "minus": np.asarray([0]),
        "mean": np.zeros(1, np.float32),
        "scale": np.ones(1, np.float32),
        "condition_scale": np.ones(1, np.float32),
        "weight_0": np.asarray([[1.0, -1.0]], np.float32),
        "bias_0": np.zeros(1, np.float32),
        "skip": np.zeros((1, 2), np.float32),
    }
    head = {"layers": 1, "head": "logit"}
    return Artifact(manifest("mlp", parameters=head, default_setting=1.0, settings=[9.0, 1.0]), {**arrays, **changes})


def test_constant_lead_decides_by_the_remaining_time() -> None:
    assert constant_lead().decide(OBSERVATIONS).tolist() == [False, True, True, False]
    assert constant_lead().decide(OBSERVATIONS, 4.0).tolist() == [False, True, True, True]
    assert constant_lead().decisions(OBSERVATIONS).sum(axis=1).tolist() == [1, 2, 3]
    assert constant_lead().with_setting(4.0).decide(OBSERVATIONS).tolist() == [False, True, True, True]


def test_estimate_ratio_scales_the_named_feature() -> None:
    artifact = Artifact(manifest("estimate-ratio", parameters={"feature": "start_estimate_h"}))
    assert artifact.score(OBSERVATIONS, 2.0).tolist() == [-1.0, 3.0, 0.0, -2.0]
    assert artifact.decide(OBSERVATIONS, 2.5).tolist() == [True, True, True, False]


def test_trees_multiply_the_base_estimate() -> None:
    waits = np.asarray([2 * 3 - 1, 2 * 3 - 1, 0, 0])
    np.testing.assert_allclose(trees().score(OBSERVATIONS, 1.0), waits - OBSERVATIONS[:, 0], atol=1e-12)
    np.testing.assert_allclose(trees().score(OBSERVATIONS, 2.0), 2 * (waits + 1) - 1 - OBSERVATIONS[:, 0], atol=1e-12)


def test_network_compares_logarithms() -> None:
    expected = np.log1p(OBSERVATIONS[:, 2]) - np.log1p(OBSERVATIONS[:, 0]) - np.log(9.0)
    np.testing.assert_allclose(network().score(OBSERVATIONS, 9.0), expected, atol=1e-6)


@pytest.mark.parametrize("make", [constant_lead, trees, network])
def test_nothing_is_waited_for_once_the_predecessor_has_ended(make: Callable[[], Artifact]) -> None:
    ended = np.asarray([[0, 0, 0], [-1, 100, 0]], np.float32)
    assert make().decisions(ended).all()


@pytest.mark.parametrize("make", [constant_lead, trees, network])
def test_a_batch_decides_as_its_rows_do(make: Callable[[], Artifact]) -> None:
    rng = np.random.default_rng(0)
    observations = rng.uniform(0, 30, (9000, 3)).astype(np.float32)  # more than two blocks
    whole = make().scores(observations)
    for row in (0, 4095, 4096, 8999):
        np.testing.assert_allclose(make().scores(observations[row : row + 1])[:, 0], whole[:, row], atol=1e-5)
    assert make().scores(observations[:0]).shape == (len(make().settings), 0)


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        (np.zeros(3), r"shape \(3,\)"),
        (np.zeros((2, 4)), r"needs \(n, 3\)"),
        (np.asarray([[1.0, np.nan, 0.0]]), "observation 0: free_nodes is nan"),
        (np.asarray([[1.0, 0.0, 0.0], [np.inf, 0.0, 0.0]]), "observation 1: remaining_h is inf"),
    ],
)
def test_refuses_observations_that_it_cannot_judge(observations: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        constant_lead().decide(observations)


@pytest.mark.parametrize("make", [constant_lead, trees, network])
def test_round_trip(make: Callable[[], Artifact], tmp_path: Path) -> None:
    for folder in ("a", "b"):
        make().save(tmp_path / folder)
    loaded = Artifact.load(tmp_path / "a", features=FEATURES)
    assert loaded.manifest == make().manifest
    np.testing.assert_array_equal(loaded.scores(OBSERVATIONS), make().scores(OBSERVATIONS))
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]  # no leftovers


def test_saving_replaces_the_older_one_as_a_whole(tmp_path: Path) -> None:
    trees().save(tmp_path / "policy")
    (tmp_path / "policy" / "stray").write_text("left by an older version")
    constant_lead().save(tmp_path / "policy")
    assert sorted(p.name for p in (tmp_path / "policy").iterdir()) == ["arrays.npz", "manifest.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["policy"]
    assert Artifact.load(tmp_path / "policy").manifest["kind"] == "constant-lead"


def test_a_save_that_fails_leaves_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constant_lead().save(tmp_path / "policy")

    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space"):
            trees().save(tmp_path / "policy")
    assert Artifact.load(tmp_path / "policy").manifest["kind"] == "constant-lead"
    assert [p.name for p in tmp_path.iterdir()] == ["policy"]


def test_a_feature_that_is_not_observed_gets_its_declared_fill() -> None:
    policy = constant_lead(fills={"free_nodes": 3, "start_estimate_h": "remaining_h"})
    assert policy.row({"remaining_h": 5}) == [5.0, 3.0, 5.0]
    assert policy.row({"remaining_h": 5, "free_nodes": 0, "start_estimate_h": None}) == [5.0, 0.0, 5.0]
    with pytest.raises(ValueError, match=r"missing: \['remaining_h'\]"):
        policy.row({"remaining_h": None})
    assert constant_lead(fills={"free_nodes": 3}).row({"remaining_h": 5, "start_estimate_h": 1}) == [5.0, 3.0, 1.0]


def test_features_that_differ_are_refused_by_name(tmp_path: Path) -> None:
    constant_lead().save(tmp_path / "policy")
    with pytest.raises(ValueError, match=r"missing \['free_nodes'\], unknown \['idle_nodes'\]"):
        Artifact.load(tmp_path / "policy", features=["remaining_h", "idle_nodes", "start_estimate_h"])
    with pytest.raises(ValueError, match="another order"):
        Artifact.load(tmp_path / "policy", features=FEATURES[::-1])


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the manifest on disk."""
    found = json.loads((folder / "manifest.json").read_text())
    change(found)
    (folder / "manifest.json").write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format_version=2), "format_version is 2; this program reads 1"),
        (lambda m: m.pop("format_version"), "format_version is None"),
        (lambda m: m.update(kind="oracle"), "unknown kind 'oracle'"),
        (lambda m: m.update(kind=["trees"]), "kind is missing or has the wrong type"),
        (lambda m: m.update(settings=[]), "settings"),
        (lambda m: m.update(settings=[1, "2"]), "settings"),
        (lambda m: m.update(settings=[float("nan")]), "NaN"),
        (lambda m: m.update(features=["free_nodes"]), "remaining_h"),
        (lambda m: m.update(features=["remaining_h", "remaining_h"]), "distinct"),
        (lambda m: m.update(requirements=[1]), "requirements"),
        (lambda m: m.update(fills=[1]), "each of fills must"),
        (lambda m: m.update(fills={"no_such": 1.0}), "each of fills must"),
        (lambda m: m.update(fills={"free_nodes": "no_such"}), "each of fills must"),
        (lambda m: m.update(fills={"free_nodes": True}), "each of fills must"),
        (lambda m: m.update(fills={"free_nodes": 1e300}), "each of fills must"),
        (lambda m: m.update(fills={"free_nodes": "start_estimate_h", "start_estimate_h": 0}), "each of fills must"),
        (lambda m: m.pop("sha256"), "damaged"),
        (lambda m: m["sha256"].update({"../../secret": "0"}), "damaged"),
        (lambda m: m["sha256"].update({"arrays.npz": "0"}), "damaged"),
        (lambda m: m.update(parameters={"base": "free_nodes", "inputs": ["no_such"]}), "no_such"),
        (lambda m: m.update(parameters=[]), "lack None"),
    ],
)
def test_a_hostile_manifest_is_one_line(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    trees().save(tmp_path / "policy")
    rewrite(tmp_path / "policy", change)
    with pytest.raises(ValueError, match=message) as caught:
        Artifact.load(tmp_path / "policy")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "policy") in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b" " * ((1 << 20) + 1)])
def test_an_unreadable_manifest_is_one_line(tmp_path: Path, content: bytes) -> None:
    constant_lead().save(tmp_path / "policy")
    (tmp_path / "policy" / "manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match="unreadable artifact") as caught:
        Artifact.load(tmp_path / "policy")
    assert "\n" not in str(caught.value)


def test_no_folder_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unreadable artifact"):
        Artifact.load(tmp_path / "none")


def sign(folder: Path, name: str, content: bytes) -> None:
    """Puts a file into the folder with its right digest, as an attacker would."""
    (folder / name).write_bytes(content)
    rewrite(folder, lambda m: m["sha256"].update({name: hashlib.sha256(content).hexdigest()}))


@pytest.mark.parametrize("keep", [0, 10, 100, -1, -30])
def test_truncated_arrays_are_refused_even_when_signed(tmp_path: Path, keep: int) -> None:
    trees().save(tmp_path / "policy")
    whole = (tmp_path / "policy" / "arrays.npz").read_bytes()
    (tmp_path / "policy" / "arrays.npz").write_bytes(whole[:keep])
    with pytest.raises(ValueError, match="damaged or truncated"):
        Artifact.load(tmp_path / "policy")
    sign(tmp_path / "policy", "arrays.npz", whole[:keep])
    with pytest.raises(ValueError, match="unreadable artifact") as caught:
        Artifact.load(tmp_path / "policy")
    assert "\n" not in str(caught.value)


def test_a_pickle_in_the_arrays_is_never_opened(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
            return Path.touch, (tmp_path / "opened",)  # type: ignore[return-value]

    trees().save(tmp_path / "policy")
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {**trees().arrays, "value": np.asarray([Bomb()], object)}
    np.savez(buffer, **arrays)
    sign(tmp_path / "policy", "arrays.npz", buffer.getvalue())
    with pytest.raises(ValueError, match="allow_pickle"):
        Artifact.load(tmp_path / "policy")
    assert not (tmp_path / "opened").exists()


def test_arrays_that_would_fill_the_memory_are_not_unpacked(tmp_path: Path) -> None:
    trees().save(tmp_path / "policy")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("value.npy", "w") as entry:
        for _ in range(300):
            entry.write(bytes(1 << 20))
    sign(tmp_path / "policy", "arrays.npz", buffer.getvalue())
    with pytest.raises(ValueError, match="unpacks to more"):
        Artifact.load(tmp_path / "policy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"child": np.asarray([0, 1, 2], np.int32)}, "infinity"),
        ({"child": np.asarray([2, 1, 2], np.int32)}, "outside"),
        ({"child": np.asarray([1, 0, 2], np.int32)}, "backwards"),
        ({"child": np.asarray([1, 1], np.int32)}, "same length"),
        ({"child": np.asarray([1.0, 1.0, 2.0])}, "integers"),
        ({"feature": np.asarray([1, 0, 0])}, "a feature outside 0 to"),
        ({"feature": np.asarray([-1, 0, 0])}, "a feature outside 0 to"),
        ({"root": np.asarray([3])}, "outside"),
        ({"root": np.empty(0, np.int32)}, "at least one tree"),
        ({"value": np.asarray([0.0, np.nan, 0.0])}, "numbers"),
        ({"threshold": np.asarray([np.nan, np.inf, np.inf], np.float32)}, "numbers"),
        ({"value": np.asarray(["a", "b", "c"])}, "not numeric"),
        ({"extra": np.zeros(1)}, "required:"),
    ],
)
def test_trees_that_could_not_be_walked_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trees(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_0": np.zeros((1, 3), np.float32)}, "layer 0"),
        ({"weight_0": np.zeros((2, 2), np.float32), "bias_0": np.zeros(2, np.float32)}, "2 outputs"),
        ({"bias_0": np.asarray([np.inf], np.float32)}, "within"),
        ({"column": np.asarray([3])}, "must be features from 0 to"),
        ({"minus": np.asarray([-2])}, "must be features from 0 to"),
        ({"scale": np.zeros(1, np.float32)}, "at least 1e-06"),
        ({"skip": np.zeros((1, 1), np.float32)}, "skip"),
        ({"mean": np.zeros(2, np.float32)}, "same length"),
    ],
)
def test_a_network_whose_layers_do_not_follow_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        network(**changes)


def test_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown kind 'telepathy'; known: constant-lead, .*, stopping-trees, mlp"):
        Artifact(manifest("telepathy"))


def checked(one: Artifact, folder: Path) -> Artifact:
    """The artifact with its checks, saved there and loaded again."""
    one.with_checks(OBSERVATIONS).save(folder)
    return Artifact.load(folder)


@pytest.mark.parametrize("one", [constant_lead(), trees(), network()], ids=["lead", "trees", "network"])
def test_a_loaded_artifact_answers_as_it_did_where_it_was_released(one: Artifact, tmp_path: Path) -> None:
    loaded = checked(one, tmp_path / "policy")
    assert loaded.manifest == one.manifest and loaded.checks is not None
    assert loaded.checks["submit"] == one.decide(OBSERVATIONS).tolist()
    assert loaded.checks["scores"] == one.score(OBSERVATIONS).tolist()
    assert one.with_checks(OBSERVATIONS).with_setting(4.0).checks is None


def test_another_answer_than_the_one_released_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that decides by other arithmetic than the one that the policy was released with."""
    checked(constant_lead(), tmp_path / "policy")
    other = kinds.ArtifactKind(lambda *of: kinds.constant_lead(*of) + np.asarray([[0, 0, 2e-3, 0]]))
    monkeypatch.setitem(kinds.KINDS, "constant-lead", other)
    wrong = r"checks\.json: observation 2 scores 1\.002 here, but 1 at the release"
    with pytest.raises(ValueError, match=wrong) as caught:
        Artifact.load(tmp_path / "policy")
    assert "\n" not in str(caught.value)
    within = kinds.ArtifactKind(lambda *of: kinds.constant_lead(*of) + 1e-9)
    monkeypatch.setitem(kinds.KINDS, "constant-lead", within)
    Artifact.load(tmp_path / "policy")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["submit"].__setitem__(0, True), "observation 0 scores"),
        (lambda c: c["scores"].pop(), "as many scores and decisions as observations"),
        (lambda c: c.update(submit=[0, 1, 1, 0]), "as many scores and decisions"),
        (lambda c: c.update(scores=[float("nan")] * 4), r"checks\.json holds NaN"),
        (lambda c: c.update(observations=[[1.0]] * 4), "observations of shape"),
        (lambda c: c.update(observations=c["observations"] * 300), "as many"),
        (lambda c: c.pop("observations"), "observations"),
    ],
)
def test_hostile_checks_are_one_line(tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    checked(constant_lead(), tmp_path / "policy")
    path = tmp_path / "policy" / "checks.json"
    checks = json.loads(path.read_text())
    change(checks)
    path.write_text(json.dumps(checks))
    with pytest.raises(ValueError, match=r"checks\.json is damaged"):
        Artifact.load(tmp_path / "policy")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    rewrite(tmp_path / "policy", lambda m: m["sha256"].update({"checks.json": digest}))
    with pytest.raises(ValueError, match=message) as caught:
        Artifact.load(tmp_path / "policy")
    assert "\n" not in str(caught.value)


def test_checks_that_the_manifest_states_must_be_there(tmp_path: Path) -> None:
    checked(constant_lead(), tmp_path / "policy")
    (tmp_path / "policy" / "checks.json").unlink()
    with pytest.raises(ValueError, match=r"checks\.json"):
        Artifact.load(tmp_path / "policy")
