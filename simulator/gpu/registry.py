"""The GPU schedulers by name.

Imports no policy before it is asked for one, so names are listed quickly and a wrong name is refused before anything is
compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from math import isfinite
from typing import Any

from simulator.gpu.scheduler import PRICES_UNSET, EventScheduler, RoundScheduler, Setting
from traces.errors import InputError

# Name -> module, whose SCHEDULER is the scheduler and whose docstring is its definition in the docs.
SCHEDULERS: dict[str, str] = {
    "fifo": "simulator.gpu.policies.fifo",
    "sjf": "simulator.gpu.policies.sjf",
    "srtf": "simulator.gpu.policies.srtf",
    "yarn": "simulator.gpu.policies.yarn.capacity",
    "yarn-fair": "simulator.gpu.policies.yarn.fair",
    "drf": "simulator.gpu.policies.drf",
    "mesos": "simulator.gpu.policies.mesos",
    "tetris": "simulator.gpu.policies.tetris",
    "tiresias": "simulator.gpu.policies.tiresias.attained",
    "tiresias-gittins": "simulator.gpu.policies.tiresias.gittins",
    "tiresias-rounds": "simulator.gpu.policies.tiresias.rounds",
    "themis": "simulator.gpu.policies.themis",
    "lyra": "simulator.gpu.policies.lyra",
    "gandiva": "simulator.gpu.policies.gandiva",
    "pollux": "simulator.gpu.policies.pollux",
    "sia": "simulator.gpu.policies.sia",
    "single": "simulator.gpu.policies.single",
    "gavel": "simulator.gpu.policies.gavel.max_min",
    "gavel-ftf": "simulator.gpu.policies.gavel.finish_times",
    "gavel-makespan": "simulator.gpu.policies.gavel.makespan",
    "gavel-throughput": "simulator.gpu.policies.gavel.throughput",
    "kubernetes": "simulator.gpu.policies.kubernetes",
    "guided": "simulator.gpu.policies.guided",
}
# Those that cannot run in the machine of a record (`simulator.gpu.events.recorded_machine`), and why.
NOT_IN_RECORDED_MACHINE = {
    "lyra": "it borrows idle servers of an inference cluster and grows elastic jobs, and the record shows neither",
    "pollux": "it gives elastic jobs GPUs by their goodput, and the record does not show the goodput of any job on "
    "other numbers of GPUs",
    "sia": "it gives jobs GPUs by their goodput, and the record does not show the goodput of any job on other numbers "
    "or types of GPUs",
    "single": "it binds each job to one node, and the machine of the record counts the nodes that are out of service "
    "or taken by held jobs without naming them",
    "kubernetes": "it places jobs pod by pod, and the record does not show the pods of a job",
    "guided": "its guidelines share nodes between jobs and act on failures, and in the machine of the record jobs have "
    "whole nodes and run as recorded",
}
IN_RECORDED_MACHINE = tuple(name for name in SCHEDULERS if name not in NOT_IN_RECORDED_MACHINE)
ON_NODES = ("tetris",)  # of these, one chooses nodes; the others may count all nodes as one
GIVEN_RUN_TIMES = ("tetris", "gavel-ftf", "gavel-makespan")  # their papers estimate run times; here they are known
KNOW_RUN_TIMES = ("sjf", "srtf")  # bounds to compare with: no cluster can run them


def scheduler(name: str) -> EventScheduler | RoundScheduler:
    """Return the scheduler of that name. Raises InputError, which lists the known schedulers."""
    if name not in SCHEDULERS:
        raise InputError(f"unknown scheduler {name!r}: known are {', '.join(SCHEDULERS)}")
    found: EventScheduler | RoundScheduler = import_module(SCHEDULERS[name]).SCHEDULER
    return found


def parameters(name: str) -> dict[str, Any]:
    """Return the scheduler's parameters with their defaults; None for a default that `default_text` puts in words."""
    return dict(scheduler(name).parameters)


def default_text(name: str, key: str) -> str:
    """Return the default of a parameter as text."""
    found = scheduler(name)
    value = found.parameters[key]
    if isinstance(found, EventScheduler) and key in (unset := {**PRICES_UNSET, **found.unset}):
        return unset[key]
    return ",".join(f"{number:g}" for number in (value if isinstance(value, tuple) else (value,)))


def parsed(name: str, key: str, text: str) -> Setting:
    """Read a parameter's value as a user writes it: a number, or for a list numbers with commas between.

    Raises InputError for an unknown parameter, text that is no number, and a value outside its bounds.
    """
    is_list = isinstance(parameters(name).get(key), tuple)
    numbers = tuple(_number(name, key, part) for part in (text.split(",") if is_list else (text,)))
    value: Setting = numbers if is_list else numbers[0]
    check(name, {key: value})
    return value


def _number(name: str, key: str, text: str) -> float:
    """Read a number. Raises InputError for text that is no finite number."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise InputError(f"{name}.{key}: {text.strip()[:80]!r} is not a number")
    return number


def check(name: str, settings: Mapping[str, Setting]) -> None:
    """Raise InputError for an unknown scheduler or parameter, or a value outside its bounds."""
    found = scheduler(name)
    for key, value in settings.items():
        if isinstance(found, EventScheduler) and key in found.renamed:
            raise InputError(f"parameter {name}.{key} has another name: write {found.renamed[key]}")
        if key not in found.parameters:
            raise InputError(f"unknown parameter {name}.{key}: known are {', '.join(found.parameters) or 'none'}")
        if why := found.refusal(key, value):
            shown = ",".join(f"{number:g}" for number in value) if isinstance(value, tuple) else f"{value:g}"
            raise InputError(f"{name}.{key} of {shown or 'no number'}: {why}")
    if isinstance(found, RoundScheduler):
        found.build(settings)  # checks its own bounds now, not after the base was replayed
