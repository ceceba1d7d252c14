"""Fit policies on pairs with known outcomes, each fit an MLflow run.

This module chooses and compares nothing (`models.provisioning.comparison`), stores nothing on disk
(`models.study.fits`) and does not import MLflow (`models.tracking.training_runs` implements `Tracker`).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from agent.artifact import Artifact
from models.engine.local import each_here
from models.engine.work import Engine
from models.provisioning.learning.hyperparameters import check_values, values_of, with_values
from models.provisioning.learning.masking import HIDDEN_SHARE, hidden_at_random
from models.provisioning.protocol import PairTable, Policy, Resumable, TrainedPolicy
from models.provisioning.registry import looks_ahead, make_policy
from models.provisioning.scenario import Context
from models.provisioning.training.processes import Made, fit_each
from traces.cache.closure import ROOT, code_digest, present
from traces.counted import counted
from traces.errors import InputError

SEEDS = (0, 1, 2, 3, 4)
LAST = "models.release.policies.publish"  # its import closure holds all code that a result row depends on


class TrainingRun(Protocol):
    """Records the fits of one training."""

    def record(
        self,
        name: str,
        params: dict[str, Any],
        metrics: dict[str, list[float]],
        artifact: Artifact,
        *,
        began_s: float,
        ended_s: float,
    ) -> str:
        """Record a fit that took from `began_s` to `ended_s` (epoch seconds), each metric a series. Returns its id."""
        ...


class Tracker(Protocol):
    """Records trainings."""

    def training(
        self, context: Context, policies: Sequence[str], pairs: PairTable
    ) -> AbstractContextManager[TrainingRun]:
        """A context that records the fits of these policies on these pairs while they are made."""
        ...


@cache
def code_version() -> str:
    """Commit of the checkout, with `-dirty.<digest>` if sources differ; else `<package version>+<digest>`."""
    digest = code_digest(LAST)[:12]
    if (ROOT / ".git").exists():
        try:
            commit = _git("rev-parse", "--short=12", "HEAD")
            sources = present().closure(LAST)
            changed = _git("status", "--porcelain", "--", *sorted(str(present().path(one)) for one in sources))
        except (OSError, subprocess.CalledProcessError):
            pass  # git is missing or the checkout is unreadable: fall back to the digest of the sources
        else:
            return f"{commit}-dirty.{digest}" if changed else commit
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{version('baton')}+{digest}"
    except PackageNotFoundError:
        return f"unpackaged+{digest}"


def train(
    pairs_fit: PairTable,
    policies: Sequence[str],
    *,
    context: Context,
    seeds: Sequence[int] = SEEDS,
    tracker: Tracker | None = None,
    keep: Callable[[TrainedPolicy], None] | None = None,
    already_fitted: Container[tuple[str, int]] = (),
    hyperparameters: Mapping[str, Mapping[str, Any]] | None = None,
    checkpoints: Path | None = None,
    engine: Engine = each_here,
) -> list[TrainedPolicy]:
    """Fit each policy on the pairs known before `context.until_s`: learners once per seed, the others once.

    Pairs with a successor that had not started by then are always left out. `keep` receives each fit as it ends, so
    that an interrupted training loses only the fits in progress. Fits (policy, seed) in `already_fitted` are skipped.
    `hyperparameters` override those of a policy, by its name; `checkpoints` is a folder in which those that can resume
    keep their progress. Returns the fits policy by policy. Raises InputError for an unknown policy or hyper-parameter,
    or if no pair is left; WorkError if a process that fits died.
    """
    from traces.progress import Progress

    overrides = hyperparameters or {}
    for name, values in overrides.items():
        check_values(name, values, f"hyperparameters of cluster {context.scenario.cluster!r}")
    chosen = [with_values(make_policy(name), overrides.get(name, {})) for name in policies]
    if checkpoints is not None:
        chosen = [policy.resuming_in(checkpoints) if isinstance(policy, Resumable) else policy for policy in chosen]
    known = pairs_fit.known_before(context.until_s)
    if not len(known):
        raise InputError(
            f"cluster {context.scenario.cluster!r}: none of the {counted(len(pairs_fit), 'pair')} had an outcome "
            f"before {context.until_utc} UTC; fit on a longer window, or until a later date"
        )
    by_name = {policy.name: policy for policy in chosen}
    each = [(policy.name, seed) for policy in chosen for seed in (seeds if policy.is_learned else seeds[:1])]
    fits = [fit for fit in each if fit not in already_fitted]
    trained: dict[tuple[str, int], TrainedPolicy] = {}
    remembered = nullcontext() if tracker is None else tracker.training(context, list(by_name), known)
    with remembered as run, Progress("training", len(fits)) as progress:
        for made in _made(by_name, fits, known, engine):
            one = _described(by_name[made.policy], made, known, context, run)
            if keep is not None:
                keep(one)
            trained[made.policy, made.seed] = one
            progress.advance(f"fitted {made.policy}, seed {made.seed}")
        progress.done(f"trained on {counted(len(known), 'pair')}")
    return [trained[fit] for fit in fits]


def _made(
    policies: Mapping[str, Policy], fits: Sequence[tuple[str, int]], pairs: PairTable, engine: Engine
) -> Iterator[Made]:
    """Fit rules, which learn nothing, here and at once; fit learners in separate processes, yielded as they end.

    In a share of the learners' pairs some features are hidden, as an observer may see them.
    """
    for name, seed in fits:
        if not policies[name].is_learned:
            began = time.perf_counter()
            artifact, metrics = policies[name].fit(pairs, seed)
            yield Made(name, seed, artifact, metrics, time.perf_counter() - began)
    learners = [(policies[name], seed) for name, seed in fits if policies[name].is_learned]
    if learners:
        yield from fit_each(learners, hidden_at_random(pairs), engine)


def _described(
    policy: Policy, made: Made, pairs: PairTable, context: Context, run: TrainingRun | None
) -> TrainedPolicy:
    """Record the fit, with its origin in its manifest."""
    ended_s = time.time()
    counts = {"pairs": len(pairs), "decisions": len(pairs.decision_s)}
    hidden_share = HIDDEN_SHARE if policy.is_learned else 0.0  # share of pairs with hidden features
    trained_on = {**context.as_dict(), "seed": made.seed, **counts, "hidden_share": hidden_share}
    if looks_ahead(policy.name):
        trained_on["site"] = context.site
    every = {"decide_every_s": context.scenario.decide_every_s}
    manifest = {**made.artifact.manifest, **every, "trained_on": trained_on}
    artifact = replace(made.artifact, manifest=manifest)
    run_id = ""
    if run is not None:
        run_id = run.record(
            name=f"{policy.name} seed {made.seed}",
            params={
                "policy": policy.name,
                "knob": policy.knob,
                "settings": list(policy.settings),
                **values_of(policy),
                **every,
                **trained_on,
            },
            metrics={**made.metrics, "fit_wall_s": [made.wall_s]},
            artifact=artifact,
            began_s=ended_s - made.wall_s,
            ended_s=ended_s,
        )
    return TrainedPolicy(policy.name, made.seed, artifact, run_id, made.wall_s)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return done.stdout.strip()
