"""What looking ahead is worth on recorded pairs: interruption at fixed mean overlaps, of rules that fit nothing.

    .venv/bin/python -m bench.ahead_rules --data DIR --cluster NAME --from DATE --to DATE

Half-hourly decisions. A line a rule: the start estimates that `squeue --start` shows and expects, and each number of
the futures, scaled by the factors of its policy; interruption in hours at a mean overlap of .25, .5 and 1 h.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.asked_window import opened, parser
from features.ahead.summary import AHEAD, IN_TIME
from features.conventions import interruption_h, overlap_h
from features.observe import AT
from models.comparison.outcomes import at_overlap, stopping_rows
from models.policies.estimates import start_estimate, start_expected
from models.policies.simulate_ahead import FACTORS
from models.protocol import PairTable

BUDGETS_H = (0.25, 0.5, 1.0)


def line(pairs: PairTable, name: str, wait_h: NDArray[np.float32], factors: tuple[float, ...]) -> str:
    """A rule's figures: submit when a factor x wait_h, (d,), reaches the time left."""
    left_h = (pairs.predecessor_end_s[pairs.pair_of] - pairs.decision_s) / 3600.0
    gap_h = pairs.gap_h[stopping_rows(pairs, np.asarray(factors)[:, None] * wait_h >= left_h)]
    lost, doubled = interruption_h(gap_h).mean(axis=1), overlap_h(gap_h).mean(axis=1)
    reactive = np.array([interruption_h(pairs.gap_h[pairs.last]).mean()])
    at = [float(at_overlap(lost[None], doubled[None], reactive, budget)[0]) for budget in BUDGETS_H]
    return f"{name:20} {' '.join(f'{value:6.2f}' for value in at)}   cost {float((lost + doubled).min()):.2f}"


def main() -> None:
    """Simulates the window's futures, or reads those that are kept, and prints the lines."""
    study, window = opened(parser(__doc__).parse_args())
    pairs = study.seeing(["simulate-ahead"]).pairs(window)
    print(f"{len(pairs)} pairs, {len(pairs.decision_s)} decisions; interruption at overlap {BUDGETS_H} h")
    print(line(pairs, "start-estimate", pairs.observations[:, AT.start_estimate_h], start_estimate().settings))
    print(line(pairs, "start-expected", pairs.observations[:, AT.start_estimate_expected_h], start_expected().settings))
    for place, name in enumerate(AHEAD):
        if name != IN_TIME:
            print(line(pairs, name, pairs.ahead[:, place], FACTORS))


if __name__ == "__main__":
    main()
