"""Fitted trees as arrays: scikit-learn's, LightGBM's and XGBoost's in the one form that `agent.artifact` walks.

Nodes of all trees are in one numbering in which a right child follows its left one; a leaf is its own child with a
threshold of infinity. An input goes right where it is greater than the threshold; inputs are float32, and thresholds
are rounded to the float32 that gives the same answer for every one of them. No input is missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Float32s = NDArray[np.float32]


@dataclass(frozen=True)
class Tree:
    """One tree, node 0 its root, arrays (nodes,)."""

    feature: Int64s
    threshold: Float32s  # right where greater
    left: Int64s  # -1 at a leaf
    right: Int64s
    value: Float64s  # at leaves


def flatten(trees: list[Tree]) -> dict[str, NDArray[Any]]:
    """The arrays of a `trees` artifact, whose prediction is the sum over the trees."""
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("feature", "threshold", "child", "value")}
    roots, base = [], 0
    for tree in trees:
        order = breadth_first(tree.left, tree.right)
        place = np.arange(len(order))
        number = np.empty(len(tree.left), np.int64)
        number[order] = place
        leaf = tree.left[order] < 0
        parts["feature"].append(np.where(leaf, 0, tree.feature[order]).astype(np.int16))
        parts["threshold"].append(np.where(leaf, np.inf, tree.threshold[order]).astype(np.float32))
        parts["child"].append((np.where(leaf, place, number[tree.left[order]]) + base).astype(np.int32))
        parts["value"].append(np.where(leaf, tree.value[order], 0.0))
        roots.append(base)
        base += len(order)
    return {**{name: np.concatenate(part) for name, part in parts.items()}, "root": np.asarray(roots, np.int32)}


def breadth_first(left: Int64s, right: Int64s) -> Int64s:
    """Nodes of a tree level by level, the two children of a node next to each other."""
    levels = [np.zeros(1, np.int64)]
    while len(inner := levels[-1][left[levels[-1]] >= 0]):
        levels.append(np.stack([left[inner], right[inner]], axis=1).ravel())
    return np.concatenate(levels)


def round_down(numbers: Float64s) -> Float32s:
    """The largest float32 that is no larger: x <= number and x <= it are the same for every float32 x."""
    nearest = numbers.astype(np.float32)
    return np.where(nearest > numbers, np.nextafter(nearest, np.float32(-np.inf)), nearest).astype(np.float32)


def from_sklearn(model: Any) -> dict[str, NDArray[Any]]:
    """A fitted RandomForestRegressor: the mean of its trees, left where input <= threshold."""
    found = []
    for estimator in model.estimators_:
        tree = estimator.tree_
        value = tree.value[:, 0, 0] / len(model.estimators_)
        found.append(Tree(tree.feature, round_down(tree.threshold), tree.children_left, tree.children_right, value))
    return flatten(found)


def from_lightgbm(booster: Any) -> dict[str, NDArray[Any]]:
    """A LightGBM booster without categories: the sum of its trees, left where input <= threshold."""
    return flatten([_lightgbm_tree(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]])


def _lightgbm_tree(structure: dict[str, Any]) -> Tree:
    feature, threshold, left, right, value = [], [], [], [], []
    waiting = [structure]
    for node in waiting:  # grows while it is walked
        leaf = "leaf_value" in node
        feature.append(0 if leaf else node["split_feature"])
        threshold.append(0.0 if leaf else node["threshold"])
        value.append(node["leaf_value"] if leaf else 0.0)
        left.append(-1 if leaf else len(waiting))
        right.append(-1 if leaf else len(waiting) + 1)
        if not leaf:
            waiting += [node["left_child"], node["right_child"]]
    thresholds = round_down(np.asarray(threshold, np.float64))
    return Tree(np.asarray(feature), thresholds, np.asarray(left), np.asarray(right), np.asarray(value, np.float64))


def from_xgboost(booster: Any) -> dict[str, NDArray[Any]]:
    """An XGBoost booster of one output with an identity link: base score plus trees, left where input < threshold."""
    learner = json.loads(booster.save_raw("json"))["learner"]
    found = []
    for tree in learner["gradient_booster"]["model"]["trees"]:
        condition = np.asarray(tree["split_conditions"], np.float32)  # at a leaf, its value
        found.append(
            Tree(
                np.asarray(tree["split_indices"], np.int64),
                np.nextafter(condition, np.float32(-np.inf)),
                np.asarray(tree["left_children"], np.int64),
                np.asarray(tree["right_children"], np.int64),
                condition.astype(np.float64),
            )
        )
    base = float(str(learner["learner_model_param"]["base_score"]).strip("[]"))
    constant = Tree(*(np.asarray([number]) for number in (0, np.float32(0.0), -1, -1, base)))
    return flatten([constant, *found])
