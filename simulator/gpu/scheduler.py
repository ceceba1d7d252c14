"""A GPU scheduler as its file in `simulator.gpu.policies` declares it: one class for each clock.

Imports no clock and compiles nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from simulator.gpu.events.state import GpuState
    from simulator.gpu.rounds import RoundPolicy


@dataclass(frozen=True)
class EventScheduler:
    """A scheduler of the compiled clock."""

    decide: Callable[[GpuState, float], None]
    """(state, now): one decision at second `now`, a `simulator.compiled.kernel_part`."""

    parameters: Mapping[str, float] = field(default_factory=dict)
    """Name -> default. `GpuState.knobs` holds the values in this order."""

    most: Mapping[str, float] = field(default_factory=dict)
    """Name of a parameter -> its upper bound, where it has one. No parameter may be negative."""

    shares: Literal["", "quota", "resources"] = ""
    """How it divides the cluster between groups, if it does: by quotas, or by dominant shares of the resources. Groups
    are virtual clusters, partitions or users."""

    @cached_property
    def run(self) -> Callable[[GpuState], tuple[float, int]]:
        """The compiled clock with this scheduler (`simulator.gpu.kernel`)."""
        from simulator.gpu.kernel import clock

        return clock(self.decide)


@dataclass(frozen=True)
class RoundScheduler:
    """A scheduler of the clock of rounds. The numbers among its keyword arguments are its parameters."""

    policy: Callable[..., RoundPolicy]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Name -> default, whose type is that of the parameter."""
        defaults = {key: item.default for key, item in inspect.signature(self.policy).parameters.items()}
        return {key: default for key, default in defaults.items() if isinstance(default, int | float)}

    def build(self, settings: Mapping[str, float]) -> RoundPolicy:
        """Build the policy with these parameters. Raises InputError for a value outside its bounds."""
        return self.policy(**{key: type(self.parameters[key])(value) for key, value in settings.items()})
