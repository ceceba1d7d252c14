"""What the sacct reader does to a whole block at once, beside the obvious way, on small random cases."""

from __future__ import annotations

import re
from datetime import datetime

import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from traces.readers import sacct_lines, sacct_times
from traces.readers.common import coded
from traces.readers.sacct_layout import Layout

_FORM = re.compile(r"(?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_DIGITS = st.text("0123456789 +-:T/a\u00e9", max_size=4)
_NEAR = st.tuples(
    st.sampled_from(["1899", "1900", "1999", "2000", "2024", "2099", "2100", "20a4", "+202"]),
    *(
        st.sampled_from(
            ["00", "01", "02", "09", "10", "12", "13", "28", "29", "30", "31", "59", "60", " 1", "+1", "1/"]
        ),
    )
    * 5,
).map(lambda p: f"{p[0]}-{p[1]}-{p[2]}T{p[3]}:{p[4]}:{p[5]}")
_REAL = st.datetimes(datetime(1900, 1, 1), datetime(2099, 12, 31, 23, 59, 59)).map(
    lambda t: t.replace(microsecond=0).isoformat()
)


def _slow_time(text: str | None) -> datetime | None:
    if text is None or not _FORM.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # 30 February, 24 o'clock
        return None


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), _REAL, _NEAR, _DIGITS, st.sampled_from(["Unknown", "None", ""])), max_size=30))
@example(["2024-02-29T23:59:59", "2023-02-29T00:00:00", "2023-12-31T23:59:60", None, "2026-06-01 00:01:39"])
@example(["2024-02-29T23:59:59\u00e9", "2024-02-29T23:59:5\u00e9", "\u00e9" * 9 + "x"])
def test_times_are_those_of_python(texts: list[str | None]) -> None:
    assert sacct_times.standard(pl.Series(texts, dtype=pl.String)).to_list() == [_slow_time(text) for text in texts]


@settings(deadline=None)
@given(st.lists(st.text("|a\u00e9", max_size=6), min_size=1, max_size=20), st.integers(0, 300))
@example(["a"], 256)  # 8 bits hold no more than 255
@example(["a"], 258)
def test_only_lines_with_the_right_number_of_delimiters_are_whole(lines: list[str], more: int) -> None:
    lines = [*lines, "|" * more]
    layout = Layout(("JobID", "User", "Account"), "|")
    found = sacct_lines.split("".join(f"{line}\n" for line in lines).encode(), layout)
    assert found.whole.tolist() == [line.count("|") == 2 for line in lines]
    assert [found.line(n) for n in range(len(lines))] == lines
    fields = [[part or None for part in line.split("|")] for line in lines if line.count("|") == 2]
    assert [list(row) for row in found.frame.select("JobID", "User", "Account").rows()] == fields


@settings(deadline=None)
@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), min_size=1, max_size=30))
def test_bytes_that_are_no_text_are_replaced_as_python_does(lines: list[bytes]) -> None:
    block = b"".join(line + b"\n" for line in lines)
    kept, sacct_lines.PIECE_BYTES = sacct_lines.PIECE_BYTES, 16
    try:
        found = sacct_lines.split(block, Layout(("JobID", "User"), "|"))
    finally:
        sacct_lines.PIECE_BYTES = kept
    assert found.data == block.decode(errors="replace").encode()


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=30))
def test_codes_give_the_texts_back(texts: list[str | None]) -> None:
    distinct, codes = coded(pl.Series(texts, dtype=pl.String))
    assert [None if code is None else distinct[code] for code in codes] == texts
