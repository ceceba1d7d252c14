"""What futures lack: one rule on futures that are given parts of the truth.

    .venv/bin/python -m bench.ahead_known --data DIR --cluster NAME --from DATE --to DATE [--every 6]

It takes each `--every`th recorded pair of the window, with half-hourly decisions. Run times, arrivals, and releases
of held jobs are each given or drawn, in all combinations; the oracle comes last. A line shows the interruption of
`simulate-ahead` in hours at a mean overlap of 0.25, 0.5 and 1 h, and its least cost of weight 1, with 95 % intervals
over 7-day blocks. Futures that are given all three still differ from the judging world in the times of passes and in
when it learns of nodes.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from bench.ahead_rules import BUDGETS_H
from bench.asked_window import opened, parser
from bench.results import Benchmark, BenchmarkRun
from features.bootstrap import block_count, interval, start_weights
from features.conventions import interruption_h, overlap_h
from features.futures.summary import AHEAD
from models.provisioning.comparison.outcomes import at_overlap, oracle_rows, stopping_rows
from models.provisioning.futures.revealed import RevealedTruth
from models.provisioning.futures.table import starts_ahead, with_futures
from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.policies.simulate_ahead import FACTORS
from models.provisioning.protocol import PairTable
from models.study.pair_tables import predecessors_in

ABOUT = Benchmark(
    "ahead_known",
    "What futures lack",
    "policies",
    "simulate-ahead on futures that are given parts of the truth, on recorded pairs of the A100 log.",
)
LOWER = AHEAD.index("ahead_wait_p25_h")


def figures(run: BenchmarkRun, name: str, pairs: PairTable, gap_h: NDArray[np.float64]) -> str:
    """Interruption at each budget and the least cost, of gaps (settings, p), each with its interval; recorded too."""
    weights = start_weights(pairs.submit_s)
    draws = [np.full((1, len(pairs)), 1.0 / len(pairs))]
    draws += [] if weights is None else [weights / weights.sum(axis=1, keepdims=True)]
    reactive_h = interruption_h(pairs.gap_h[pairs.last])
    words = []
    for budget in (*BUDGETS_H, None):
        found = []
        for draw in draws:
            lost, doubled = draw @ interruption_h(gap_h).T, draw @ overlap_h(gap_h).T
            at = (
                (lost + doubled).min(axis=1) if budget is None else at_overlap(lost, doubled, draw @ reactive_h, budget)
            )
            found.append(at)
        ends = interval(found[1][~np.isnan(found[1])]) if len(found) > 1 else None
        shown = "" if ends is None else f" [{ends[0]:.2f}, {ends[1]:.2f}]"
        words.append(f"{float(found[0][0]):.2f}{shown}")
        what = "least cost" if budget is None else f"interruption at {budget:g} h of overlap"
        run.add(name, what, found[0][0], "h", n=len(pairs), interval=ends)
    return " | ".join(words)


def main() -> None:
    """Simulate the futures of each combination; print and record its figures."""
    wanted = parser(__doc__)
    wanted.add_argument("--every", type=int, default=6)
    wanted.add_argument("--futures", type=int, default=8)
    given = wanted.parse_args()
    study, window = opened(given)
    chosen = np.arange(0, len(study.pairs(window)), given.every)
    pairs, (record, every) = study.pairs(window).take(chosen), predecessors_in(study.data, study.scenario, window)
    predecessors = Predecessors(every.row[chosen], every.next_row[chosen])
    left_h = (pairs.predecessor_end_s[pairs.pair_of] - pairs.decision_s) / 3600.0
    blocks = block_count(pairs.submit_s, int(pairs.submit_s.min()))
    print(f"n {len(pairs)}, {blocks} blocks, {len(pairs.decision_s)} decisions, {given.futures} futures", flush=True)
    run = BenchmarkRun(ABOUT)
    for known in product((False, True), repeat=3):
        revealed = RevealedTruth(*known)
        count = 1 if all(known) else given.futures
        starts = starts_ahead(pairs, record, predecessors, revealed=revealed, futures=count)
        wait_h = with_futures(pairs, starts).ahead[:, LOWER]
        gap_h = pairs.gap_h[stopping_rows(pairs, np.asarray(FACTORS)[:, None] * wait_h >= left_h)]
        names = [name for name, is_revealed in revealed._asdict().items() if is_revealed]
        name = ", ".join(names) or "nothing"
        print(f"| {name} | {figures(run, name, pairs, gap_h)} |", flush=True)
    gap_h = pairs.gap_h[oracle_rows(pairs, 1.0)][None]
    print(f"| oracle | {np.maximum(gap_h, 0).mean():.2f} + {np.maximum(-gap_h, 0).mean():.2f} h of overlap |")
    run.add("oracle", "interruption", np.maximum(gap_h, 0).mean(), "h", n=len(pairs))
    run.add("oracle", "overlap", np.maximum(-gap_h, 0).mean(), "h", n=len(pairs))
    run.write()


if __name__ == "__main__":
    main()
