"""From the number of a scheduler to its functions, in compiled code too.

A scheduler's number, `Knobs.scheduler`, is its position in `simulator.names.SCHEDULERS`. Compiled code cannot look a
function up in a dict, so `_by_number` builds `if scheduler == 0: ... elif scheduler == 1: ...` out of the registered
functions, all of which are compiled into the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from simulator.compiled import uncached_inline
from simulator.flat.scheduler import Scheduler
from simulator.flat.state import Knobs
from simulator.names import SCHEDULERS

_LOADED: tuple[Scheduler, ...] = tuple(import_module(module).SCHEDULER for module in SCHEDULERS.values())


def _by_number(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """The function f(number, *arguments) that calls functions[number](*arguments)."""
    *others, last = functions

    @uncached_inline
    def chosen(_number: int, *arguments: Any) -> Any:
        return last(*arguments)

    for number in reversed(range(len(others))):
        chosen = _either(number, others[number], chosen)
    return chosen


def _either(number: int, function: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    @uncached_inline
    def chosen(asked: int, *arguments: Any) -> Any:
        if asked == number:
            return function(*arguments)
        return otherwise(asked, *arguments)

    return chosen


# Compiled; the first argument is `Knobs.scheduler`, the others are those of the `Scheduler` field of that name.
schedule = _by_number([scheduler.schedule for scheduler in _LOADED])
rank = _by_number([scheduler.rank for scheduler in _LOADED])
next_pass = _by_number([scheduler.next_pass for scheduler in _LOADED])


def scratch_rows(knobs: Knobs, queue_rows: int, running_rows: int) -> int:
    """Rows of `State.scratch` that the scheduler needs."""
    return _LOADED[knobs.scheduler].scratch_rows(queue_rows, running_rows)


def knobs_in_force(name: str, knobs: Knobs) -> Knobs:
    """The knobs with the number of the scheduler of that name, and what it leaves no choice in."""
    number = list(SCHEDULERS).index(name)
    return _LOADED[number].in_force(knobs._replace(scheduler=number))
