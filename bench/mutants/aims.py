"""Which tests watch over which module: the quick ones that are about it."""

from __future__ import annotations

OBSERVE = ("tests/features/test_observe_twin.py", "tests/features/test_observe.py")
POLICIES = "tests/models/policies"
LEARNING = "tests/models/learning"
RECIPES = f"{POLICIES}/test_recipes.py"
RECIPE = f"{RECIPES}::test_recipe_is_the_one_that_was_measured"
DECLARED = "tests/models/test_policies.py::test_declares_a_knob_of_at_most_fifteen_settings"
DIFFERENCES = "tests/models/comparison/test_differences.py"
ENVIRONMENT = "tests/models/test_environment.py"
AIMS: dict[str, tuple[str, ...]] = {
    "features/observe.py": OBSERVE,
    "features/start_estimate.py": OBSERVE,
    "agent/artifact.py": (
        "tests/agent/test_kinds.py",
        "tests/agent/test_artifact.py",
        "tests/agent/test_hostile_artifact.py",
    ),
    "agent/__main__.py": ("tests/agent/test_command.py",),
    "models/batched_pairs.py": (
        "tests/models/test_batched_pairs.py",
        f"{ENVIRONMENT}::test_batch_against_one_pair_at_a_time",
        f"{ENVIRONMENT}::test_refuses_what_cannot_be_stepped",
    ),
    "models/scaling.py": ("tests/models/test_scaling.py",),
    "models/protocol.py": ("tests/models/test_protocol.py",),
    "models/learning/exploring_starts.py": (f"{LEARNING}/test_exploring_starts.py",),
    "models/learning/networks.py": (f"{LEARNING}/test_networks.py", RECIPE, f"{POLICIES}/test_parts.py"),
    "models/learning/regression_rows.py": (f"{LEARNING}/test_regression_rows.py", RECIPE),
    "models/learning/trees.py": (
        f"{POLICIES}/test_parts.py",
        f"{DIFFERENCES}::test_untrained_trees_are_their_base_estimate",
    ),
    "models/policies/dqn.py": (RECIPE, f"{POLICIES}/test_dqn.py", DECLARED),
    "models/policies/policy_gradient.py": (RECIPE, f"{POLICIES}/test_policy_gradient.py", DECLARED),
    "models/policies/forest.py": (RECIPES, f"{POLICIES}/test_regressions.py", f"{POLICIES}/test_parts.py", DECLARED),
    "models/policies/xgboost.py": (RECIPES, f"{POLICIES}/test_regressions.py", f"{POLICIES}/test_parts.py", DECLARED),
    "models/policies/lightgbm.py": (RECIPES, f"{POLICIES}/test_regressions.py", f"{POLICIES}/test_parts.py", DECLARED),
    "models/policies/estimates.py": (RECIPES, DECLARED),
    "models/policies/reactive.py": (RECIPES, DECLARED),
    "models/comparison/bootstrap.py": ("tests/models/comparison/test_bootstrap.py",),
    **{
        f"models/comparison/{name}.py": ("tests/models/comparison",)
        for name in ("compare", "outcomes", "cells", "differences", "groups", "rules", "settings")
    },
    "models/release/gate.py": ("tests/models/release/test_gate.py",),
    "models/release/block_interval.py": ("tests/models/release/test_gate.py",),
    "models/release/candidate.py": ("tests/models/release/test_release.py",),
}
