"""A raw file that somebody writes to while it is read: what is in under a digest is what had that digest."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.traces.conftest import HEADER, Lake
from traces.errors import InputError
from traces.readers import registry
from traces.store.raw_files import lake_files

Row = Callable[..., str]
Change = Callable[[Path], object]


def dump(row: Row, *ids: int) -> str:
    return "\n".join([HEADER, *(row(JobID=str(number)) for number in ids)]) + "\n"


def meanwhile(monkeypatch: pytest.MonkeyPatch, before: Change, after: Change, times: int = 1) -> list[int]:
    """Let `before` and `after` happen around the first so many readings of a file; one entry for each reading."""
    reader, readings = registry.READERS["sacct"], list[int]()
    true = reader.read

    def read(file: Any) -> Any:
        readings.append(1)
        if len(readings) > times:
            return true(file)
        before(file.path)
        try:
            return true(file)
        finally:
            after(file.path)

    monkeypatch.setattr(reader, "read", read)
    return readings


def nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["append", "replace", "behind_its_time"])
def test_it_is_read_again(
    lake: Lake, sacct_row: Row, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str, when: str
) -> None:
    path, longer = lake.put("log.psv", dump(sacct_row, 1, 2)), dump(sacct_row, 1, 2, 3)

    def change(path: Path) -> None:
        if how == "append":
            path.write_text(longer)
        elif how == "replace":
            (path.parent / "new").write_text(longer)
            (path.parent / "new").replace(path)
        else:  # the same size, and the time set back
            before = path.stat()
            path.write_text(dump(sacct_row, 1, 3))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    steps = (change, nothing) if when == "before" else (nothing, change)
    readings = meanwhile(monkeypatch, *steps)
    (result,) = lake.ingest(path)
    assert len(readings) == 2
    assert f"{path} changed while it was being read: reading it again" in capsys.readouterr().err
    assert result.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    keys = ["1", "3"] if how == "behind_its_time" else ["1", "2", "3"]
    assert [job["job_key"] for job in lake.rows("jobs")] == keys
    (again,) = lake.ingest(path)
    assert again.duplicates == again.rows == len(keys), "the whole of it is in, so it adds nothing"


def test_what_changes_every_time_is_refused_by_name(
    lake: Lake, sacct_row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lake.put("log.psv", dump(sacct_row, 1))
    lake.ingest(path)
    lake.put("log.psv", dump(sacct_row, 1, 2))
    lake.put("other.psv", dump(sacct_row, 7))

    def grow(read: Path) -> None:
        if read == path:
            path.write_text(path.read_text() + sacct_row(JobID=str(path.stat().st_size)) + "\n")

    readings = meanwhile(monkeypatch, nothing, grow, times=99)
    with pytest.raises(
        InputError, match=r"log\.psv: another program is writing to it: it changed during each of 3 readings"
    ) as raised:
        lake.ingest(path)
    assert len(readings) == 3 and "\n" not in str(raised.value)
    assert [job["job_key"] for job in lake.rows("jobs")] == ["1"], "what was in stays"
    assert not list(lake.data.lake.glob("*/.*")), "and nothing is left half way"

    results = {Path(result.path).name: result for result in lake.ingest(lake.inbox)}
    assert "another program is writing to it" in str(results["log.psv"].skipped_reason)
    assert results["other.psv"].jobs == 1, "the folder's other files are read"
    assert [job["job_key"] for job in lake.rows("jobs")] == ["1", "7"]


def test_half_a_file_that_becomes_whole_is_read(lake: Lake, sacct_row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed dump that is still being copied there: its end comes after the first reading has failed."""
    whole = gzip.compress(dump(sacct_row, *range(1, 300)).encode(), mtime=0)
    path = lake.put("log.gz", whole[:-20])
    with pytest.raises(InputError, match="cannot be read"):
        lake.ingest(path)
    readings = meanwhile(monkeypatch, nothing, lambda path: path.write_bytes(whole))
    (result,) = lake.ingest(path)
    assert (result.jobs, len(readings)) == (299, 2)


def test_one_that_is_gone_when_it_was_read_is_in(lake: Lake, sacct_row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lake.put("log.psv", dump(sacct_row, 1, 2))
    meanwhile(monkeypatch, nothing, Path.unlink)
    (result,) = lake.ingest(path)
    assert result.jobs == 2 and len(lake.rows("jobs")) == 2
    assert [described["sha256"] for described in lake_files(lake.data)] == [result.sha256]
