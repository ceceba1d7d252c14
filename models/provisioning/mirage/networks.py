"""Mirage's foundation networks as released: a transformer encoder, and a mixture of ten with a gate.

Sizes, layers and initial weights are those of the authors' code (github.com/zhaozhang/Mirage, src/model): no
normalisation of the inputs, no encoding of positions. There a network has one output per state; learners over a day
(`bench.mirage.learners`) give it several. torch is imported inside functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.provisioning.mirage.snapshots import HISTORY, INPUTS

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Sizes:
    """Sizes of a foundation; the defaults are the released ones."""

    width: int = 512  # of the encoder
    inner: int = 128  # units of its feed-forward layers
    layers: int = 2
    heads: int = 2
    experts: int = 10  # of a mixture, each of one layer and one head
    gate: int = 32  # units between the state and the gate's weights


def training_device() -> str:
    """Device on which foundations are trained: the first GPU that torch sees, else the processor."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def transformer(sizes: Sizes, layers: int | None = None, heads: int | None = None, outputs: int = 1) -> torch.nn.Module:
    """A network from states (b, HISTORY, INPUTS) to (b, outputs): linear, encoder, flattened, linear."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(
        sizes.width, heads or sizes.heads, sizes.inner, dropout=0.1, activation="relu", batch_first=True
    )

    class Transformer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Linear(INPUTS, sizes.width)
            self.encoder = torch.nn.TransformerEncoder(layer, layers or sizes.layers, enable_nested_tensor=False)
            self.head = torch.nn.Linear(HISTORY * sizes.width, outputs)

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.head(self.encoder(self.embed(states)).flatten(1))
            return found

    return Transformer()


def mixture(sizes: Sizes, outputs: int = 1) -> torch.nn.Module:
    """A network from states to (b, outputs): transformers of one layer and one head, weighted by a gate.

    The gate sees the whole state. `experts` are the transformers, and `each` returns their outputs, (b, experts,
    outputs).
    """
    import torch

    class Mixture(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = torch.nn.ModuleList(transformer(sizes, 1, 1, outputs) for _ in range(sizes.experts))
            self.gate = torch.nn.Sequential(
                torch.nn.Flatten(),
                torch.nn.Linear(HISTORY * INPUTS, sizes.gate),
                torch.nn.Linear(sizes.gate, sizes.experts),
                torch.nn.Softmax(dim=1),
            )

        def each(self, states: torch.Tensor) -> torch.Tensor:
            return torch.stack([expert(states) for expert in self.experts], dim=1)

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = (self.gate(states)[:, :, None] * self.each(states)).sum(dim=1)
            return found

    return Mixture()
