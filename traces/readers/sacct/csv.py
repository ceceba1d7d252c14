"""Remove the quotes of a dump that a spreadsheet, pandas or R wrote as CSV, so that it reads like sacct's own output.

sacct never quotes. STAND_IN replaces commas between fields; commas and line breaks inside quotes stay. Line numbers do
not change.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

LONGEST_LINE = 1 << 26  # bytes
STAND_IN = "\x1f"
MOST_LINES = 50  # that one quoted field may span


def unquoted(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces with STAND_IN between fields, cut after whole records, with plain line breaks."""
    rest = b""
    for piece in pieces:
        text = rest + piece
        end = text.rfind(b"\n") + 1
        plain, unfinished = _plain(text[:end], last=False)
        rest = unfinished + text[end:]
        if len(rest) > LONGEST_LINE:  # a later stage rejects it
            plain, rest = plain + rest, b""
        yield plain
    yield _plain(rest if rest.endswith(b"\n") or not rest else rest + b"\n", last=True)[0]


def _plain(text: bytes, *, last: bool) -> tuple[bytes, bytes]:
    """Return (whole lines without quotes, the lines of a record that continues after the text)."""
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
            end, record = at, lines[at]  # an unclosed quote affects only its own line
        done.append(STAND_IN.join(fields(record)))
        at = end + 1
    encode = ("utf-8", "surrogateescape")
    whole = "".join(line + "\n" for line in done).encode(*encode)
    return whole, "".join(line + "\n" for line in lines[at:]).encode(*encode)


def fields(record: str) -> list[str]:
    """Return the fields of one record; if it is not valid CSV, the texts between the commas."""
    if '"' not in record:
        return record.split(",")
    try:
        rows = list(csv.reader(io.StringIO(record, newline=""), strict=True))
    except csv.Error:
        return record.split(",")
    return rows[0] if len(rows) == 1 else record.split(",")
