"""A GPU scheduler as its file in `simulator.gpu.policies` declares it: one class for each clock.

Imports no clock and compiles nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from traces.errors import InputError

if TYPE_CHECKING:
    from simulator.gpu.events.recorded_machine import RecordedMachine
    from simulator.gpu.events.state import GpuState, Prices
    from simulator.gpu.round_policy import RoundPolicy
    from traces.arrays import Float64s

Setting: TypeAlias = float | tuple[float, ...] | None  # number, list, or None: what the scheduler's `unset` says

# The parameters that all schedulers of the compiled clock share.
PRICES: Mapping[str, Setting] = {"restart_s": None, "first_start": False}
PRICES_UNSET = {"restart_s": "the model's, 30 s without one"}


@dataclass(frozen=True)
class EventScheduler:
    """A scheduler of the compiled clock."""

    decide: Callable[[GpuState, float], None]
    """(state, now): one decision at second `now`, a `simulator.compiled.kernel_part`."""

    own: Mapping[str, Setting] = field(default_factory=dict)
    """Name -> default of its own parameters. A bool is 0 or 1; a tuple is a list of GPU seconds, each above 0."""

    most: Mapping[str, float] = field(default_factory=dict)
    """Name of a parameter -> its upper bound, where it has one. No parameter may be negative."""

    increasing: tuple[str, ...] = ()
    """Those of its lists whose numbers must increase."""

    unset: Mapping[str, str] = field(default_factory=dict)
    """Name of a parameter without a number as default -> what it means not to give it, in words."""

    renamed: Mapping[str, str] = field(default_factory=dict)
    """Name that a parameter had before -> what to write now."""

    table: Callable[[Mapping[str, Setting]], Float64s] | None = None
    """Makes `GpuState.table` from all settings, for a policy that has one."""

    shares: Literal["", "quotas", "weights", "resources"] = ""
    """How it divides the cluster between groups, if it does: by dominant shares of the resources, or in YARN's queues,
    by quotas or weights where none are declared. Groups are virtual clusters, partitions or users."""

    @cached_property
    def parameters(self) -> dict[str, Setting]:
        """Name -> default: its own parameters, then the prices of starts that all have."""
        return {**self.own, **PRICES}

    def knobs(self, settings: Mapping[str, Setting]) -> list[float]:
        """Return `GpuState.knobs`: its own parameters in order, NaN for one that is not given.

        The last one, if it is a list, is there in full; another list is there as its length.
        """
        found: list[float] = []
        for key, default in self.own.items():
            value = settings.get(key, default)
            if isinstance(default, tuple):
                numbers = value if isinstance(value, tuple) else (float("nan") if value is None else value,)
                found += numbers if key == list(self.own)[-1] else (float(len(numbers)),)
            else:
                assert not isinstance(value, tuple)
                found.append(float("nan") if value is None else value)
        return found

    def prices(self, settings: Mapping[str, Setting]) -> Prices:
        """Return what starts cost with these settings."""
        from simulator.gpu.events.state import Prices

        restart_s = settings.get("restart_s")
        assert not isinstance(restart_s, tuple)
        return Prices(restart_s, bool(settings.get("first_start")))

    def refusal(self, key: str, value: Setting) -> str | None:
        """Say what is wrong with a value of the parameter `key`; None if it is allowed."""
        default = self.parameters[key]
        if isinstance(default, tuple):
            given = value if isinstance(value, tuple) else (value,)
            if not given:
                return "it must have at least one number"
            if not all(number is not None and 0.0 < number < float("inf") for number in given):
                return "its numbers must be above 0"
            ordered = [*dict.fromkeys(sorted(number for number in given if number is not None))]
            return "its numbers must increase" if key in self.increasing and ordered != list(given) else None
        if value is None and default is None:
            return None
        return _number_refusal(value, isinstance(default, bool), self.most.get(key, float("inf")))

    @cached_property
    def run(self) -> Callable[[GpuState, RecordedMachine], tuple[float, int]]:
        """The compiled clock with this scheduler (`simulator.gpu.kernel`)."""
        from simulator.gpu.kernel import clock

        return clock(self.decide)


@dataclass(frozen=True)
class RoundScheduler:
    """A scheduler of the clock of rounds. The numbers and flags (bool) among its keyword arguments are its parameters.

    No parameter may be negative. Its constructor checks other bounds.
    """

    policy: Callable[..., RoundPolicy]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Name -> default, whose type is that of the parameter."""
        defaults = {key: item.default for key, item in inspect.signature(self.policy).parameters.items()}
        return {key: default for key, default in defaults.items() if isinstance(default, int | float)}

    def refusal(self, key: str, value: Setting) -> str | None:
        """Say what is wrong with a value of the parameter `key`; None if its type and sign are allowed."""
        default = self.parameters[key]
        why = _number_refusal(value, isinstance(default, bool))
        if why is None and isinstance(default, int) and isinstance(value, int | float) and value % 1.0:
            return "it must be a whole number"
        return why

    def build(self, settings: Mapping[str, Any]) -> RoundPolicy:
        """Build the policy with these parameters. Raises InputError for a value outside its bounds."""
        return self.policy(**{key: type(self.parameters[key])(value) for key, value in settings.items()})


def _number_refusal(value: Setting, is_flag: bool, most: float = float("inf")) -> str | None:
    """Say what is wrong with a number of at least 0, or with a flag; None if it is allowed."""
    if value is None or isinstance(value, tuple):
        return "it must be one number"
    if is_flag:
        return None if value in (0.0, 1.0) else "it must be 0 or 1"
    if value == float("inf"):
        return "it must be finite"
    if not 0.0 <= value <= most:
        return "it must be at least 0" if most == float("inf") else f"it must be from 0 to {most:g}"
    return None


def check_seconds(policy: str, round_s: float, **settings: float | None) -> None:
    """Raise InputError for a round of 0 s, or a negative setting in seconds."""
    if not round_s > 0.0:
        raise InputError(f"{policy}: round_s of {round_s:g}: it must be above 0")
    check_range(policy, 0.0, None, **settings)


def check_range(policy: str, least: float = 0.0, below: float | None = None, **settings: float | None) -> None:
    """Raise InputError for a setting under `least`, or not under `below`. None, not given, is allowed."""
    for name, value in settings.items():
        if value is not None and not (value >= least and (below is None or value < below)):
            bound = "" if below is None else f" and below {below:g}"
            raise InputError(f"{policy}: {name} of {value:g}: it must be at least {least:g}{bound}")


def check_choice(policy: str, *allowed: float, **settings: float) -> None:
    """Raise InputError for a setting that is none of the `allowed` numbers."""
    for name, value in settings.items():
        if value not in allowed:
            *first, last = (f"{one:g}" for one in allowed)
            raise InputError(f"{policy}: {name} of {value:g}: it must be {', '.join(first)} or {last}")
