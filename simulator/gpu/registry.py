"""The GPU schedulers by name.

Imports no policy before it is asked for one, so names are listed quickly and a wrong name is refused before anything is
compiled.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from simulator.gpu.scheduler import EventScheduler, RoundScheduler
from traces.errors import InputError

# Name -> module, whose SCHEDULER is the scheduler and whose docstring is its definition in the docs.
SCHEDULERS: dict[str, str] = {
    "fifo": "simulator.gpu.policies.fifo",
    "sjf": "simulator.gpu.policies.sjf",
    "srtf": "simulator.gpu.policies.srtf",
    "yarn": "simulator.gpu.policies.yarn",
    "drf": "simulator.gpu.policies.drf",
    "mesos": "simulator.gpu.policies.mesos",
    "tetris": "simulator.gpu.policies.tetris",
    "tiresias": "simulator.gpu.policies.tiresias",
    "themis": "simulator.gpu.policies.themis",
    "lyra": "simulator.gpu.policies.lyra",
    "gandiva": "simulator.gpu.policies.gandiva",
    "sia": "simulator.gpu.policies.sia",
    "single": "simulator.gpu.policies.single",
    "kubernetes": "simulator.gpu.policies.kubernetes",
    "guided": "simulator.gpu.policies.guided",
}
KNOW_RUN_TIMES = ("sjf", "srtf")  # bounds to compare with: no cluster can run them


def scheduler(name: str) -> EventScheduler | RoundScheduler:
    """Return the scheduler of that name. Raises InputError, which lists the known schedulers."""
    if name not in SCHEDULERS:
        raise InputError(f"unknown scheduler {name!r}: known are {', '.join(SCHEDULERS)}")
    found: EventScheduler | RoundScheduler = import_module(SCHEDULERS[name]).SCHEDULER
    return found


def parameters(name: str) -> dict[str, Any]:
    """Return the scheduler's parameters with their defaults."""
    return dict(scheduler(name).parameters)


def check(name: str, settings: dict[str, float]) -> None:
    """Raise InputError for an unknown scheduler or parameter, or a value outside its bounds."""
    found = scheduler(name)
    for key, value in settings.items():
        if key not in found.parameters:
            raise InputError(f"unknown parameter {name}.{key}: known are {', '.join(found.parameters) or 'none'}")
        most = found.most.get(key, float("inf")) if isinstance(found, EventScheduler) else float("inf")
        if not 0.0 <= value <= most:
            bounds = "at least 0" if most == float("inf") else f"from 0 to {most:g}"
            raise InputError(f"{name}.{key} of {value:g}: it must be {bounds}")
    if isinstance(found, RoundScheduler):
        found.build(settings)  # checks its own bounds now, not after the base was replayed
