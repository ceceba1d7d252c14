"""Interruption and overlap of Mirage's own methods on the same pairs as Baton's, and the progress of their training.

Pairs of 1 and 8 nodes are injected into the plain world under Mirage's own scheduler. The six methods of
`models.provisioning.mirage` are fitted on the fit window, once a seed; peers on the same pairs are reactive, its
average, the start estimate and `fitted-q`. All decide every ten minutes, as
Mirage's online validator does, at the setting that the select window picks; Mirage's also as released. `--kinds` also
names Baton's DQN and policy gradient over the same 144 snapshots (`bench.mirage.learners`), which decide once an hour.

    python bench/mirage_peer.py --data data --cluster ls6 --window report --minutes 60 --seeds 0

Networks keep their progress in `DATA/mirage` and resume there. `--minutes` is processor time. `--width`, `--inner` and
`--experts` make encoders smaller, and `--of N` takes every N-th pair of the fit and select windows: a run with any of
them is no longer the published method.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.artifact import Artifact
from bench.mirage import learners
from bench.peer_rows import print_table
from bench.results import Benchmark, BenchmarkRun
from models.provisioning.comparison.outcomes import PolicyOutcome, play, play_frozen_average, play_oracle
from models.provisioning.learning.hyperparameters import TUNABLE, with_values
from models.provisioning.mirage import training
from models.provisioning.mirage.foundations import Budget, hourly
from models.provisioning.mirage.networks import Sizes
from models.provisioning.mirage.snapshots import Histories
from models.provisioning.protocol import PairTable, Resumable
from models.provisioning.registry import READING_DAYS, make_policy
from models.study.cluster import open_study
from traces import clusters
from traces.progress import say
from traces.store.folder import DataFolder

ABOUT = Benchmark(
    "mirage_peer",
    "Mirage's own methods",
    "policies",
    "Hours a pair of 48 h of Mirage's methods and Baton's, fitted on the same pairs, judged every 10 min; plain world.",
)
ABOUT_CURVE = Benchmark(
    "mirage_curve",
    "Training of Mirage's networks",
    "policies",
    "Mean squared error of the predicted gap on the pairs that a foundation did not learn from, along its training.",
)
ABOUT_HISTORIES = Benchmark(
    "mirage_histories",
    "Networks over a day of snapshots",
    "policies",
    "Hours a pair of 48 h of networks over histories, fitted on the same pairs and judged hourly; plain world.",
)
BESIDE = ("reactive", "start-estimate", "fitted-q")
FOUNDATIONS = {"mirage-transformer-dqn": "transformer", "mirage-moe-dqn": "mixture"}  # those with heads are the same
PARTS = ("first epoch", "a quarter", "half", "three quarters", "last epoch")
KINDS = (*READING_DAYS, *learners.KINDS)


def artifacts_of(
    name: str, fit: PairTable, options: argparse.Namespace, folder: Path, curve: BenchmarkRun
) -> list[Artifact]:
    """The policy of that name fitted on the pairs once a seed; its training goes to standard error and to `curve`."""
    given = {one: value for one in TUNABLE.get(name, {}) if (value := getattr(options, one, None)) is not None}
    policy = with_values(make_policy(name), given)
    if isinstance(policy, Resumable):
        policy = policy.resuming_in(folder)
    made = []
    for seed in options.seeds:
        began = time.process_time()
        artifact, metrics = policy.fit(fit, seed)
        tell(name, seed, metrics | {"processor_minutes": [(time.process_time() - began) / 60]})
        if name in FOUNDATIONS:
            add_curve(curve, f"{FOUNDATIONS[name]}, seed {seed}", metrics)
        made.append(artifact)
    return made


def add_curve(curve: BenchmarkRun, name: str, metrics: dict[str, list[float]]) -> None:
    """Record the loss on held-out pairs along a training: whether more of it would help."""
    losses = metrics["held_out_mse_h2"]
    curve.add(name, "epochs", len(losses))
    curve.add(name, "processor time", metrics["seconds"][0] / 60, "min")
    for part, what in enumerate(PARTS):
        curve.add(name, what, losses[max(round(len(losses) * part / 4), 1) - 1], "h²")
    curve.add(name, "least", min(losses), "h²")
    curve.add(name, "epoch of the least", int(np.argmin(losses)) + 1)


def outcomes_over_days(
    kind: str, fit: PairTable, judged: Sequence[PairTable], budget: Budget, options: argparse.Namespace
) -> list[PolicyOutcome]:
    """The outcomes of a learner of `bench.mirage.learners` on all judged pairs; it is asked once an hour."""
    on_fit, *on_judged = [Histories.of_table(hourly(pairs)) for pairs in (fit, *judged)]
    played: list[list[PolicyOutcome]] = []
    for seed in options.seeds:
        learned = learners.fit(kind, on_fit, budget, seed, options.updates)
        tell(kind, seed, learned.metrics)
        played.append([learned.outcome(histories) for histories in on_judged])
    return [together(of_window) for of_window in zip(*played, strict=True)]


def as_released(outcome: PolicyOutcome) -> PolicyOutcome:
    """The outcome at the released setting alone."""
    at = outcome.settings.index(outcome.default_setting)
    name, settings = f"{outcome.policy} as released", outcome.settings[at : at + 1]
    return replace(outcome, policy=name, settings=settings, gap_h=outcome.gap_h[:, at : at + 1])


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
    parser.add_argument("--minutes", type=float, default=60.0, help="of processor time to train an encoder")
    parser.add_argument("--updates", type=int, help="of Baton's learners over histories; their own number if not given")
    parser.add_argument("--width", type=int, default=Sizes().width)
    parser.add_argument("--inner", type=int, default=Sizes().inner)
    parser.add_argument("--experts", type=int, default=Sizes().experts)
    parser.add_argument("--of", type=int, default=1, help="take every so many pairs to fit on and to select with")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(READING_DAYS))
    parser.add_argument("--loads", nargs="+", choices=("all", "light", "medium", "heavy"), default=["all"])
    return parser


def main() -> None:
    """Read the pairs, fit every method, print and record the tables."""
    options = _parser().parse_args()

    data = DataFolder(options.data)
    study = open_study(data, clusters.resolve(data, cluster=options.cluster)).seeing(READING_DAYS)
    windows = ["select"] if options.window == "select" else ["select", "report"]
    known = [study.windows.fit, study.windows.select]  # settings too are picked by what was known in time
    tables = [study.pairs(window).known_before(window.until_s) for window in known]
    tables = [pairs.take(np.arange(0, len(pairs), options.of)) for pairs in tables]
    tables += [study.pairs(study.windows.report)] if options.window == "report" else []
    fit, *judged = tables
    say(f"{len(fit)} pairs to fit on, {[len(pairs) for pairs in judged]} to judge")
    sizes = Sizes(width=options.width, inner=options.inner, experts=options.experts)
    budget = Budget(options.minutes * 60, sizes, data.root / "mirage")

    curve = BenchmarkRun(ABOUT_CURVE)
    found: list[list[PolicyOutcome]] = [[] for _ in windows]
    for name in (*options.kinds, *BESIDE):
        if name in learners.KINDS:
            outcomes = outcomes_over_days(name, fit, judged, budget, options)
        else:
            artifacts = artifacts_of(name, fit, options, data.root / "mirage", curve)
            outcomes = [play(pairs, artifacts, name) for pairs in judged]
        for outcome, of_window in zip(outcomes, found, strict=True):
            of_window += [outcome, as_released(outcome)] if name in READING_DAYS else [outcome]
    gaps = fit.gap_h[training.probe_rows(fit)]
    curve.add("the mean gap, always", PARTS[-1], np.var(gaps), "h²", n=len(gaps))
    for pairs, of_window in zip(judged, found, strict=True):
        of_window += [play_frozen_average(pairs), play_oracle(pairs)]

    today = datetime.now(UTC).date()
    print(f"{today}, {platform.machine()}, seeds {options.seeds}, at most {options.minutes:g} min, {sizes}")
    run = BenchmarkRun(ABOUT_HISTORIES if set(options.kinds) <= set(learners.KINDS) else ABOUT)
    for window, pairs, outcomes in zip(windows, judged, found, strict=True):
        for nodes in np.unique(pairs.pair_nodes):
            print(f"\n{window}, {nodes}-node pairs of 48 h")
            on_select = {one.policy: one.take(judged[0].pair_nodes == nodes) for one in found[0]}
            mask, prefix = pairs.pair_nodes == nodes, f"{nodes} node{'s' if nodes > 1 else ''}, "
            recorded = run if window == options.window else BenchmarkRun(run.about)
            print_table(
                pairs.take(mask), [one.take(mask) for one in outcomes], on_select, options.loads, recorded, prefix
            )
    run.write()
    if any(name in FOUNDATIONS for name in options.kinds):
        curve.write()
    say(f"{time.process_time() / 60:.1f} min of processor time")


if __name__ == "__main__":
    main()
