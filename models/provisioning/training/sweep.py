"""Search for the hyper-parameters of one learner. Trials are judged forward in time and stopped early if they lag.

A trial fits on the pairs before an instant and is judged on those after it, at a few instants in turn. The select and
report windows are not used. Optuna (Akiba et al., KDD 2019) chooses what to try with a tree-structured Parzen
estimator. It stops a trial whose costs so far are above the median of the others at that instant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from features.conventions import interruption_h, overlap_h
from models.provisioning.batched_pairs import rewards
from models.provisioning.learning.early_stopping import LEAST_PAIRS, WEIGHTS
from models.provisioning.learning.hyperparameters import Value, tunable, with_values
from models.provisioning.protocol import PairTable
from models.provisioning.registry import make_policy
from models.provisioning.stopping import stopping_rows
from models.provisioning.training.journals import open_search
from traces.counted import counted
from traces.errors import InputError
from traces.progress import Progress

SHARES = (0.4, 0.6, 0.8)  # of the pairs, the oldest, before each instant; the pairs until the next instant are judged


@dataclass(frozen=True)
class SearchTrial:
    """One set of hyper-parameters: its cost at each instant, and whether it was stopped before the last."""

    number: int
    values: dict[str, Value]
    costs_h: tuple[float, ...]
    pruned: bool
    began_s: float
    ended_s: float

    @property
    def cost_h(self) -> float:
        """Hours a pair, the mean over its instants."""
        return float(np.mean(self.costs_h))


@dataclass(frozen=True)
class SearchResult:
    """The result of a search. `own_cost_h` is the cost of the policy's own values at the same instants."""

    policy: str
    best: SearchTrial
    own_cost_h: float
    trials: int
    pruned: int


def splits(pairs: PairTable) -> list[tuple[PairTable, PairTable]]:
    """Split the pairs at each of SHARES: pairs to fit on, known before the first of those to judge, and these.

    Raises InputError if some part has fewer than LEAST_PAIRS.
    """
    order = np.sort(pairs.submit_s, kind="stable")
    edges = [int(order[int(share * len(order))]) for share in SHARES]
    made = []
    for begin, end in zip(edges, [*edges[1:], int(order[-1]) + 1], strict=True):
        before = pairs.take(pairs.submit_s < begin).known_before(begin)
        after = pairs.take((pairs.submit_s >= begin) & (pairs.submit_s < end))
        if min(len(before), len(after)) < LEAST_PAIRS:
            raise InputError(
                f"a search needs {LEAST_PAIRS} pairs on either side of each of {len(SHARES)} instants; with these "
                f"{counted(len(pairs), 'pair')} one side has {min(len(before), len(after))}: fit on a longer window"
            )
        made.append((before, after))
    return made


def curve_cost(pairs: PairTable, submit: np.ndarray) -> float:
    """Cost of the decisions (settings, d), hours a pair: at each cost weight that of the best setting, then the mean.

    So a policy is judged by its whole curve, whatever its knob means.
    """
    gap = pairs.gap_h[stopping_rows(pairs, submit)]
    lost_h, doubled_h = interruption_h(gap), overlap_h(gap)
    return float(np.mean([-rewards(lost_h, doubled_h, weight).mean(axis=1).max() for weight in WEIGHTS]))


def costs(policy: str, values: dict[str, Value], pairs: PairTable, seed: int) -> Iterator[float]:
    """Cost of the policy with those values at each of SHARES in turn."""
    made = with_values(make_policy(policy), values)
    for before, after in splits(pairs):
        artifact, _ = made.fit(before, seed)
        yield curve_cost(after, after.decisions_of(artifact))


def sweep(
    policy: str,
    pairs: PairTable,
    *,
    trials: int,
    budget_s: float,
    journal: Path,
    seed: int = 0,
    record: Callable[[SearchTrial], None] | None = None,
) -> SearchResult:
    """Search until `journal` has `trials` trials or `budget_s` seconds have passed; make at least one trial.

    The first trial uses the policy's own values. An existing journal is resumed: its trials count. `record` receives
    each trial as it ends. Raises InputError for a policy without hyper-parameters, for too few pairs, and for a journal
    that cannot be read.
    """
    import optuna

    bounds = tunable(policy)
    splits(pairs)
    study = open_search(policy, journal, seed)
    if not study.trials:
        own = make_policy(policy)
        study.enqueue_trial({name: getattr(own, name) for name in bounds})
    done = _finished(study)
    ends = time.monotonic() + budget_s
    with Progress(f"searching settings of {policy}", trials) as progress:
        progress.reach(min(len(done), trials))
        while not done or (len(done) < trials and time.monotonic() < ends):
            asked = study.ask()
            values = {name: _suggested(asked, name, bounds[name]) for name in bounds}
            began, seen, pruned = time.time(), [], False
            for step, cost in enumerate(costs(policy, values, pairs, seed)):
                seen.append(cost)
                asked.report(float(np.mean(seen)), step)
                if step + 1 < len(SHARES) and asked.should_prune():
                    pruned = True
                    break
            asked.set_user_attr("costs_h", seen)
            if pruned:
                study.tell(asked, state=optuna.trial.TrialState.PRUNED)
            else:
                study.tell(asked, float(np.mean(seen)))
            if record is not None:
                record(SearchTrial(asked.number, values, tuple(seen), pruned, began, time.time()))
            done = _finished(study)
            progress.advance(f"trial {asked.number}: {np.mean(seen):.3f} h{' (stopped)' if pruned else ''}")
        progress.done(f"{counted(len(done), 'trial')}")
    return _found(policy, study)


def _suggested(trial: Any, name: str, bounds: Any) -> Value:
    if bounds.whole:
        return int(trial.suggest_int(name, int(bounds.low), int(bounds.high), log=bounds.log))
    return float(trial.suggest_float(name, bounds.low, bounds.high, log=bounds.log))


def _finished(study: Any) -> list[Any]:
    """Trials that ended; a trial whose process was killed has not."""
    return [one for one in study.trials if one.state.is_finished() and "costs_h" in one.user_attrs]


def _found(policy: str, study: Any) -> SearchResult:
    from optuna.trial import TrialState

    done = _finished(study)
    complete = [one for one in done if one.state == TrialState.COMPLETE]
    best = min(complete, key=lambda one: one.value)
    first = min(complete, key=lambda one: one.number)
    values = {name: best.params[name] for name in tunable(policy)}
    began, ended = best.datetime_start.timestamp(), best.datetime_complete.timestamp()
    trial = SearchTrial(best.number, values, tuple(best.user_attrs["costs_h"]), False, began, ended)
    return SearchResult(policy, trial, float(first.value), len(done), len(done) - len(complete))
