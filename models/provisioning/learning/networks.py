"""Shared parts of the two network learners: inputs, layers, arrays in an artifact, and repeatable use of torch.

torch is imported inside functions: importing it takes seconds, and the modules that Dagster loads must not need it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.futures.summary import SEEN_AHEAD
from features.observe import FEATURES
from models.provisioning.learning.stopping_rows import INPUTS, REMAINING
from models.provisioning.protocol import PairTable
from models.provisioning.scaling import Scaling

if TYPE_CHECKING:
    import torch

THREADS = 1  # networks this small gain nothing from a second, and run ten times slower beside other work
# The only inputs besides the cost weight are estimates relative to the remaining time. What a network learns about the
# size of a backlog in a calm month does not apply to a congested one.
RELATIVE = INPUTS
RELATIVE_AHEAD = ("ahead_wait_p50_h", "ahead_wait_p25_h", *RELATIVE)  # if the policy also sees futures
LOG_WEIGHT_SCALE = 3.0  # the network's last input is the log of the cost weight, divided by this
WEIGHTS = (0.01, 100.0)  # range of cost weights of overlap in training
# The rule that a network imitates first may change between these weights.
RULE_WEIGHTS = np.geomspace(*WEIGHTS, 9)
# Settings of the learners, from least to most overlap.
SETTINGS = (40.0, 20.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3, 0.15, 0.06, 0.02)
KNOB = "weight of an hour of overlap against an hour of interruption"
DEFAULT_WEIGHT = 1.0


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Seed torch and limit it to THREADS threads, so that one seed gives the same bytes; then restore the threads."""
    import torch

    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(THREADS)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


class NetworkInputs(Protocol):
    """The d decisions of a pair table as inputs of networks, and the networks that read them."""

    @property
    def scaling(self) -> Scaling:
        """Scaling of the first inputs, the estimates."""
        ...

    def of_pairs(self, pairs: PairTable) -> Self:
        """Other pairs, with the scaling of these."""
        ...

    def at(self, rows: NDArray[np.int64], log_weight: NDArray[np.float32]) -> torch.Tensor:
        """(b, i) inputs at rows (b,) of the table, each with the log of its cost weight (b,)."""
        ...

    def network(self, hidden: Sequence[int], outputs: int) -> torch.nn.Module:
        """A network from (b, i) to (b, outputs); its last two linear layers are those of `network()`."""
        ...

    def found(self, network: torch.nn.Module, weights: Sequence[float]) -> torch.Tensor:
        """(k, d, outputs) the network's outputs for all decisions at each cost weight (k of them)."""
        ...


@dataclass(frozen=True)
class Inputs:
    """Observations (d, F) as inputs of a network, and their scaling, which the artifact carries."""

    normal: torch.Tensor  # (d, i) float32
    scaling: Scaling

    @classmethod
    def of(cls, seen: NDArray[np.float32], names: Sequence[str] = RELATIVE) -> Inputs:
        """Scale the observations by their own statistics; they include futures if any of `names` is theirs."""
        import torch

        scaling = Scaling.of(seen, *columns(names))
        return cls(torch.from_numpy(scaling(seen)), scaling)

    def of_pairs(self, pairs: PairTable) -> Inputs:
        """The observations of other pairs, with the scaling of these."""
        import torch

        looks_ahead = bool((self.scaling.column >= len(FEATURES)).any())
        return Inputs(torch.from_numpy(self.scaling(pairs.seen(looks_ahead))), self.scaling)

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> Inputs:
        """No observations; only the scaling that a network's artifact carries."""
        import torch

        return cls(torch.empty(0), Scaling.of_artifact(artifact))

    @property
    def width(self) -> int:
        """Number of inputs of a network, including the cost weight."""
        return len(self.scaling.mean) + 1

    def at(self, rows: NDArray[np.int64], log_weight: NDArray[np.float32]) -> torch.Tensor:
        """(b, width) inputs at rows (b,) of the table, each with the log of its cost weight (b,)."""
        import torch

        condition = torch.from_numpy(np.ascontiguousarray(log_weight, np.float32) / np.float32(LOG_WEIGHT_SCALE))
        return torch.cat([self.normal[torch.from_numpy(rows)], condition[:, None]], dim=1)

    def network(self, hidden: Sequence[int], outputs: int) -> torch.nn.Module:
        """Make a network for these inputs."""
        return network(self.width, hidden, outputs)

    def found(self, network: torch.nn.Module, weights: Sequence[float]) -> torch.Tensor:
        """(k, d, outputs) the network's outputs for all rows at each cost weight (k of them)."""
        import torch

        rows = np.arange(len(self.normal))
        with torch.no_grad():
            return torch.stack([network(self.at(rows, np.full(len(rows), np.log(w), np.float32))) for w in weights])

    def export(self, network: torch.nn.Module) -> dict[str, NDArray[Any]]:
        """The arrays of an `mlp` artifact, from a network made by `network()`."""
        import torch

        *deep, skip = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
        arrays: dict[str, NDArray[Any]] = {
            "column": self.scaling.column,
            "minus": self.scaling.minus,
            "mean": self.scaling.mean,
            "scale": self.scaling.scale,
            "condition_scale": np.asarray([LOG_WEIGHT_SCALE], np.float32),
            "skip": skip.weight.detach().numpy().copy(),
        }
        for i, layer in enumerate(deep):
            arrays[f"weight_{i}"] = layer.weight.detach().numpy().copy()
            arrays[f"bias_{i}"] = layer.bias.detach().numpy().copy()
        return arrays


def columns(names: Sequence[str] = RELATIVE) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(i,) the feature of each input, and the feature that it is relative to (-1: none)."""
    column = [SEEN_AHEAD.index(name) for name in names]
    return np.asarray(column, np.int64), np.full(len(names), REMAINING, np.int64)


def network(inputs: int, hidden: Sequence[int], outputs: int) -> torch.nn.Module:
    """Linear layers with ReLU between them, and a linear path around them that starts at zero."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [inputs, *hidden]
            layers: list[torch.nn.Module] = []
            for before, after in itertools.pairwise(widths):
                layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
            self.deep = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], outputs))
            self.skip = torch.nn.Linear(inputs, outputs, bias=False)
            torch.nn.init.zeros_(self.skip.weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.deep(x) + self.skip(x)
            return output

    return Network()


def follow(target: torch.nn.Module, source: torch.nn.Module, rate: float) -> None:
    """Move the target's weights towards the source's by `rate` (Polyak averaging)."""
    import torch

    with torch.no_grad():
        for slow, fast in zip(target.parameters(), source.parameters(), strict=True):
            slow.lerp_(fast, rate)


def sample_log_weights(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """(count,) logarithms of cost weights, uniform over WEIGHTS' range."""
    low, high = np.log(WEIGHTS)
    return rng.uniform(low, high, count).astype(np.float32)


def nearest_rule(log_weight: NDArray[np.float32]) -> NDArray[np.int64]:
    """(b,) position in RULE_WEIGHTS nearest to each cost weight, by their logarithms (b,)."""
    nearest: NDArray[np.int64] = np.abs(log_weight[:, None] - np.log(RULE_WEIGHTS)).argmin(axis=1)
    return nearest
