"""What each policy is made of: the settings and hyper-parameters that published figures were measured with.

The learners' own values are written out once more here, because nothing else would notice a slip of a digit in them:
a learner with a tenth of its rounds still learns. Whoever changes one on purpose measures again and changes both.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from models.provisioning.learning.regression_rows import INPUTS, training_rows
from models.provisioning.learning.stopping_rows import INPUTS as RATIOS
from models.provisioning.protocol import Policy
from models.provisioning.registry import POLICIES, make_policy
from tests.models.provisioning.policies.learning_task import table

FACTORS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
WEIGHTS = (40.0, 20.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3, 0.15, 0.06, 0.02)
NETWORK = {
    "settings": WEIGHTS, "hidden": (64, 64), "last_rate": 0.05, "looks": 40, "inputs": RATIOS, "looks_ahead": False,
}  # fmt: skip
RECIPES: dict[str, dict[str, Any]] = {
    "reactive": {"settings": (0.0,)},
    "average-wait": {
        "settings": (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 48.0),
        "feature": "recent_wait_mean_h",
    },
    "start-estimate": {
        "settings": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0),
        "feature": "start_estimate_h",
    },
    "start-expected": {
        "settings": (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0),
        "feature": "start_estimate_expected_h",
    },
    "forest": {"settings": FACTORS, "trees": 50, "leaves": 200, "min_samples_leaf": 10, "max_features": 0.4},
    "xgboost": {
        "settings": FACTORS, "rounds": 120, "depth": 4, "learning_rate": 0.06, "min_child_weight": 60.0,
        "subsample": 0.6, "colsample_bytree": 0.5, "base": "start_estimate_expected_h", "inputs": INPUTS,
        "looks_ahead": False,
    },
    "lightgbm": {
        "settings": FACTORS, "quantile": 0.6, "rounds": 120, "leaves": 15, "learning_rate": 0.06,
        "min_data_in_leaf": 60, "feature_fraction": 0.5, "bagging_fraction": 0.6,
    },
    "fitted-q": {
        "settings": WEIGHTS, "sharpness": 4.0, "prices": (0.02, 0.15, 0.7, 2.0, 8.0, 40.0), "folds": 3, "rounds": 50,
        "improvement_rounds": 50, "leaves": 7, "learning_rate": 0.06, "min_data_in_leaf": 60, "feature_fraction": 0.6,
        "bagging_fraction": 0.6, "base": "start_estimate_h", "inputs": RATIOS, "looks_ahead": False,
    },
    "dqn": {
        **NETWORK, "updates": 1200, "imitated": 0.25, "batch": 512, "steps_ahead": 16, "learning_rate": 1e-3,
        "gradient_norm": 10.0, "target_rate": 0.02, "reward_scale_h": 4.0,
    },
    "policy-gradient": {
        **NETWORK, "sharpness": 2.0, "caution": 0.2, "average_rate": 0.05, "updates": 400, "imitated": 0.1,
        "batch_pairs": 32, "epochs": 4, "clip": 1.0, "learning_rate": 3e-3, "gradient_norm": 2.0, "entropy": 0.05,
    },
}  # fmt: skip
DEFAULTS = {"reactive": 0.0}  # settings at which a policy decides where no select window has picked one; else 1


def declared(policy: Policy) -> dict[str, Any]:
    """A policy's fields but for what the contract test looks at."""
    values = {one.name: getattr(policy, one.name) for one in fields(policy)}  # type: ignore[arg-type]
    return {name: value for name, value in values.items() if name not in ("name", "knob", "is_learned")}


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_the_one_that_was_measured(name: str) -> None:
    assert declared(make_policy(name)) == RECIPES[name]


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in ("dqn", "policy-gradient")])
def test_default_setting_is_among_the_settings(name: str) -> None:
    policy = make_policy(name)
    if hasattr(policy, "trees"):
        policy.trees = 2
    artifact, _ = policy.fit(table(pairs=8), 0)
    assert artifact.manifest["default_setting"] == DEFAULTS.get(name, 1.0)
    assert artifact.manifest["default_setting"] in artifact.settings
    assert artifact.parameters.get("feature") == RECIPES[name].get("feature")


class Caught(Exception):
    """What a library was asked for."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self.arguments, self.options = arguments, options


def caught(policy: Policy, monkeypatch: pytest.MonkeyPatch, place: str) -> Caught:
    """The first call of that function of a library while the policy is fitted with seed 7."""

    def ask(*arguments: Any, **options: Any) -> None:
        raise Caught(*arguments, **options)

    monkeypatch.setattr(place, ask)
    with pytest.raises(Caught) as asked:
        policy.fit(table(pairs=8), 7)
    return asked.value


ROWS = training_rows(table(pairs=8))


def test_forest_asks_scikit_learn_for_what_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = caught(make_policy("forest"), monkeypatch, "sklearn.ensemble.RandomForestRegressor")
    assert asked.options == {
        "n_estimators": 50, "max_leaf_nodes": 200, "min_samples_leaf": 10, "max_features": 0.4, "random_state": 7,
    }  # fmt: skip
    monkeypatch.undo()
    fit = caught(make_policy("forest"), monkeypatch, "sklearn.ensemble.RandomForestRegressor.fit")
    _, inputs, target = fit.arguments if len(fit.arguments) == 3 else (None, *fit.arguments)
    np.testing.assert_array_equal(inputs, ROWS.inputs)
    np.testing.assert_array_equal(target, ROWS.log_ratio)
    np.testing.assert_array_equal(fit.options["sample_weight"], ROWS.weight)


def test_xgboost_asks_its_library_for_what_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = caught(make_policy("xgboost"), monkeypatch, "xgboost.train")
    options, data, rounds = asked.arguments
    assert options == {
        "objective": "reg:squarederror", "eval_metric": "rmse", "tree_method": "hist", "max_depth": 4, "eta": 0.06,
        "min_child_weight": 60.0, "subsample": 0.6, "colsample_bytree": 0.5, "seed": 7, "nthread": 1,
    }  # fmt: skip
    assert rounds == 120
    assert [name for _, name in asked.options["evals"]] == ["fit"] and not asked.options["verbose_eval"]
    np.testing.assert_allclose(data.get_weight(), ROWS.weight, rtol=1e-6)
    np.testing.assert_allclose(data.get_label(), ROWS.log_ratio, rtol=1e-6, atol=1e-7)
    assert (data.num_row(), data.num_col()) == (len(ROWS.weight), len(INPUTS))


def test_lightgbm_asks_its_library_for_what_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = caught(make_policy("lightgbm"), monkeypatch, "lightgbm.train")
    options, data, rounds = asked.arguments
    assert options == {
        "objective": "quantile", "alpha": 0.6, "metric": "quantile", "num_leaves": 15, "learning_rate": 0.06,
        "min_data_in_leaf": 60, "feature_fraction": 0.5, "bagging_fraction": 0.6, "bagging_freq": 1, "seed": 7,
        "deterministic": True, "force_row_wise": True, "num_threads": 1, "verbosity": -1,
    }  # fmt: skip
    assert rounds == 120
    assert asked.options["valid_sets"] == [data] and asked.options["valid_names"] == ["fit"]
    np.testing.assert_array_equal(data.weight, ROWS.weight)
    np.testing.assert_array_equal(data.label, ROWS.log_ratio)


def test_every_policy_has_a_recipe() -> None:
    assert list(RECIPES) == list(POLICIES)
