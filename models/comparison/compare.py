"""The comparison of policies on the same pairs: a row for each policy, pair size and load, and the curve behind it.

Pure functions of pair tables and artifacts; fits nothing and stores nothing. The protocol (docs/decisions):
settings are picked on the select window, the report window is only measured, no interruption stands without its
overlap, and every interval is a moving-block bootstrap with the same draws for all policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.conventions import INDICATIVE_BELOW_BLOCKS, ORACLE, OVERLAP_BUDGETS_H
from models.comparison.bootstrap import (
    DRAWS,
    block_count,
    interval,
    resampled_means,
    resampled_percentiles,
    seed_weights,
    start_weights,
)
from models.comparison.one_thread import one_thread
from models.comparison.outcomes import (
    Outcome,
    at_overlap,
    load_masks,
    of_size,
    play_all,
    sizes,
)
from models.protocol import PairTable, TrainedPolicy
from models.scenario import Context
from simulator.metrics import NOTICED_WAIT_S
from traces import instants
from traces.errors import InputError
from traces.progress import Progress

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]

PERCENTILES = {"interruption_p50_h": 50.0, "interruption_p95_h": 95.0}


@dataclass(frozen=True)
class Comparison:
    """What a comparison says, as plain rows.

    results: a row for each policy, pair size and load, as `baton evaluate` prints them.
    curves: a row for each policy, window, pair size and setting: the points of the table `policy_curves`.
    by_seed: a row for each window, policy, seed and pair size, at the headline setting. Their means over the seeds
        are what `results` holds.
    """

    results: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    by_seed: list[dict[str, Any]]


@dataclass(frozen=True)
class _Cell:
    """The n pairs of one size and load, with the two outcomes that every policy is compared with."""

    load: str
    mask: NDArray[np.bool_]  # (all pairs of the size,) which n of them
    submit_s: Int64s  # (n,)
    origin_s: int  # start of the window
    reactive_h: Floats  # (n,) interruption of reactive
    oracle_h: Floats  # (n,) cost of the oracle, weight 1
    starts: Floats | None  # (draws, n) bootstrap weights


@one_thread
def compare(
    report: PairTable,
    trained: Sequence[TrainedPolicy],
    *,
    context: Context,
    select: PairTable | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Comparison:
    """Measures trained policies and the oracle on the report window.

    The headline setting of a row is the one of least cost (weight 1) on the select window; without one (`select`
    None, or no pair of that size in it) the artifact's default. Raises InputError where there is nothing to compare.
    """
    if not len(report) or not trained:
        raise InputError(
            f"cluster {context.scenario.cluster!r}: {len(report)} pairs and {len(trained)} trained policies to "
            "compare; widen the report window, or train first"
        )
    results: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    by_seed: list[dict[str, Any]] = []
    each = len({one.name for one in trained}) + 1  # and the oracle
    with Progress("comparison", len(sizes(report)) * each, "policies", stays=False) as progress:
        for at, size in enumerate(sizes(report)):
            pairs = report.take(of_size(report, size))
            outcomes = play_all(pairs, trained)
            chosen_on = _select_outcomes(select, trained, size)
            cells = _cells(pairs, outcomes, draws, seed)
            for number, outcome in enumerate(outcomes, start=1):
                picked = chosen_on.get(outcome.policy)
                results += [
                    {**_identity(outcome, size, context), **_measure(outcome, picked, cell, seed)} for cell in cells
                ]
                for window, measured in (("select", picked), ("report", outcome)):
                    if measured is not None:
                        curves += _curve(measured, window, size[0], context.scenario.cluster)
                        seeds = [one.seed for one in trained if one.name == outcome.policy]
                        by_seed += _by_seed(measured, headline(outcome, picked), window, size[0], seeds)
                progress.reach(at * each + number)
    return Comparison(results, curves, by_seed)


def headline(outcome: Outcome, select: Outcome | None) -> int:
    """Position of the setting at which a policy is judged.

    It is the one of least mean cost (weight 1) on the select window, the first of equals; without a select window it
    is the artifact's default.
    """
    if select is not None:
        return int(np.argmin(select.cost_h(1.0).mean(axis=(0, 2))))
    return int(np.argmin(np.abs(np.asarray(outcome.settings) - outcome.default_setting)))


def pick_within(select: Outcome, budget_h: float) -> int | None:
    """Position of the setting with the least interruption of those whose mean overlap is at most `budget_h`.

    Of settings with equal interruption it is the one with the least overlap; None where none is within the budget.
    """
    interruption = select.interruption_h.mean(axis=(0, 2))
    overlap = select.overlap_h.mean(axis=(0, 2))
    within = np.flatnonzero(overlap <= budget_h)
    if not len(within):
        return None
    return int(within[np.lexsort((overlap[within], interruption[within]))[0]])


def _select_outcomes(
    select: PairTable | None, trained: Sequence[TrainedPolicy], size: tuple[int, int]
) -> dict[str, Outcome]:
    if select is None or not (mask := of_size(select, size)).any():
        return {}
    return {outcome.policy: outcome for outcome in play_all(select.take(mask), trained)}


def _cells(pairs: PairTable, outcomes: Sequence[Outcome], draws: int, seed: int) -> list[_Cell]:
    """The pairs of each load that has any. All loads share one set of bootstrap draws over the whole window."""
    reactive = np.maximum(pairs.gap_h[pairs.last], 0.0)
    oracle = next(outcome for outcome in outcomes if outcome.policy == ORACLE).cost_h(1.0)[0, 0]
    starts = start_weights(pairs.submit_s, draws, seed)
    return [
        _Cell(
            load,
            mask,
            pairs.submit_s[mask],
            int(pairs.submit_s.min()),
            reactive[mask],
            oracle[mask],
            None if starts is None else starts[:, mask],
        )
        for load, mask in load_masks(pairs.gap_h[pairs.last]).items()
        if mask.any()
    ]


def _identity(outcome: Outcome, size: tuple[int, int], context: Context) -> dict[str, Any]:
    return {
        "cluster": context.scenario.cluster,
        "window": "report",
        "policy": outcome.policy,
        "policy_version": outcome.version,
        "knob": outcome.knob,
        "world": context.scenario.world,
        "pair_nodes": size[0],
        "limit_h": size[1] / 3600.0,
        "trace_digest": context.trace_digest,
        "scenario": context.scenario.brief,
        "code_version": context.code_version,
    }


def _measure(whole: Outcome, select: Outcome | None, cell: _Cell, seed: int) -> dict[str, Any]:
    """The figures of one policy on the pairs of one size and load, at its headline setting and along its curve."""
    outcome = whole.take(cell.mask)
    at = headline(outcome, select)
    seeds = outcome.gap_h.shape[0]
    blocks = block_count(cell.submit_s, cell.origin_s)
    interruption = outcome.interruption_h[:, at]
    curve = outcome.interruption_h.mean(axis=(0, 2))[None], outcome.overlap_h.mean(axis=(0, 2))[None]
    reactive = cell.reactive_h.mean(keepdims=True)
    figures = {name: float(values.mean()) for name, values in _headline_values(outcome, at, cell).items()}
    return {
        "load": cell.load,
        "from_utc": instants.utc(cell.submit_s.min()).isoformat(),
        "to_utc": instants.utc(cell.submit_s.max()).isoformat(),
        "n": len(cell.submit_s),
        "blocks": blocks,
        "indicative": blocks < INDICATIVE_BELOW_BLOCKS,
        "seeds": seeds,
        "setting": outcome.settings[at],
        **figures,
        **{name: float(np.percentile(interruption, percent)) for name, percent in PERCENTILES.items()},
        "reduction": _number(_reduction(np.array([figures["interruption_h"]]), reactive)),
        "interruption_h_at_overlap": {
            name: _number(at_overlap(*curve, reactive, budget)) for name, budget in OVERLAP_BUDGETS_H.items()
        },
        "chosen": None
        if select is None
        else {name: _chosen(outcome, select, budget) for name, budget in OVERLAP_BUDGETS_H.items()},
        "ci95": _intervals(outcome, at, cell, seed) if blocks > 1 else {},
    }


def _headline_values(outcome: Outcome, at: int, cell: _Cell) -> dict[str, Floats]:
    """(seeds, n) values of each seed and pair, of which a row holds the mean, by the figure's name."""
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


