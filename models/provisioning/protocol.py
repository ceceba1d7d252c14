"""The pair table that provisioning policies learn from, and the interface of a policy.

A *pair* is a predecessor P and a successor S of the same size and limit. It is *injected* into a simulated cluster
(`models.provisioning.pairs.injected`), or *recorded*: P is then a job that the log shows cut by its limit
(`models.provisioning.pairs.recorded`). The *pair table* has one row for each pair and each decision instant: at regular
times while P runs, and at P's exact end. A row holds what a policy may know at that instant, and when S would start if
it were submitted then. Applying a stopping rule is therefore a look-up, in training and in evaluation alike.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.futures.summary import SEEN_AHEAD
from traces.arrays import Float32s, Float64s, Int64s
from traces.errors import InputError

NONE = -1


@dataclass(frozen=True)
class PairTable:
    """Pairs (p of them) and their decision instants (d in all; pair i has rows offset[i]:offset[i+1]).

    The last decision of a pair is P's exact end, where every policy must submit (reactive).
    """

    pair_nodes: Int64s  # (p,) nodes of P and of S
    limit_s: Int64s  # (p,) limit of both; P runs its full limit
    submit_s: Int64s  # (p,) submission of P, epoch s
    predecessor_start_s: Int64s  # (p,)
    predecessor_end_s: Int64s  # (p,) start + limit; within seconds of that in a record
    user_start_s: Int64s  # (p,) recorded start of the job with which P's user continued; NONE if there is none
    offset: Int64s  # (p + 1,)
    decision_s: Int64s  # (d,) instants
    successor_start_s: Int64s  # (d,) start of S if it is submitted at that instant
    observations: Float32s  # (d, len(features.observe.FEATURES))
    # (d, len(features.futures.summary.AHEAD)) summary of the simulated futures; (0, 0) if no policy of the run looks
    # ahead
    ahead: Float32s = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    # (s, models.provisioning.mirage.snapshots.CLUSTER_INPUTS) snapshots of the clusters, those of each one in order of
    # time; (0, 0) if no policy of the run reads them
    snapshots: Float32s = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    # (d,) row of the last snapshot at or before each decision; (0,) without snapshots
    last_snapshot: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    # (n, models.provisioning.service.rows.WIDTH) rows of chains that begin with these pairs' predecessors; (0, 0) if no
    # policy of the run plans
    candidates: Float64s = field(default_factory=lambda: np.zeros((0, 0)))

    def __len__(self) -> int:
        return len(self.pair_nodes)

    @property
    def pair_of(self) -> Int64s:
        """(d,) the pair that each decision belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.offset))

    @property
    def gap_h(self) -> NDArray[np.float64]:
        """(d,) start of S minus end of P in hours: interruption where positive, overlap where negative."""
        return (self.successor_start_s - self.predecessor_end_s[self.pair_of]) / 3600.0

    @property
    def last(self) -> Int64s:
        """(p,) row of each pair's exact end, where reactive submits."""
        return self.offset[1:] - 1

    @property
    def digest(self) -> str:
        """SHA-256 of everything in the table."""
        state = hashlib.sha256()
        for name in self.__dataclass_fields__:
            state.update(np.ascontiguousarray(getattr(self, name)).data)
        return state.hexdigest()

    def inputs_of(self, artifact: Artifact) -> Float32s:
        """(d, F) inputs that an artifact decides on: the observations, followed by the futures if it looks ahead.

        Raises InputError if the artifact looks ahead and the table has no futures.
        """
        names = artifact.manifest["features"]
        if names == list(SEEN_AHEAD):
            if len(self.ahead) != len(self.observations):
                raise InputError(
                    f"policy {artifact.manifest['policy']!r} looks at simulated futures, which were not made for these "
                    "pairs; make them with `baton train` or `baton evaluate`"
                )
            return self.seen(looks_ahead=True)
        return self.observations

    def seen(self, looks_ahead: bool) -> Float32s:
        """(d, F) the observations; with `looks_ahead`, followed by the summary of the futures."""
        return np.concatenate([self.observations, self.ahead], axis=1) if looks_ahead else self.observations

    def decisions_of(self, artifact: Artifact, settings: Sequence[float] | None = None) -> NDArray[np.bool_]:
        """(k, d) whether the artifact submits at each decision, for k settings (default: all of its own).

        Raises InputError if the table lacks what the artifact decides on.
        """
        if isinstance(artifact, TableArtifact):
            return artifact.decisions_on(self, settings)
        return artifact.decisions(self.inputs_of(artifact), settings)

    def take(self, pairs: NDArray[np.bool_] | Int64s) -> PairTable:
        """The given pairs (mask or positions) with all their decisions."""
        chosen = np.arange(len(self), dtype=np.int64)[pairs]
        counts = np.diff(self.offset)[chosen]
        rows = (
            np.concatenate([np.arange(self.offset[i], self.offset[i + 1]) for i in chosen])
            if len(chosen)
            else np.empty(0, np.int64)
        )
        return PairTable(
            self.pair_nodes[chosen],
            self.limit_s[chosen],
            self.submit_s[chosen],
            self.predecessor_start_s[chosen],
            self.predecessor_end_s[chosen],
            self.user_start_s[chosen],
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            self.decision_s[rows],
            self.successor_start_s[rows],
            self.observations[rows],
            self.ahead[rows] if len(self.ahead) else self.ahead,
            self.snapshots,
            self.last_snapshot[rows] if len(self.last_snapshot) else self.last_snapshot,
            self.candidates,
        )

    def known_before(self, until_s: int) -> PairTable:
        """Pairs whose outcome was known before `until_s` for every decision: each of their successors had started.

        The end of P alone does not show this: a successor that is submitted earlier may start later.
        """
        if not len(self):
            return self
        return self.take(np.maximum.reduceat(self.successor_start_s, self.offset[:-1]) < until_s)


