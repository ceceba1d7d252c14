"""The table that benchmarks of policies print: a line for each policy and load, every figure with its interval.

Cost is of weight 1, at the setting that the select window picks; I@x is the interruption read off the curve at a mean
overlap of x hours a pair. Intervals are of 95 %, over blocks of 7 days and seeds (`features.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bench.results import BenchmarkRun
from features.bootstrap import DRAWS, interval
from models.provisioning.comparison.cells import at_budget, cell_figures, cells, drawn
from models.provisioning.comparison.outcomes import PolicyOutcome
from models.provisioning.comparison.settings import headline
from models.provisioning.protocol import PairTable

COLUMNS = {
    "interruption": "interruption_h",
    "reduction": "reduction",
    "zero share": "zero_share",
    "overlap": "overlap_h",
    "cost": "cost_w1",
    "interruption at 0.5 h of overlap": at_budget("0.5"),
}
SHARES = ("reduction", "zero share")
OF_A_LOAD = ("interruption", *SHARES, "overlap")  # what is recorded of a load


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
    names = "".join(f"{name:>22s}" for name in ("I h", "reduced %", "zero %", "O h", "cost", "I@0.5"))
    print(f"{'policy':36s} load      n{names}  setting")
    for cell in cells(pairs, outcomes, DRAWS, 0, np.ones(len(pairs), bool)):
        for whole in outcomes if cell.load in loads else ():
            at, outcome = headline(whole, on_select[whole.policy]), whole.take(cell.mask)
            known, draws = cell_figures(outcome, at, cell), drawn(outcome, at, cell, 0)
            name, n = whole.policy + ("" if cell.load == "all" else f", {cell.load} load"), len(cell.submit_s)
            line = f"{whole.policy:36s} {cell.load:6s} {n:4d}"
            for what, key in COLUMNS.items():
                scale, unit = (100.0, "%") if what in SHARES else (1.0, "h")
                value, draws_of = scale * known[key][0] + 0.0, draws.get(key)  # no -0.0
                ends = None if draws_of is None else interval(scale * draws_of + 0.0)
                if cell.load == "all" or what in OF_A_LOAD:
                    run.add(name, f"{prefix}{what}", value, unit, n=n, interval=ends)
                line += f"{_with_ends(value, ends):>22s}"
            print(f"{line}  {whole.settings[at]:g}", flush=True)


def _with_ends(value: float, ends: Sequence[float] | None) -> str:
    ends_text = "" if ends is None else f" [{ends[0]:.2f}, {ends[1]:.2f}]"
    return f"{value:.2f}{ends_text}" if np.isfinite(value) else "-"
