"""What the sacct reader does to a whole block at once, beside the obvious way, on small random cases."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from traces.clusters import ClusterSettings
from traces.readers.common import coded
from traces.readers.sacct import columns as sacct_columns
from traces.readers.sacct import lines as sacct_lines
from traces.readers.sacct import typed as sacct_typed
from traces.readers.sacct.fields import SacctField
from traces.readers.sacct.layout import Layout
from traces.readers.sacct.mend import Mender
from traces.slurm import text as slurm_text

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
    micros, odd = SacctField.of(pl.Series(texts, dtype=pl.String)).read("times")
    assert micros.cast(pl.Datetime("us")).to_list() == [_slow_time(text) for text in texts]
    assert odd.tolist() == [n for n, text in enumerate(texts) if text and _slow_time(text) is None]


_PARTS = st.lists(st.sampled_from([*"0123456789", "10", "59", "000", "123456", "-", ":", ".", "K", "k", "M", " ", "/"]))
_CLOCKS = st.from_regex(r"([0-9]{1,7}-)?([0-9]{1,3}:)?[0-9]{1,2}:[0-9]{1,3}(\.[0-9]{1,7})?", fullmatch=True)
_WORDS = st.sampled_from(["", "INVALID", "Unknown", "999999999", "1000000000", "4294967295", "20K", "0", "\u0661"])


@pytest.mark.parametrize(
    ("form", "kind", "slow"),
    [
        ("counts", np.int64, sacct_columns.FORMS["NCPUS"]),
        ("durations", np.float64, sacct_columns.FORMS["TotalCPU"]),
        ("sizes_kib", np.int64, slurm_text.parse_rss_kib),
    ],
)
@settings(deadline=None)
@given(texts=st.lists(st.one_of(_CLOCKS, _PARTS.map("".join), _WORDS), max_size=30))
@example(texts=["00:00:00", "23:59:59.999", "1-00:00:00", "123456-00:00:01.5", "05:07.250", "1234567-00:00:00"])
def test_forms_are_those_of_the_slow_functions(
    form: str, kind: Any, slow: Callable[[str], Any], texts: list[str]
) -> None:
    """What the kernel is certain of is what the definition says; what it says of nothing else is told as odd."""
    values, odd = SacctField.of(pl.Series(texts, dtype=pl.String)).read(form, kind)
    for row, text in enumerate(texts):
        if row in odd:
            assert values[row] is None
        else:
            assert values[row] == slow(text)
    for usual in ("12", "00:01:02", "7-00:01:02", "05:07.250", "4K"):
        fits = {"counts": "12", "durations": "00:01:02 7-00:01:02 05:07.250", "sizes_kib": "12 4K"}[form].split()
        assert (len(SacctField.of(pl.Series([usual])).read(form, kind)[1]) == 0) == (usual in fits)


_IDS = st.from_regex(
    r"[0-9]{1,19}(_[0-9]{1,3}|_\[[0-9,%.-]{0,6}\]?)?(\+[0-9]{1,10})?(\.[a-z0-9_+.-]{0,8})?", fullmatch=True
)


@settings(deadline=None, max_examples=30)  # each types whole rows
@given(st.lists(st.tuples(_IDS, _IDS), min_size=1, max_size=20))
@example([("1_[4-7%3]", "9"), ("1_2.batch", "9.batch"), ("5+1.0", "6.0"), ("7_[1,2...", "8"), ("007.x.y", "007")])
def test_ids_are_those_of_the_slow_function(ids: list[tuple[str, str]]) -> None:
    """Whichever rows the kernel leaves: number, task and step are what `parse_job_id` says."""
    frame = pl.DataFrame(ids, schema={"JobID": pl.String, "JobIDRaw": pl.String}, orient="row")
    fields = {column.name: SacctField.of(column) for column in frame} | {
        name: SacctField.of(pl.Series([None] * len(ids), dtype=pl.String)) for name in ("Submit", "Start", "End")
    }
    rows, valid = sacct_typed.typed(fields, np.arange(len(ids)), ClusterSettings("c"))
    for (printed, raw), row, fits in zip(ids, rows.iter_rows(named=True), valid, strict=True):
        try:
            job, of_raw = slurm_text.parse_job_id(printed), slurm_text.parse_job_id(raw)
        except ValueError:
            assert not fits
            continue
        if not fits:  # a number that 64 bits do not hold, or an offset that Slurm has not
            assert re.search(r"[0-9]{19}|\+[0-9]{10}", f"{printed} {raw}")
            continue
        assert row["job_id"] == printed.removesuffix(f".{job.step}")
        assert (row["job_id_raw"], row["base"]) == (of_raw.job, re.match("[0-9]+", raw)[0])  # type: ignore[index]
        assert (row["array_task_id"], row["step_id"]) == (job.task, job.step)
        assert row["array_job_id"] == (None if job.task is None and job.pending is None else job.job)


@settings(deadline=None)
@given(st.lists(st.text("|a\u00e9", max_size=6), min_size=1, max_size=20), st.integers(0, 300))
@example(["||"] * 200, 0)
@example(["a"], 256)  # 8 bits hold no more than 255
@example(["a"], 258)
def test_only_lines_with_the_right_number_of_delimiters_are_whole(lines: list[str], more: int) -> None:
    lines = [*lines, "|" * more]
    layout = Layout(("JobID", "User", "Account"), "|")
    found = sacct_lines.split("".join(f"{line}\n" for line in lines).encode(), layout)
    assert found.whole.tolist() == [line.count("|") == 2 for line in lines]
    assert [found.line(n) for n in range(len(lines))] == lines
    fields = [[part or None for part in line.split("|")] for line in lines if line.count("|") == 2]
    assert list(map(list, zip(*(found.fields[name].texts() for name in layout.columns), strict=True))) == fields
    assert found.numbers.tolist() == [n for n, line in enumerate(lines) if line.count("|") == 2]


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


@settings(deadline=None)
@given(st.lists(st.text("ab", max_size=20), max_size=60))
@example(["abababab", "ababababa", "abababababababab", "abababab", ""])
def test_the_kernels_codes_give_the_texts_back(texts: list[str]) -> None:
    distinct, codes = SacctField.of(pl.Series(texts, dtype=pl.String)).codes()
    assert [distinct[code] or "" for code in codes] == texts
    assert distinct.to_list() == [None, *dict.fromkeys(filter(None, texts))]


_WITHOUT_JIT = """
import sys
import numpy as np
np.seterr(over="ignore")  # hashes run over
import polars as pl
from traces.clusters import ClusterSettings
from traces.readers.sacct import fields as sacct_fields
from traces.readers.sacct import lines as sacct_lines
from traces.readers.sacct import typed as sacct_typed
from traces.readers.sacct.layout import Layout
sacct_fields._SEED = np.uint64(7)
columns = tuple(sys.argv[1].split("|"))
lines = sacct_lines.split(sys.stdin.buffer.read(), Layout(columns, "|"))
rows, valid = sacct_typed.typed(lines.fields, lines.numbers, ClusterSettings("c"))
print(lines.whole.tolist(), valid.to_list(), rows.rows())
"""


def test_the_kernels_source_means_the_same_uncompiled() -> None:
    """With the JIT off numpy checks every index, which compiled code does not."""
    columns = "JobID|JobIDRaw|JobName|User|State|Submit|Start|End|ElapsedRaw|NCPUS|ReqTRES|NodeList|MaxRSS|TotalCPU"
    lines = (
        "7_1|8|train|anna|COMPLETED|2024-02-29T23:59:59|2024-03-01T00:00:00|2024-03-01T01:00:00|3600|8|cpu=8,mem=4G|n[1-3]||",
        "7_1.batch|8.batch|batch|||Unknown|2024-03-01T00:00:00|2024-03-01T01:00:00|3600|8||n1|12K|1-00:05:07.250",
        "9_[4-7%3]|9|a name longer than eight|anna|PENDING|2024-02-30T00:00:00||||20K||None assigned|0|05:07",
        "cut short|1",
        "11+1.0|12.0|x|o\u00e9|FAILED|2024-01-01T00:00:00|None|Unknown|0|1||n[1-2],m||00:00:01",
        *["|" * 13] * 2_000,  # nothing but delimiters: no line has more fields for its bytes
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", _WITHOUT_JIT, columns],
            env={**os.environ, "NUMBA_DISABLE_JIT": flag, "PYTHONPATH": os.pathsep.join(sys.path)},
            input="".join(f"{line}\n" for line in lines).encode(),
            capture_output=True,
            timeout=120,
        )
        for flag in "10"
    ]
    assert found[0].stdout, found[0].stderr
    assert found[0].stdout == found[1].stdout
    assert found[0].stdout.startswith(b"[True, True, True, False, True, True,")


def test_broken_lines_are_looked_at_a_bounded_number_of_times() -> None:
    """What goes on with nothing, between lines of many columns: a walk to the end from each would take for ever."""
    layout = Layout(("JobID", "User", "State"), "|")
    lines = ["||||", "\r"] * 1000
    looked = Counter[int]()

    def line(number: int) -> str:
        looked[number] += 1
        return lines[number]

    mender = Mender(line, np.zeros(len(lines), np.bool_), layout)
    mender.run()
    assert len(mender.rejects) == 1000 and max(looked.values()) < 20
