"""The contract of every policy in the registry, on generated pairs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.observe import FEATURES
from models.provisioning.comparison.outcomes import at_overlap, stopping_rows
from models.provisioning.protocol import PairTable, Policy
from models.provisioning.registry import POLICIES, make_policy
from tests.models.generated import queue_table
from traces.errors import InputError

LEARNED = ("forest", "xgboost", "lightgbm", "fitted-q", "dqn", "policy-gradient")


def quick(name: str) -> Policy:
    """The policy with less training, where the test is not about how well it learns."""
    policy = POLICIES[name]()
    for field, value in (("trees", 5), ("rounds", 5), ("improvement_rounds", 5), ("updates", 20)):
        if hasattr(policy, field):
            setattr(policy, field, value)
    return policy


@cache
def fitted(name: str) -> Artifact:
    """As the registry makes it, fitted once a process."""
    return make_policy(name).fit(queue_table(seed=0), 0)[0]


@cache
def quickly_fitted(name: str) -> Artifact:
    """The quick form, on few pairs."""
    return quick(name).fit(queue_table(seed=2, starts=12), 0)[0]


def curve(pairs: PairTable, artifact: Artifact) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean interruption and mean overlap (settings,), hours."""
    gap = pairs.gap_h[stopping_rows(pairs, artifact.decisions(pairs.observations))]
    return np.maximum(gap, 0).mean(axis=1), np.maximum(-gap, 0).mean(axis=1)


def interruption_at(pairs: PairTable, artifact: Artifact, overlap_h: float) -> float:
    """Mean interruption at that mean overlap, hours."""
    interruption, overlap = curve(pairs, artifact)
    reactive = np.maximum(pairs.gap_h[pairs.last], 0).mean()
    return float(at_overlap(interruption[None], overlap[None], np.asarray([reactive]), overlap_h)[0])


def test_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'oracel'.*reactive, average-wait.*policy-gradient"):
        make_policy("oracel")


@pytest.mark.parametrize("name", POLICIES)
def test_declares_a_knob_of_at_most_fifteen_settings(name: str) -> None:
    policy = make_policy(name)
    assert policy.name == name
    assert policy.knob
    assert 1 <= len(policy.settings) <= 15
    assert len(set(policy.settings)) == len(policy.settings)
    assert policy.is_learned == (name in LEARNED)


@pytest.mark.parametrize("name", POLICIES)
def test_artifact_says_what_it_is(name: str) -> None:
    artifact = quickly_fitted(name)
    assert artifact.manifest["policy"] == name
    assert artifact.manifest["features"] == list(FEATURES)
    assert artifact.settings == make_policy(name).settings
    assert artifact.manifest["requirements"] == [f"numpy=={np.__version__}"]


@pytest.mark.parametrize("name", POLICIES)
def test_decides_the_same_after_a_round_trip(name: str, tmp_path: Path, report_table: PairTable) -> None:
    artifact = quickly_fitted(name)
    artifact.save(tmp_path / "policy")
    loaded = Artifact.load(tmp_path / "policy", features=FEATURES)
    assert loaded.manifest == artifact.manifest
    scores = artifact.scores(report_table.observations)
    assert scores.shape == (len(artifact.settings), len(report_table.decision_s))
    assert scores.dtype == np.float64
    np.testing.assert_array_equal(loaded.scores(report_table.observations), scores)
    decisions = artifact.decisions(report_table.observations)
    for i, setting in enumerate(artifact.settings):
        np.testing.assert_array_equal(loaded.decide(report_table.observations, setting), decisions[i])
    np.testing.assert_array_equal(
        loaded.decide(report_table.observations),
        loaded.decide(report_table.observations, artifact.manifest["default_setting"]),
    )


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seed_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    pairs = queue_table(seed=2, starts=12)
    for run in ("a", "b"):
        artifact, _ = quick(name).fit(pairs, 7)
        artifact.save(tmp_path / run)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "b").iterdir())
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


@pytest.mark.parametrize("name", LEARNED)
def test_another_seed_gives_another_model(name: str) -> None:
    other, _ = quick(name).fit(queue_table(seed=2, starts=12), 1)
    same = quickly_fitted(name)
    assert any(not np.array_equal(array, other.arrays[key]) for key, array in same.arrays.items())


@pytest.mark.parametrize("name", LEARNED)
def test_training_metrics_are_finite_series(name: str) -> None:
    _, metrics = quick(name).fit(queue_table(seed=2, starts=12), 0)
    assert metrics
    assert all(series and np.isfinite(series).all() for series in metrics.values())


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_decided_at_the_exact_end_never_matters(name: str, report_table: PairTable) -> None:
    submit = quickly_fitted(name).decisions(report_table.observations)
    never, always = submit.copy(), submit.copy()
    never[:, report_table.last] = False
    always[:, report_table.last] = True
    np.testing.assert_array_equal(stopping_rows(report_table, never), stopping_rows(report_table, always))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in POLICIES if name != "reactive"])
def test_settings_go_from_nearly_reactive_to_hours_of_overlap(name: str, report_table: PairTable) -> None:
    _, overlap = curve(report_table, fitted(name))
    assert overlap[0] < 0.1
    assert overlap[-1] > 2.0
    assert (np.diff(overlap) >= -0.1).all(), f"overlap falls along the settings: {overlap.round(2).tolist()}"


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_learns_to_beat_average_wait_at_equal_overlap(name: str, report_table: PairTable) -> None:
    for overlap_h in (0.25, 0.5, 1.0):
        learned = interruption_at(report_table, fitted(name), overlap_h)
        baseline = interruption_at(report_table, fitted("average-wait"), overlap_h)
        assert learned < 0.85 * baseline, (
            f"at {overlap_h} h of overlap: {learned:.2f} h against average wait's {baseline:.2f} h"
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "policy-gradient"])
def test_solves_the_identity_environment(name: str, identity: PairTable) -> None:
    artifact, _ = make_policy(name).fit(identity, 0)
    submit = artifact.decide(identity.observations, 1.0)
    reactive = np.maximum(identity.gap_h[identity.last], 0).mean()
    # on the grid of decisions no time need be lost; a quarter of an hour is a decision and a half
    gap = identity.gap_h[stopping_rows(identity, submit[None])[0]]
    assert np.abs(gap).mean() < 0.25, f"{np.abs(gap).mean():.2f} h lost where none need be; reactive {reactive:.2f} h"
    assert np.abs(gap).max() < 1.0, f"a pair loses {np.abs(gap).max():.2f} h"
