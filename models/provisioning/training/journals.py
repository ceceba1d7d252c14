"""Searches by Optuna that are stored in a file, trial by trial, and resumed from it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from traces.errors import InputError

UNPRUNED = 4  # trials that always run to their end


def open_search(name: str, journal: Path, seed: int) -> Any:
    """Return the Optuna study `name` in that journal, new or resumed.

    Raises InputError for a file that is not a journal.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(logging.ERROR)
    journal.parent.mkdir(parents=True, exist_ok=True)
    try:
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal)))
        earlier = {one.study_name: one for one in optuna.get_all_study_summaries(storage)}
        begun = earlier[name].n_trials if name in earlier else 0
        return optuna.create_study(
            storage=storage,
            study_name=name,
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=seed * 100_003 + begun),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED),
        )
    except (ValueError, KeyError, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise InputError(f"{journal}: not a journal of a search ({text}); remove it") from error
