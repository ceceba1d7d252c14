"""Measured gradient statistics of a model, from which follows how much a larger batch brings in each epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.arrays import Float64s


@dataclass(frozen=True, eq=False)
class Statistics:
    """Square and variance of the gradient by epoch and batch (Pollux, section 2.2)."""

    batches: Float64s  # (batches,), measured batches over all GPUs, rising
    ends: Float64s  # (epochs,), progress at the end of each epoch, steps of the model's own batch, rising
    gradients: Float64s  # (epochs, batches, 2), square and variance

    def at(self, batch: float, epoch: int) -> tuple[float, float]:
        """Return square and variance at `batch` samples in `epoch`, linear between the measured batches.

        Outside the measured batches and epochs, they are those of the nearest.
        """
        of_epoch = self.gradients[min(epoch, len(self.ends) - 1)]
        sqr, var = (np.interp(batch, self.batches, column) for column in of_epoch.T)
        return float(sqr), float(var)

    def end(self, epoch: int) -> float:
        """Return the progress at the end of `epoch`; without bound from the last epoch on."""
        return float(self.ends[epoch]) if epoch < len(self.ends) - 1 else np.inf
