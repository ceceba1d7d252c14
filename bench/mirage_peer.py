"""Mirage's own methods on the same pairs as Baton's: interruption, overlap, and how far their training came.

Pairs of 1 and 8 nodes are injected into the plain world under Mirage's own scheduler. Fitted are, once a seed,
its transformer and its mixture of experts (value and REINFORCE heads), its random forest and XGBoost, on the fit
window; peers: reactive, its average, the start estimate, `lightgbm` and `fitted-q` on the same pairs. Asked once an
hour, as its own serial validator does. Rows are printed by load too (light: reactive loses at most 2 h, medium 12 h).

    python bench/mirage_peer.py --data data --cluster ls6 --window select --minutes 60 --seeds 0

A foundation goes on from `DATA/mirage/KIND-SEED.npz` where that is. `--width` makes the foundations narrower, and
`--of` takes every so many pairs to fit on: what was run with either is no longer what was published.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from features.bootstrap import interval, resampled_means, start_weights
from models.comparison.outcomes import Outcome, load_masks, play, play_frozen_average, play_oracle
from models.mirage.networks import Sizes
from models.mirage.peers import Budget, Fitted, fit_foundation, fit_trees
from models.mirage.snapshots import HISTORY, STEP_S, Histories, take_snapshots
from models.protocol import PairTable
from models.registry import make_policy
from models.study.cluster import Study, open_study
from simulator.flat.replay import replay
from traces import clusters
from traces.progress import say
from traces.store.folder import DataFolder

HOUR_S = 3600
BESIDE = ("reactive", "start-estimate", "lightgbm", "fitted-q")
KINDS = ("transformer", "mixture", "forest", "xgboost")


def histories_of(study: Study, pairs: PairTable) -> Histories:
    """The states of the pairs' decisions in the replay of the trace without them."""
    jobs = study.workload
    made = replay(jobs, scheduler=study.scenario.scheduler, capacity=study.scenario.capacity)
    end_s = np.where(made.starts < 0, made.starts, made.starts + made.run_s)
    first_s = int(pairs.decision_s.min()) - HISTORY * STEP_S
    last_s = int(pairs.decision_s.max())
    snapshots = take_snapshots(jobs.submit_s, made.starts, end_s, jobs.size, jobs.limit_s, first_s, last_s)
    return Histories.of(snapshots, pairs)


def hourly(pairs: PairTable) -> PairTable:
    """The same pairs with the decisions of each whole hour before the end."""
    pair = pairs.pair_of
    keep = (pairs.predecessor_end_s[pair] - pairs.decision_s) % HOUR_S == 0
    counts = np.bincount(pair[keep], minlength=len(pairs))
    columns = {name: getattr(pairs, name) for name in pairs.__dataclass_fields__}
    for name in ("decision_s", "successor_start_s", "observations"):
        columns[name] = columns[name][keep]
    return PairTable(**{**columns, "offset": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)})


def rows_of(outcome: Outcome, pairs: PairTable) -> None:
    """Prints a line a load: interruption and overlap at the default setting, with the cost's interval."""
    at = outcome.settings.index(outcome.default_setting)
    gap = outcome.gap_h[:, at]
    for load, mask in load_masks(pairs.gap_h[pairs.last]).items():
        if not mask.any():
            continue
        part = gap[:, mask]
        cost = np.abs(part)
        weights = start_weights(pairs.submit_s[mask])
        ends = "-"
        if weights is not None:
            seeds = np.full((len(weights), len(cost)), 1.0 / len(cost))
            found = interval(resampled_means(cost[:, None], weights, seeds)[:, 0])
            ends = "-" if found is None else f"[{found[0]:.2f}, {found[1]:.2f}]"
        print(
            f"{outcome.policy:26s} {load:7s} {mask.sum():4d}  {np.maximum(part, 0).mean():6.2f} "
            f"{np.maximum(-part, 0).mean():6.2f} {100 * (part <= 0).mean():4.0f} %  {cost.mean():6.2f} {ends}"
        )


def fitted(kind: str, histories: Histories, budget: Budget, seed: int) -> list[Fitted]:
    """The rows of one kind, with what their training came to on standard error."""
    began = time.perf_counter()
    made = (
        fit_foundation(kind, histories, budget, seed, 1)
        if kind in ("transformer", "mixture")
        else [fit_trees(kind, histories, seed)]
    )
    for one in made:
        told = {name: [round(value, 2) for value in series[-12:]] for name, series in one.metrics.items()}
        say(f"{one.name}, seed {seed}: {time.perf_counter() - began:.0f} s, {told}")
    return made


def main() -> None:
    """Reads, fits, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--window", choices=("select", "report"), default="select")
    parser.add_argument("--minutes", type=float, default=60.0, help="of pre-training, a foundation and seed")
    parser.add_argument("--width", type=int, default=Sizes().width)
    parser.add_argument("--of", type=int, default=1, help="fit on every so many pairs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()

    data = DataFolder(options.data)
    study = open_study(data, clusters.resolve(data, cluster=options.cluster))
    fit = hourly(study.pairs(study.windows.fit).known_before(study.windows.fit.until_s))
    judged = hourly(study.pairs(getattr(study.windows, options.window)))
    fit = fit.take(np.arange(0, len(fit), options.of))
    say(f"{len(fit)} pairs to fit on, {len(judged)} to judge, {len(judged.decision_s):,} decisions")
    on_fit, on_judged = histories_of(study, fit), histories_of(study, judged)
    budget = Budget(options.minutes * 60, Sizes(width=options.width), data.root / "mirage")

    outcomes: dict[str, list[Outcome]] = {}
    for kind in options.kinds:
        for seed in options.seeds:
            for one in fitted(kind, on_fit, budget, seed):
                outcomes.setdefault(one.name, []).append(one.outcome(on_judged, 1))
    for name in BESIDE:
        artifacts = [make_policy(name).fit(fit, seed)[0] for seed in options.seeds]
        outcomes[name] = [play(judged, artifacts, name)]
    outcomes["mirage-average"] = [play_frozen_average(judged)]
    outcomes["oracle"] = [play_oracle(judged)]

    today = datetime.now(UTC).date()
    print(f"{today}, {platform.machine()}, seeds {options.seeds}, {options.minutes:g} min, width {options.width}")
    for nodes in np.unique(judged.pair_nodes):
        mask = judged.pair_nodes == nodes
        print(f"\n{nodes}-node pairs of 48 h\n{'policy':26s} load       n     I h    O h  zero    cost  95 %")
        for name, parts in outcomes.items():
            first = parts[0]
            gap = np.concatenate([one.gap_h for one in parts])[:, :, mask]
            whole = Outcome(name, first.version, first.knob, first.settings, first.default_setting, gap)
            rows_of(whole, judged.take(mask))


if __name__ == "__main__":
    main()
