"""Compare policies on the same pairs: a row for each policy, group of pairs and load, and the curves.

Pure functions of pair tables and artifacts; fits nothing and stores nothing. The protocol (docs/decisions): settings
are picked on the select window, and the report window is only measured. Every interruption is reported with its
overlap. Every policy is compared with the best rule that learned nothing. Every interval is a moving-block bootstrap
with the same draws for all policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.bootstrap import DRAWS, block_count, interval
from features.conventions import INDICATIVE_BELOW_BLOCKS, OVERLAP_BUDGETS_H
from models.provisioning.comparison import differences
from models.provisioning.comparison.cells import PERCENTILES, Cell, at_budget, cell_figures, cells, drawn
from models.provisioning.comparison.differences import Difference
from models.provisioning.comparison.groups import Group, groups
from models.provisioning.comparison.outcomes import PolicyOutcome, play_all, play_users
from models.provisioning.comparison.rules import missing_baselines
from models.provisioning.comparison.settings import chosen, headline
from models.provisioning.protocol import NONE, PairTable, TrainedPolicy
from models.provisioning.scenario import Context
from simulator.one_thread import one_thread
from traces import instants
from traces.arrays import Float64s
from traces.counted import counted
from traces.errors import InputError
from traces.progress import Progress

Row = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison, as plain rows.

    results: a row for each policy, group of pairs and load, as `baton evaluate` prints them.
    curves: a row for each policy, window, group and setting: the points of the table `policy_curves`.
    by_seed: a row for each window, policy, seed and group, at the headline setting. Their means over the seeds
        are the figures of `results`.
    differences: of every policy to the best rule, one for each group, all loads together.
        `models.provisioning.comparison.differences.pool` combines those of several windows.
    """

    results: list[Row] = field(default_factory=list)
    curves: list[Row] = field(default_factory=list)
    by_seed: list[Row] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list, compare=False)


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
    """Measure trained policies on the report window, together with the baselines of every comparison.

    The baselines are the rules of `models.provisioning.comparison.rules`, each learner untrained, Mirage's average and
    the oracle; for recorded pairs also the users' own behaviour.

    The headline setting of a row is the one of least cost (weight 1) on the select window. Without one (`select` None,
    or no pair of that group in it) it is the artifact's default. Raises InputError if there is nothing to compare.
    """
    if not len(report) or not trained:
        raise InputError(
            f"cluster {context.scenario.cluster!r}: {counted(len(report), 'pair')} and "
            f"{counted(len(trained), 'trained policy')} to compare; widen the report window, or train first"
        )
    made = Comparison()
    everything = [*trained, *missing_baselines(trained, report)]
    seeds_of: dict[str, list[int]] = {}
    for one in everything:
        seeds_of.setdefault(one.name, []).append(one.seed)
    parts = groups(report, context.scenario.pairs)
    with Progress("comparing policies", len(parts), "sizes of pairs", stays=False) as progress:
        for number, group in enumerate(parts, start=1):
            pairs = report.take(group.of(report))
            on_select = _on_select(select, everything, group)
            measured = _Measured(group, pairs, play_all(pairs, everything), on_select, _of(context), seed)
            measured.add_to(made, draws, seeds_of)
            progress.reach(number)
    return made


def _on_select(select: PairTable | None, trained: Sequence[TrainedPolicy], group: Group) -> dict[str, PolicyOutcome]:
    if select is None or not (mask := group.of(select)).any():
        return {}
    return {outcome.policy: outcome for outcome in play_all(select.take(mask), trained)}


def _of(context: Context) -> Row:
    """The origin that every row of a comparison states."""
    scenario = context.scenario
    return {
        "cluster": scenario.cluster,
        "world": scenario.world,
        "pairs": scenario.pairs,
        "trace_digest": context.trace_digest,
        "scenario": scenario.brief,
        "code_version": context.code_version,
    }


