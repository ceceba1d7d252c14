"""Standard Workload Format: its one parser against a slow twin, the trace for a replay, and the two real logs."""

from __future__ import annotations

import gzip
import io
import math
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.readers.common import RawFile
from traces.readers.published.swf import COLUMNS, blocks, read_swf
from traces.readers.published.swf_jobs import Swf

TEXT = """; Version: 2.2
;   MaxProcs:  128
; MaxProcs: 4
; a note
1 0 10 3600 4 -1 -1 8 7200 -1 1 1 1 -1 -1 -1 -1 -1

2 5.0 -1 -1 4 -1 -1 -1 -1 -1 0 1 1 -1 -1 -1 -1 -1
"""


Numbers = list[int]


def slowly(text: str) -> list[tuple[int, Numbers | str]]:
    """(number, its numbers or why it is no job) of each line that should be a job."""
    found: list[tuple[int, Numbers | str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith(";"):
            continue
        try:
            values = [float(word) for word in words]
        except ValueError:
            values = [math.nan]
        if len(words) != len(COLUMNS):
            found.append((number, f"{len(words)} fields, but SWF has 18"))
        elif any(math.isnan(value) for value in values):
            found.append((number, "not a number"))
        elif any(abs(value) >= 2**53 for value in values):
            found.append((number, "a number out of range"))
        else:
            found.append((number, [round(value) for value in values]))
    return found


SOUND = st.sampled_from(["-1", "0", "7", "+3", "2.5", "3.5", "1e3", "1"])
WORDS = st.one_of(SOUND, st.sampled_from(["9007199254740992", "nan", "inf", "-inf", "x", "1:2", "0x1"]))
JOBS = st.one_of(*(st.lists(words, min_size=18, max_size=18) for words in (SOUND, WORDS)))
LINES = st.builds(
    lambda before, words, gap: before + gap.join(words),
    st.sampled_from(["", " ", "\t"]), st.one_of(JOBS, st.lists(WORDS, max_size=20)), st.sampled_from([" ", "  ", "\t"]),
)  # fmt: skip


@given(st.lists(st.one_of(LINES, st.sampled_from(["; Version: 2.2", "  ;x", "", " "])), max_size=8))
def test_the_parser_does_as_its_slow_twin(lines: list[str]) -> None:
    text = "\n".join(lines)
    found: list[tuple[int, Numbers | str]] = []
    for block in blocks(io.BytesIO(text.encode()), Path("x"), {}):
        rows = zip(block.lines["line"], block.wrong, block.numbers.rows(), strict=True)
        found += [(number, why if why else list(row)) for number, why, row in rows]
    assert found == slowly(text)


@given(LINES.filter(str.strip))
def test_what_a_replay_refuses_the_lake_rejects_for_the_same_reason(line: str) -> None:
    ((_, found),) = slowly(line)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.swf"
        path.write_text(line)
        if isinstance(found, list):
            assert len(read_swf(path)) == 1
            return
        with pytest.raises(InputError, match=found):
            read_swf(path)
        (reject,) = Swf().read(RawFile(path, ClusterSettings("lab"))).rejects
        assert reject.reason.startswith(found)


PACKED = {"plain": bytes, "gzip": gzip.compress, "zstd": lambda text: pa.compress(text, "zstd", asbytes=True)}


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_columns_and_their_stand_ins(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "trace.swf"
    path.write_bytes(pack(TEXT.encode()))
    trace = read_swf(path)
    assert len(trace) == 2 and trace.max_procs == 128 and trace.header["Version"] == "2.2"
    assert trace.processors.tolist() == [8, 4] and trace.limit_s.tolist() == [7200, -1]
    assert trace.wait_s.tolist() == [10, -1] and trace.submit_s.dtype == np.int64


@pytest.mark.parametrize(
    ("line", "message"),
    [("1 2 3", ":1: 3 fields"), ("x " * 18, "not a number"), ("; only\n", "no job"), (f"{'9' * 30} " * 18, "range")],
)
def test_other_lines_are_refused_by_place(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "trace.swf"
    path.write_text(line)
    with pytest.raises(InputError, match=message):
        read_swf(path)


@pytest.mark.parametrize("value", ["0", "-1", "many", "9" * 30, "9" * 5000])
def test_a_machine_of_no_size_is_unknown(tmp_path: Path, value: str) -> None:
    path = tmp_path / "trace.swf"
    path.write_text(TEXT.replace("MaxProcs:  128", f"MaxProcs: {value}"))
    assert read_swf(path).max_procs is None


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_and_a_byte_order_mark(tmp_path: Path, packed: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = TEXT.encode("utf-8-sig")
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(text) if packed else text,))
    writer.start()
    trace = read_swf(pipe)
    writer.join()
    assert len(trace) == 2 and trace.header["Version"] == "2.2"


def test_of_several_comments_of_one_name_the_first_with_a_value_stands(tmp_path: Path) -> None:
    path = tmp_path / "trace.swf"
    path.write_text(TEXT.replace("; Version", "; MaxProcs:\n; Version"))
    trace = read_swf(path)
    assert trace.max_procs == 128 and trace.header["MaxProcs"] == "128"


def test_the_lake_passes_over_a_byte_order_mark(tmp_path: Path) -> None:
    text = TEXT.replace("; Version", "; UnixStartTime: 1400000000 and a word\n; Version").encode("utf-8-sig")
    (tmp_path / "trace").write_bytes(text)
    file = RawFile(tmp_path / "trace", ClusterSettings("lab"))
    parsed = Swf().read(file)
    assert Swf().recognises(file, text) and (parsed.jobs, parsed.rejects) == (2, [])
    assert parsed.tables["jobs"]["submit_utc"].dt.epoch("s").to_list() == [1400000000, 1400000005]


def test_a_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_swf(tmp_path / "none.swf")
    (tmp_path / "cut.swf.gz").write_bytes(gzip.compress(TEXT.encode())[:-9])
    with pytest.raises(InputError):
        read_swf(tmp_path / "cut.swf.gz")
    (tmp_path / "cut.swf.zst").write_bytes(pa.compress(TEXT.encode(), "zstd", asbytes=True)[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        read_swf(tmp_path / "cut.swf.zst")


@pytest.mark.parametrize(("name", "jobs"), [("theta_2022.swf.gz", 23_911), ("UniLu-Gaia-2014-1.swf.gz", 51_987)])
def test_real_logs(shared_traces: Path, name: str, jobs: int) -> None:
    trace = read_swf(shared_traces / "swf" / name)
    assert len(trace) == jobs and trace.processors.min() > 0 and trace.limit_s.min() > 0
