"""Group the pairs that are measured together: by size if injected, by classes of sizes if recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from features.conventions import ALL_SIZES, MOST_NODES, RECORDED_SIZES
from models.provisioning.protocol import PairTable
from models.provisioning.scenario import RECORDED


@dataclass(frozen=True)
class Group:
    """Pairs of `least` to `most` nodes, with one limit or with any."""

    size: str  # the column `size`
    least: int
    most: int
    limit_s: int | None = None  # None: any

    def of(self, pairs: PairTable) -> NDArray[np.bool_]:
        """Mask of the pairs in this group."""
        inside = (pairs.pair_nodes >= self.least) & (pairs.pair_nodes <= self.most)
        return np.asarray(inside if self.limit_s is None else inside & (pairs.limit_s == self.limit_s))

    def identity(self, pairs: PairTable) -> dict[str, str | int | float | None]:
        """`size`, and the nodes and limit (h) of these pairs of the group; None where they differ."""
        nodes, limits_s = np.unique(pairs.pair_nodes), np.unique(pairs.limit_s)
        return {
            "size": self.size,
            "pair_nodes": int(nodes[0]) if len(nodes) == 1 else None,
            "limit_h": float(limits_s[0]) / 3600.0 if len(limits_s) == 1 else None,
        }


def groups(pairs: PairTable, kind: str) -> list[Group]:
    """The groups that hold at least one of the pairs, in order of size. kind: `Scenario.pairs`.

    Injected pairs: one group for each size and limit. Recorded pairs: RECORDED_SIZES, limits mixed, and last all
    together.
    """
    if kind == RECORDED:
        classes = [Group(size, least, most or MOST_NODES) for size, least, most in RECORDED_SIZES]
        return [group for group in (*classes, EVERYTHING) if group.of(pairs).any()]
    sizes = sorted({(int(nodes), int(limit)) for nodes, limit in zip(pairs.pair_nodes, pairs.limit_s, strict=True)})
    return [Group(str(nodes), nodes, nodes, limit) for nodes, limit in sizes]


def judged(pairs: PairTable, kind: str) -> list[Group]:
    """The groups over which a policy's figure is a mean: every size of injected pairs; all recorded pairs as one."""
    return [EVERYTHING] if kind == RECORDED else groups(pairs, kind)


EVERYTHING = Group(ALL_SIZES, 0, MOST_NODES)
