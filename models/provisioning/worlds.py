"""The worlds in which policies are fitted and judged, and the kind of pairs in each (docs/worlds.md)."""

from __future__ import annotations

from traces.errors import InputError

PAIRS = {  # by world: the kind of pairs that a comparison in it uses
    "plain": "injected",
    "calibrated": "recorded",
    "recorded-wait": "recorded",
}
WORLDS = tuple(PAIRS)
CHAINS_IN = ("calibrated", "plain")  # the worlds in which chains of jobs are played; many at once in the first alone


def check_world(name: str) -> None:
    """Raise InputError, listing the worlds, for an unknown one."""
    if name not in WORLDS:
        raise InputError(f"unknown world {name!r}; known: {', '.join(WORLDS)}")


def check_pairs(pairs: str | None, world: str) -> None:
    """Raise InputError if `pairs` is not the kind of that world; None means that kind."""
    if pairs not in (None, PAIRS[world]):
        allowed = " and ".join(f"--pairs {name} with --world {one}" for one, name in PAIRS.items())
        raise InputError(f"--pairs {pairs} with --world {world}; allowed are {allowed}")
