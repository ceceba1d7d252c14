"""The names of the worlds in which policies are fitted and judged, and of the pairs in each (docs/worlds.md)."""

from __future__ import annotations

from traces.errors import InputError

PAIRS = {  # by world: what a comparison in it is made on
    "plain": "injected",
    "calibrated": "recorded",
    "recorded-wait": "recorded",
}
WORLDS = tuple(PAIRS)
CHAINS_IN = "calibrated"  # the world in which chains of jobs are played


def check_world(name: str) -> None:
    """Raises InputError for a world that there is not, listing those that there are."""
    if name not in WORLDS:
        raise InputError(f"unknown world {name!r}; known: {', '.join(WORLDS)}")


def check_pairs(pairs: str | None, world: str) -> None:
    """Raises InputError for pairs other than those of that world; None is these."""
    if pairs not in (None, PAIRS[world]):
        there = " and ".join(f"--pairs {name} with --world {one}" for one, name in PAIRS.items())
        raise InputError(f"--pairs {pairs} with --world {world}; there are {there}")


def check_chain(links: int | None, world: str) -> None:
    """Raises InputError for chains of jobs in a world that has none; `links` None is no chain."""
    if links is not None and world != CHAINS_IN:
        raise InputError(f"--chain {links} with --world {world}; chains are played in --world {CHAINS_IN}")