def _intervals(outcome: Outcome, at: int, cell: _Cell, seed: int) -> dict[str, list[float] | None]:
    """95 % intervals of a row's means, percentiles and points of the curve; empty where the window is one block."""
    if cell.starts is None:
        return {}
    seeds = seed_weights(outcome.gap_h.shape[0], len(cell.starts), seed)
    values = _headline_values(outcome, at, cell)
    means = resampled_means(np.stack(list(values.values()), axis=1), cell.starts, seeds)
    ci95 = {name: interval(means[:, column]) for column, name in enumerate(values)}
    reactive = resampled_means(cell.reactive_h[None, None], cell.starts, np.ones((len(cell.starts), 1)))[:, 0]
    ci95["reduction"] = interval(_reduction(means[:, 0], reactive))
    spread = resampled_percentiles(outcome.interruption_h[:, at], cell.starts, seeds, list(PERCENTILES.values()))
    ci95 |= {name: interval(spread[:, column]) for column, name in enumerate(PERCENTILES)}
    curve = [resampled_means(part, cell.starts, seeds) for part in (outcome.interruption_h, outcome.overlap_h)]
    for name, budget in OVERLAP_BUDGETS_H.items():
        ci95[f"interruption_h_at_overlap_{name}"] = interval(at_overlap(curve[0], curve[1], reactive, budget))
    return ci95


