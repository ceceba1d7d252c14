"""Files into the lake: found, counted, written whole or not at all; twice the same adds nothing."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.traces.conftest import HEADER, Lake
from traces import ingest as module
from traces import schema
from traces.clusters import ClusterSettings
from traces.errors import InputError, WorkError
from traces.files import locks
from traces.readers import staged
from traces.store import raw_files, settle, warehouse
from traces.store.folder import DataFolder

Row = Callable[..., str]


def dump(*rows: str) -> str:
    return "\n".join([HEADER, *rows]) + "\n"


def snapshot(folder: Path) -> dict[str, bytes]:
    """What lies in the folder and below, locks left out."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.parent.name != locks.FOLDER]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_twice_the_same_file_adds_nothing(lake: Lake, sacct_row: Row) -> None:
    path = lake.put("a.psv", dump(sacct_row(), sacct_row(JobID="101")))
    lake.ingest(path)
    before, tables = snapshot(lake.data.lake), {name: lake.table(name) for name in schema.TABLES}
    (again,) = lake.ingest(path)
    (copy,) = lake.ingest(lake.put("b.psv", path.read_bytes()))
    for result in (again, copy):
        assert (result.rows, result.duplicates, result.allocations, result.jobs) == (2, 2, 0, 0)
    assert snapshot(lake.data.lake) == before
    assert all(lake.table(name).equals(tables[name]) for name in schema.TABLES)


def test_the_same_file_by_other_rules_replaces_its_own_rows(lake: Lake, sacct_row: Row) -> None:
    path, other = lake.put("a.psv", dump(sacct_row())), lake.put("b.psv", dump(sacct_row(JobID="101")))
    lake.ingest(path, other)
    untouched = [
        p for p in lake.data.lake.glob("lab/*") if "101" in str(pl.read_parquet(p / "jobs.parquet")["job_key"])
    ]
    before = snapshot(untouched[0])
    (result,) = lake.ingest(path, timezone="America/Chicago")
    assert result.allocations == 1
    assert [job["submit_utc"].hour for job in lake.rows("jobs")] == [15, 10]
    assert snapshot(untouched[0]) == before


def test_a_job_in_two_files_is_settled_newest_first(lake: Lake, sacct_row: Row) -> None:
    january = dump(
        sacct_row(JobID="1"),
        sacct_row(State="RUNNING", End="Unknown", ElapsedRaw="60"),
        sacct_row(JobID="100.0", State="RUNNING", End="Unknown"),
    )
    february = dump(sacct_row(), sacct_row(JobID="2"), sacct_row(JobID="100.0"))
    lake.ingest(lake.put("january.psv", january), lake.put("february.psv", february))
    assert [(j["job_key"], j["state"]) for j in lake.rows("jobs")] == [(k, "COMPLETED") for k in ("1", "100", "2")]
    assert {Path(f["path"]).stem: f["superseded"] for f in lake.rows("trace_files")} == {"january": 1, "february": 0}
    for name in ("attempts", "placements"):
        key = list(schema.TABLES[name].key)
        assert not lake.table(name).select(key).is_duplicated().any()
    assert [s["state"] for s in lake.rows("steps")] == ["COMPLETED"]


def test_attempts_of_a_job_are_put_together_from_its_files(lake: Lake, sacct_row: Row) -> None:
    first = sacct_row(State="NODE_FAIL")
    second = sacct_row(Submit="2024-05-01T11:30:05", Start="2024-05-01T12:00:00", End="2024-05-01T13:00:00")
    lake.ingest(lake.put("a.psv", dump(first)), lake.put("b.psv", dump(second)))
    (job,) = lake.rows("jobs")
    assert (job["attempts"], job["state"], job["wait_s"], job["run_s"]) == (2, "COMPLETED", 1800, 7200)
    assert [(a["attempt"], a["state"]) for a in lake.rows("attempts")] == [(0, "NODE_FAIL"), (1, "COMPLETED")]
    assert len(lake.rows("placements")) == 4


def test_an_id_used_again_in_another_file_is_another_job(lake: Lake, sacct_row: Row) -> None:
    later = sacct_row(User="bob", Submit="2024-09-01T10:00:00", Start="2024-09-01T10:00:01", End="2024-09-01T10:00:09")
    lake.ingest(lake.put("a.psv", dump(sacct_row())), lake.put("b.psv", dump(later)))
    assert sorted(job["user_name"] for job in lake.rows("jobs")) == ["alice", "bob"]
    assert lake.table("attempts")["job_key"].n_unique() == 2
    assert {f["superseded"] for f in lake.rows("trace_files")} == {0}


