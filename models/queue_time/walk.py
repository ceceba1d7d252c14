"""Scores of classes by trees: a few rows in numpy, many in compiled code; the two give the same sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.distribution import leaves
from models.queue_time.protocol import Float32s, Float64s, Int64s

FEW_ROWS = 64  # up to which numpy is quicker than to import a compiler


def scores(trees: dict[str, NDArray[Any]], of_class: Int64s, classes: int, rows: Float32s) -> Float64s:
    """(n, classes) sums over the trees of each class; rows (n, inputs). `of_class` (trees,)."""
    if not len(of_class):
        return np.zeros((len(rows), classes))
    if len(rows) <= FEW_ROWS:
        return plain(trees, of_class, classes, rows)
    from models.queue_time.walk_compiled import sums

    out = np.zeros((len(rows), classes))
    feature, threshold, child = trees["feature"], trees["threshold"], trees["child"]
    sums(feature, threshold, child, trees["value"], trees["root"], of_class, np.ascontiguousarray(rows), out)
    return out


def plain(trees: dict[str, NDArray[Any]], of_class: Int64s, classes: int, rows: Float32s) -> Float64s:
    """The same in numpy."""
    found, out = leaves(trees, rows), np.zeros((len(rows), classes))
    for one in range(len(of_class)):  # in the order of the compiled sums
        out[:, of_class[one]] += found[:, one]
    return out
