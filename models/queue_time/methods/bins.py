"""Bins of waits: their edges, and the representative waits of each class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.arrays import Float64s, Int64s

POINTS = 9  # representative waits of a class: its quantiles on the rows of the fit
TAIL = (0.975, 0.99)  # levels that are edges as well, so that the longest waits have their own classes
LEAST_WIDTH = 0.02  # of a bin, in logarithms


@dataclass(frozen=True)
class Bins:
    """Classes of a number, cut at its quantiles, with representative values of each class."""

    edges: Float64s  # (classes + 1,) rising
    points: Float64s  # (classes x POINTS,) rising

    @classmethod
    def of(cls, values: Float64s, count: int, also: float | None = None) -> Bins:
        """Make about `count` bins with as many values each, and a cut at `also`; none is empty."""
        edges = np.unique(
            np.concatenate([np.quantile(values, np.linspace(0, 1, count + 1)), np.quantile(values, TAIL)])
        )
        if also is not None and edges[0] < also < edges[-1]:
            edges = np.unique(np.append(edges[np.abs(edges - also) > LEAST_WIDTH], also))
        edges = edges[np.insert(np.diff(edges) > LEAST_WIDTH, 0, True)]
        if len(edges) < 2:
            edges = np.array([edges[0], edges[0] + 1.0])
        number = _number(edges, values)
        filled = np.unique(number)
        edges = np.append(edges[filled], edges[-1])
        number = _number(edges, values)
        inner = (np.arange(POINTS) + 0.5) / POINTS
        points = [np.quantile(values[number == one], inner) for one in range(len(edges) - 1)]
        return cls(edges, np.concatenate(points))

    def __len__(self) -> int:
        return len(self.edges) - 1

    def classes(self, values: Float64s) -> Int64s:
        """(n,) the class of each value; a value beyond the ends belongs to the outermost class."""
        return _number(self.edges, values)


def _number(edges: Float64s, values: Float64s) -> Int64s:
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2).astype(np.int64)
