"""Jobs to SWF and back: what the format can hold comes back as it was."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces import schema
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.export.swf import write_swf
from traces.ingest import ingest
from traces.readers.published.swf import read_swf
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.frames import conform

KEPT = (
    "job_id_raw", "submit_utc", "start_utc", "end_utc", "wait_s", "run_s", "limit_s", "requested_cpus",
    "allocated_cpus", "attempts", "state",
)  # fmt: skip


def table(*jobs: dict[str, object]) -> pl.DataFrame:
    """Rows of the table `jobs`: one hour of 8 CPUs each, and what the caller says otherwise."""
    submit = datetime(2024, 5, 1)
    rows = []
    for number, job in enumerate(jobs, 1):
        plain = {
            "cluster": "lab", "job_key": str(number), "job_id": str(number), "job_id_raw": number, "state": "COMPLETED",
            "state_is_inferred": False, "submit_utc": submit, "start_utc": submit + timedelta(seconds=30),
            "end_utc": submit + timedelta(seconds=3630), "run_s": 3600, "wait_s": 30, "requested_cpus": 8,
            "allocated_cpus": 8, "limit_s": 7200, "attempts": 1, "is_time_ambiguous": False, "trace_sha256": "0",
            "line": number, "user_name": "alice", "partition": "gpu", "qos": "normal",
        }  # fmt: skip
        rows.append({**plain, **job})
    return conform(schema.JOBS, pl.DataFrame(rows, infer_schema_length=None))


def back(path: Path, folder: Path) -> pl.DataFrame:
    data = DataFolder(folder)
    (result,) = ingest([path], cluster=ClusterSettings("lab"), data=data)
    assert result.format == "swf" and result.rejects == 0
    warehouse.build(data)
    return warehouse.read(data, "SELECT * FROM jobs ORDER BY job_id_raw")


@st.composite
def random_jobs(draw: st.DrawFn) -> dict[str, object]:
    submit = datetime(2024, 5, 1) + timedelta(seconds=draw(st.integers(0, 10**6)))
    wait, run = draw(st.integers(0, 10**5)), draw(st.integers(1, 10**6))
    start = submit + timedelta(seconds=wait)
    size = draw(st.integers(1, 512))
    job: dict[str, object] = {
        "submit_utc": submit, "start_utc": start, "end_utc": start + timedelta(seconds=run), "wait_s": wait,
        "run_s": run, "limit_s": draw(st.none() | st.integers(1, 10**6)),
        "requested_cpus": draw(st.none() | st.just(size)),
        "allocated_cpus": size, "state": draw(st.sampled_from(["COMPLETED", "FAILED", "CANCELLED"])),
        "user_name": draw(st.none() | st.text(max_size=3)), "partition": draw(st.text("a b\n;-", max_size=4)),
    }  # fmt: skip
    if draw(st.booleans()):
        job |= dict.fromkeys(("start_utc", "run_s", "wait_s"))
        job |= {"attempts": 0, "state": "CANCELLED", "allocated_cpus": 0, "end_utc": start}
    return job


@settings(max_examples=12, deadline=None)
@given(st.lists(random_jobs(), min_size=1, max_size=6))
def test_what_swf_holds_comes_back(tmp_path_factory: pytest.TempPathFactory, jobs: list[dict[str, object]]) -> None:
    folder = tmp_path_factory.mktemp("swf")
    written = table({}, *jobs)
    done = write_swf(written, folder / "out.swf", cluster="lab", processors="cpus")
    read = back(folder / "out.swf", folder / "data")
    assert (done.jobs, done.left_out) == (1 + len(jobs), 0)
    expected = written.sort("job_id_raw").select(KEPT)
    assert read.select(KEPT).to_dicts() == expected.to_dicts()
    assert len(read_swf(folder / "out.swf")) == 1 + len(jobs)


def test_the_header_and_the_numbers_for_names(tmp_path: Path) -> None:
    jobs = table(
        {"user_name": "bob"}, {"user_name": "alice", "partition": "a\nb"}, {"submit_utc": None, "user_name": "x"}
    )
    done = write_swf(jobs, tmp_path / "out.swf", cluster="lab", processors="cpus")
    text = (tmp_path / "out.swf").read_text()
    assert (done.jobs, done.left_out, done.max_procs) == (2, 1, 16)
    assert "; UnixStartTime: 1714521600" in text and "; Partition: 2 - a b" in text
    assert "alice" not in text and "bob" not in text
    lines = [line.split() for line in text.split("\n") if line and not line.startswith(";")]
    assert [line[11] for line in lines] == ["1", "2"] and all(len(line) == 18 for line in lines)


def test_nodes_come_back_as_nodes(tmp_path: Path) -> None:
    jobs = table({"requested_nodes": 4, "allocated_nodes": 4})
    write_swf(jobs, tmp_path / "out.swf", cluster="lab", processors="nodes", most=32)
    (job,) = back(tmp_path / "out.swf", tmp_path / "data").to_dicts()
    assert (job["requested_nodes"], job["allocated_nodes"]) == (4, 4)
    assert read_swf(tmp_path / "out.swf").header["MaxProcs"] == "32"


@pytest.mark.parametrize(("processors", "message"), [("gpus", "no job has a count"), ("cores", "allowed are cpus")])
def test_what_cannot_be_written_is_refused(tmp_path: Path, processors: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_swf(table({}), tmp_path / "out.swf", cluster="lab", processors=processors)


def test_numbers_of_a_real_log_are_kept(shared_traces: Path, tmp_path: Path) -> None:
    source = shared_traces / "swf" / "UniLu-Gaia-2014-1.swf.gz"
    first = back(source, tmp_path / "first")
    write_swf(first, tmp_path / "out.swf", cluster="lab", processors="cpus")
    second = back(tmp_path / "out.swf", tmp_path / "second")
    assert len(first) == 51_987
    same = [name for name in schema.JOBS.names if name not in ("trace_sha256", "line", "priority")]
    assert second.select(same).equals(first.select(same))
