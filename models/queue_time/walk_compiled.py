"""`models.queue_time.walk` for many rows. Compiled."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from models.queue_time.protocol import Float32s, Float64s, Int64s
from simulator.compiled import kernel


@kernel
def sums(
    feature: NDArray[Any],
    threshold: Float32s,
    child: NDArray[Any],
    value: Float64s,
    root: NDArray[Any],
    of_class: Int64s,
    rows: Float32s,
    out: Float64s,
) -> None:
    """Add to out (n, classes) the leaf of each tree that each row falls to: root (trees,), rows (n, inputs)."""
    for tree in range(len(root)):
        for row in range(len(rows)):
            node = root[tree]
            while child[node] != node:
                node = child[node] + (1 if rows[row, feature[node]] > threshold[node] else 0)
            out[row, of_class[tree]] += value[node]
