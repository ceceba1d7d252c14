"""Make everything that the command line prints safe for a terminal.

File names and log texts come from untrusted users. An ESC in them could colour, move or retitle the terminal. A
direction mark could reverse a line, and bytes that are not UTF-8 would end the program when printed.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from traces.visible import visible_lines


class SafeStream:
    """A text stream that writes control characters as their escapes (`traces.visible`), except line breaks.

    Callers that print a name must escape line breaks in it themselves. rich colours text and moves the cursor; it finds
    the underlying stream under the name `rich_proxied_file`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for a terminal that is not UTF-8

    def write(self, text: str) -> int:
        """Write the text with control characters as their escapes; return the number of characters written."""
        return self.rich_proxied_file.write(visible_lines(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line as `write` does."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


class LabelledStream(io.TextIOBase):
    """A safe text stream, never a terminal, that writes whole lines, each after a label."""

    def __init__(self, stream: TextIO, label: str) -> None:
        self._stream, self._label, self._line = stream, label, ""

    def write(self, text: str) -> int:
        """Write the lines that `text` ends; return its number of characters."""
        *lines, self._line = (self._line + text).split("\n")
        self._stream.writelines(f"{self._label}{visible_lines(line)}\n" for line in lines)
        self._stream.flush()
        return len(text)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Replace standard output and standard error by streams that cannot control a terminal."""
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast(TextIO, SafeStream(sys.stdout)), cast(TextIO, SafeStream(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = kept
