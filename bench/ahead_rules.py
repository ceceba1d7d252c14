"""Interruption on recorded pairs, at fixed mean overlaps, under rules that fit nothing.

    .venv/bin/python -m bench.ahead_rules --data DIR --cluster NAME --from DATE --to DATE

Decisions are half-hourly. The rules follow a start estimate (by limits, as `squeue --start` shows, or by expected run
times) or a number of the simulated futures, times the factors of their policy. A line shows the interruption in hours
at a mean overlap of 0.25, 0.5 and 1 h.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.asked_window import opened, parser
from bench.results import Benchmark, BenchmarkRun
from features.conventions import interruption_h, overlap_h
from features.futures.summary import AHEAD, IN_TIME
from features.observe import AT
from models.provisioning.comparison.outcomes import at_overlap, stopping_rows
from models.provisioning.policies.estimates import start_by_expected_run_times, start_by_limits
from models.provisioning.policies.simulate_ahead import FACTORS
from models.provisioning.protocol import PairTable

ABOUT = Benchmark(
    "ahead_rules",
    "Rules that look ahead",
    "policies",
    "Hours a pair under rules that fit nothing: start estimates and numbers of simulated futures, each times a factor.",
)
BUDGETS_H = (0.25, 0.5, 1.0)


def line(
    run: BenchmarkRun, pairs: PairTable, name: str, wait_h: NDArray[np.float32], factors: tuple[float, ...]
) -> str:
    """A rule's figures, recorded too: submit when factor x wait_h, (d,), reaches the time left."""
    left_h = (pairs.predecessor_end_s[pairs.pair_of] - pairs.decision_s) / 3600.0
    gap_h = pairs.gap_h[stopping_rows(pairs, np.asarray(factors)[:, None] * wait_h >= left_h)]
    lost, doubled = interruption_h(gap_h).mean(axis=1), overlap_h(gap_h).mean(axis=1)
    reactive = np.array([interruption_h(pairs.gap_h[pairs.last]).mean()])
    at = [float(at_overlap(lost[None], doubled[None], reactive, budget)[0]) for budget in BUDGETS_H]
    for budget, value in zip(BUDGETS_H, at, strict=True):
        run.add(name, f"interruption at {budget:g} h of overlap", value, "h", n=len(pairs))
    run.add(name, "least cost", (lost + doubled).min(), "h", n=len(pairs))
    return f"{name:20} {' '.join(f'{value:6.2f}' for value in at)}   cost {float((lost + doubled).min()):.2f}"


def main() -> None:
    """Simulate the window's futures, or read those on disk; print and record each rule."""
    study, window = opened(parser(__doc__).parse_args())
    pairs = study.seeing(["simulate-ahead"]).pairs(window)
    print(f"{len(pairs)} pairs, {len(pairs.decision_s)} decisions; interruption at overlap {BUDGETS_H} h")
    run, seen = BenchmarkRun(ABOUT), pairs.observations
    print(line(run, pairs, "start-estimate", seen[:, AT.start_estimate_h], start_by_limits().settings))
    print(
        line(
            run, pairs, "start-expected", seen[:, AT.start_estimate_expected_h], start_by_expected_run_times().settings
        )
    )
    for place, name in enumerate(AHEAD):
        if name != IN_TIME:
            print(line(run, pairs, name, pairs.ahead[:, place], FACTORS))
    run.write()


if __name__ == "__main__":
    main()
