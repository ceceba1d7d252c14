"""Themis' auction: allocate GPUs to bidders to maximise the product of their values, with hidden payments.

Mahajan et al., "Themis: Fair and efficient GPU cluster scheduling" (NSDI 2020), section 3.2, after the partial
allocation mechanism of Cole, Gkatzelis and Goel ("Mechanism design for fair division", EC 2013). A bid gives the value
of every number of GPUs to the bidder (1 / rho). Winner i keeps the fraction

    c_i = product over j != i of V_j(with i in the auction) / product over j != i of V_j(without i)

of its bundle. Then c_i V_i(bundle) is the product of all values over a number that does not depend on i, so no false
bid increases it: truthful bids are best. This holds where a fraction c of a bundle is worth c times the bundle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traces.arrays import Float64s

Bid = Sequence[tuple[int, float]]  # (GPUs >= 0, value > 0), including the value of 0 GPUs


class AuctionOutcome(NamedTuple):
    """The result of an auction, one entry per bidder."""

    gpus: list[int]  # GPUs won, before payment
    kept: list[float]  # fraction kept after payment, c_i in (0, 1]


def _folded(best: Float64s, bid: Bid) -> tuple[Float64s, NDArray[np.int32]]:
    """Extend `best` (capacity + 1,), the largest sum of log values per number of GPUs, by a bid; return bundles too."""
    grown = np.full_like(best, -np.inf)
    bundle = np.zeros(len(best), dtype=np.int32)
    for index, (gpus, value) in enumerate(bid):
        if gpus >= len(best):
            continue
        with_bundle = best[: len(best) - gpus] + np.log(value)
        better = with_bundle > grown[gpus:] + 1e-12
        grown[gpus:][better] = with_bundle[better]
        bundle[gpus:][better] = index
    return grown, bundle


def auction(bids: Sequence[Bid], capacity: int) -> AuctionOutcome:
    """Find the winners of `capacity` GPUs, exactly, by dynamic programming.

    Every bid includes a bundle of 0 GPUs, and all values are above 0.
    """
    before, bundles = [np.zeros(capacity + 1)], []
    for bid in bids:
        grown, bundle = _folded(before[-1], bid)
        before.append(grown)
        bundles.append(bundle)
    won, left = [0] * len(bids), capacity
    for number in range(len(bids) - 1, -1, -1):
        won[number] = int(bundles[number][left])
        left -= bids[number][won[number]][0]
    total = before[-1][capacity]
    after, kept = np.zeros(capacity + 1), [1.0] * len(bids)
    for number in range(len(bids) - 1, -1, -1):
        without = float(np.max(before[number] + after[::-1]))
        others = total - np.log(bids[number][won[number]][1])
        kept[number] = float(min(1.0, np.exp(others - without)))
        after, _ = _folded(after, bids[number])
    return AuctionOutcome([bid[index][0] for bid, index in zip(bids, won, strict=True)], kept)


def worst_off(rho: Sequence[float], filter_share: float) -> list[int]:
    """Return the positions of the (1 - f) fraction with the largest rho, at least one if any; ties by position.

    Themis offers free GPUs only to these (f = 0.8 there). A larger f is fairer and less efficient.
    """
    count = max(1, int(np.ceil((1.0 - filter_share) * len(rho) - 1e-9))) if len(rho) else 0
    return sorted(range(len(rho)), key=lambda position: (-rho[position], position))[:count]
