"""Interruption and overlap of Mirage's own methods on the same pairs as Baton's, and the progress of their training.

Pairs of 1 and 8 nodes are injected into the plain world under Mirage's own scheduler. Fitted are, once a seed,
its transformer and its mixture of experts (value and REINFORCE heads), its random forest and XGBoost, and Baton's DQN
and policy gradient over the same 144 snapshots (`bench.mirage.learners`), on the fit window; peers:
reactive, its average, the start estimate, `lightgbm`, `fitted-q`, `dqn` and `policy-gradient` on the same pairs. All
are asked once an hour, as its own serial validator does, at the setting that the select window picks.

    python bench/mirage_peer.py --data data --cluster ls6 --window report --minutes 60 --seeds 0

Learners over histories resume from `DATA/mirage/KIND-SEED.npz` if it exists. `--width`, `--inner` and `--experts` make
encoders smaller, and `--of N` fits on every N-th pair: a run with any of them is no longer the published method.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.mirage import learners
from bench.mirage.peers import fit_foundation, fit_trees
from bench.peer_rows import print_table
from bench.results import Benchmark, BenchmarkRun
from models.provisioning.comparison.outcomes import PolicyOutcome, play, play_frozen_average, play_oracle
from models.provisioning.mirage.foundations import Budget, hourly
from models.provisioning.mirage.networks import Sizes
from models.provisioning.mirage.snapshots import HISTORY, STEP_S, Histories, take_snapshots
from models.provisioning.protocol import PairTable
from models.provisioning.registry import make_policy
from models.study.cluster import Study, open_study
from simulator.flat.replay import replay
from traces import clusters
from traces.progress import say
from traces.store.folder import DataFolder

ABOUT = Benchmark(
    "mirage_peer",
    "Mirage's own methods",
    "policies",
    "Hours a pair of 48 h of Mirage's methods and Baton's, fitted on the same pairs and judged hourly; plain world.",
)
ABOUT_HISTORIES = Benchmark(
    "mirage_histories",
    "Networks over a day of snapshots",
    "policies",
    "Hours a pair of 48 h of networks over histories, fitted on the same pairs and judged hourly; plain world.",
)
BESIDE = ("reactive", "start-estimate", "lightgbm", "fitted-q", "dqn", "policy-gradient")
KINDS = ("transformer", "mixture", "forest", "xgboost", *learners.KINDS)


def histories_of(study: Study, pairs: PairTable) -> Histories:
    """The states of the pairs' decisions in the replay of the trace without them."""
    jobs = study.workload
    made = replay(jobs, scheduler=study.scenario.scheduler, capacity=study.scenario.capacity)
    end_s = np.where(made.starts < 0, made.starts, made.starts + made.run_s)
    first_s = max(int(pairs.decision_s.min()) - HISTORY * STEP_S, int(jobs.submit_s.min()))
    last_s = int(pairs.decision_s.max())
    snapshots = take_snapshots(jobs.submit_s, made.starts, end_s, jobs.size, jobs.limit_s, first_s, last_s)
    return Histories.of(snapshots, pairs)


def rows_of(
    kind: str, on_fit: Histories, on_judged: Sequence[Histories], budget: Budget, seed: int, updates: int | None
) -> Iterator[list[PolicyOutcome]]:
    """The rows of one kind, each on all judged pairs; metrics of the training go to standard error."""
    if kind in learners.KINDS:
        learned = learners.fit(kind, on_fit, budget, seed, updates)
        tell(kind, seed, learned.metrics)
        yield [learned.outcome(histories) for histories in on_judged]
        return
    made = (
        fit_foundation(kind, on_fit, budget, seed, 1)
        if kind in ("transformer", "mixture")
        else [fit_trees(kind, on_fit, seed)]
    )
    for one in made:
        tell(one.name, seed, one.metrics)
        yield [one.outcome(histories, 1) for histories in on_judged]


def together(parts: Sequence[PolicyOutcome]) -> PolicyOutcome:
    """Join the outcomes of all seeds."""
    return replace(parts[0], gap_h=np.concatenate([one.gap_h for one in parts]))


def tell(name: str, seed: int, metrics: dict[str, list[float]]) -> None:
    """Print the last metrics of a training to standard error."""
    newest = {what: [round(value, 2) for value in series[-12:]] for what, series in metrics.items()}
    say(f"{name}, seed {seed}: {newest}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--window", choices=("select", "report"), default="select")
    parser.add_argument("--minutes", type=float, default=60.0, help="of training, an encoder and seed")
    parser.add_argument("--updates", type=int, help="of Baton's learners over histories; their own number if not given")
    parser.add_argument("--width", type=int, default=Sizes().width)
    parser.add_argument("--inner", type=int, default=Sizes().inner)
    parser.add_argument("--experts", type=int, default=Sizes().experts)
    parser.add_argument("--of", type=int, default=1, help="fit on every so many pairs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--loads", nargs="+", choices=("all", "light", "medium", "heavy"), default=["all"])
    return parser


def main() -> None:
    """Read the pairs, fit every method, print and record the tables."""
    options = _parser().parse_args()

    data = DataFolder(options.data)
    study = open_study(data, clusters.resolve(data, cluster=options.cluster))
    windows = ["select"] if options.window == "select" else ["select", "report"]
    known = [study.windows.fit, study.windows.select]  # settings too are picked by what was known in time
    tables = [study.pairs(window).known_before(window.until_s) for window in known]
    tables += [study.pairs(study.windows.report)] if options.window == "report" else []
    fit, *judged = map(hourly, tables)
    fit = fit.take(np.arange(0, len(fit), options.of))
    say(f"{len(fit)} pairs to fit on, {[len(pairs) for pairs in judged]} to judge")
    on_fit, on_judged = histories_of(study, fit), [histories_of(study, pairs) for pairs in judged]
    sizes = Sizes(width=options.width, inner=options.inner, experts=options.experts)
    budget = Budget(options.minutes * 60, sizes, data.root / "mirage")

    played: list[dict[str, list[PolicyOutcome]]] = [{} for _ in windows]
    for kind in options.kinds:
        for seed in options.seeds:
            for of_row in rows_of(kind, on_fit, on_judged, budget, seed, options.updates):
                for outcome, in_window in zip(of_row, played, strict=True):
                    in_window.setdefault(outcome.policy, []).append(outcome)
    beside = {name: [make_policy(name).fit(fit, seed)[0] for seed in options.seeds] for name in BESIDE}
    found = []
    for pairs, in_window in zip(judged, played, strict=True):
        outcomes = [together(parts) for parts in in_window.values()]
        outcomes += [play(pairs, artifacts, name) for name, artifacts in beside.items()]
        found.append([*outcomes, play_frozen_average(pairs), play_oracle(pairs)])

    today = datetime.now(UTC).date()
    print(f"{today}, {platform.machine()}, seeds {options.seeds}, at most {options.minutes:g} min, {sizes}")
    run = BenchmarkRun(ABOUT_HISTORIES if set(options.kinds) <= set(learners.KINDS) else ABOUT)
    for window, pairs, outcomes in zip(windows, judged, found, strict=True):
        for nodes in np.unique(pairs.pair_nodes):
            print(f"\n{window}, {nodes}-node pairs of 48 h, asked hourly")
            select = {one.policy: one.take(judged[0].pair_nodes == nodes) for one in found[0]}
            mask, prefix = pairs.pair_nodes == nodes, f"{window}, {nodes} node{'s' if nodes > 1 else ''}, "
            print_table(pairs.take(mask), [one.take(mask) for one in outcomes], select, options.loads, run, prefix)
    run.write()


if __name__ == "__main__":
    main()
