"""A dump that a spreadsheet, pandas or R has written as CSV: quotes are taken off, so that it reads as sacct's own.

sacct never quotes. What was a comma between fields becomes STAND_IN; a comma or a line break inside quotes stays, and
every line stays on its number.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

LONGEST_LINE = 1 << 26  # bytes
STAND_IN = "\x1f"
MOST_LINES = 50  # that one quoted field may be spread over


def unquoted(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces with STAND_IN between fields, cut after whole records, lines ended by a plain line break."""
    rest = b""
    for piece in pieces:
        text = rest + piece
        end = text.rfind(b"\n") + 1
        plain, unfinished = _plain(text[:end], last=False)
        rest = unfinished + text[end:]
        if len(rest) > LONGEST_LINE:  # which will be refused
            plain, rest = plain + rest, b""
        yield plain
    yield _plain(rest if rest.endswith(b"\n") or not rest else rest + b"\n", last=True)[0]


def _plain(text: bytes, *, last: bool) -> tuple[bytes, bytes]:
    """(whole lines with their quotes taken off, the lines of a record that goes on behind them)."""
    text = text.replace(b"\r\n", b"\n")
    if b'"' not in text:
        return text.replace(b",", STAND_IN.encode()), b""
    lines = text.decode("utf-8", errors="surrogateescape").split("\n")[:-1]
    done: list[str] = []
    at = 0
    while at < len(lines):
        end, record = at, lines[at]
        while record.count('"') % 2 and end + 1 < len(lines) and end - at < MOST_LINES:
            end += 1
            record += "\n" + lines[end]
        if record.count('"') % 2:
            if not last and end + 1 == len(lines) and end - at < MOST_LINES:
                break
            end, record = at, lines[at]  # a quote that does not close costs its own line
        done.append(STAND_IN.join(fields(record)))
        at = end + 1
    encode = ("utf-8", "surrogateescape")
    whole = "".join(line + "\n" for line in done).encode(*encode)
    return whole, "".join(line + "\n" for line in lines[at:]).encode(*encode)


def fields(record: str) -> list[str]:
    """The fields of one record; as they stand between the commas where it is no CSV."""
    if '"' not in record:
        return record.split(",")
    try:
        rows = list(csv.reader(io.StringIO(record, newline=""), strict=True))
    except csv.Error:
        return record.split(",")
    return rows[0] if len(rows) == 1 else record.split(",")
