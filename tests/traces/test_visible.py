"""Text of others made fit for a terminal and for a table: nothing hidden takes effect, nothing else changes."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest

from traces.visible import storable, visible, visible_lines


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain text_1.psv", "plain text_1.psv"),
        ("Zürich – 東京 ✓", "Zürich – 東京 ✓"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\x9b2J\u2028", "\\x9b2J\\u2028"),
        ("j\udcff.psv", "j\\xff.psv"),
        ("\ud800", "\\ud800"),
        ("", ""),
    ],
)
def test_what_a_person_would_not_see_becomes_an_escape(text: str, seen: str) -> None:
    assert visible(text) == seen and visible(seen) == seen
    assert visible_lines(f"{text}\n") == "".join(f"{visible(line)}\n" for line in text.split("\n"))


def test_no_character_at_all_controls_a_terminal() -> None:
    everything = visible("".join(map(chr, range(sys.maxunicode + 1))))
    assert not {unicodedata.category(c) for c in everything} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    everything.encode("utf-8")


def test_a_path_is_stored_as_text() -> None:
    assert storable(Path("a\udcff\udc80/ü\n")) == "a\\xff\\x80/ü\n"
    assert storable("\ud800").encode() == b"\\ud800"
