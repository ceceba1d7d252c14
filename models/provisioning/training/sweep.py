"""Search for the hyper-parameters of one learner. Trials are judged forward in time and stopped early if they lag.

A trial fits on the pairs before an instant and is judged on those after it, at a few instants in turn. The select and
report windows are not used. Optuna (Akiba et al., KDD 2019) chooses what to try with a tree-structured Parzen
estimator. It stops a trial whose costs so far are above the median of the others at that instant. Trials are chosen
AT_ONCE at a time, and none of them learns from the others of its batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from features.conventions import interruption_h, overlap_h
from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
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
AT_ONCE = 4  # trials of a batch
MOST_PROCESSES = 8  # each loads the learner's library and holds the pairs


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


class TrialFit(NamedTuple):
    """A task: the fit of a trial at one of SHARES."""

    policy: str
    values: dict[str, Value]
    step: int
    seed: int


def cost_at(parts: Sequence[tuple[PairTable, PairTable]], fit: TrialFit) -> tuple[float, float]:
    """Fit before the instant and judge after it (`splits`). Returns the cost, hours a pair, and the time it took, s."""
    began = time.monotonic()
    before, after = parts[fit.step]
    artifact, _ = with_values(make_policy(fit.policy), fit.values).fit(before, fit.seed)
    return curve_cost(after, after.decisions_of(artifact)), time.monotonic() - began


def sweep(
    policy: str,
    pairs: PairTable,
    *,
    trials: int,
    budget_s: float,
    journal: Path,
    seed: int = 0,
    record: Callable[[SearchTrial], None] | None = None,
    engine: Engine = each_here,
) -> SearchResult:
    """Search until `journal` has `trials` trials or `budget_s` seconds have passed; make at least one trial.

    The first trial uses the policy's own values. AT_ONCE others are chosen and fitted at a time, on every machine, so
    the same seed gives the same trials whatever the engine. An existing journal is resumed: its trials count. `record`
    receives each trial of a batch when the batch ends. Raises InputError for a policy without hyper-parameters, for too
    few pairs, and for a journal that cannot be read.
    """
    bounds = tunable(policy)
    search = _Search(policy, splits(pairs), seed, engine)
    study = open_search(policy, journal, seed)
    if not study.trials:
        own = make_policy(policy)
        study.enqueue_trial({name: getattr(own, name) for name in bounds})
    done = _finished(study)
    ends = time.monotonic() + budget_s
    with Progress(f"searching settings of {policy}", trials) as progress:
        progress.reach(min(len(done), trials))
        while not done or (len(done) < trials and time.monotonic() < ends):
            asked = [study.ask() for _ in range(min(AT_ONCE, trials - len(done)) if done else 1)]
            values = [{name: _suggested(one, name, bounds[name]) for name in bounds} for one in asked]
            began = time.time()
            for one, chosen, (seen, pruned) in zip(asked, values, search.judged(asked, values), strict=True):
                _tell(study, one, seen, pruned)
                if record is not None:
                    record(SearchTrial(one.number, chosen, tuple(seen), pruned, began, time.time()))
                progress.advance(f"trial {one.number}: {np.mean(seen):.3f} h{' (stopped)' if pruned else ''}")
            done = _finished(study)
        progress.done(f"{counted(len(done), 'trial')}")
    return _found(policy, study)


@dataclass
class _Search:
    """A search's fits, and the time that one took in the latest batch, s."""

    policy: str
    parts: list[tuple[PairTable, PairTable]]
    seed: int
    engine: Engine
    fit_s: float = 0.0

    def judged(self, trials: list[Any], values: list[dict[str, Value]]) -> list[tuple[list[float], bool]]:
        """The costs of each trial, and whether it was stopped: at each instant in turn, all that still run."""
        costs: list[list[float]] = [[] for _ in trials]
        running = list(range(len(trials)))
        for step in range(len(SHARES)):
            self._fit(running, step, trials, values, costs)
            for at in running:
                trials[at].report(float(np.mean(costs[at])), step)
            if step + 1 < len(SHARES):
                running = [at for at in running if not trials[at].should_prune()]
        return [(seen, len(seen) < len(SHARES)) for seen in costs]

    def _fit(
        self,
        running: list[int],
        step: int,
        trials: list[Any],
        values: list[dict[str, Value]],
        costs: list[list[float]],
    ) -> None:
        tasks = [
            Task(f"trial {trials[at].number}", TrialFit(self.policy, values[at], step, self.seed), f"{step}")
            for at in running
        ]
        modules = [type(make_policy(self.policy)).__module__]
        work = Work(cost_at, tasks, self.parts, modules, about_s=self.fit_s * len(tasks))
        for place, (cost, wall_s) in self.engine(work, MOST_PROCESSES):
            costs[running[place]].append(cost)
            self.fit_s = wall_s


def _tell(study: Any, trial: Any, seen: list[float], pruned: bool) -> None:
    from optuna.trial import TrialState

    trial.set_user_attr("costs_h", seen)
    if pruned:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, float(np.mean(seen)))


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
