"""Parse and print instants; every other module uses these functions, so that all follow the same rules.

Computations use whole epoch seconds (`..._s`); the tables hold naive `datetime` values in UTC. A time without an offset
is UTC, unless the caller names another zone.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo


def parse(text: str) -> datetime:
    """Parse an ISO 8601 date or time; an offset in the text is kept. Raises ValueError for other text."""
    return datetime.fromisoformat(text.strip())


def epoch_s(moment: datetime, zone: tzinfo = UTC) -> int:
    """Return the epoch seconds of a time, truncated to the second. A time without an offset is in `zone`."""
    return int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp())


def utc(epoch_s: int) -> datetime:
    """Return the instant as a naive time in UTC, as in the tables."""
    return datetime.fromtimestamp(int(epoch_s), UTC).replace(tzinfo=None)


def text(epoch_s: int) -> str:
    """Return the instant as text in UTC, to the minute: 2023-02-01T12:00."""
    return utc(epoch_s).strftime("%Y-%m-%dT%H:%M")
