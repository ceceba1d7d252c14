"""A study's searches for hyper-parameters, stored under `artifacts/searches` and resumed from there."""

from __future__ import annotations

from pathlib import Path

from models.engine.engines import engine_of
from models.provisioning.learning.hyperparameters import tunable
from models.provisioning.registry import looks_ahead
from models.provisioning.training.sweep import SearchResult, sweep
from models.study.cluster import Study
from models.study.fits import scenario_key
from models.study.futures import futures_digest
from models.study.pair_tables import pair_fingerprint
from models.study.windows import Window
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.files.locks import locked

FOLDER = "searches"
MADE_BY = ("models.provisioning.training.sweep",)


def search(study: Study, policy: str, window: Window, *, trials: int, budget_s: float, seed: int = 0) -> SearchResult:
    """Search on the window's pairs until there are `trials` trials or the time is used; each trial is a run in MLflow.

    A search of the same pairs by the same code is resumed. Raises what `sweep` raises.
    """
    from models.tracking.search_runs import search_run

    tunable(policy)
    engine = engine_of(study.data.root)
    known = study.seeing([policy]).known_before(window.until_s)
    pairs = known.fit_pairs(window).known_before(window.until_s)
    with (
        locked(study.data.root, f"search of {study.scenario.cluster} {policy}"),
        search_run(study.data, known.context(window.until_s), policy, pairs) as record,
    ):
        journal = journal_path(study, policy, window, seed)
        return sweep(
            policy, pairs, trials=trials, budget_s=budget_s, journal=journal, seed=seed, record=record, engine=engine
        )


def journal_path(study: Study, policy: str, window: Window, seed: int) -> Path:
    """The file in which Optuna writes the trials; its name holds the digest of their inputs."""
    pairs = [pair_fingerprint(study.data, one, window) for one in study.fit_scenarios(window.until_s)]
    ahead = [futures_digest()] if looks_ahead(policy) else []
    made_from = digest(pairs, policy, seed, code_digest(*MADE_BY), *ahead)
    where = study.data.artifacts / FOLDER / study.scenario.cluster / scenario_key(study)
    return where / f"{policy}-{made_from[:12]}.journal"


def as_toml(study: Study, found: SearchResult) -> str:
    """The lines to add to clusters.toml."""
    lines = [f"{name} = {value:.6g}" for name, value in found.best.values.items()]
    return "\n".join([f"[{study.scenario.cluster}.hyperparameters.{found.policy}]", *lines]) + "\n"