@dataclass(frozen=True)
class _Measured:
    """The policies measured on the pairs of one group."""

    group: Group
    pairs: PairTable
    outcomes: Sequence[PolicyOutcome]
    on_select: Mapping[str, PolicyOutcome]  # of those policies, if the select window has pairs of the group
    origin: Row  # `_of` the context
    seed: int

    def add_to(self, made: Comparison, draws: int, seeds_of: Mapping[str, Sequence[int]]) -> None:
        """Add the rows of this group."""
        best = differences.best_rule(self.on_select)
        rule = next((outcome for outcome in self.outcomes if outcome.policy == best), None)
        for outcomes, among in self._parts():
            parts = cells(self.pairs, self.outcomes, draws, self.seed, among)
            of_rule = {cell.load: self._measure(rule, cell)[1] for cell in parts if rule is not None}
            for outcome in outcomes:
                for cell in parts:
                    self._add_row(made, outcome, cell, best, of_rule.get(cell.load))
        for outcome in self.outcomes:
            select = self.on_select.get(outcome.policy)
            for window, measured in (("select", select), ("report", outcome)):
                if measured is not None:
                    at = headline(outcome, select)
                    identity = {**self.origin, **self.group.identity(self.pairs), "window": window}
                    made.curves.extend(_curve(measured, identity))
                    made.by_seed.extend(_by_seed(measured, at, identity, seeds_of.get(outcome.policy, ())))

    def _parts(self) -> Iterator[tuple[Sequence[PolicyOutcome], NDArray[np.bool_]]]:
        """Yield every policy on all pairs, then the users' behaviour on the pairs where the user went on, if any."""
        yield self.outcomes, np.ones(len(self.pairs), bool)
        if self.went_on.any():
            yield [play_users(self.pairs)], self.went_on

    @property
    def went_on(self) -> NDArray[np.bool_]:
        """(p,) whether the pair's user went on with another job."""
        return np.asarray(self.pairs.user_start_s != NONE)

    def _add_row(
        self,
        made: Comparison,
        outcome: PolicyOutcome,
        cell: Cell,
        best: str | None,
        of_rule: Mapping[str, Float64s] | None,
    ) -> None:
        """Add the row of one policy and load, with its difference to the best rule."""
        row, compared = self._measure(outcome, cell)
        difference = None
        if best is not None and of_rule is not None:
            less = differences.less_rule(compared, of_rule)
            difference = differences.difference_row(best, less, is_spread=row["blocks"] > 1)
            if cell.load == "all":
                bounds = int(cell.submit_s.min()), int(cell.submit_s.max())
                counts = row["n"], row["blocks"], *bounds
                made.differences.append(Difference(self.group.size, outcome.policy, best, *counts, less))
        made.results.append({**row, "difference_to_best_rule": difference})

    def _measure(self, whole: PolicyOutcome, cell: Cell) -> tuple[Row, dict[str, Float64s]]:
        """Measure one policy on the pairs of one load, at its headline setting and along its curve.

        Returns the row, and (1 + draws,) of each figure in `differences.COMPARED`.
        """
        outcome, select = whole.take(cell.mask), self.on_select.get(whole.policy)
        at = headline(outcome, select)
        blocks = block_count(cell.submit_s, cell.origin_s)
        known, draws = cell_figures(outcome, at, cell), drawn(outcome, at, cell, self.seed)
        compared = {
            name: np.concatenate([known[name], draws.get(name, known[name][:0])]) for name in differences.COMPARED
        }
        budgets = {name: _number(known.pop(at_budget(name))) for name in OVERLAP_BUDGETS_H}
        interruption = outcome.interruption_h[:, at]
        row = {
            **self.origin,
            **self.group.identity(self.pairs),
            "window": "report",
            "policy": outcome.policy,
            "policy_version": outcome.version,
            "knob": outcome.knob,
            "load": cell.load,
            "from_utc": instants.utc(cell.submit_s.min()).isoformat(),
            "to_utc": instants.utc(cell.submit_s.max()).isoformat(),
            "n": len(cell.submit_s),
            "blocks": blocks,
            "indicative": blocks < INDICATIVE_BELOW_BLOCKS,
            "seeds": outcome.gap_h.shape[0],
            "setting": _number(np.asarray(outcome.settings)[at:]),
            **{name: _number(values) for name, values in known.items()},
            **{name: float(np.percentile(interruption, percent)) for name, percent in PERCENTILES.items()},
            **_on_users_pairs(outcome, at, self.went_on[cell.mask]),
            "interruption_h_at_overlap": budgets,
            "chosen": None
            if select is None
            else {name: chosen(outcome, select, budget) for name, budget in OVERLAP_BUDGETS_H.items()},
            "ci95": {name: interval(values) for name, values in draws.items()} if blocks > 1 else {},
        }
        return row, compared


def _on_users_pairs(outcome: PolicyOutcome, at: int, went_on: NDArray[np.bool_]) -> Row:
    """The policy's losses on the pairs where users went on, for comparison with the users' own."""
    if not went_on.any():
        return {"interruption_users_h": None, "overlap_users_h": None}
    return {
        "interruption_users_h": float(outcome.interruption_h[:, at][:, went_on].mean()),
        "overlap_users_h": float(outcome.overlap_h[:, at][:, went_on].mean()),
    }


def _curve(outcome: PolicyOutcome, identity: Row) -> Iterator[Row]:
    """One point a setting, seeds averaged."""
    for at, setting in enumerate(outcome.settings):
        yield {
            **{name: identity[name] for name in ("cluster", "window", "size", "pair_nodes", "limit_h")},
            "policy": outcome.policy,
            "setting": setting,
            "interruption_h": float(outcome.interruption_h[:, at].mean()),
            "overlap_h": float(outcome.overlap_h[:, at].mean()),
            "zero_share": float((outcome.gap_h[:, at] <= 0.0).mean()),
            "cost_w1": float(outcome.cost_h(1.0)[:, at].mean()),
            "n": outcome.gap_h.shape[2],
        }


def _by_seed(outcome: PolicyOutcome, at: int, identity: Row, seeds: Sequence[int]) -> Iterator[Row]:
    """The figures of each fit at that setting; a policy without fits (the oracle, Mirage's average) has no rows."""
    for place, seed in enumerate(seeds):
        yield {
            **{name: identity[name] for name in ("window", "size")},
            "policy": outcome.policy,
            "seed": seed,
            "setting": outcome.settings[at],
            "interruption_h": float(outcome.interruption_h[place, at].mean()),
            "overlap_h": float(outcome.overlap_h[place, at].mean()),
            "cost_w1_h": float(outcome.cost_h(1.0)[place, at].mean()),
        }


def _number(values: Float64s) -> float | None:
    """The first value; None for NaN, which JSON does not have."""
    return float(values[0]) if np.isfinite(values[0]) else None
