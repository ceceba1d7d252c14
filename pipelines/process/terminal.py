"""What reaches a terminal: the one place that all text of the command line passes on its way to a person.

File names and texts of a log come from anybody. An ESC in them would paint, move or retitle the terminal, a change of
direction would turn a line round, and bytes that are no UTF-8 would end the program when they are printed.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from traces.visible import visible_lines


class SafeStream:
    """A text stream on which control characters are written as their escapes (`traces.visible`), line breaks apart.

    A line break inside a name is the business of whoever puts it into a line. rich, which colours and moves the cursor
    itself, finds the stream behind this one by the name `rich_proxied_file`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not of UTF-8

    def write(self, text: str) -> int:
        """Writes the text with control characters as their escapes; the number of characters written."""
        return self.rich_proxied_file.write(visible_lines(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each line as `write` does."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """While in here nothing that is written to standard output or standard error can control a terminal."""
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast(TextIO, SafeStream(sys.stdout)), cast(TextIO, SafeStream(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = kept
