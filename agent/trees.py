"""Check binary trees and evaluate them on many rows at once. Needs only numpy: a released model carries a copy.

The method is QuickScorer (Lucchese et al., "QuickScorer: a fast algorithm to rank documents with additive ensembles of
regression trees", SIGIR 2015), applied to columns of numpy arrays. The leaves of a tree are the bits of a word, from
left to right. A split that sends the input to the right excludes the leaves on its left side. Of the leaves that no
split excludes, the leftmost is the one that a walk through the tree reaches. The leaves that a tree's splits on one
feature exclude together depend only on how many of the feature's thresholds lie below the input. We compute these sets
once and store them in a table.

The layout is that of `models.provisioning.learning.trees.flatten`: one numbering for all nodes, each right child
directly after its left sibling, and each leaf its own child. The walk goes right if input > threshold, so it goes left
for NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# The number after a bound is the largest that a model of Baton has needed so far.
MAX_NODES = 1 << 22  # of all trees together; 20,000
MAX_DEPTH = 1024  # steps of a walk; 23
MAX_TREES = 1 << 16  # per part; 880
MAX_CELLS = 1 << 24  # words in all tables of a part; 440,000
MAX_LEAVES = 64  # per tree, to use tables: bits of the longest word
LEAVE_EVERY = 4  # tree levels after which rows that have reached a leaf are dropped from the walk
WORDS = (np.uint8, np.uint16, np.uint32, np.uint64)
TREES = ("feature", "threshold", "child", "value", "root")

Arrays = Mapping[str, NDArray[Any]]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]
Words = NDArray[Any]  # one of WORDS


class Order(NamedTuple):
    """The leaves of every tree from left to right."""

    tree: Int64s  # (nodes,) tree of each node
    first: Int64s  # (nodes,) position of the node's leftmost leaf among the leaves of its tree
    leaves: Int64s  # (nodes,) number of leaves below the node; 1 for a leaf


class Splits(NamedTuple):
    """All splits on one feature, m distinct thresholds in k trees."""

    feature: int
    threshold: NDArray[Any]  # (m,) rising
    tree: Int64s  # (k,)
    left: Words  # (k, m + 1) the leaves that are not excluded, by the number of thresholds below the input


class TreeEnsemble:
    """Trees and their tables. arrays: those of TREES, as `check_trees` requires them."""

    def __init__(self, arrays: Arrays) -> None:
        """Build the tables. Raises ValueError for trees deeper than MAX_DEPTH."""
        self.arrays = arrays
        order = order_of(arrays)
        root = arrays["root"].astype(np.int64)
        most = int(order.leaves[root].max(initial=1))
        self.splits: list[Splits] | None = None
        if most <= MAX_LEAVES and cells(arrays, order) <= MAX_CELLS:
            self.word = next(word for word in WORDS if np.iinfo(word).bits >= most)
            self.splits = list(_splits(arrays, order, self.word))
            leaf = np.flatnonzero((order.leaves == 1) & (order.tree >= 0))
            self.begin = np.cumsum(order.leaves[root]) - order.leaves[root]
            self.value = np.empty(len(leaf), np.float64)
            self.value[self.begin[order.tree[leaf]] + order.first[leaf]] = arrays["value"][leaf]

    def leaves(self, rows: Float32s) -> Float64s:
        """Return (trees, n): the value of the leaf that each of the rows (n, features) reaches in each tree."""
        if self.splits is None:
            return np.asarray(walked(self.arrays, rows).T, np.float64)
        words = np.full((len(self.begin), len(rows)), np.iinfo(self.word).max, self.word)
        columns = np.where(np.isnan(rows), np.float32(-np.inf), rows).T.copy()  # NaN is above no threshold
        for feature, threshold, tree, left in self.splits:
            words[tree] &= left.take(np.searchsorted(threshold, columns[feature]), axis=1)
        lowest = (words & -words).astype(np.float32)  # a power of two; its exponent is the leaf's position
        leaf = (lowest.view(np.int32) >> 23) - 127
        return np.asarray(self.value.take(leaf + self.begin[:, None]), np.float64)

    def sums(self, rows: Float32s, of_class: Int64s, start: Float64s) -> Float64s:
        """Return (n, classes): `start` plus the leaves of each class's trees, added in order. of_class: (trees,)."""
        total = start.T.copy()
        for one, leaf in zip(of_class.tolist(), self.leaves(rows), strict=True):
            total[one] += leaf
        return np.ascontiguousarray(total.T)


