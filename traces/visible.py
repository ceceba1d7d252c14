"""Text from outside (file names, users, job names) made safe to print and store. The standard library alone."""

from __future__ import annotations

import os
import re
import unicodedata

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})  # control, direction, surrogate, private, line ends


def visible(text: str) -> str:
    r"""The text on one line, each character that a person would not see, or that moves the cursor, as its escape.

    ESC is \x1b, a line break \n, a change of direction \u202e, a byte of a file name that is no UTF-8 \xff.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    if "\udc80" <= character <= "\udcff":  # how Python holds a byte of a file name that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def visible_lines(text: str) -> str:
    """As `visible`, with the line breaks left: for text that Baton has put together of several lines."""
    return "\n".join(map(visible, text.split("\n")))


def storable(path: str | os.PathLike[str]) -> str:
    r"""A path as text that UTF-8 can hold, as tables and JSON need: a byte of it that is no UTF-8 becomes \xff."""
    return _SURROGATE.sub(lambda surrogate: _visible(surrogate[0]), os.fspath(path))
