"""The stored form of a fit of Mirage: it decides on a pair table's snapshots, not on an observation.

It is a folder like that of `agent.artifact`, with a kind that the agent does not know, so that no agent loads it and
nothing can release it. Reading it runs no code of the file.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.artifact import check_manifest
from models.provisioning.learning.networks import repeatable
from models.provisioning.mirage import checkpoints, foundations
from models.provisioning.mirage.foundations import within
from models.provisioning.mirage.networks import Sizes, training_device
from models.provisioning.mirage.snapshots import VERSION, Histories
from models.provisioning.protocol import PairTable, TableArtifact
from traces.arrays import Float64s
from traces.errors import InputError

if TYPE_CHECKING:
    import torch

KIND = "mirage-network"
WEIGHTS, HEAD = "weights", "head"
MOST_OUTPUTS = 4
# What a foundation found on a table: its two policies, fitted with one seed, decide on the same numbers.
_OUTPUTS: dict[tuple[str, str], Float64s] = {}  # by the digests of the weights and of the pairs


class DayArtifact(TableArtifact):
    """A fit that decides on a day of snapshots, at every decision of the table."""

    @abstractmethod
    def favours(self, histories: Histories) -> Float64s:
        """(d,) a number for each decision; it submits where this is at least the setting."""

    def decisions_on(self, pairs: PairTable, settings: Sequence[float] | None = None) -> NDArray[np.bool_]:
        """(k, d) whether it submits, as always at a pair's end. Raises InputError for a table without snapshots."""
        chosen = np.asarray(self.settings if settings is None else settings, np.float64)
        submit: NDArray[np.bool_] = self.favours(Histories.of_table(pairs)) >= chosen[:, None]
        submit[:, pairs.last] = True
        return submit

    def scores(self, observations: ArrayLike, settings: Sequence[float] | None = None) -> NoReturn:
        """Raise InputError: an observation does not hold the inputs."""
        raise InputError(
            f"policy {self.manifest['policy']!r} decides on a day of snapshots, which an observation does not hold: it "
            "is compared by `baton evaluate`, and no agent can run it"
        )


class NetworkArtifact(DayArtifact):
    """A foundation's weights, all in one array, and those of its REINFORCE head if it has one.

    `parameters`: `foundation` (transformer or mixture), `sizes`, `state_version`. Raises ValueError, one line, if the
    parts are inconsistent.
    """

    def __post_init__(self) -> None:
        check_manifest(self.manifest)
        if self.manifest["kind"] != KIND or not {WEIGHTS} <= set(self.arrays) <= {WEIGHTS, HEAD}:
            raise ValueError(f"not a fit of kind {KIND} with the arrays {WEIGHTS} and, for some, {HEAD}")
        if self.parameters.get("state_version") != VERSION:
            raise ValueError(f"state version {self.parameters.get('state_version')!r}; this program reads {VERSION}")
        if self.parameters.get("foundation") not in (foundations.TRANSFORMER, foundations.MIXTURE):
            raise ValueError(f"unknown foundation {self.parameters.get('foundation')!r}")

    @property
    def foundation(self) -> str:
        """`transformer` or `mixture`."""
        return str(self.parameters["foundation"])

    @cached_property
    def network(self) -> torch.nn.Module:
        """The foundation with its weights. Raises ValueError if their number is not that of the sizes."""
        made = foundations.new_network(self.foundation, Sizes(**self.parameters["sizes"]), 0)
        own = made.state_dict()
        parts = checkpoints.parts(self.arrays[WEIGHTS], own.values())
        made.load_state_dict(dict(zip(own, parts, strict=True)))
        return made.to(training_device())

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields alone, without the network."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def favours(self, histories: Histories) -> Float64s:
        """(d,) predicted gaps in hours, or the log-odds of submitting."""
        key = (hashlib.sha256(self.arrays[WEIGHTS].tobytes()).hexdigest(), histories.pairs.digest)
        if key not in _OUTPUTS:
            while len(_OUTPUTS) >= MOST_OUTPUTS:
                _OUTPUTS.pop(next(iter(_OUTPUTS)))
            with repeatable(0):
                _OUTPUTS[key] = foundations.outputs(self.foundation, self.network, histories)
        if HEAD in self.arrays:
            return foundations.log_odds(self.arrays[HEAD], _OUTPUTS[key])
        return within(_OUTPUTS[key][:, 0])
