"""Scaling of observations: puts the inputs of a network, or of any learner that likes small inputs, on one scale.

The statistics come only from the observations of the fit. A window under evaluation must not influence its own scaling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agent.artifact import Artifact
from agent.kinds import network_inputs
from features.observe import FEATURES
from traces.arrays import Float32s, Int64s

BOUND = 5.0  # standard deviations; the fit saw nothing beyond them
LEAST_SCALE = 0.05  # of a feature that hardly varies
ENOUGH_ROWS = 50_000  # enough for the mean and the deviation


@dataclass(frozen=True)
class Scaling:
    """Turn raw observations (n, len(FEATURES)) into inputs (n, i): float32, standardised, within +-BOUND.

    Input i is the signed logarithm sign(x) log(1 + |x|) of feature `column[i]`. If `minus[i]` is not -1, the same
    logarithm of feature `minus[i]` is subtracted. The result less `mean[i]` is divided by `scale[i]`. The logarithm is
    there because waits and backlogs span four orders of magnitude. Make a scaling with `of` or `of_artifact`.
    """

    column: Int64s  # (i,) position in FEATURES
    minus: Int64s  # (i,) position in FEATURES of the feature to subtract; -1 for none
    mean: Float32s  # (i,) of the signed logarithm
    scale: Float32s  # (i,)

    @classmethod
    def of(cls, observations: Float32s, column: Int64s | None = None, minus: Int64s | None = None) -> Scaling:
        """Make a scaling from these observations (n, len(FEATURES)); by default with one input per feature.

        Raises ValueError if there are no observations.
        """
        if not len(observations):
            raise ValueError("no observations to compute a mean and a scale from; pass those of at least one pair")
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
        """Take the scaling that a trained or released network carries, apart from the weight of overlap.

        Raises ValueError for a policy that is not a network: other policies read raw observations.
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
        """(i,) the name of each input: a feature, or one relative to another."""
        return tuple(
            FEATURES[column] if minus < 0 else f"{FEATURES[column]} relative to {FEATURES[minus]}"
            for column, minus in zip(self.column, self.minus, strict=True)
        )

    def __call__(self, observations: Float32s) -> Float32s:
        """(n, i) inputs of observations (n, len(FEATURES))."""
        return network_inputs(observations, self.column, self.minus, self.mean, self.scale, BOUND)
