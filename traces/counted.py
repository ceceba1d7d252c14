"""Numbers with their nouns in singular or plural, and English lists. Uses the standard library only."""

from __future__ import annotations

from collections.abc import Sequence

_NOUNS = {"entry": "entries", "policy": "policies", "query": "queries", "process": "processes"}
_VERBS = {"is": "are", "was": "were", "has": "have", "does": "do"}


def counted(number: int, noun: str, verb: str = "") -> str:
    """Return a number with its noun and verb, both given in the singular: 1 job is, 2,000 jobs are, 3 rows lack."""
    shown = f"{number:,} {plural(number, noun)}"
    if not verb:
        return shown
    return f"{shown} {verb if number == 1 else _VERBS.get(verb, verb.removesuffix('s'))}"


def plural(number: int, noun: str) -> str:
    """Return the noun in the form that the number requires; only the last word changes: raw file, raw files."""
    if number == 1:
        return noun
    before, blank, last = noun.rpartition(" ")
    return f"{before}{blank}{_NOUNS.get(last, f'{last}s')}"


def listed(items: Sequence[str], last: str = "and") -> str:
    """Join items into an English list: a, b and c."""
    *first, end = items
    return f"{', '.join(first)} {last} {end}" if first else end