def _reduction(interruption_h: Floats, reactive_h: Floats) -> Floats:
    """1 - interruption / interruption of reactive; NaN where reactive has none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(reactive_h > 0.0, 1.0 - interruption_h / reactive_h, np.nan)


def _chosen(outcome: Outcome, select: Outcome, budget_h: float) -> dict[str, float] | None:
    """The setting that the select window picks within the budget, and what it really did on the report window."""
    at = pick_within(select, budget_h)
    if at is None:
        return None
    return {
        "setting": outcome.settings[at],
        "interruption_h": float(outcome.interruption_h[:, at].mean()),
        "overlap_h": float(outcome.overlap_h[:, at].mean()),
    }


def _curve(outcome: Outcome, window: str, pair_nodes: int, cluster: str) -> list[dict[str, Any]]:
    """One point a setting, seeds averaged."""
    return [
        {
            "cluster": cluster,
            "window": window,
            "policy": outcome.policy,
            "pair_nodes": pair_nodes,
            "setting": setting,
            "interruption_h": float(outcome.interruption_h[:, at].mean()),
            "overlap_h": float(outcome.overlap_h[:, at].mean()),
            "zero_share": float((outcome.gap_h[:, at] <= 0.0).mean()),
            "cost_w1": float(outcome.cost_h(1.0)[:, at].mean()),
            "n": outcome.gap_h.shape[2],
        }
        for at, setting in enumerate(outcome.settings)
    ]


def _by_seed(outcome: Outcome, at: int, window: str, pair_nodes: int, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """What each fit of the policy did at that setting; the oracle, which has no fits, has no rows."""
    return [
        {
            "window": window,
            "policy": outcome.policy,
            "seed": seed,
            "pair_nodes": pair_nodes,
            "setting": outcome.settings[at],
            "interruption_h": float(outcome.interruption_h[place, at].mean()),
            "overlap_h": float(outcome.overlap_h[place, at].mean()),
            "cost_w1_h": float(outcome.cost_h(1.0)[place, at].mean()),
        }
        for place, seed in enumerate(seeds)
    ]


def _number(values: Floats) -> float | None:
    """The one value, None where it is NaN: JSON knows no NaN."""
    return float(values[0]) if np.isfinite(values[0]) else None
