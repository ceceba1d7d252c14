"""TROUT's hierarchy as in the paper: two networks of three hidden layers on scaled features.

Features are put on the scale of log(1 + |x|) with their sign, then standardised. The class is fitted with logistic
loss, the logarithm of a long wait with the smooth absolute error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.provisioning.learning.networks import repeatable
from models.queue_time.methods.hierarchy import Hierarchy, Predict
from traces.arrays import Float32s, Float64s

HIDDEN = (128, 64, 32)
EPOCHS = 12
BATCH = 256
RATE = 1e-3
DROPOUT = 0.1


def TroutNetwork() -> Hierarchy:
    """TROUT's hierarchy of two networks."""
    return Hierarchy("trout", _class, _number)


def _class(observed: Float32s, is_short: NDArray[np.bool_], seed: int) -> Predict:
    raw = _fitted(observed, is_short.astype(np.float32), seed, is_class=True)
    return lambda rows: np.asarray(1.0 / (1.0 + np.exp(-np.clip(raw(rows), -30, 30))), np.float64)


def _number(observed: Float32s, log_wait: Float64s, seed: int) -> Predict:
    middle = float(np.mean(log_wait))
    raw = _fitted(observed, (log_wait - middle).astype(np.float32), seed, is_class=False)
    return lambda rows: raw(rows) + middle


def _fitted(observed: Float32s, target: NDArray[Any], seed: int, *, is_class: bool) -> Predict:
    import torch

    squeezed = _squeezed(observed)
    mean, scale = squeezed.mean(axis=0), np.maximum(squeezed.std(axis=0), 1e-3)

    def scaled(rows: Float32s) -> torch.Tensor:
        return torch.from_numpy(np.clip((_squeezed(rows) - mean) / scale, -5, 5).astype(np.float32))

    with repeatable(seed):
        layers: list[torch.nn.Module] = []
        widths = (observed.shape[1], *HIDDEN)
        for i in range(len(HIDDEN)):
            layers += [torch.nn.Linear(widths[i], widths[i + 1]), torch.nn.ReLU(), torch.nn.Dropout(DROPOUT)]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(HIDDEN[-1], 1))
        loss = torch.nn.BCEWithLogitsLoss() if is_class else torch.nn.SmoothL1Loss()
        step = torch.optim.Adam(network.parameters(), RATE, weight_decay=1e-4)
        inputs, targets = scaled(observed), torch.from_numpy(target)
        for _ in range(EPOCHS):
            order = torch.randperm(len(inputs))
            for begin in range(0, len(order), BATCH):
                rows = order[begin : begin + BATCH]
                step.zero_grad()
                loss(network(inputs[rows])[:, 0], targets[rows]).backward()
                step.step()
        network.eval()

    def predict(rows: Float32s) -> Float64s:
        with torch.no_grad():
            return np.asarray(network(scaled(rows))[:, 0].numpy(), np.float64)

    return predict


def _squeezed(rows: Float32s) -> Float64s:
    return np.asarray(np.sign(rows) * np.log1p(np.abs(rows)), np.float64)
