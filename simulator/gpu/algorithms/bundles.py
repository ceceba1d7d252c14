"""Bundles of GPUs that say where the GPUs are, for bids that value the place of a gang (Themis).

A bundle is a number of parts, each of them GPUs of one type on one node. A gang can bid for an exponential number of
bundles. We offer it those in which the number of nodes doubles (`spreads`). The first has the fewest nodes that can
hold the gang, the next twice as many with the GPUs spread evenly. In the last, every GPU may be anywhere. That is at
most log2(GPUs) + 1 bundles of each type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from simulator.gpu.algorithms.placement import fewest_nodes, packed, summed, take
from traces.arrays import Int64s

Part = tuple[str | None, int]  # (GPU type, GPUs on one node); (None, 1): one GPU of any type
Bundle = Mapping[Part, int]  # part -> how often; empty: no GPU


def spreads(gpus: int, widest: int) -> list[list[int]]:
    """Return the ways to spread a gang of `gpus` over nodes of up to `widest`: the GPUs on each node, most first.

    The first way takes the fewest nodes: whole nodes, and the rest on one more. The last has one GPU on each node.
    """
    nodes = fewest_nodes(gpus, widest)
    found = [[min(widest, gpus - widest * at) for at in range(nodes)]]
    while nodes < gpus:
        nodes = min(gpus, 2 * nodes)
        found.append([-(-(gpus - at) // nodes) for at in range(nodes)])
    return found


def bundle_of(kind: str | None, spread: Sequence[int]) -> dict[Part, int]:
    """Return the bundle of one gang of GPUs of type `kind`, spread so over nodes."""
    return dict(Counter((kind, size) for size in spread))


@cache
def fills(gpus: int, sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the ways to fill a node of `gpus` free GPUs so that no part fits any more: the parts of each of `sizes`.

    `sizes` are different and the largest comes first.
    """
    first, *rest = sizes
    if not rest:
        return [(gpus // first,)]
    found = [(n, *other) for n in range(gpus // first, -1, -1) for other in fills(gpus - n * first, tuple(rest))]
    return [
        fill
        for fill in found
        if all(size > gpus - sum(n * one for n, one in zip(fill, sizes, strict=True)) for size in sizes)
    ]


def fits_alone(bundle: Bundle, free: Int64s, types: Sequence[str]) -> bool:
    """Return whether enough nodes can hold each part of `bundle`, each kind of part by itself."""
    for (kind, size), count in bundle.items():
        able = free if kind is None else free[[own == kind for own in types]]
        if int((able // size).sum()) < count:
            return False
    return True


def fitted(
    bundles: Sequence[Bundle], free: Int64s, types: Sequence[str], *, every: bool = False
) -> list[dict[int, int]] | None:
    """Place all `bundles` on the `free` GPUs (nodes,): {node: GPUs} of each bundle, or None if they do not fit.

    The largest parts come first, each on the node with the fewest free GPUs that can hold it, ties by number. A part
    prefers a node without another part of its bundle. If the parts do not fit in this way, `every` tries all other
    ways. Parts of one GPU come last; those of one bundle are packed together (`placement.packed`).
    """
    parts = sorted(
        (-size, number, str(kind))
        for number, bundle in enumerate(bundles)
        for (kind, size), count in bundle.items()
        for _ in range(count if size > 1 else 0)
    )
    ones = sorted(
        (kind is None, number, str(kind), count)
        for number, bundle in enumerate(bundles)
        for (kind, size), count in bundle.items()
        if size == 1
    )
    placed: list[dict[int, int]] = [{} for _ in bundles]
    open_ = free.copy()
    if not _enough(bundles, free, types) or not _large_placed(parts, placed, open_, types, every):
        return None
    for is_any, number, kind, count in ones:
        found = packed(open_ if is_any else np.where([own == kind for own in types], open_, 0), count)
        if found is None:
            return None
        take(open_, found)
        placed[number] = summed([placed[number], found])
    return placed


def _enough(bundles: Sequence[Bundle], free: Int64s, types: Sequence[str]) -> bool:
    """Whether there are enough GPUs of each type, and in all, for `bundles`."""
    needed = summed({kind: size * count} for bundle in bundles for (kind, size), count in bundle.items())
    there = {kind: int(free[[own == kind for own in types]].sum()) for kind in needed if kind is not None}
    return all(needed[kind] <= gpus for kind, gpus in there.items()) and sum(needed.values()) <= int(free.sum())


def _large_placed(
    parts: Sequence[tuple[int, int, str]],
    placed: list[dict[int, int]],
    open_: Int64s,
    types: Sequence[str],
    every: bool,
) -> bool:
    """Place `parts` (minus GPUs, bundle, type) of several GPUs each, as `fitted`; change `placed` and `open_`."""
    failed: set[tuple[int, bytes]] = set()
    tries: list[list[int]] = []  # of each part so far: its node, and then the nodes that are left to try

    def nodes(at: int) -> list[int]:
        size, number, kind = -parts[at][0], parts[at][1], parts[at][2]
        if (at, open_.tobytes()) in failed:
            return []
        able = [node for node in np.flatnonzero(open_ >= size).tolist() if types[node] == kind]
        able.sort(key=lambda node: (node in placed[number], open_[node], node))
        alike = {int(open_[node]): node for node in reversed(able)}  # nodes with as many free GPUs are alike
        return [node for node in able if alike[int(open_[node])] == node][: None if every else 1]

    while len(tries) < len(parts):
        found = nodes(len(tries))
        if not found:
            failed.add((len(tries), open_.tobytes()))
        while not found:
            if not tries:
                return False
            last = tries.pop()
            negative, number, _ = parts[len(tries)]
            open_[last[0]] -= negative
            placed[number][last[0]] += negative
            if not placed[number][last[0]]:
                del placed[number][last[0]]
            found = last[1:]
            if not found:
                failed.add((len(tries), open_.tobytes()))
        negative, number, _ = parts[len(tries)]
        open_[found[0]] += negative
        placed[number][found[0]] = placed[number].get(found[0], 0) - negative
        tries.append(found)
    return True
