"""Fitted trees as arrays, in the form that `agent.trees` walks. Each policy converts its own library's trees.

Nodes of all trees share one numbering, in which a right child follows its left one. A leaf is its own child, with a
threshold of infinity. An input goes right if it is greater than the threshold. Inputs are float32; thresholds are
rounded to the float32 that gives the same answer for every one of them. No input is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from traces.arrays import Float32s, Float64s, Int64s


@dataclass(frozen=True)
class Tree:
    """One tree with root node 0, as arrays (nodes,)."""

    feature: Int64s
    threshold: Float32s  # go right if greater
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


def without_trees(artifact: Artifact) -> Artifact:
    """The artifact with a single leaf of zero, so that it predicts its base estimate."""
    leaf = Tree(np.zeros(1, np.int64), np.zeros(1, np.float32), np.full(1, -1), np.full(1, -1), np.zeros(1))
    return replace(artifact, arrays=flatten([leaf]))


def breadth_first(left: Int64s, right: Int64s) -> Int64s:
    """The nodes of a tree level by level, with the two children of a node next to each other."""
    levels = [np.zeros(1, np.int64)]
    while len(inner := levels[-1][left[levels[-1]] >= 0]):
        levels.append(np.stack([left[inner], right[inner]], axis=1).ravel())
    return np.concatenate(levels)


def round_down(numbers: Float64s) -> Float32s:
    """The largest float32 not above each number: comparing any float32 x with either gives the same result."""
    nearest = numbers.astype(np.float32)
    return np.where(nearest > numbers, np.nextafter(nearest, np.float32(-np.inf)), nearest).astype(np.float32)
