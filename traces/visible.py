"""Make text from outside (file names, users, job names) safe to print and store. Uses the standard library only."""

from __future__ import annotations

import os
import re
import unicodedata

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})  # control, direction, surrogate, private, line ends


def visible(text: str) -> str:
    r"""Return the text on one line, with escapes for characters that are invisible or move the cursor.

    For example ESC becomes \x1b, a line break \n, a change of direction \u202e, a byte that is not UTF-8 \xff.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    if "\udc80" <= character <= "\udcff":  # Python's form of a byte in a file name that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def visible_lines(text: str) -> str:
    """Return the text as `visible` does, but keep line breaks: for text that Baton composed of several lines."""
    return "\n".join(map(visible, text.split("\n")))


def storable(path: str | os.PathLike[str]) -> str:
    r"""Return a path as text that UTF-8 can encode, for tables and JSON: a byte that is not UTF-8 becomes \xff."""
    return _SURROGATE.sub(lambda surrogate: _visible(surrogate[0]), os.fspath(path))
