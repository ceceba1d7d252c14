"""Themis' auction: allocate GPUs to bidders to maximise the product of their values, with hidden payments.

Mahajan et al., "Themis: Fair and efficient GPU cluster scheduling" (NSDI 2020), section 3.2, after the partial
allocation mechanism of Cole, Gkatzelis and Goel ("Mechanism design for fair division", EC 2013). A bid gives the value
(1 / rho) of several bundles of GPUs. A bundle states the type of its GPUs and their number on each node. Winner i keeps
the fraction

    c_i = product over j != i of V_j(with i in the auction) / product over j != i of V_j(without i)

of its bundle. Then c_i V_i(bundle) is the product of all values over a number that does not depend on i. So no false
bid increases it, and truthful bids are best. This holds where a fraction c of a bundle is worth c times the bundle.

Both products are exact. If no bundle depends on the place, we compute them by dynamic programming over the number of
GPUs. Else an integer programme (HiGHS) gives each bidder at most one bundle and distributes the parts of all bundles
over the nodes. Such an auction takes MOST_BIDDERS at a time. Further bidders take part in the next auction, for the
remaining GPUs. A programme stops after MOST_NODES nodes of its search with the best winners that it has found; the
outcome counts these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.gpu.algorithms.bundles import Bundle, Part, fills, fits_alone, fitted
from simulator.gpu.algorithms.chatter import no_chatter
from simulator.gpu.algorithms.knapsack import folded
from simulator.gpu.algorithms.placement import take
from traces.arrays import Float64s, Int64s
from traces.errors import WorkError

Bid = Sequence[tuple[Bundle, float]]  # (bundle, value > 0); the first bundle is empty

MOST_BIDDERS = 12  # in one integer programme: our choice
SAME = 1e-6  # bundles whose logarithms of value differ by less are equal: the bundle and the bidder named first win
MOST_NODES = 5_000  # of the search tree of one programme: our choice
_SCALE = 1e3  # of the objective, because HiGHS stops within 1e-6 of the best


class AuctionOutcome(NamedTuple):
    """The result of an auction, one entry per bidder."""

    won: list[int]  # position in the bid of the bundle that is won, before payment
    kept: list[float]  # fraction kept after payment, c_i in (0, 1]
    cut: int = 0  # programmes that were stopped after MOST_NODES


def auction(bids: Sequence[Bid], free: Int64s, types: Sequence[str]) -> AuctionOutcome:
    """Find the winners of the `free` GPUs (nodes,) on nodes of `types`.

    The first bundle of every bid is empty, and all values are above 0.
    """
    gains = [
        np.log([value for _, value in bid]) - np.log(bid[0][1]) - np.arange(len(bid)) * SAME * (2.0 - at / len(bids))
        for at, bid in enumerate(bids)
    ]
    alike = {None, *types} if len(set(types)) == 1 else {None}
    if all(size == 1 and kind in alike for bid in bids for bundle, _ in bid for kind, size in bundle):
        counts = [[sum(bundle.values()) for bundle, _ in bid] for bid in bids]
        return _by_count(gains, counts, int(free.sum()))
    won, kept, cut, open_ = list[int](), list[float](), 0, free.copy()
    for first in range(0, len(bids), MOST_BIDDERS):
        these = slice(first, first + MOST_BIDDERS)
        outcome, placed = _together(bids[these], gains[these], open_, types)
        won, kept, cut = won + outcome.won, kept + outcome.kept, cut + outcome.cut
        for one in placed:
            take(open_, one)
    return AuctionOutcome(won, kept, cut)


def _together(
    bids: Sequence[Bid], gains: Sequence[Float64s], free: Int64s, types: Sequence[str]
) -> tuple[AuctionOutcome, list[dict[int, int]]]:
    """Find the outcome of one auction, and a way to place its bundles."""
    best = [int(np.argmax(gain)) for gain in gains]
    placed = fitted([bid[index][0] for bid, index in zip(bids, best, strict=True)], free, types)
    if placed is not None:
        return AuctionOutcome(best, [1.0] * len(bids)), placed
    programme = _Programme(bids, gains, free, types)
    won, kept = programme.outcome()
    placed = fitted([bid[index][0] for bid, index in zip(bids, won, strict=True)], free, types, every=True)
    if placed is None:
        raise WorkError("the bundles that an auction sold do not fit on the free GPUs")
    return AuctionOutcome(won, kept, programme.cut), placed


def _by_count(gains: Sequence[Float64s], counts: Sequence[Sequence[int]], capacity: int) -> AuctionOutcome:
    """Find the winners where only the number of GPUs counts, by dynamic programming."""
    before, bundles = [np.zeros(capacity + 1)], []
    for gain, numbers in zip(gains, counts, strict=True):
        grown, bundle = folded(before[-1], gain, numbers)
        before.append(grown)
        bundles.append(bundle)
    won, left = [0] * len(gains), capacity
    for number in range(len(gains) - 1, -1, -1):
        won[number] = int(bundles[number][left])
        left -= counts[number][won[number]]
    total = before[-1][capacity]
    after, kept = np.zeros(capacity + 1), [1.0] * len(gains)
    for number in range(len(gains) - 1, -1, -1):
        without = float(np.max(before[number] + after[::-1]))
        kept[number] = float(min(1.0, np.exp(total - gains[number][won[number]] - without)))
        after, _ = folded(after, gains[number], counts[number])
    return AuctionOutcome(won, kept)


class _Programme:
    """The integer programme of one auction.

    A variable for each bundle, then, for each kind of node and each way to fill one, the number of nodes filled so.
    """

    def __init__(self, bids: Sequence[Bid], gains: Sequence[Float64s], free: Int64s, types: Sequence[str]) -> None:
        self.bidders, self.cut = len(bids), 0
        self.columns = [
            (bidder, index)
            for bidder, bid in enumerate(bids)
            for index, (bundle, _) in enumerate(bid)
            if bundle and gains[bidder][index] > 0.0 and fits_alone(bundle, free, types)
        ]
        self.gain = np.array([gains[bidder][index] for bidder, index in self.columns])
        self._constrain([bids[bidder][index][0] for bidder, index in self.columns], free, types)

    def _constrain(self, bundles: Sequence[Bundle], free: Int64s, types: Sequence[str]) -> None:
        """Build the rows: one bundle a bidder, the GPUs of each type and in all, the parts and nodes of each size."""
        from scipy.sparse import csr_array

        kinds = sorted(set(types))
        entries = [(bidder, column, 1.0) for column, (bidder, _) in enumerate(self.columns)]
        room = [1.0] * self.bidders
        room += [float(free[[own == kind for own in types]].sum()) for kind in kinds] + [float(free.sum())]
        row_of: dict[Part, int] = {}
        for column, bundle in enumerate(bundles):
            for (kind, size), count in bundle.items():
                if kind is not None:
                    entries.append((self.bidders + kinds.index(kind), column, float(size * count)))
                entries.append((self.bidders + len(kinds), column, float(size * count)))
                if size > 1:
                    if (kind, size) not in row_of:
                        row_of[kind, size] = len(room)
                        room.append(0.0)
                    entries.append((row_of[kind, size], column, float(count)))
        column = len(self.columns)
        for (kind, gpus), nodes in sorted(Counter(zip(types, free.tolist(), strict=True)).items()):
            sizes = tuple(sorted((size for own, size in row_of if own == kind and size <= gpus), reverse=True))
            for fill in fills(gpus, sizes) if sizes else ():
                entries.append((len(room), column, 1.0))
                entries += [(row_of[kind, size], column, -float(n)) for size, n in zip(sizes, fill, strict=True) if n]
                column += 1
            room.append(float(nodes))
        rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
        self.matrix = csr_array((values, (rows, columns)), shape=(len(room), column))
        self.room = np.array(room)

    def best(self, without: int | None = None) -> tuple[float, list[int]]:
        """Return the largest sum of gains and the bundle of each bidder, with one bidder left out if given."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        won = [0] * self.bidders
        able = np.array([bidder != without for bidder, _ in self.columns], dtype=np.float64)
        if not able.any():
            return 0.0, won
        variables = self.matrix.shape[1]
        most = np.concatenate([able, np.full(variables - len(able), np.inf)])
        objective = np.concatenate([-_SCALE * self.gain, np.zeros(variables - len(able))])
        with no_chatter():
            found = milp(
                objective,
                integrality=np.ones(variables),
                bounds=Bounds(0.0, most),
                constraints=LinearConstraint(self.matrix, ub=self.room),
                options={"mip_rel_gap": 0.0, "node_limit": MOST_NODES},
            )
        self.cut += found.status != 0
        total = 0.0
        for (bidder, index), gain, value in zip(
            self.columns, self.gain, [] if found.x is None else found.x, strict=False
        ):
            if value > 0.5:
                won[bidder] = index
                total += float(gain)
        return total, won

    def outcome(self) -> tuple[list[int], list[float]]:
        """Return the bundle of each bidder, and the fraction that its payment leaves."""
        total, won = self.best()
        gain = {column: float(value) for column, value in zip(self.columns, self.gain, strict=True)}
        lost = [
            max([value for (bidder, _), value in gain.items() if bidder == at], default=0.0)
            - gain.get((at, index), 0.0)
            for at, index in enumerate(won)
        ]  # what each would gain more with its best bundle
        kept = [1.0] * self.bidders
        for bidder, index in enumerate(won):
            if index and sum(lost) > lost[bidder]:  # the others want more than they have
                without, _ = self.best(without=bidder)
                kept[bidder] = min(1.0, float(np.exp(total - gain[bidder, index] - without)))
        return won, kept


def worst_off(rho: Sequence[float], filter_share: float) -> list[int]:
    """Return the positions of the (1 - f) fraction with the largest rho, at least one if any; ties by position.

    Themis offers free GPUs only to these (f = 0.8 there). A larger f is fairer and less efficient.
    """
    count = max(1, int(np.ceil((1.0 - filter_share) * len(rho) - 1e-9))) if len(rho) else 0
    return sorted(range(len(rho)), key=lambda position: (-rho[position], position))[:count]