def check_trees(trees: Arrays, features: int, most_trees: int = MAX_TREES) -> None:
    """Check that every node is in range and every child follows its single parent, and that the depth is bounded.

    So every walk ends within MAX_DEPTH steps. Shapes: root (trees,), all others (nodes,). Raises ValueError.
    """
    feature, threshold, child, value, root = (trees[name] for name in TREES)
    if any(array.ndim != 1 for array in trees.values()):
        raise ValueError("the trees' arrays must have one dimension")
    nodes = len(child)
    if nodes > MAX_NODES or len(root) > most_trees:
        raise ValueError(f"{len(root)} trees with {nodes} nodes; allowed: {most_trees} trees with {MAX_NODES} nodes")
    if not len(feature) == len(threshold) == len(value) == nodes:
        raise ValueError("the trees' feature, threshold, child and value must have the same length")
    if any(array.dtype.kind not in "iu" for array in (feature, child, root)):
        raise ValueError("the trees' feature, child and root must be integers")
    child, root = child.astype(np.int64), root.astype(np.int64)  # child + 1 may overflow a narrow type
    leaf = child == np.arange(nodes)
    if (child < np.arange(nodes)).any() or (child + ~leaf >= nodes).any() or (root < 0).any() or (root >= nodes).any():
        raise ValueError("the trees' child or root points outside them or backwards")
    if (np.bincount(np.concatenate([child[~leaf], child[~leaf] + 1, root])) > 1).any():
        raise ValueError("a node of the trees has two parents")
    if (feature < 0).any() or (feature >= features).any():
        raise ValueError(f"a tree splits on a feature outside 0 to {features - 1}")
    if np.isnan(threshold).any() or not np.isfinite(value).all():
        raise ValueError("the trees' thresholds and values must be numbers")
    levels_of(child, root)


def levels_of(child: Int64s, root: Int64s) -> list[Int64s]:
    """Return the splits of all trees level by level, from the roots. Raises ValueError for trees deeper than MAX_DEPTH.

    No node has two parents (`check_trees`), so all levels together hold at most all nodes.
    """
    inner = child != np.arange(len(child))
    levels: list[Int64s] = []
    here = root[inner[root]]
    while len(here):
        if len(levels) == MAX_DEPTH:
            raise ValueError(f"a tree is deeper than {MAX_DEPTH} levels")
        levels.append(here)
        below = np.concatenate([child[here], child[here] + 1])
        here = below[inner[below]]
    return levels


def order_of(trees: Arrays) -> Order:
    """Assign nodes to trees level by level downwards, then count the leaves below each node upwards.

    A node outside all trees gets tree -1. Raises ValueError for trees deeper than MAX_DEPTH.
    """
    child, root = trees["child"].astype(np.int64), trees["root"].astype(np.int64)
    tree, first, count = (np.full(len(child), one) for one in (-1, 0, 1))
    tree[root] = np.arange(len(root))
    levels = levels_of(child, root)
    for here in levels:
        tree[child[here]] = tree[child[here] + 1] = tree[here]
    for here in reversed(levels):
        count[here] = count[child[here]] + count[child[here] + 1]
    for here in levels:
        left = child[here]
        first[left], first[left + 1] = first[here], first[here] + count[left]
    return Order(tree, first, count)


def _by_feature(trees: Arrays, order: Order) -> Iterator[tuple[int, Int64s]]:
    """Yield each feature that any tree splits on, with the nodes that split on it."""
    nodes = np.flatnonzero(order.leaves > 1)
    feature = trees["feature"][nodes]
    for one in np.unique(feature).tolist():
        yield one, nodes[feature == one]


def cells(trees: Arrays, order: Order) -> int:
    """Count the words that the tables would hold."""
    return sum(
        len(np.unique(order.tree[nodes])) * (len(np.unique(trees["threshold"][nodes])) + 1)
        for _, nodes in _by_feature(trees, order)
    )


def _splits(trees: Arrays, order: Order, word: type[Any]) -> Iterator[Splits]:
    for feature, nodes in _by_feature(trees, order):
        left = trees["child"][nodes]
        many, first = order.leaves[left].astype(np.uint64), order.first[left].astype(np.uint64)
        ruled_out = ((np.uint64(1) << many) - np.uint64(1)) << first
        threshold, below = np.unique(trees["threshold"][nodes], return_inverse=True)
        tree, row = np.unique(order.tree[nodes], return_inverse=True)
        table = np.full((len(tree), len(threshold) + 1), np.iinfo(word).max, word)
        np.bitwise_and.at(table, (row, below + 1), (~ruled_out).astype(word))
        yield Splits(feature, threshold, tree, np.bitwise_and.accumulate(table, axis=1))


def walked(trees: Arrays, rows: Float32s) -> NDArray[Any]:
    """Return (n, trees): the value of the leaf that each of the rows (n, features) reaches in each tree, by a walk.

    Each step moves all rows down one level in all trees. A walk that reaches a leaf (its own child) stays there.
    """
    feature, child, root = (trees[name].astype(np.int32, copy=False) for name in ("feature", "child", "root"))
    leaf = child == np.arange(len(child))
    threshold = np.where(leaf, np.inf, trees["threshold"])  # so that a step from a leaf stays there
    flat = np.ascontiguousarray(rows).ravel()
    current = np.tile(root, len(rows))  # current node of each row in each tree
    walking = np.flatnonzero(~leaf.take(current))
    node, first = current.take(walking), walking // len(root) * rows.shape[1]
    while len(walking):
        for _ in range(LEAVE_EVERY):  # most walks are far shorter than the longest
            node = child.take(node) + (flat.take(first + feature.take(node)) > threshold.take(node))
        current[walking] = node
        inner = np.flatnonzero(~leaf.take(node))
        walking, node, first = walking.take(inner), node.take(inner), first.take(inner)
    leaves: NDArray[Any] = trees["value"].take(current).reshape(len(rows), len(root))
    return leaves
