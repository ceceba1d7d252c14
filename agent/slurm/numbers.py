"""The numbers in Slurm's answers: the only place where such text becomes a number, and the bounds of each.

A number out of bounds raises ValueError, so its row counts as one that cannot be parsed. The bounds are those of
`traces.schema.MOST`, which Slurm's own 32-bit fields cannot exceed.
"""

from __future__ import annotations

from traces.slurm.text import NO_TIME, parse_exit_code, parse_job_id, parse_limit_s, parse_tres

MOST_COUNT = 1 << 32  # also of epoch seconds: the year 2106
MOST_NODES = 1 << 20  # of one job
MOST_NAMES = 1 << 21  # nodes named in one answer, each as often as it is named
MOST_STATUS = (1 << 16) - 1
UNLIMITED_S = 365 * 86400  # used as the time limit of a job without one, or with a longer one
LEAST_S = 60
MOST_SHOWN = 200  # characters of a state or a reason that are kept


def bounded(number: int, most: int = MOST_COUNT) -> int:
    """Return the number if it is from 0 to `most`. Raises ValueError."""
    if not 0 <= number <= most:
        raise ValueError(f"{str(number)[:40]} is not between 0 and {most}")
    return number


def whole_number(text: str, most: int = MOST_COUNT) -> int:
    """Parse a whole number from 0 to `most`. Raises ValueError."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"{text[:40]!r} is not a count")
    return bounded(int(text), most)


def whole_number_or_none(text: str, most: int = MOST_COUNT) -> int | None:
    """Parse a whole number from 0 to `most`; None for any other text."""
    try:
        return whole_number(text, most)
    except ValueError:
        return None


def time_s(text: str) -> int | None:
    """Parse epoch seconds; None for a time that is unknown or has not come yet. Raises ValueError."""
    return None if text.strip() in NO_TIME else whole_number(text)


def time_limit_s(text: str) -> int:
    """Parse a time limit into seconds, from LEAST_S to UNLIMITED_S. Raises ValueError."""
    limit_s = parse_limit_s(text)
    return UNLIMITED_S if limit_s is None else min(max(limit_s, LEAST_S), UNLIMITED_S)


def job_nodes(text: str) -> int:
    """Parse a job's number of nodes, at least 1. Raises ValueError."""
    return max(whole_number(text, MOST_NODES), 1)


def job_identity(text: str) -> str:
    """Return a job id (`12`, `12_3`, `12+1`) if its numbers are within bounds. Raises ValueError."""
    if not text.isascii():
        raise ValueError(f"job id {text[:40]!r} is not ASCII")
    identity = parse_job_id(text)
    for number in (identity.job, identity.task, identity.het):
        bounded(number or 0)
    return text


def exit_status(text: str) -> tuple[int | None, int | None]:
    """Parse `code:signal` into (code, signal); (None, None) for blank. Raises ValueError."""
    code, number = parse_exit_code(text)
    return (None if code is None else bounded(code, MOST_STATUS)), number


def tres_counts(text: str) -> dict[str, int]:
    """Parse the whole numbers of a TRES text such as `cpu=8,mem=64G,node=2`: here cpu and node. Raises ValueError."""
    found = {name: whole_number_or_none(value) for name, value in parse_tres(text).items()}
    return {name: number for name, number in found.items() if number is not None}
