"""Parts of the learners against the libraries and definitions that they stand in for."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.kinds import sum_of_trees
from features.observe import FEATURES
from models.provisioning.batched_pairs import BatchedPairs
from models.provisioning.learning import networks
from models.provisioning.learning.exploring_starts import ExploringStarts
from models.provisioning.learning.manifest import new_artifact
from models.provisioning.learning.regression_rows import BASE, INPUTS, training_rows
from models.provisioning.learning.trees import round_down
from models.provisioning.policies.dqn import DQN
from models.provisioning.policies.forest import RandomForest, from_sklearn
from models.provisioning.policies.lightgbm import from_lightgbm
from models.provisioning.policies.policy_gradient import PolicyGradient, start_from_estimate
from models.provisioning.policies.xgboost import from_xgboost
from models.provisioning.protocol import PairTable


def predict(arrays: dict[str, NDArray[Any]], inputs: NDArray[np.float32]) -> NDArray[np.float64]:
    """What an artifact with those trees over the first few features predicts."""
    parameters = {"base": "start_estimate_h", "inputs": list(FEATURES[: inputs.shape[1]])}
    return sum_of_trees(new_artifact(RandomForest(), "trees", 1.0, parameters=parameters, arrays=arrays), inputs)


def on_thresholds(inputs: NDArray[np.float32], arrays: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    """Inputs moved onto the trees' thresholds and to either side: where rounding would show."""
    inputs = inputs.copy()
    nodes = np.flatnonzero(np.isfinite(arrays["threshold"]))
    for row in range(len(inputs)):
        node = nodes[row % len(nodes)]
        near = arrays["threshold"][node]
        towards = np.float32((-np.inf, np.inf)[row // len(nodes) % 2])
        inputs[row, arrays["feature"][node]] = near if row % 3 else np.nextafter(near, towards)
    return inputs


def test_sklearns_trees_predict_the_same_as_arrays(report_table: PairTable) -> None:
    from sklearn.ensemble import RandomForestRegressor

    rows = training_rows(report_table)
    model = RandomForestRegressor(n_estimators=7, max_leaf_nodes=50, random_state=0).fit(rows.inputs, rows.log_ratio)
    arrays = from_sklearn(model)
    for inputs in (rows.inputs, on_thresholds(rows.inputs, arrays)):
        np.testing.assert_allclose(predict(arrays, inputs), model.predict(inputs), rtol=1e-10, atol=1e-13)


def test_lightgbms_trees_predict_the_same_as_arrays(report_table: PairTable) -> None:
    import lightgbm

    rows = training_rows(report_table)
    options = {"objective": "quantile", "alpha": 0.7, "num_leaves": 20, "verbosity": -1}
    booster = lightgbm.train(options, lightgbm.Dataset(rows.inputs, rows.log_ratio), 15)
    arrays = from_lightgbm(booster)
    for inputs in (rows.inputs, on_thresholds(rows.inputs, arrays)):
        np.testing.assert_allclose(predict(arrays, inputs), booster.predict(inputs), rtol=1e-10, atol=1e-13)


def test_xgboosts_trees_predict_the_same_as_arrays(report_table: PairTable) -> None:
    import xgboost

    rows = training_rows(report_table)
    booster = xgboost.train({"max_depth": 5}, xgboost.DMatrix(rows.inputs, rows.log_ratio), 15)
    arrays = from_xgboost(booster)
    for inputs in (rows.inputs, on_thresholds(rows.inputs, arrays)):
        np.testing.assert_allclose(predict(arrays, inputs), booster.inplace_predict(inputs), atol=2e-6)


def test_trees_of_a_single_leaf(report_table: PairTable) -> None:
    import lightgbm
    import xgboost
    from sklearn.ensemble import RandomForestRegressor

    inputs, ones = report_table.observations[:20, :4], np.ones(20)
    forest = RandomForestRegressor(n_estimators=3, random_state=0).fit(inputs, ones)
    light = lightgbm.train({"verbosity": -1}, lightgbm.Dataset(inputs, ones), 2)
    extreme = xgboost.train({}, xgboost.DMatrix(inputs, ones), 2)
    for arrays in (from_sklearn(forest), from_lightgbm(light), from_xgboost(extreme)):
        np.testing.assert_allclose(predict(arrays, inputs), 1.0, rtol=1e-6)


def test_rounding_down_keeps_every_comparison_with_float32() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(scale=100, size=2000)
    down = round_down(numbers)
    assert (down <= numbers).all()
    assert (np.nextafter(down, np.float32(np.inf)) > numbers).all()


@pytest.mark.parametrize(("head", "outputs"), [("q", 2), ("logit", 1)])
def test_network_in_numpy_equals_torch(head: str, outputs: int, report_table: PairTable) -> None:
    import torch

    inputs = networks.Inputs.of(report_table.observations)
    with networks.repeatable(3):
        network = networks.network(inputs.width, (16, 8), outputs)
        last = [*network.modules()][-1]
        assert isinstance(last, torch.nn.Linear)
        torch.nn.init.normal_(last.weight)
    artifact = new_artifact(DQN(), "mlp", 1.0, parameters={"head": head, "layers": 3}, arrays=inputs.export(network))
    rows = np.arange(0, len(report_table.decision_s), 7)
    for weight in (0.02, 1.0, 40.0):
        with torch.no_grad():
            out = network(inputs.at(rows, np.full(len(rows), np.log(weight), np.float32))).numpy()
        expected = out[:, 1] - out[:, 0] if head == "q" else out[:, 0]
        found = artifact.score(report_table.observations[rows], weight)
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_an_actor_starts_as_the_start_estimates_rule(report_table: PairTable) -> None:
    inputs = networks.Inputs.of(report_table.observations)
    with networks.repeatable(3):
        network = networks.network(inputs.width, (16,), 1)
        start_from_estimate(network, inputs, sharpness=50.0, caution=0.2)
    parameters = {"head": "logit", "layers": 2}
    artifact = new_artifact(PolicyGradient(), "mlp", 1.0, parameters=parameters, arrays=inputs.export(network))
    remaining = report_table.observations[:, FEATURES.index("remaining_h")]
    estimate = report_table.observations[:, FEATURES.index("start_estimate_h")]
    assert (artifact.decide(report_table.observations, 1.0) == (estimate >= remaining)).mean() > 0.97
    shares = artifact.decisions(report_table.observations).mean(axis=1)
    assert (np.diff(shares) > 0).all()


def test_training_rows_weigh_every_pair_alike_and_the_end_most(fit_table: PairTable) -> None:
    pairs = fit_table.take(np.arange(10))
    rows = training_rows(pairs)
    assert rows.inputs.shape == (10 * 25, len(INPUTS))
    np.testing.assert_allclose(rows.weight.reshape(10, 25).sum(axis=1), 25.0)
    assert (np.diff(rows.weight.reshape(10, 25)) > 0).all()
    base_h = rows.inputs[:, INPUTS.index(BASE)].astype(float)
    wait_h = (np.exp(rows.log_ratio) * (1 + base_h) - 1).reshape(10, 25)
    np.testing.assert_allclose(wait_h[:, -1], np.maximum(pairs.gap_h[pairs.last], 0), atol=1e-6)
    np.testing.assert_allclose(wait_h[:, 0], pairs.gap_h[pairs.offset[:-1]] + 24, atol=1e-6)


def test_episodes_start_mostly_where_the_choice_is_close(report_table: PairTable) -> None:
    env = BatchedPairs(report_table, 6)
    pairs, left = ExploringStarts(env).draw(np.random.default_rng(0), 20_000)
    rows = env.reset(pairs, left)
    remaining = report_table.observations[rows, FEATURES.index("remaining_h")]
    estimate = report_table.observations[rows, FEATURES.index("start_estimate_expected_h")]
    hours = int(report_table.limit_s[0] // 3600)
    assert set(np.unique(remaining)) == set(range(hours + 1))
    everywhere = env.reset(
        np.repeat(np.arange(len(report_table)), hours + 1), np.tile(np.arange(hours + 1), len(report_table))
    )
    close = np.abs(np.log1p(estimate) - np.log1p(remaining)) < 0.5
    seen = report_table.observations[everywhere]
    usual = np.abs(np.log1p(seen[:, FEATURES.index("start_estimate_expected_h")]) - np.log1p(seen[:, 0])) < 0.5
    assert close.mean() > 1.5 * usual.mean()


def test_repeatable_leaves_torch_as_it_was() -> None:
    import torch

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    with networks.repeatable(5):
        first = torch.rand(3)
    with networks.repeatable(5):
        second = torch.rand(3)
    assert torch.equal(first, second)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads


@pytest.mark.slow
def test_a_forest_decides_on_200_000_observations_in_one_pass(fit_table: PairTable) -> None:
    artifact, _ = RandomForest().fit(fit_table, 0)
    repeats = 200_000 // len(fit_table.decision_s) + 1
    observations = np.tile(fit_table.observations, (repeats, 1))[:200_000]
    began = time.perf_counter()
    one = artifact.decide(observations, 1.0)
    alone = time.perf_counter() - began
    began = time.perf_counter()
    every = artifact.decisions(observations)
    together = time.perf_counter() - began
    np.testing.assert_array_equal(every[artifact.settings.index(1.0)], one)
    assert together < 3 * alone, (
        f"fifteen settings take {together:.1f} s, one {alone:.1f} s: the trees are walked again"
    )
