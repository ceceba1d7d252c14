"""Worth of each input of a learner: the same fits without it, judged on the select window.

    .venv/bin/python -m bench.input_ablation --data DIR --cluster NAME [--policies dqn,policy-gradient] [--seeds 3]

Learners are fitted on recorded pairs of the fit window in the calibrated world. They are judged on the pairs of the
select window whose outcome was known at its end: a development window, on which these inputs were chosen. A line
shows the interruption in hours at a mean overlap of 0.25, 0.5 and 1 h and the least cost of weight 1, each the mean
over seeds, and the least and largest cost of a seed. The first input always stays, because the untrained rule follows
it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from bench.ahead_rules import BUDGETS_H
from bench.results import Benchmark, BenchmarkRun
from models.provisioning.comparison.outcomes import PolicyOutcome, at_overlap, play
from models.provisioning.learning.masking import hidden_at_random
from models.provisioning.protocol import PairTable, Policy
from models.provisioning.registry import make_policy
from models.study.cluster import open_study
from traces import clusters
from traces.store.folder import DataFolder

ABOUT = Benchmark(
    "input_ablation",
    "Learners without one input",
    "policies",
    "Hours a pair of each learner without one of its inputs, mean over seeds; the select window, a development window.",
)


def words(run: BenchmarkRun, name: str, outcome: PolicyOutcome, pairs: PairTable) -> str:
    """Interruption at each budget and the least cost, of gaps (seeds, settings, pairs); recorded too."""
    lost, doubled = outcome.interruption_h.mean(axis=2), outcome.overlap_h.mean(axis=2)
    reactive_h = np.full(len(lost), np.maximum(pairs.gap_h[pairs.last], 0.0).mean())
    at = [np.nanmean(at_overlap(lost, doubled, reactive_h, budget)) for budget in BUDGETS_H]
    least = (lost + doubled).min(axis=1)
    run.add(name, f"{outcome.policy}, least cost", least.mean(), "h", n=len(pairs))
    for budget, value in zip(BUDGETS_H, at, strict=True):
        what = f"{outcome.policy}, interruption at {budget:g} h of overlap"
        run.add(name, what, value, "h", n=len(pairs))
    shown = " | ".join(f"{value:.2f}" for value in (*at, least.mean()))
    return f"{shown} ({least.min():.2f} to {least.max():.2f})"


def forms(name: str) -> Iterator[tuple[str, Policy]]:
    """The policy with all of its inputs, and without each but the first."""
    policy: Any = make_policy(name)
    yield "all inputs", policy
    for left_out in policy.inputs[1:]:
        kept = tuple(one for one in policy.inputs if one != left_out)
        yield f"without {left_out}", cast(Policy, replace(policy, inputs=kept))


def main() -> None:
    """Fit, judge, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--policies", default="fitted-q,dqn,policy-gradient")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    names, data = given.policies.split(","), DataFolder(given.data)
    study = open_study(data, clusters.resolve(data, cluster=given.cluster), world="calibrated").seeing(names)
    window, judged_on = study.windows.fit, study.windows.select
    fit = hidden_at_random(study.known_before(window.until_s).fit_pairs(window).known_before(window.until_s))
    pairs = study.pairs(judged_on).known_before(judged_on.until_s)
    print(f"fitted on {len(fit)} pairs, judged on {len(pairs)}, {given.seeds} seeds")
    print("| learner | inputs | I@.25 | I@.5 | I@1 | least cost (of a seed) |\n|---|---|---|---|---|---|", flush=True)
    run = BenchmarkRun(ABOUT)
    for name in names:
        for form, policy in forms(name):
            artifacts = [policy.fit(fit, seed)[0] for seed in range(given.seeds)]
            print(f"| {name} | {form} | {words(run, form, play(pairs, artifacts, name), pairs)} |", flush=True)
    run.write()


if __name__ == "__main__":
    main()