class TableArtifact(Artifact, ABC):
    """A fit that decides on a pair table, because no single observation holds its inputs. It cannot be released."""

    @abstractmethod
    def decisions_on(self, pairs: PairTable, settings: Sequence[float] | None = None) -> NDArray[np.bool_]:
        """Return (k, d) as `PairTable.decisions_of` does."""


def no_pairs() -> PairTable:
    """A table without pairs, for a rule, which has nothing to fit."""
    none = np.zeros(0, np.int64)
    offset, observations = np.zeros(1, np.int64), np.zeros((0, 0), np.float32)
    return PairTable(none, none, none, none, none, none, offset, none, none, observations)


def concatenate(tables: Iterable[PairTable]) -> PairTable:
    """Join tables one after the other; each pair keeps its decisions. There must be at least one table."""
    parts = list(tables)
    before = np.cumsum([0, *(len(part.snapshots) for part in parts)])
    parts = [replace(part, last_snapshot=part.last_snapshot + n) for part, n in zip(parts, before[:-1], strict=True)]
    first, *_ = parts
    counts = np.concatenate([np.diff(part.offset) for part in parts])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in first.__dataclass_fields__
        if name != "offset"
    }
    return PairTable(offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), **columns)


class Policy(Protocol):
    """A provisioning policy. Fitting it on pairs makes an artifact, and the artifact alone decides.

    `settings` are at most 15 values of the policy's one knob, from least to most overlap. They are declared before the
    report window is touched.
    """

    name: str
    knob: str  # what a setting means, with its unit
    settings: tuple[float, ...]
    is_learned: bool  # seeds matter

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Fit the policy. Returns the artifact and the metrics, each a series (one value, or one per epoch)."""
        ...


@runtime_checkable
class Resumable(Policy, Protocol):
    """A policy whose fit takes so long that it keeps its progress: the same fit, ended early, resumes."""

    def resuming_in(self, folder: Path) -> Policy:
        """The same policy, whose fits keep their progress in that folder."""
        ...


@runtime_checkable
class Learner(Policy, Protocol):
    """A policy that learns, and that can be compared with its own untrained state."""

    def untrained(self, artifact: Artifact, seed: int) -> Artifact:
        """The artifact before `fit` learned anything with that seed: the same inputs, scaling and knob."""
        ...


@dataclass(frozen=True)
class TrainedPolicy:
    """One fit: a policy with one seed."""

    name: str
    seed: int
    artifact: Artifact
    run_id: str  # of the run in MLflow; empty if the fit was not tracked
    wall_s: float  # duration of the fit
