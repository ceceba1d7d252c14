"""A number with its noun, in the singular or plural: the one place that knows how. The standard library alone."""

from __future__ import annotations

_OTHERS = {"entry": "entries", "query": "queries", "has": "have", "is": "are", "was": "were", "does": "do"}


def counted(number: int, noun: str) -> str:
    """So many of a noun that is given in the singular: 1 job, 2,000 jobs."""
    return f"{number:,} {plural(number, noun)}"


def plural(number: int, word: str) -> str:
    """The last word of `word` as it stands with that number: job and jobs, was and were."""
    if number == 1:
        return word
    before, blank, last = word.rpartition(" ")
    return f"{before}{blank}{_OTHERS.get(last, f'{last}s')}"
