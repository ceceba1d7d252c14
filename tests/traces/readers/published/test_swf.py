"""Standard Workload Format, by hand and on the two real logs."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from traces.errors import InputError
from traces.readers.published.swf import read_swf

TEXT = """; Version: 2.2
;   MaxProcs:  128
; MaxProcs: 4
; a note
1 0 10 3600 4 -1 -1 8 7200 -1 1 1 1 -1 -1 -1 -1 -1

2 5.0 -1 -1 4 -1 -1 -1 -1 -1 0 1 1 -1 -1 -1 -1 -1
"""


@pytest.mark.parametrize("packed", [False, True])
def test_columns_and_their_stand_ins(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "trace.swf"
    path.write_bytes(gzip.compress(TEXT.encode()) if packed else TEXT.encode())
    trace = read_swf(path)
    assert len(trace) == 2 and trace.max_procs == 128 and trace.header["Version"] == "2.2"
    assert trace.processors.tolist() == [8, 4] and trace.limit_s.tolist() == [7200, -1]
    assert trace.wait_s.tolist() == [10, -1] and trace.submit_s.dtype == np.int64


@pytest.mark.parametrize(
    ("line", "told"),
    [("1 2 3", ":1: 3 fields"), ("x " * 18, "not a number"), ("; only\n", "no job"), (f"{'9' * 30} " * 18, "range")],
)
def test_other_lines_are_refused_by_place(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "trace.swf"
    path.write_text(line)
    with pytest.raises(InputError, match=told):
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


def test_a_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_swf(tmp_path / "none.swf")
    (tmp_path / "cut.swf.gz").write_bytes(gzip.compress(TEXT.encode())[:-9])
    with pytest.raises(InputError):
        read_swf(tmp_path / "cut.swf.gz")


@pytest.mark.parametrize(("name", "jobs"), [("theta_2022.swf.gz", 23_911), ("UniLu-Gaia-2014-1.swf.gz", 51_987)])
def test_real_logs(shared_traces: Path, name: str, jobs: int) -> None:
    trace = read_swf(shared_traces / "swf" / name)
    assert len(trace) == jobs and trace.processors.min() > 0 and trace.limit_s.min() > 0
