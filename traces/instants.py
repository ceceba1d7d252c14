"""Instants: a date read, and a date printed. Every other module asks here, so that all mean the same by both.

An instant is a whole number of epoch seconds (`..._s`) wherever it is computed with, and a naive `datetime` in UTC in
the tables. A time that is written without an offset is UTC, unless the caller names another zone.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo


def parse(text: str) -> datetime:
    """The ISO 8601 date or time that the text is, with an offset where it has one. Raises ValueError for any other."""
    return datetime.fromisoformat(text.strip())


def epoch_s(moment: datetime, zone: tzinfo = UTC) -> int:
    """Epoch seconds of a time, cut to the second; one without an offset is a time of `zone`."""
    return int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp())


def utc(epoch_s: int) -> datetime:
    """The instant as a naive time in UTC, as the tables hold it."""
    return datetime.fromtimestamp(int(epoch_s), UTC).replace(tzinfo=None)


def text(epoch_s: int) -> str:
    """The instant to the minute, in UTC: 2023-02-01T12:00."""
    return utc(epoch_s).strftime("%Y-%m-%dT%H:%M")
