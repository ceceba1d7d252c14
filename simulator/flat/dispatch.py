"""Map the number of a scheduler to its functions, in compiled code too.

A scheduler's number, `FlatKnobs.scheduler`, is its position in `simulator.names.SCHEDULERS`. Compiled code cannot look
up a function in a dict. So `_by_number` builds `if scheduler == 0: ... elif scheduler == 1: ...` from the registered
functions and compiles them all into the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from typing import Any

from simulator.compiled import uncached_part
from simulator.flat.scheduler import Scheduler
from simulator.flat.state import FlatKnobs
from simulator.names import SCHEDULERS

_LOADED: tuple[Scheduler, ...] = tuple(import_module(module).SCHEDULER for module in SCHEDULERS.values())


def _by_number(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Build the function f(number, *arguments) that calls functions[number](*arguments).

    Its source has one `if` chain over all functions. A chain of two-way functions would recompile the rest at each
    link.
    """
    arguments = ", ".join(signature(functions[0]).parameters)
    lines = [f"def chosen(_number, {arguments}):"]
    for number in range(len(functions) - 1):
        lines.append(f"    if _number == {number}:\n        return function_{number}({arguments})")
    lines.append(f"    return function_{len(functions) - 1}({arguments})")
    names: dict[str, Any] = {"__name__": __name__}
    names.update((f"function_{number}", function) for number, function in enumerate(functions))
    exec("\n".join(lines), names)  # noqa: S102  nothing in the text comes from outside
    chosen: Callable[..., Any] = uncached_part(names["chosen"])
    return chosen


# Compiled; the first argument is `FlatKnobs.scheduler`, the others are those of the `Scheduler` field of that name.
schedule = _by_number([scheduler.schedule for scheduler in _LOADED])
rank = _by_number([scheduler.rank for scheduler in _LOADED])
next_pass = _by_number([scheduler.next_pass for scheduler in _LOADED])


def scratch_rows(knobs: FlatKnobs, queue_rows: int, running_rows: int) -> int:
    """Return the rows of `FlatState.scratch` that the scheduler needs."""
    return _LOADED[knobs.scheduler].scratch_rows(queue_rows, running_rows)


def knobs_in_force(name: str, knobs: FlatKnobs) -> FlatKnobs:
    """Return the knobs with the scheduler's number and with the values that this scheduler fixes."""
    number = list(SCHEDULERS).index(name)
    return _LOADED[number].in_force(knobs._replace(scheduler=number))