def test_a_folder_names_what_it_skips(lake: Lake, sacct_row: Row) -> None:
    lake.put("jobs.psv", dump(sacct_row()))
    lake.put("LICENSE.txt", "Attribution 4.0\n")
    lake.put("empty", "")
    lake.put("picture.png", b"\x89PNG\0\0")
    lake.put(".hidden", "x")
    (lake.inbox / "subfolder").mkdir()
    (lake.inbox / "link").symlink_to("nowhere")
    (lake.inbox / "yesterday.psv").symlink_to("jobs.psv")
    results = {Path(r.path).name: r for r in lake.ingest(lake.inbox)}
    skipped = {name for name, result in results.items() if result.skipped_reason}
    assert skipped == {"LICENSE.txt", "empty", "picture.png", "subfolder", "link"}
    assert results["jobs.psv"].allocations == 1
    assert results["yesterday.psv"].duplicates == 1  # a link to a file that is in already
    assert "unknown format" in str(results["LICENSE.txt"].skipped_reason)
    assert "empty" in str(results["empty"].skipped_reason) and "binary" in str(results["picture.png"].skipped_reason)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"\x7fELF\0\0\0", "binary"),
        (b"hello world\n", "unknown format"),
        (gzip.compress(b"JobID|Submit|Start|End\n1|2", mtime=0)[:-6], "cannot be read"),
        (None, "no such file"),
    ],
)
def test_a_named_file_of_no_use_is_refused_and_nothing_written(
    lake: Lake, sacct_row: Row, content: bytes | None, message: str
) -> None:
    good, bad = lake.put("good.psv", dump(sacct_row())), lake.inbox / "bad"
    if content is not None:
        bad.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        lake.ingest(good, bad)
    assert str(bad) in str(caught.value) and "\n" not in str(caught.value)
    assert not snapshot(lake.data.root)


def test_a_folder_without_any_log_is_refused(lake: Lake) -> None:
    lake.put("LICENSE.txt", "Attribution 4.0\n")
    with pytest.raises(InputError, match="no file in this folder has a known format"):
        lake.ingest(lake.inbox)


def test_an_unknown_format_lists_the_known(lake: Lake) -> None:
    with pytest.raises(InputError, match="philly-jobs"):
        lake.ingest(lake.put("a", "b"), format="pbs")


def test_an_unwritable_data_folder_is_refused(tmp_path: Path, lake: Lake, sacct_row: Row) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(InputError, match="not writable"):
        module.ingest(
            [lake.put("a", dump(sacct_row()))], cluster=ClusterSettings("lab"), data=DataFolder(blocked / "data")
        )


def test_a_run_killed_while_writing_leaves_the_last_good_state(
    lake: Lake, sacct_row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ingest(lake.put("a.psv", dump(sacct_row())))
    before = snapshot(lake.data.root)

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(raw_files, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.ingest(lake.put("b.psv", dump(sacct_row(JobID="101"))))
    assert snapshot(lake.data.root) == before
    with monkeypatch.context() as patch:
        patch.setattr(settle, "create", killed)
        with pytest.raises(KeyboardInterrupt):
            warehouse.build(lake.data)
    assert snapshot(lake.data.root) == before


def test_a_lake_of_another_schema_version_is_refused_by_name(lake: Lake, sacct_row: Row) -> None:
    path = lake.put("a.psv", dump(sacct_row()))
    lake.ingest(path)
    (side,) = lake.data.lake.glob("lab/*/file.json")
    found = side.read_text()
    side.write_text(
        found.replace(f'"schema_version": {schema.SCHEMA_VERSION}', '"schema_version": 0').replace(
            '"fingerprint": "', '"fingerprint": "x'
        )
    )
    with pytest.raises(WorkError, match="schema version 0"):
        warehouse.build(lake.data)
    (result,) = lake.ingest(path)  # and ingesting it again mends it
    assert result.allocations == 1


def test_a_file_is_read_again_once_the_code_of_its_reader_changes(
    lake: Lake, sacct_row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lake.put("a.psv", dump(sacct_row()))
    changed: dict[str, str] = {}

    def digest(*roots: str, but: tuple[str, ...]) -> str:
        (reader,) = set(roots) - {staged.__name__}
        return changed.get(reader, reader)

    monkeypatch.setattr("traces.readers.staged.code_digest", digest)
    assert [lake.ingest(path)[0].allocations for _ in range(2)] == [1, 0]
    changed["traces.readers.philly.reader"] = "another"
    assert lake.ingest(path)[0].allocations == 0
    changed["traces.readers.sacct.reader"] = "another"
    assert lake.ingest(path)[0].allocations == 1


@st.composite
def mutations(draw: st.DrawFn) -> Callable[[str], str]:
    """A change of a dump's text: cut out, put in, or double a piece."""
    at, length = draw(st.integers(0, 3_000)), draw(st.integers(0, 60))
    put = draw(st.text(st.sampled_from("|\n\t\r0123456789:TabUNK-,[]=+\0\ufffd "), max_size=12))
    twice = draw(st.booleans())

    def change(text: str) -> str:
        begin = at % (len(text) + 1)
        piece = text[begin : begin + length]
        return text[:begin] + put + (piece * 2 if twice else "") + text[begin + length :]

    return change


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(mutations(), min_size=1, max_size=6))
def test_a_mutated_dump_is_read_or_refused_and_its_counts_add_up(
    tmp_path_factory: pytest.TempPathFactory, sacct_row: Row, changes: list[Callable[[str], str]]
) -> None:
    text = dump(*(sacct_row(JobID=str(100 + n)) for n in range(8)), sacct_row(JobName="a|b"), sacct_row(JobID="100.0"))
    for change in changes:
        text = change(text)
    folder = tmp_path_factory.mktemp("mutated")
    path = folder / "dump.psv"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        (result,) = module.ingest(
            [path], cluster=ClusterSettings("lab", timezone="America/Chicago"), data=DataFolder(folder / "data")
        )
    except InputError:
        return
    assert result.rows == result.allocations + result.steps + result.duplicates + result.rejects
    assert result.allocations >= result.jobs and result.rows > 0
    assert bool(result.first_reject) == (result.rejects > 0)
