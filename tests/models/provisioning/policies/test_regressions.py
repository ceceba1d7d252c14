"""What the three regressions predict, against the definition of their loss, and what they log."""

from __future__ import annotations

import numpy as np
import pytest

from agent.artifact import Artifact
from agent.kinds import sum_of_trees
from features.observe import FEATURES
from models.provisioning.learning.regression_rows import BASE, TrainingRows, training_rows
from models.provisioning.policies.forest import RandomForest
from models.provisioning.policies.lightgbm import LightGBMQuantile
from models.provisioning.policies.xgboost import XGBoostMean
from models.provisioning.protocol import PairTable, Policy
from tests.models.provisioning.policies.learning_task import table


def random_waits(pairs: int = 100) -> PairTable:
    """Pairs that look all alike and whose waits are drawn anew at each decision, skewed."""
    made = table(pairs=pairs)
    made.observations[:, FEATURES.index("free_nodes")] = 0.0
    for name in ("start_estimate_h", "start_estimate_expected_h", "start_estimate_idle_h"):
        made.observations[:, FEATURES.index(name)] = 1.0
    wait_s = np.random.default_rng(0).exponential(3 * 3600, len(made.decision_s)).astype(np.int64)
    return PairTable(**{**made.__dict__, "successor_start_s": made.decision_s + wait_s})


def prediction(artifact: Artifact, pairs: PairTable) -> float:
    """The one number that is predicted for all these rows: log of (1 h + wait) / (1 h + estimate)."""
    predicted = sum_of_trees(artifact, training_rows(pairs).inputs)
    assert predicted.max() - predicted.min() < 0.02  # nothing tells the rows apart
    return float(predicted.mean())


def below(rows: TrainingRows, number: float) -> float:
    """The share of the rows' weight whose target is below the number."""
    return float(rows.weight[rows.log_ratio < number].sum() / rows.weight.sum())


@pytest.mark.parametrize("quantile", [0.3, 0.6, 0.8])
def test_lightgbm_predicts_the_quantile(quantile: float) -> None:
    pairs = random_waits()
    artifact, metrics = LightGBMQuantile(quantile=quantile, rounds=60).fit(pairs, 0)
    rows = training_rows(pairs)
    predicted = prediction(artifact, pairs)
    assert below(rows, predicted) == pytest.approx(quantile, abs=0.03)
    error = rows.log_ratio - predicted
    pinball = np.maximum(quantile * error, (quantile - 1) * error)
    assert len(metrics["fit_pinball_log_ratio"]) == 60
    assert metrics["fit_pinball_log_ratio"][-1] == pytest.approx(np.average(pinball, weights=rows.weight), rel=0.01)


def test_xgboost_and_the_forest_predict_the_weighted_mean() -> None:
    pairs = random_waits()
    rows = training_rows(pairs)
    mean = float(np.average(rows.log_ratio, weights=rows.weight))
    learners: list[Policy] = [RandomForest(trees=20), XGBoostMean()]
    for policy in learners:
        artifact, metrics = policy.fit(pairs, 0)
        predicted = prediction(artifact, pairs)
        assert predicted == pytest.approx(mean, abs=0.03), policy.name
        error = metrics["fit_rmse_log_ratio"]
        weight = rows.weight if policy.name == "xgboost" else np.ones_like(rows.weight)
        expected = np.sqrt(np.average((rows.log_ratio - predicted) ** 2, weights=weight))
        assert error[-1] == pytest.approx(expected, rel=0.02), policy.name


@pytest.mark.parametrize("policy", [RandomForest(trees=5), XGBoostMean(rounds=20), LightGBMQuantile(rounds=20)])
def test_rows_count_by_their_weight(policy: Policy) -> None:
    """Where waits shrink towards the end, whose rows weigh most, the prediction is below the plain mean of rows."""
    pairs = random_waits()
    left_h = (pairs.predecessor_end_s[pairs.pair_of] - pairs.decision_s) / 3600
    moved = PairTable(
        **{**pairs.__dict__, "successor_start_s": pairs.decision_s + np.rint(left_h * 3600).astype(np.int64)}
    )
    rows = training_rows(moved)
    artifact, _ = policy.fit(moved, 0)
    predicted = sum_of_trees(artifact, rows.inputs).mean()
    plain = np.quantile(rows.log_ratio, 0.6) if policy.name == "lightgbm" else rows.log_ratio.mean()
    weighted = np.average(rows.log_ratio, weights=rows.weight)
    assert predicted < plain - 0.02
    if policy.name == "forest":
        assert predicted == pytest.approx(weighted, abs=0.05)


def test_artifacts_say_what_is_predicted_and_from_what() -> None:
    artifact, _ = XGBoostMean(rounds=2).fit(random_waits(8), 0)
    assert artifact.parameters["base"] == BASE == "start_estimate_expected_h"
    assert artifact.parameters["inputs"] == [
        "successor_nodes", "free_nodes", "pending_node_h", "start_estimate_h", "start_estimate_expected_h",
        "start_estimate_idle_h", "recent_wait_mean_h", "recent_wide_wait_mean_h", "limit_use_mean", "release_4h_nodes",
    ]  # fmt: skip
