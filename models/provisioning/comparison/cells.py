"""The pairs of one row of a comparison, and the means over them: of the pairs as they are, and in every draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from features.bootstrap import resampled_means, resampled_percentiles, seed_weights, start_weights
from features.conventions import ORACLE, OVERLAP_BUDGETS_H, interruption_h
from models.provisioning.comparison.outcomes import PolicyOutcome, at_overlap, load_masks
from models.provisioning.protocol import PairTable
from simulator.metrics import NOTICED_WAIT_S
from traces.arrays import Float64s, Int64s

Mask = NDArray[np.bool_]

PERCENTILES = {"interruption_p50_h": 50.0, "interruption_p95_h": 95.0}
ZERO_SHARE_AT_H = 0.5  # mean overlap, hours a pair, at which the zero-interruption share is read off the curve
ZERO_SHARE_AT = "zero_share_at_overlap_05"


@dataclass(frozen=True)
class Cell:
    """The n pairs of one group and load, with the two outcomes that every policy is compared with."""

    load: str
    mask: Mask  # (all pairs of the group,) True for these n
    submit_s: Int64s  # (n,)
    origin_s: int  # start of the window
    reactive_gap_h: Float64s  # (n,) gap that reactive leaves
    oracle_h: Float64s  # (n,) cost of the oracle, weight 1
    starts: Float64s | None  # (draws, n) bootstrap weights; None where the window is one block


def cells(pairs: PairTable, outcomes: Sequence[PolicyOutcome], draws: int, seed: int, among: Mask) -> list[Cell]:
    """The cells of each load with any pair of `among`; all share one set of draws over the whole window."""
    bound = next(outcome for outcome in outcomes if outcome.policy == ORACLE)
    oracle = bound.cost_h(1.0)[0, bound.settings.index(bound.default_setting)]
    starts = start_weights(pairs.submit_s, draws, seed)
    reactive = pairs.gap_h[pairs.last]
    kept = {load: mask & among for load, mask in load_masks(reactive).items()}
    origin_s = int(pairs.submit_s.min())
    return [
        Cell(
            load,
            mask,
            pairs.submit_s[mask],
            origin_s,
            reactive[mask],
            oracle[mask],
            None if starts is None else starts[:, mask],
        )
        for load, mask in kept.items()
        if mask.any()
    ]


def headline_values(outcome: PolicyOutcome, at: int, cell: Cell) -> dict[str, Float64s]:
    """(seeds, n) values of each seed and pair, by the figure's name. A row holds their mean."""
    gap, cost = outcome.gap_h[:, at], outcome.cost_h(1.0)[:, at]
    return {
        "interruption_h": outcome.interruption_h[:, at],
        "overlap_h": outcome.overlap_h[:, at],
        "zero_share": (gap <= 0.0).astype(np.float64),
        "within_10min_share": (gap <= NOTICED_WAIT_S / 3600.0).astype(np.float64),
        "cost_w05": outcome.cost_h(0.5)[:, at],
        "cost_w1": cost,
        "regret_h_w1": cost - cell.oracle_h,
    }


def cell_figures(outcome: PolicyOutcome, at: int, cell: Cell) -> dict[str, Float64s]:
    """(1,) each figure of a row: a mean over pairs and seeds, or a value derived from such means; NaN if undefined.

    The outcome is on the cell's pairs; `at` is the position of its headline setting.
    """
    made = {name: values.mean(keepdims=True).ravel() for name, values in headline_values(outcome, at, cell).items()}
    of_reactive = [values.mean(keepdims=True) for values in _of_reactive(cell)]
    return _with_curve(made, of_reactive, [part.mean(axis=(0, 2))[None] for part in _of_curve(outcome)])


def drawn(outcome: PolicyOutcome, at: int, cell: Cell, seed: int) -> dict[str, Float64s]:
    """(draws,) each of `cell_figures`, and the percentiles of the interruption, in every draw; empty without draws."""
    if cell.starts is None:
        return {}
    seeds = seed_weights(outcome.gap_h.shape[0], len(cell.starts), seed)
    values = headline_values(outcome, at, cell)
    columns = resampled_means(np.stack(list(values.values()), axis=1), cell.starts, seeds)
    made = {name: columns[:, place] for place, name in enumerate(values)}
    one_seed = np.ones((len(cell.starts), 1))
    of_reactive = [resampled_means(one[None, None], cell.starts, one_seed)[:, 0] for one in _of_reactive(cell)]
    made = _with_curve(made, of_reactive, [resampled_means(one, cell.starts, seeds) for one in _of_curve(outcome)])
    spread = resampled_percentiles(outcome.interruption_h[:, at], cell.starts, seeds, list(PERCENTILES.values()))
    return made | {name: spread[:, column] for column, name in enumerate(PERCENTILES)}


def _of_reactive(cell: Cell) -> tuple[Float64s, Float64s]:
    """(n,) reactive's interruption, h, and whether there is any."""
    return interruption_h(cell.reactive_gap_h), (cell.reactive_gap_h > 0.0).astype(np.float64)


def _of_curve(outcome: PolicyOutcome) -> tuple[Float64s, Float64s, Float64s]:
    """(seeds, settings, n) interruption and overlap, h, and whether there is an interruption."""
    return outcome.interruption_h, outcome.overlap_h, (outcome.gap_h > 0.0).astype(np.float64)


def _with_curve(
    made: dict[str, Float64s], of_reactive: Sequence[Float64s], curve: Sequence[Float64s]
) -> dict[str, Float64s]:
    """Add to the figures (k,) those derived from means (k,) of `_of_reactive` and (k, settings) of `_of_curve`."""
    reactive_h, reactive_share = of_reactive
    interruption_h, overlap_h, share = curve
    made["reduction"] = _reduction(made["interruption_h"], reactive_h)
    for name, budget in OVERLAP_BUDGETS_H.items():
        made[at_budget(name)] = at_overlap(interruption_h, overlap_h, reactive_h, budget)
    # read the share of pairs with an interruption off the curve, as the interruption itself
    made[ZERO_SHARE_AT] = 1.0 - at_overlap(share, overlap_h, reactive_share, ZERO_SHARE_AT_H)
    return made


def at_budget(name: str) -> str:
    """Name of the interruption at that overlap budget, among the figures and in `ci95`."""
    return f"interruption_h_at_overlap_{name}"


def _reduction(interruption_h: Float64s, reactive_h: Float64s) -> Float64s:
    """1 - interruption / interruption of reactive; NaN where reactive has none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(reactive_h > 0.0, 1.0 - interruption_h / reactive_h, np.nan)
