"""Determine the free memory of the machine and within this process's control groups (cgroup) and limits.

In a container, /proc/meminfo shows the whole machine, even if the container may use far less.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

LEAST, MOST = 128 << 20, 2 << 30  # bounds of DuckDB's memory in bytes: see docs/decisions/0015-locks.md
_UNLIMITED = 1 << 60  # cgroups version 1 uses a number near 2^63 for "no limit"


def duckdb_limit() -> int:
    """Return the bytes that DuckDB may use: half of the free memory, within bounds, as the process needs some too."""
    return max(LEAST, min(MOST, free_bytes() // 2))


def free_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that this process can use without swapping or being killed; MOST * 2 if that is unknown."""
    return max(0, min([*_machine(proc), *_control_groups(proc, cgroups), *_address_space(proc)], default=2 * MOST))


def _machine(proc: Path) -> Iterator[int]:
    for line in _lines(proc / "meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) << 10


def _address_space(proc: Path) -> Iterator[int]:
    """Yield the bytes left under `ulimit -v`, if it is set."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        held = [int(line.split()[0]) * resource.getpagesize() for line in _lines(proc / "self/statm")]
        yield limit - sum(held)


def _control_groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield the bytes left in each group, from the process's own to the root; any of them may be the tightest."""
    for line in _lines(proc / "self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (cgroups / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")) if controllers else (
            cgroups, ("memory.max", "memory.current")
        )  # fmt: skip
        group = root / path.strip("/")
        for folder in (group, *group.parents):
            limit, used = (_number(folder / name) for name in names)
            if limit is not None and used is not None and limit < _UNLIMITED:
                yield limit - used + _reclaimable(folder)
            if folder == root:
                break


def _reclaimable(folder: Path) -> int:
    """Return the bytes of file pages in the group that count as used but can be reclaimed."""
    counters = dict(line.split() for line in _lines(folder / "memory.stat"))
    return int(counters.get("total_inactive_file", counters.get("inactive_file", 0)))


def _number(path: Path) -> int | None:
    """Return the number in the file; None if there is none, as for the word `max`."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
