"""The GPU schedulers by name: the clock that each runs on, and its parameters.

Imports no policy and no kernel, so a wrong name or parameter is refused before anything is compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from traces.errors import InputError


class Event(NamedTuple):
    """A scheduler of the compiled clock: its parameters in the order of its knobs, with defaults and bounds."""

    module: str
    parameters: dict[str, float]
    most: Mapping[str, float] = MappingProxyType({})  # upper bounds, where there are any; no parameter may be negative
    by_group: bool = False  # whether it shares the cluster between groups: virtual clusters, partitions or users


class Rounds(NamedTuple):
    """A scheduler of the clock of rounds: a class whose keyword arguments are its parameters."""

    module: str
    name: str


SCHEDULERS: dict[str, Event | Rounds] = {
    "fifo": Event("simulator.gpu.policies.fifo", {}),
    "sjf": Event("simulator.gpu.policies.sjf", {}),
    "srtf": Event("simulator.gpu.policies.srtf", {}),
    "yarn": Event(
        "simulator.gpu.policies.yarn", {"hold_s": 600.0, "reclaim_at": 0.9}, most={"reclaim_at": 1.0}, by_group=True
    ),
    "drf": Event("simulator.gpu.policies.drf", {}, by_group=True),
    "tetris": Event(
        "simulator.gpu.policies.tetris", {"fairness": 0.25, "work_weight": 1.0}, most={"fairness": 1.0}, by_group=True
    ),
    "tiresias": Event(
        "simulator.gpu.policies.tiresias",
        {"promote": 8.0, "local": 1.0, "threshold_1": 3250.0, "threshold_2": 7200.0},
        most={"local": 1.0},
    ),
    "themis": Rounds("simulator.gpu.policies.themis", "Themis"),
    "lyra": Rounds("simulator.gpu.policies.lyra", "Lyra"),
    "gandiva": Rounds("simulator.gpu.policies.gandiva", "Gandiva"),
    "sia": Rounds("simulator.gpu.policies.sia", "Sia"),
    "kubernetes": Rounds("simulator.gpu.policies.kubernetes", "Kubernetes"),
    "guided": Rounds("simulator.gpu.policies.guided", "Guided"),
}


def scheduler(name: str) -> Event | Rounds:
    """Return the scheduler of that name. Raises InputError, which lists the known schedulers."""
    if name not in SCHEDULERS:
        raise InputError(f"unknown scheduler {name!r}: known are {', '.join(SCHEDULERS)}")
    return SCHEDULERS[name]


def parameters(name: str) -> dict[str, Any]:
    """Return the scheduler's parameters with their defaults."""
    found = scheduler(name)
    if isinstance(found, Event):
        return dict(found.parameters)
    signature = inspect.signature(getattr(import_module(found.module), found.name))
    numbers = (int, float)
    return {key: item.default for key, item in signature.parameters.items() if isinstance(item.default, numbers)}


def check(name: str, settings: dict[str, float]) -> None:
    """Raise InputError for an unknown scheduler or parameter, or a value outside its bounds."""
    known = parameters(name)
    for key, value in settings.items():
        if key not in known:
            raise InputError(f"unknown parameter {name}.{key}: known are {', '.join(known) or 'none'}")
        found = scheduler(name)
        most = found.most.get(key, float("inf")) if isinstance(found, Event) else float("inf")
        if not 0.0 <= value <= most:
            bounds = "at least 0" if most == float("inf") else f"from 0 to {most:g}"
            raise InputError(f"{name}.{key} of {value:g}: it must be {bounds}")
    if isinstance(found := scheduler(name), Rounds):  # check its own bounds now, not after the base was replayed
        getattr(import_module(found.module), found.name)(**{key: type(known[key])(settings[key]) for key in settings})
