"""Scaled observations: their statistics, those that a trained network carries, and the wrapper that shows them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from agent.artifact import Artifact
from features.observe import FEATURES
from models.provisioning.environment import ENV_ID, ProvisioningEnv, ScaledObservation
from models.provisioning.learning import networks
from models.provisioning.protocol import PairTable
from models.provisioning.registry import make_policy
from models.provisioning.scaling import BOUND, Scaling


def test_standardises_the_signed_logarithm_of_every_feature(fit_table: PairTable) -> None:
    scaling = Scaling.of(fit_table.observations)
    assert scaling.names == FEATURES
    assert set(scaling.minus.tolist()) == {-1}  # nothing is taken relative to anything
    seen = scaling(fit_table.observations)
    assert seen.dtype == np.float32 and np.abs(seen).max() <= BOUND
    raw = fit_table.observations.astype(np.float64)
    logarithm = np.sign(raw) * np.log1p(np.abs(raw))
    spread = np.maximum(logarithm.std(axis=0), 0.05)
    np.testing.assert_allclose(seen, np.clip((logarithm - logarithm.mean(axis=0)) / spread, -5, 5), atol=1e-4)


def test_the_statistics_are_those_of_the_fit_and_not_of_what_is_shown(
    fit_table: PairTable, report_table: PairTable
) -> None:
    scaling = Scaling.of(fit_table.observations)
    few = report_table.observations[:10]
    np.testing.assert_array_equal(scaling(few), scaling(report_table.observations)[:10])
    assert not np.array_equal(scaling(few), Scaling.of(few)(few))


def test_without_observations() -> None:
    with pytest.raises(ValueError, match="no observations"):
        Scaling.of(np.zeros((0, len(FEATURES)), np.float32))


def test_of_an_artifact_is_what_its_network_was_fitted_on(fit_table: PairTable, report_table: PairTable) -> None:
    inputs = networks.Inputs.of(fit_table.observations)
    network = networks.network(inputs.width, (4,), 1)
    manifest = {
        "policy": "dqn",
        "kind": "mlp",
        "knob": "weight",
        "settings": [1.0],
        "default_setting": 1.0,
        "features": list(FEATURES),
        "format_version": 1,
        "requirements": [],
        "parameters": {"layers": 2, "head": "logit"},
    }
    scaling = Scaling.of_artifact(Artifact(manifest, inputs.export(network)))
    np.testing.assert_array_equal(scaling(report_table.observations), inputs.scaling(report_table.observations))
    assert scaling.names == inputs.scaling.names
    assert scaling.names[0] == "start_estimate_h relative to remaining_h"
    reactive, _ = make_policy("reactive").fit(fit_table, 0)
    with pytest.raises(ValueError, match="policy 'reactive' is of kind 'constant-lead' and reads raw"):
        Scaling.of_artifact(reactive)


def test_the_wrapper_shows_scaled_observations_in_its_space(fit_table: PairTable, report_table: PairTable) -> None:
    scaling = Scaling.of(fit_table.observations)
    raw, env = ProvisioningEnv(report_table), ScaledObservation(ProvisioningEnv(report_table), scaling)
    assert env.observation_space == gymnasium.spaces.Box(-5.0, 5.0, (len(FEATURES),), np.float32)
    for action in (None, 0, 0, 1):
        if action is None:
            (shown, _), (observed, _) = env.reset(options={"pair": 5}), raw.reset(options={"pair": 5})
        else:
            (shown, *rest), (observed, *same) = env.step(np.int64(action)), raw.step(np.int64(action))
            assert rest == same
        np.testing.assert_array_equal(shown, scaling(observed[None])[0])
        assert env.observation_space.contains(shown)


def test_the_specification_of_a_wrapped_environment_names_its_scaling(report_table: PairTable) -> None:
    """From it gymnasium makes the same environment again."""
    env, scaling = ProvisioningEnv(report_table), Scaling.of(report_table.observations)
    env.spec = gymnasium.spec(ENV_ID)
    spec, rows = ScaledObservation(env, scaling).spec, report_table.observations
    assert spec is not None
    (wrapper,) = spec.additional_wrappers
    assert wrapper.kwargs is not None
    np.testing.assert_array_equal(wrapper.kwargs["scaling"](rows), scaling(rows))


def test_a_feature_that_hardly_varies_is_not_blown_up() -> None:
    """A deviation of .01 in the logarithm is divided by .05, not by itself; one of .2 by itself."""
    rows = np.zeros((4, len(FEATURES)), np.float32)
    rows[:, 0] = np.expm1([1.0, 1.02, 1.0, 1.02])
    rows[:, 1] = np.expm1([1.0, 1.4, 1.0, 1.4])
    seen = Scaling.of(rows)(rows)
    np.testing.assert_allclose(seen[:, 0], [-0.2, 0.2, -0.2, 0.2], atol=1e-4)
    np.testing.assert_allclose(seen[:, 1], [-1.0, 1.0, -1.0, 1.0], atol=1e-4)
    assert not seen[:, 2:].any()


def test_statistics_of_many_observations_are_those_of_a_part() -> None:
    """Of 100,000 rows every second is looked at, of 99,999 each."""
    rows = np.zeros((100_000, len(FEATURES)), np.float32)
    rows[1::2, 0] = np.expm1(1.0)
    assert Scaling.of(rows).mean[0] == 0.0
    assert Scaling.of(rows[:-1]).mean[0] == pytest.approx(0.5, abs=1e-4)
