"""The table that benchmarks of policies print: a line for each policy and load, every figure with its interval.

Cost is of weight 1, at the setting that the select window picks; I@x is the interruption read off the curve at a mean
overlap of x hours a pair. Intervals are of 95 %, over blocks of 7 days and seeds (`features.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bench.results import BenchmarkRun
from features.bootstrap import DRAWS, interval
from features.conventions import OVERLAP_BUDGETS_H
from models.provisioning.comparison.cells import at_budget, cell_figures, cells, drawn
from models.provisioning.comparison.outcomes import PolicyOutcome
from models.provisioning.comparison.settings import headline
from models.provisioning.protocol import PairTable

FIGURES = ("cost_w1", *(at_budget(name) for name in OVERLAP_BUDGETS_H))


def print_table(
    pairs: PairTable,
    outcomes: Sequence[PolicyOutcome],
    on_select: Mapping[str, PolicyOutcome],
    loads: Sequence[str],
    run: BenchmarkRun,
    prefix: str,
) -> None:
    """Print the table for pairs of one size, and record it in `run` with quantities named after `prefix`.

    `on_select`, by policy, are outcomes on the select window's pairs of that size.
    `outcomes` must hold the oracle's, as every comparison does.
    """
    names = "".join(f"{name:>22s}" for name in ("cost", *(f"I@{name}" for name in OVERLAP_BUDGETS_H)))
    print(f"{'policy':28s} load      n    I h    O h   zero{names}  setting")
    for cell in cells(pairs, outcomes, DRAWS, 0, np.ones(len(pairs), bool)):
        for whole in outcomes if cell.load in loads else ():
            at, outcome = headline(whole, on_select[whole.policy]), whole.take(cell.mask)
            known, draws = cell_figures(outcome, at, cell), drawn(outcome, at, cell, 0)
            shown = "".join(f"{_with_ends(known[name][0], draws.get(name)):>22s}" for name in FIGURES)
            name, n = whole.policy + ("" if cell.load == "all" else f", {cell.load} load"), len(cell.submit_s)
            for what, key in (("interruption", "interruption_h"), ("overlap", "overlap_h")):
                run.add(name, f"{prefix}{what}", known[key][0], "h", n=n)
            budgets = [f"interruption at {budget} h of overlap" for budget in OVERLAP_BUDGETS_H]
            for what, key in zip(("cost", *budgets), FIGURES, strict=True):
                draws_of = draws.get(key)
                ends = None if draws_of is None else interval(draws_of)
                run.add(name, f"{prefix}{what}", known[key][0], "h", n=n, interval=ends)
            print(
                f"{whole.policy:28s} {cell.load:6s} {len(cell.submit_s):4d} {known['interruption_h'][0]:6.2f} "
                f"{known['overlap_h'][0]:6.2f} {100 * known['zero_share'][0]:4.0f} %{shown}  {whole.settings[at]:g}"
            )


def _with_ends(value: float, draws: np.ndarray | None) -> str:
    ends = None if draws is None else interval(draws)
    ends_text = "" if ends is None else f" [{ends[0]:.2f}, {ends[1]:.2f}]"
    return f"{value:.2f}{ends_text}" if np.isfinite(value) else "-"
