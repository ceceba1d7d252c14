"""Search the administrator's changes for the least objective, without groups that lose.

The search tries every change alone, then lets Optuna combine them (Akiba et al., KDD 2019; a tree-structured Parzen
estimator). A candidate under which a group waits too much longer counts with the base's objective on top of its own, so
that the search turns away from it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
from models.provisioning.training.journals import open_search
from models.what_if.advice.objectives import Objective, losers, objective, value_of
from models.what_if.advice.space import KEEP, Choice, joined_changes
from models.what_if.recorded.changes import TOGETHER, changed_recorded
from models.what_if.recorded.outcomes import REPLAY_S, RecordedOutcome, compile_replays, outcome_of
from models.what_if.recorded.scene import RecordedScene
from traces.counted import counted
from traces.errors import InputError
from traces.progress import Progress

LEAST_GAIN = 0.01  # of the objective, below which a candidate is not worth judging
WORTH_KEEPING = 0.05  # share of a gain below which a change is not worth making


class Fairness(NamedTuple):
    """No group of the dimension (None: accounts, else users) may wait more than `share` longer in the mean."""

    dimension: str | None = None
    share: float = 0.1


NO_MORE_THAN_A_TENTH = Fairness()


class TriedChanges(NamedTuple):
    """Changes that were tried, joined as in `baton whatif`, with the objective and the number of groups that lose."""

    changes: str
    value: float
    losing: int


def search_changes(
    scene: RecordedScene,
    of: Objective,
    choices: Sequence[Choice],
    fair: Fairness,
    *,
    candidates: int,
    budget_s: float,
    journal: Path,
    seed: int = 0,
    engine: Engine = each_here,
) -> list[TriedChanges]:
    """Try candidates until `journal` holds so many or the time is used; return each once, the best first.

    The engine replays the changes alone. What is combined depends on what was tried before, so that is replayed here,
    one candidate after the other. An existing journal is resumed. Raises InputError for a journal that cannot be read.
    """
    study, base = open_search("advice", journal, seed), outcome_of(scene)
    base_value = value_of(of, base)
    if not study.trials:
        for alone in _alone(choices):
            study.enqueue_trial(alone)
    found = {one.changes: one for one in _finished(study)}
    done, ends = len(_finished(study)), time.monotonic() + budget_s
    against = SearchBase(base, of.name, fair)
    singly = [joined_changes([values[choice.name] for choice in choices]) for values in _alone(choices)]
    first = [changes for changes in dict.fromkeys(singly) if changes not in found][: max(candidates - done, 0)]
    ready: dict[str, TriedChanges] = {}
    with (
        closing(_each_alone(against, first, engine)) as coming,
        Progress(f"searching changes for the {of.words}", candidates) as progress,
    ):
        progress.reach(min(done, candidates))
        while done < candidates and time.monotonic() < ends:
            trial = study.ask()
            changes = joined_changes([trial.suggest_categorical(choice.name, choice.changes) for choice in choices])
            while changes in first and changes not in ready:
                one = next(coming)
                ready[one.changes] = one
            if changes not in found:
                found[changes] = ready[changes] if changes in ready else try_changes(against, changes)
            one = found[changes]
            trial.set_user_attr("candidate", list(one))
            study.tell(trial, one.value + (base_value if one.losing else 0.0))
            done += 1
            progress.advance(f"{changes or 'as it is'}: {of.text(one.value)}")
        progress.done(f"{counted(done, 'candidate')}")
    return sorted(found.values(), key=lambda one: (one.losing > 0, one.value, one.changes))


class SearchBase(NamedTuple):
    """What candidates are compared with."""

    base: RecordedOutcome
    objective: str  # name
    fair: Fairness


def try_changes(against: SearchBase, changes: str) -> TriedChanges:
    """Replay the changes; those that leave too little together count twice the base's objective."""
    base, of = against.base, objective(against.objective)
    try:
        outcome = outcome_of(changed_recorded(base.scene, changes)) if changes else base
    except InputError:
        return TriedChanges(changes, 2.0 * value_of(of, base), 1)
    return TriedChanges(changes, value_of(of, outcome), len(losers(base, outcome, *against.fair)))


def compile_search(against: SearchBase) -> None:
    """Compile the replays of the base's scene."""
    compile_replays(against.base.scene)


def _each_alone(against: SearchBase, changes: Sequence[str], engine: Engine) -> Generator[TriedChanges]:
    tasks = [Task(f"the replay of {one}", one, "candidate") for one in changes]
    about_s = REPLAY_S * len(against.base.scene.record) * len(tasks)
    work = Work(try_changes, tasks, against, prepare=compile_search, is_compiled=True, about_s=about_s)
    for _at, tried in engine(work, sys.maxsize):
        yield tried


def pruned(
    scene: RecordedScene, of: Objective, tried: Sequence[TriedChanges], fair: Fairness, most: int
) -> list[TriedChanges]:
    """Return at most `most` candidates better than no change, the best first, without the changes that gain nothing.

    A change is dropped if without it at most WORTH_KEEPING of the gain is lost, and no group loses.
    """
    base = outcome_of(scene)
    unchanged = value_of(of, base)
    found: dict[str, TriedChanges] = {}
    for one in tried:
        if len(found) == most or one.losing or one.value > (1.0 - LEAST_GAIN) * unchanged:
            break
        most_lost = one.value + WORTH_KEEPING * (unchanged - one.value)
        parts = one.changes.split(TOGETHER)
        for part in tuple(parts):
            rest = TOGETHER.join(other for other in parts if other != part)
            if not rest:
                break
            outcome = outcome_of(changed_recorded(scene, rest))
            if value_of(of, outcome) <= most_lost and not losers(base, outcome, *fair):
                parts.remove(part)
                one = TriedChanges(rest, value_of(of, outcome), 0)
        found.setdefault(one.changes, one)
    return list(found.values())


def _alone(choices: Sequence[Choice]) -> Iterator[dict[str, str]]:
    """Nothing changed, then every change alone."""
    keep = {choice.name: KEEP for choice in choices}
    yield keep
    for choice in choices:
        for change in choice.changes[1:]:
            yield {**keep, choice.name: change}


def _finished(study: Any) -> list[TriedChanges]:
    """The candidates of the trials that ended; a trial whose process was killed has none."""
    return [
        TriedChanges(*one.user_attrs["candidate"])
        for one in study.trials
        if one.state.is_finished() and "candidate" in one.user_attrs
    ]
