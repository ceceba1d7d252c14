"""Observations on one scale: what a network, or any learner that likes its inputs small, is shown of a cluster.

Statistics come from the observations that are fitted on, and from no others: a window that is judged must not say how
its own numbers are to be read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact, network_inputs
from features.observe import FEATURES

Int64s = NDArray[np.int64]
Float32s = NDArray[np.float32]

BOUND = 5.0  # standard deviations; beyond them nothing was ever fitted
LEAST_SCALE = 0.05  # of a feature that hardly varies
ENOUGH_ROWS = 50_000  # mean and deviation need no more


@dataclass(frozen=True)
class Scaling:
    """Turns raw observations (n, len(FEATURES)) into inputs (n, i): float32, standardised, within +-BOUND.

    Input i is the signed logarithm sign(x) log(1 + |x|) of feature `column[i]`, less that of feature `minus[i]` where
    that is not -1, less `mean[i]`, over `scale[i]`. The logarithm is there because waits and backlogs span four orders
    of magnitude. Make one with `of` or `of_artifact`.
    """

    column: Int64s  # (i,) position in FEATURES
    minus: Int64s  # (i,) position in FEATURES of what it is taken relative to; -1 for nothing
    mean: Float32s  # (i,) of the signed logarithm
    scale: Float32s  # (i,)

    @classmethod
    def of(cls, observations: Float32s, column: Int64s | None = None, minus: Int64s | None = None) -> Scaling:
        """With the statistics of these observations (n, len(FEATURES)); by default an input for each feature.

        Raises ValueError where there are no observations.
        """
        if not len(observations):
            raise ValueError("no observations to take a mean and a scale of; give those of at least one pair")
        column = np.arange(len(FEATURES), dtype=np.int64) if column is None else column
        minus = np.full(len(column), -1, np.int64) if minus is None else minus
        zero, one = np.zeros(len(column), np.float32), np.ones(len(column), np.float32)
        step = max(1, len(observations) // ENOUGH_ROWS)
        logarithm = network_inputs(observations[::step], column, minus, zero, one, bound=np.inf)
        mean = logarithm.mean(axis=0, dtype=np.float64).astype(np.float32)
        scale = np.maximum(logarithm.std(axis=0, dtype=np.float64), LEAST_SCALE).astype(np.float32)
        return cls(column, minus, mean, scale)

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> Scaling:
        """What the network of a trained or released policy is shown, apart from the weight of overlap.

        Raises ValueError for a policy that is no network: the others read raw observations.
        """
        if artifact.manifest["kind"] != "mlp":
            raise ValueError(
                f"policy {artifact.manifest['policy']!r} is of kind {artifact.manifest['kind']!r} and reads raw "
                "observations; only a network (kind 'mlp') carries a scaling"
            )
        arrays = artifact.arrays
        return cls(arrays["column"], arrays["minus"], arrays["mean"], arrays["scale"])

    @property
    def names(self) -> tuple[str, ...]:
        """(i,) what each input shows: a feature, or one relative to another."""
        return tuple(
            FEATURES[of] if to < 0 else f"{FEATURES[of]} relative to {FEATURES[to]}"
            for of, to in zip(self.column, self.minus, strict=True)
        )

    def __call__(self, observations: Float32s) -> Float32s:
        """(n, i) inputs of observations (n, len(FEATURES))."""
        return network_inputs(observations, self.column, self.minus, self.mean, self.scale, BOUND)
