"""A tree of queues as a user declares it, in clusters.toml or in a file: shares and limits of YARN's schedulers."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from traces.counted import counted
from traces.errors import InputError
from traces.given_paths import bytes_of
from traces.visible import visible

MOST_QUEUES = 1_000
MOST_FACTOR = 1_000_000
REST = "default"  # leaf queue of the groups that have none of their own
_NEAR = 0.01  # tolerance of a sum of percentages


class DeclaredQueue(NamedTuple):
    """One queue of the tree. Percentages, and a factor."""

    path: str  # full name, parents first
    name: str  # the path without its parent's; a leaf is named as a group of jobs, or REST
    parent: str | None  # path; None at the top
    is_leaf: bool
    capacity: float  # of the parent's guaranteed capacity; also its weight
    most: float = 100.0  # of the parent's most capacity
    least: float = 0.0  # of the parent's least GPUs (Fair scheduler)
    user_limit: float = 100.0  # of a leaf: what each user's limit is at least
    user_limit_factor: float | None = 1.0  # of a leaf: a user's most GPUs over its guaranteed capacity; None: no bound


_PERCENTAGES = ("capacity", "most", "least", "user_limit")
_KEYS = (*_PERCENTAGES, "user_limit_factor")
_OF_USERS = ("user_limit", "user_limit_factor")


def queues_in(path: Path) -> tuple[DeclaredQueue, ...]:
    """Read the tree of a TOML file with one table a queue. Raises InputError with the file and the reason."""
    where = visible(str(path))
    try:
        value = tomllib.loads(bytes_of(path, pipes=False).decode("utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{where}: there is no such file") from error
    except RecursionError as error:
        raise InputError(f"{where}: not readable as TOML: it is nested too deep") from error
    except ValueError as error:
        raise InputError(f"{where}: not readable as TOML: {' '.join(str(error).split())}") from error
    return queues_of(value, where)


def queues_of(value: Any, where: str) -> tuple[DeclaredQueue, ...]:
    """Check a declared tree, `{path: {capacity = 60, most = 80}}`; return its queues, parents first.

    The parent of a queue is the declared queue with the longest path before a dot of its own. Raises InputError for an
    unknown setting, a value outside its bounds, shares of siblings that do not add up, and two leaves of one name.
    """
    if not isinstance(value, dict) or not 1 <= len(value) <= MOST_QUEUES:
        raise InputError(
            f"{where}: must be 1 to {MOST_QUEUES:,} queues such as research = {{ capacity = 60, most = 80 }}"
        )
    parents = {path: _parent(path, value) for path in value}
    queues = [
        _queue(path, table, parents[path], path not in parents.values(), f"{where}: queue {visible(path)[:80]!r}")
        for path, table in value.items()
    ]
    queues.sort(key=lambda queue: _depth(queue.path, parents))
    _check_siblings(queues, where)
    named: dict[str, str] = {}
    for queue in queues:
        if queue.is_leaf and named.setdefault(queue.name, queue.path) != queue.path:
            first, second = visible(named[queue.name])[:80], visible(queue.path)[:80]
            raise InputError(f"{where}: the leaf queues {first!r} and {second!r} have one name: a group has one queue")
    return tuple(queues)


def _parent(path: str, declared: dict[str, Any]) -> str | None:
    before = [path[:at] for at, letter in enumerate(path) if letter == "." and path[:at] in declared]
    return before[-1] if before else None


def _depth(path: str, parents: dict[str, str | None]) -> int:
    depth, parent = 0, parents[path]
    while parent is not None:
        depth, parent = depth + 1, parents[parent]
    return depth


def _queue(path: str, table: Any, parent: str | None, is_leaf: bool, where: str) -> DeclaredQueue:
    """Check one queue by itself."""
    if not isinstance(table, dict):
        raise InputError(f"{where}: must be a table such as {{ capacity = 60, most = 80 }}")
    for key, number in table.items():
        if isinstance(number, dict):
            raise InputError(f'{where}: write the name of a queue below it in quotes, with its path: "{path}.{key}"')
        if key not in _KEYS:
            raise InputError(f"{where}: unknown setting {visible(key)[:80]!r}: allowed are {', '.join(_KEYS)}")
        if key in _OF_USERS and not is_leaf:
            raise InputError(f"{where}: {key} counts only in a queue without queues below it")
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise InputError(f"{where}: {key} must be a number")
        if key in _PERCENTAGES and not 0 <= number <= 100:
            raise InputError(f"{where}: {key} must be from 0 to 100")
        if key == "user_limit_factor" and number != -1 and not 0 < number <= MOST_FACTOR:
            raise InputError(f"{where}: {key} must be above 0 and at most {MOST_FACTOR:,}, or -1 for no bound")
    if "capacity" not in table:
        raise InputError(f"{where}: capacity is missing; give its percentage of the queue above it")
    numbers = {key: float(number) for key, number in table.items()}
    factor = numbers.pop("user_limit_factor", 1.0)
    name = path if parent is None else path[len(parent) + 1 :]
    found = DeclaredQueue(path, name, parent, is_leaf, **numbers, user_limit_factor=None if factor == -1.0 else factor)
    for key in ("capacity", "least"):
        if getattr(found, key) > found.most:
            raise InputError(f"{where}: most of {found.most:g} is below its {key} of {getattr(found, key):g}")
    return found


def _check_siblings(queues: list[DeclaredQueue], where: str) -> None:
    """Raise InputError unless the capacities of siblings add up to 100, and their least GPUs to at most 100."""
    for parent in dict.fromkeys(queue.parent for queue in queues):
        own = [queue for queue in queues if queue.parent == parent]
        of = "the top queues" if parent is None else f"the queues below {visible(parent)[:80]!r}"
        if abs((total := sum(queue.capacity for queue in own)) - 100.0) > _NEAR:
            raise InputError(f"{where}: the capacities of {of} add up to {total:g}: they must add up to 100")
        if (total := sum(queue.least for queue in own)) > 100.0 + _NEAR:
            raise InputError(f"{where}: the least GPUs of {of} add up to {total:g} %: at most 100 are possible")


def check_groups(queues: tuple[DeclaredQueue, ...], groups: set[str], named: set[str] | None = None) -> None:
    """Raise InputError for a leaf queue that names no group of the trace, and for a group without a queue.

    groups: of the replayed jobs; named: names that may be leaf queues without a job, beside these.
    """
    if not queues:
        return
    leaves = {queue.name: queue.path for queue in queues if queue.is_leaf}
    for name, path in leaves.items():
        if name != REST and name not in groups | (named or set()):
            known = ", ".join(visible(group)[:80] for group in sorted(groups)[:20])
            raise InputError(
                f"queue {visible(path)[:80]!r} is no group of the trace: known are {known}"
                f"{', ...' if len(groups) > 20 else ''}; a queue above others must be declared as well"
            )
    outside = sorted(groups - leaves.keys())
    if outside and REST not in leaves:
        more = f" (and {counted(len(outside) - 1, 'more group')})" if len(outside) > 1 else ""
        raise InputError(
            f"group {visible(outside[0])[:80]!r}{more} has no leaf queue: declare one, or one named {REST} for the rest"
        )
