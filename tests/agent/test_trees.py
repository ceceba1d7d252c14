"""Trees that answer by tables come to the leaves that a walk comes to, to the bit, whatever the input."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agent import trees as module
from agent.trees import MAX_LEAVES, TreeEnsemble, check_trees, walked
from models.provisioning.learning.trees import Tree, flatten

LOADER = (
    "agent.artifact",
    "agent.kinds",
    "agent.trees",
    "agent.distribution",
    "agent.model_folder",
)  # releases carry copies of these
FEATURES = 5
STEPS = np.array([-np.inf, -1.0, -0.5, 0.0, 0.5, 1.0, np.inf], np.float32)  # few, so that inputs tie with thresholds


def grown(rng: np.random.Generator, leaves: int) -> Tree:
    """A tree of that many leaves, split at random."""
    left, right = [-1], [-1]
    for _ in range(leaves - 1):
        at = int(rng.choice([node for node in range(len(left)) if left[node] < 0]))
        left[at], right[at] = len(left), len(left) + 1
        left += [-1, -1]
        right += [-1, -1]
    feature, threshold = rng.integers(0, FEATURES, len(left)), rng.choice(STEPS, len(left))
    return Tree(feature, threshold, np.array(left), np.array(right), rng.normal(size=len(left)))


def forest(seed: int, most: int, count: int = 30) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
    """Trees of 1 to `most` leaves and one of `most`; rows that lie at thresholds, between them, beyond and nowhere."""
    rng = np.random.default_rng(seed)
    sizes = [*rng.integers(1, most + 1, count).tolist(), most]
    rows = rng.choice([*STEPS, -0.75, 0.25, np.nan], (200, FEATURES)).astype(np.float32)
    return flatten([grown(rng, leaves) for leaves in sizes]), rows


def by_hand(trees: dict[str, NDArray[Any]], row: NDArray[np.float32]) -> list[float]:
    """The leaf of each tree, a step at a time."""
    found = []
    for node in trees["root"].tolist():
        while trees["child"][node] != node:
            node = trees["child"][node] + int(row[trees["feature"][node]] > trees["threshold"][node])
        found.append(float(trees["value"][node]))
    return found


@pytest.mark.parametrize("most", [1, 2, 8, 9, 16, 17, 32, 33, MAX_LEAVES, MAX_LEAVES + 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_tables_and_walks_come_to_the_same_leaves(most: int, seed: int) -> None:
    trees, rows = forest(seed, most)
    check_trees(trees, FEATURES)
    made = TreeEnsemble(trees)
    assert (made.splits is None) == (most > MAX_LEAVES)
    wanted = np.array([by_hand(trees, row) for row in rows]).T
    assert np.array_equal(made.leaves(rows), wanted)
    assert np.array_equal(walked(trees, rows).T, wanted)
    assert np.array_equal(made.leaves(rows[:0]), wanted[:, :0])


def test_what_needs_too_many_cells_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    trees, rows = forest(2, 16)
    made = TreeEnsemble(trees)
    assert made.splits is not None
    own = sum(one.left.size for one in made.splits)
    for bound, has_tables in ((own, True), (own - 1, False)):
        monkeypatch.setattr(module, "MAX_CELLS", bound)
        again = TreeEnsemble(trees)
        assert (again.splits is not None) == has_tables
        assert np.array_equal(again.leaves(rows), made.leaves(rows))


def test_sums_are_added_tree_by_tree_on_a_start() -> None:
    trees, rows = forest(3, 11)
    of_class = np.arange(len(trees["root"])) % 3
    start = np.random.default_rng(0).normal(size=(len(rows), 3))
    wanted = start.copy()
    for at, row in enumerate(rows):
        for one, value in zip(of_class.tolist(), by_hand(trees, row), strict=True):
            wanted[at, one] += value
    kept = start.copy()
    assert np.array_equal(TreeEnsemble(trees).sums(rows, of_class, start), wanted)
    assert np.array_equal(start, kept)


def test_a_tree_that_is_too_deep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    depth = 12
    child = np.arange(2 * depth + 1)
    child[0:-1:2] = np.arange(1, 2 * depth, 2)  # left a leaf, right the next split
    trees: dict[str, NDArray[Any]] = {
        "feature": np.zeros(len(child), np.int16), "threshold": np.zeros(len(child), np.float32),
        "child": child, "value": np.zeros(len(child)), "root": np.zeros(1, np.int32),
    }  # fmt: skip
    check_trees(trees, 1)
    monkeypatch.setattr(module, "MAX_DEPTH", depth)
    TreeEnsemble(trees)
    monkeypatch.setattr(module, "MAX_DEPTH", depth - 1)
    with pytest.raises(ValueError, match=f"deeper than {depth - 1} levels"):
        TreeEnsemble(trees)
    with pytest.raises(ValueError, match=f"deeper than {depth - 1} levels"):
        check_trees(trees, 1)


@pytest.mark.parametrize("name", LOADER)
def test_the_loader_imports_nothing_but_itself_numpy_and_the_standard_library(name: str) -> None:
    tree = ast.parse(Path(str(import_module(name).__file__)).read_text())
    top = {
        (node.module or "").partition(".")[0] if isinstance(node, ast.ImportFrom) else name.name.partition(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", None) not in LOADER
        for name in node.names
    }
    assert top - set(sys.stdlib_module_names) == {"numpy"}
