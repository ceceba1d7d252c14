"""What the learners share: inputs of a network, its export to the artifact's arrays, and repeatable use of torch.

torch is imported inside functions: it takes seconds, and what Dagster loads at start must not need it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import normalise

if TYPE_CHECKING:
    import torch

THREADS = 2
LOG_WEIGHT_SCALE = 3.0  # log of the cost weight, divided by it, is the network's last input
WEIGHTS = (0.01, 100.0)  # cost weights of overlap met in training
# Settings of the learners, from least to most overlap.
SETTINGS = (40.0, 20.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3, 0.15, 0.06, 0.02)
KNOB = "weight of an hour of overlap against an hour of interruption"
DEFAULT_WEIGHT = 1.0


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """torch seeded and on THREADS threads inside, as it was outside: one seed gives the same bytes."""
    import torch

    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(THREADS)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


@dataclass(frozen=True)
class Inputs:
    """Observations (d, F) as a network sees them, with what the artifact needs to do the same."""

    normal: torch.Tensor  # (d, F) float32
    mean: NDArray[np.float32]  # (F,) of the signed logarithm
    scale: NDArray[np.float32]  # (F,)

    @classmethod
    def of(cls, observations: NDArray[np.float32]) -> Inputs:
        """Standardised on these very observations."""
        import torch

        logarithm = np.sign(observations) * np.log1p(np.abs(observations))
        mean = logarithm.mean(axis=0, dtype=np.float64).astype(np.float32)
        scale = np.maximum(logarithm.std(axis=0, dtype=np.float64), 1e-3).astype(np.float32)
        return cls(torch.from_numpy(normalise(observations, mean, scale)), mean, scale)

    def at(self, rows: NDArray[np.int64], log_weight: NDArray[np.float32]) -> torch.Tensor:
        """(b, F + 1) inputs at rows (b,) of the table, each with the log of its cost weight (b,)."""
        import torch

        condition = torch.from_numpy(np.ascontiguousarray(log_weight, np.float32) / np.float32(LOG_WEIGHT_SCALE))
        return torch.cat([self.normal[torch.from_numpy(rows)], condition[:, None]], dim=1)

    def export(self, network: torch.nn.Sequential) -> dict[str, NDArray[Any]]:
        """The arrays of an `mlp` artifact."""
        import torch

        linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
        arrays: dict[str, NDArray[Any]] = {
            "mean": self.mean,
            "scale": self.scale,
            "condition_scale": np.asarray([LOG_WEIGHT_SCALE], np.float32),
        }
        for i, layer in enumerate(linear):
            arrays[f"weight_{i}"] = layer.weight.detach().numpy().copy()
            arrays[f"bias_{i}"] = layer.bias.detach().numpy().copy()
        return arrays


def mlp(inputs: int, hidden: Sequence[int], outputs: int) -> torch.nn.Sequential:
    """Linear layers with ReLU between them."""
    import torch

    layers: list[torch.nn.Module] = []
    for width in hidden:
        layers += [torch.nn.Linear(inputs, width), torch.nn.ReLU()]
        inputs = width
    return torch.nn.Sequential(*layers, torch.nn.Linear(inputs, outputs))


def follow(target: torch.nn.Module, source: torch.nn.Module, rate: float) -> None:
    """Moves the target's weights towards the source's by `rate` (Polyak averaging)."""
    import torch

    with torch.no_grad():
        for slow, fast in zip(target.parameters(), source.parameters(), strict=True):
            slow.lerp_(fast, rate)


def sample_log_weights(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """(count,) logarithms of cost weights, uniform over WEIGHTS' range."""
    low, high = np.log(WEIGHTS)
    return rng.uniform(low, high, count).astype(np.float32)
