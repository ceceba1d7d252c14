"""Read the elements of one list in each JSON document of a file, piece by piece; a broken element affects no other.

A document is an object; the list is the value of one of its top-level keys. Several documents may follow one another,
as in dumps joined with `cat`. Python's decoder reads whole elements. Text that it rejects is returned once, with the
reason, up to the point where an element, a list or a document begins again.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from traces.readers.common import RAW_CHARACTERS

LONGEST = 1 << 26  # characters held of one value; no record is that long
LONGEST_MATCHED = 1 << 24  # characters of a broken element in which brackets are matched
OVERLAP = 4_096  # most characters of a match for a place to resume
MOST_KEYS = 1_000  # distinct first keys of a list's objects; objects of sacct all have the same one
WORD = 16  # longer than any number or word that the decoder may reject because the text held ends within it
_VISIBLE, _VALUE = re.compile(r"[^ \t\r\n]"), re.compile(r"[^ \t\r\n,]")
_BEGIN = re.compile(r"[^ \t\r\n\ufeff\x1e]")  # between documents also a byte order mark, or the mark of RFC 7464
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]"]', re.DOTALL)
_FOLLOWS = re.compile(r'\s*(?:\]|,\s*\{\s*"|,?\s*\Z)')  # text after a whole element of a list of objects
_OBJECT = re.compile(r'(?=\{\s*"[\w.-]+"\s*:)')
_FIRST_KEY = re.compile(r'\{\s*"([^"\\]{1,200})"\s*:')
# Two objects without a comma between them are documents. User text cannot contain this, because its quotes are escaped.
_DOCUMENT = r'\}[\s\ufeff\x1e]*(?=\{\s*"[\w.-]+"\s*:)'


@dataclass(frozen=True)
class Element:
    """One element of a list: its value and its text; or the beginning of a broken text, and what is `wrong` with it."""

    value: Any
    text: str
    wrong: str = ""


class _BrokenError(ValueError):
    """The text held does not begin with a whole JSON value."""


class Documents:
    """A parser that reads pieces of UTF-8 and yields elements; `lists` counts the lists found.

    The parameter `kept` names another top-level key. The attribute `kept` lists its values, one a document at most,
    and is complete when all elements have been read, because the key may follow the list.
    """

    def __init__(self, pieces: Iterable[bytes], key: str, kept: str = "") -> None:
        self.lists = 0
        self.kept: list[Any] = []
        self._key = key
        self._kept = kept
        self._pieces = iter(pieces)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text, self._at, self._ended = "", 0, False
        self._dropped = 0  # characters dropped before the text held
        self._keys = Counter[str]()  # first keys of the lists' objects
        self._documents = {key}  # first keys of documents
        self._decoder = json.JSONDecoder(parse_constant=_no_constant)

    def elements(self) -> Iterator[Element]:
        """Yield all elements of all lists in order, whole or broken; a document without a list counts as broken."""
        while self._next(_BEGIN):
            if self._is_record():  # an extra bracket closed the document too early
                yield from self._pairs(in_list=True)
            elif self._text[self._at] == "{":
                yield from self._document()
            else:
                yield self._skipped("text between JSON documents", _OBJECT)[0]

    def _more(self) -> bool:
        """Drop the text that has been read and append the next piece; False at the end of the file."""
        if self._ended:
            return False
        piece = next(self._pieces, None)
        self._ended = piece is None
        self._dropped += self._at
        self._text = self._text[self._at :] + self._utf8.decode(piece or b"", final=self._ended)
        self._at = 0
        return True

    def _next(self, sought: re.Pattern[str]) -> str:
        """Move to the next match and return its text without reading it; '' at the end of the file."""
        while True:
            match = sought.search(self._text, self._at)
            self._at = match.start() if match else len(self._text)
            if match or not self._more():
                return match[0] if match else ""

    def _document(self) -> Iterator[Element]:
        while len(self._text) - self._at < RAW_CHARACTERS and self._more():
            pass
        head, begin, lists = self._text[self._at : self._at + RAW_CHARACTERS], self._dropped + self._at, self.lists
        if first := _FIRST_KEY.match(head):
            self._documents.add(first[1])
        self._at += 1
        if (yield from self._pairs()) and self.lists == lists:
            head = head[: self._dropped + self._at - begin]
            yield Element(None, head, f"a JSON document without a list of {self._key}")

    def _pairs(self, *, in_list: bool = False) -> Generator[Element, None, bool]:
        """Yield the elements of the lists in a document; return whether the document was read to its end.

        `in_list`: the current position is at an element, not at a key.
        """
        while in_list or (character := self._next(_VALUE)) not in ("}", ""):
            try:
                if in_list or self._is_record() or self._is_list():
                    in_list = False
                    if not (yield from self._list()):
                        return False
            except _BrokenError as error:
                list_ = rf'(?P<list>(?="{re.escape(self._key)}"\s*:\s*\[))'
                element, stop = self._skipped(str(error), self._stop(list_))
                yield element
                if stop in ("", "document"):
                    return False
                in_list = stop == "record"
        self._at += character == "}"
        return True

    def _is_list(self) -> bool:
        """Skip a key and its value. For the key of the list, stop after the `[` of its list and return True."""
        key = self._key_here()
        if key != self._key or self._next(_VISIBLE) != "[":
            value, _ = self._value()
            if key == self._kept and len(self.kept) < MOST_KEYS:
                self.kept.append(value)
            return False
        self._at += 1
        self.lists += 1
        return True

    def _is_record(self) -> bool:
        """Return whether an object here begins like the objects of the lists."""
        return bool(self._keys) and bool(re.compile(self._record()).match(self._text, self._at))

    def _record(self) -> str:
        """Return a pattern for the most frequent beginning of the lists' objects."""
        return rf'\{{\s*"{re.escape(self._keys.most_common(1)[0][0])}"\s*:'

    def _stop(self, other: str = "(?!)") -> re.Pattern[str]:
        """Return a pattern for places to resume: a `record` of a list, another `document`, or `other`."""
        record = rf"(?P<record>[,}}\]]\s*(?={self._record()}))|" if self._keys else ""
        return re.compile(rf"{record}(?P<document>{_DOCUMENT})|{other}")

    def _key_here(self) -> str:
        """Read the key here and move to its value. Raises _BrokenError where there is no key."""
        key = self._value()[0] if self._text[self._at] == '"' else None
        if not isinstance(key, str) or self._next(_VISIBLE) != ":":
            raise _BrokenError("expected a key and its value")
        self._at += 1
        self._next(_VISIBLE)
        return key

    def _list(self) -> Generator[Element, None, bool]:
        """Yield the elements up to the end of the list; return whether the document continues after it."""
        last = Element(None, "")
        while (character := self._next(_VALUE)) != "]":
            if not character:
                if not last.wrong:
                    yield Element(None, "", f"the file ends within the list of {self._key}")
                return False
            try:
                after_broken, last = bool(last.wrong), Element(*self._value())
                if not after_broken:  # otherwise it may be part of the broken text
                    self._know(_FIRST_KEY.match(last.text))
            except _BrokenError as error:
                if not self._keys:
                    self._know(_FIRST_KEY.match(self._text, self._at))
                last, stop = self._skipped(str(error), self._stop(), matched=True)
                if stop == "document":
                    yield last
                    return False
            yield last
        self._at += 1
        return True

    def _know(self, first: re.Match[str] | None) -> None:
        if first and first[1] not in self._documents and (len(self._keys) < MOST_KEYS or first[1] in self._keys):
            self._keys[first[1]] += 1

    def _value(self) -> tuple[Any, str]:
        """Read the value here; return it and its text. Raises _BrokenError without moving where there is no value."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except RecursionError:
                raise _BrokenError("it is nested too deep") from None
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated") or error.pos + WORD >= len(self._text)
                if is_cut and len(self._text) - self._at <= LONGEST and self._more():
                    continue
                raise _BrokenError("the file ends within it" if is_cut and self._ended else error.msg) from None
            except ValueError as error:  # Infinity, an integer of over 4,300 digits
                raise _BrokenError(str(error).split(";")[0]) from None
            if end == len(self._text) and self._text[end - 1] not in '}]"' and self._more():
                continue  # a number may continue in the next piece
            text, self._at = self._text[self._at : end], end
            return value, text

    def _skipped(self, why: str, stop: re.Pattern[str], *, matched: bool = False) -> tuple[Element, str]:
        """Skip to a match of `stop` and return (the skipped text as an element, the group that matched; '' for none).

        With `matched`, skip only to the bracket that closes the one here, if that comes first.
        """
        length = self._closed(stop) if matched else 0
        if length:
            text, group = self._text[self._at : self._at + min(length, RAW_CHARACTERS)], ""
            self._at += length
        else:
            text, length, group = self._sought(stop)
        return Element(None, text, f"{length:,} characters are not valid JSON: {why}"), group

    def _sought(self, stop: re.Pattern[str]) -> tuple[str, int, str]:
        """Move to a match of `stop`; return (the first characters skipped, how many were skipped, the group found)."""
        head, length, passed = "", 0, 1
        while True:
            match = stop.search(self._text, self._at + passed)
            end = match.end() if match else len(self._text) - (0 if self._ended else OVERLAP)
            if end > self._at:
                head += self._text[self._at : min(end, self._at + RAW_CHARACTERS - len(head))]
                length += end - self._at
                self._at, passed = end, 0
            if match or not self._more():
                return head, length, (match.lastgroup or "") if match else ""

    def _closed(self, stop: re.Pattern[str]) -> int:
        """Return the number of characters to the bracket that closes the one here; 0 if `stop` matches before it.

        The text after it must be valid after an element, because with a missing quote, brackets in texts are counted.
        """
        depth = at = 0  # `at` counts from the beginning of the element
        while self._text[self._at] in "{[":
            match = stop.search(self._text, self._at + 1)
            for token in _TOKEN.finditer(self._text, self._at + at, match.start() + 1 if match else len(self._text)):
                if token[0] == '"':
                    break  # a text that continues beyond the text held
                at = token.end() - self._at
                depth += (token[0] in "{[") - (token[0] in "}]")
                if depth == 0:
                    while len(self._text) - self._at - at < OVERLAP and self._more():
                        pass
                    return at if _FOLLOWS.match(self._text, self._at + at) else 0
            if match or len(self._text) - self._at > LONGEST_MATCHED or not self._more():
                break
        return 0


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")
