"""Fits policies on pairs whose outcomes were known, each fit an MLflow run.

Chooses and compares nothing (`models.evaluation`) and knows no MLflow (`models.tracking` implements `Tracker`).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol

from agent.artifact import Artifact
from models.fingerprint import ROOT, code_digest
from models.protocol import PairTable, Policy
from models.registry import make_policy
from traces.errors import InputError

SEEDS = (0, 1, 2, 3, 4)
SOURCES = ("traces", "simulator", "features", "agent", "models")


@dataclass(frozen=True)
class TrainingContext:
    """What a policy is fitted in; it goes into the manifest of every artifact and into every result row."""

    cluster: str
    trace_digest: str
    until_utc: datetime  # naive UTC or aware: outcomes from then on are unknown to the fit
    capacity: int  # nodes of the simulated cluster
    fit_capacities: tuple[int, ...]  # nodes of those that learners were fitted on
    scheduler: str
    world: str
    limit_s: int
    pair_nodes: tuple[int, ...]
    code_version: str

    @property
    def until_s(self) -> int:
        """`until_utc` as epoch seconds."""
        return epoch_s(self.until_utc)

    @property
    def scenario(self) -> str:
        """Short text of the simulated cluster."""
        return f"{self.scheduler}, {self.capacity} nodes, {self.world}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        until = datetime.fromtimestamp(self.until_s, UTC).replace(tzinfo=None).isoformat()
        lists = {"pair_nodes": list(self.pair_nodes), "fit_capacities": list(self.fit_capacities)}
        return {**asdict(self), **lists, "until_utc": until, "until_s": self.until_s}


@dataclass(frozen=True)
class TrainedPolicy:
    """One fit: a policy with one seed. run_id is '' where nothing tracked it."""

    name: str
    seed: int
    artifact: Artifact
    run_id: str
    wall_s: float


class TrainingRun(Protocol):
    """Remembers the fits of one training."""

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
        """Stores a fit that took from `began_s` to `ended_s` (epoch seconds), each metric a series; returns its id."""
        ...


class Tracker(Protocol):
    """Remembers trainings."""

    def training(
        self, context: TrainingContext, policies: Sequence[str], pairs: PairTable
    ) -> AbstractContextManager[TrainingRun]:
        """What remembers the fits of these policies on these pairs while they are made."""
        ...


def epoch_s(moment: datetime) -> int:
    """Epoch seconds of a time; a naive one is UTC."""
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


@cache
def code_version() -> str:
    """Commit of the checkout, with `-dirty.<digest>` where sources differ; else `<package version>+<digest>`."""
    digest = code_digest(*SOURCES)[:12]
    if (ROOT / ".git").exists():
        try:
            commit = _git("rev-parse", "--short=12", "HEAD")
            changed = _git("status", "--porcelain", "--", *SOURCES)
        except (OSError, subprocess.CalledProcessError):
            pass  # no git here, or not ours to read: the sources' digest says as much
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
    context: TrainingContext,
    seeds: Sequence[int] = SEEDS,
    tracker: Tracker | None = None,
) -> list[TrainedPolicy]:
    """Fits each policy on the pairs known before `context.until_utc`: learners once a seed, the others once.

    Pairs whose reactive successor had not started by then are left out here, whatever the caller hands in.
    Raises InputError for an unknown policy, or where no pair is left.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    chosen = [make_policy(name) for name in policies]
    known = pairs_fit.known_before(context.until_s)
    if not len(known):
        raise InputError(
            f"cluster {context.cluster!r}: none of the {len(pairs_fit)} pairs had an outcome before "
            f"{context.as_dict()['until_utc']} UTC; fit on a longer window, or until a later date"
        )
    fits = [(policy, seed) for policy in chosen for seed in (seeds if policy.is_learned else seeds[:1])]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    trained: list[TrainedPolicy] = []
    remembered = nullcontext() if tracker is None else tracker.training(context, [one.name for one in chosen], known)
    with remembered as run, Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("training", total=len(fits))
        for policy, seed in fits:
            progress.update(task, description=f"training {policy.name}, seed {seed}")
            trained.append(_fit(policy, known, seed, context, run))
            progress.advance(task)
        progress.update(task, description=f"trained on {len(known)} pairs")
    return trained


def _fit(
    policy: Policy, pairs: PairTable, seed: int, context: TrainingContext, run: TrainingRun | None
) -> TrainedPolicy:
    began_s, began = time.time(), time.perf_counter()
    artifact, metrics = policy.fit(pairs, seed)
    wall_s = time.perf_counter() - began
    trained_on = {**context.as_dict(), "seed": seed, "pairs": len(pairs), "decisions": len(pairs.decision_s)}
    artifact = replace(artifact, manifest={**artifact.manifest, "trained_on": trained_on})
    run_id = ""
    if run is not None:
        run_id = run.record(
            name=f"{policy.name} seed {seed}",
            params={"policy": policy.name, "knob": policy.knob, "settings": list(policy.settings), **trained_on},
            metrics={**metrics, "fit_wall_s": [wall_s]},
            artifact=artifact,
            began_s=began_s,
            ended_s=began_s + wall_s,
        )
    return TrainedPolicy(policy.name, seed, artifact, run_id, wall_s)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return done.stdout.strip()
