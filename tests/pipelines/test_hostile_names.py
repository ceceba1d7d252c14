"""Names made to harm, through the command line: they take no effect on a terminal, and none ends in a traceback."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from pipelines.process.terminal import SafeStream, safe_streams
from tests.pipelines.conftest import Baton, Result, dump
from traces.visible import storable

HOSTILE = "a\x1b[2J\x1b]0;owned\x07\n\r\u202eb"  # clears the screen, sets its title, begins a line, turns it round
ESCAPED = "a\\x1b[2J\\x1b]0;owned\\x07\\n\\r\\u202eb"
NOT_UTF8 = "j\udcff"  # as Python holds the byte 0xff of a file name
PHILLY = (
    '[{"status":"Pass","vc":"v","jobid":"application_1_1","submitted_time":"2017-10-07 00:30:00","user":"u","attempts":'
    '[{"start_time":"2017-10-07 01:00:00","end_time":"2017-10-07 02:00:00","detail":[{"ip":"m1","gpus":["gpu0"]}]}]}]'
)


def assert_harmless(result: Result, code: int = 0) -> None:
    assert result.code == code, result
    message = result.out + result.err
    assert not set(message) - {"\n"} & set("\x1b\x07\r\u202e\x00") and "Traceback" not in message


@pytest.fixture(scope="module")
def hostile_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of that name, with a log of that name in which users and jobs have such names, and no logs beside it."""
    folder = tmp_path_factory.mktemp("raw") / (HOSTILE + NOT_UTF8)
    folder.mkdir()
    text = dump(folder / f"{HOSTILE}.psv").read_text()
    name = HOSTILE.replace("\n", "").replace("\r", "")
    text = text.replace("|anna|", f"|{name}|").replace("|train|", f"|{name}|")
    (folder / f"{HOSTILE}.psv").write_text(text + f"{name}|no record\n")
    (folder / f"{HOSTILE}.txt").write_text(f"Dear all, {name}\n")
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "circle").symlink_to(folder / "circle")
    return folder


def test_every_command_shows_hostile_names_as_escapes(baton: Baton, hostile_log: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    user = HOSTILE.replace("\n", "").replace("\r", "")
    shown = ESCAPED.replace("\\n", "").replace("\\r", "")
    read = baton("ingest", hostile_log, "--cluster", "lab", "--data", data)
    assert_harmless(read)
    assert read.out.count("\n") == 5 and f"/{ESCAPED}j\\xff/{ESCAPED}.psv: sacct, 7 records" in read.out
    assert f"{ESCAPED}.txt: skipped" in read.out and "1 reject" in read.out and read.out.count("skipped") == 4
    for found in (f"/{ESCAPED}j\\xff", "nothing new since"):  # pipes and devices are neither waited for nor read
        analyzed = baton("analyze", hostile_log, "--cluster", "lab", "--data", data)
        assert_harmless(analyzed)
        assert f"{ESCAPED}.psv: sacct" in analyzed.out and shown in analyzed.out and found in analyzed.err
    for arguments in (("101",), ("--user", user)):
        explained = baton("explain", *arguments, "--data", data)
        assert_harmless(explained)
        assert shown in explained.out
    listed = baton("export", "--format", "csv", "--tables", "rejects", "--out", tmp_path / HOSTILE, "--data", data)
    assert_harmless(listed)
    assert listed.out.startswith(str(tmp_path)) and f"/{ESCAPED}/rejects.csv: 1 row of" in listed.out
    page = data / "reports" / "report.html"
    assert "\x1b" not in page.read_text() and shown in page.read_text()


def test_refusals_show_hostile_names_as_escapes(baton: Baton, hostile_log: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    raw = dump(tmp_path / "jobs.psv")
    assert baton("ingest", raw, "--cluster", "lab", "--data", data).code == 0
    for arguments in (
        ("ingest", tmp_path / HOSTILE, "--cluster", "lab"),
        ("ingest", hostile_log / f"{HOSTILE}.txt", "--cluster", "lab"),
        ("ingest", raw, "--cluster", HOSTILE),
        ("ingest", raw, "--cluster", "lab", "--timezone", HOSTILE),
        ("ingest", raw, "--cluster", "lab", "--format", HOSTILE),
        ("ingest", raw, "--cluster", "lab", f"--{HOSTILE}"),
        (HOSTILE,),
        ("explain", HOSTILE),
        ("simulate", "--scheduler", HOSTILE, "--cluster", "lab"),
        ("report", "--section", HOSTILE),
    ):
        refused = baton(*arguments, "--data", data) if arguments != (HOSTILE,) else baton(*arguments)
        assert_harmless(refused, 2)
        assert refused.out == "" and "\\x1b[2J" in refused.err


def test_names_that_are_no_utf_8_are_read_and_shown(baton: Baton, tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / f"raw{NOT_UTF8}"
    folder.mkdir()
    dump(folder / f"{NOT_UTF8}.psv")
    dump(folder / "other.psv", jobs=4)
    read = baton("ingest", folder, "--cluster", "lab", "--data", data)
    assert read.code == 0 and "rawj\\xff/j\\xff.psv: sacct, 6 records: 6 allocations" in read.out, read
    again = baton("ingest", folder / f"{NOT_UTF8}.psv", "--cluster", "lab", "--data", data, "--json")
    (file,) = again.json["files"]
    assert (file["rows"], file["duplicates"]) == (6, 6) and file["path"].endswith("/rawj\\xff/j\\xff.psv")
    again.out.encode("utf-8")
    dump(folder / f"{NOT_UTF8}.psv", jobs=5).open("a").write("no record\n")  # changed: its older rows go
    baton("ingest", folder / f"{NOT_UTF8}.psv", "--cluster", "lab", "--data", data)
    out = tmp_path / f"out{NOT_UTF8}"
    listed = baton("export", "--format", "csv", "--tables", "trace_files,rejects", "--out", out, "--data", data)
    assert listed.code == 0 and "trace_files.csv: 2 rows" in listed.out and "rejects.csv: 1 row" in listed.out
    for table in ("trace_files", "rejects"):
        assert "rawj\\xff/j\\xff.psv" in (out / f"{table}.csv").read_text()
    assert baton("export", "--format", "parquet", "--tables", "jobs", "--out", out, "--data", data).code == 0
    assert (out / "jobs.parquet").stat().st_size


@pytest.mark.parametrize("name", [NOT_UTF8, "phil[1]*?"])
def test_philly_logs_of_any_name_are_read(baton: Baton, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(PHILLY)
    read = baton("ingest", tmp_path / name, "--cluster", "phil", "--data", tmp_path / "data", "--json")
    assert read.code == 0 and read.json["files"][0]["allocations"] == 1, read


def test_a_data_folder_may_have_an_odd_name(baton: Baton, tmp_path: Path) -> None:
    raw, data = dump(tmp_path / "jobs.psv"), tmp_path / """a b#c's "d" 100% $x;*[ü]"""
    assert baton("ingest", raw, "--cluster", "lab", "--data", data).code == 0
    listed = baton("export", "--format", "csv", "--tables", "jobs", "--out", tmp_path / "out", "--data", data)
    assert listed.code == 0 and "6 rows" in listed.out
    assert baton("dagster-home", "--data", data).out == f"{data / 'dagster'}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([data.name, "jobs.psv", "out"])  # no other store


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("q?x=1", "'?'"),
        ("p%41c", "'%41'"),
        ("b\\c", "'\\\\'"),
        ("new\nline", "control characters"),
        ("e\x1b[0m", "control characters"),
        (NOT_UTF8, "UTF-8"),
        ("\u202er", "control characters"),
    ],
)
def test_data_folders_that_no_database_could_open_are_refused(
    baton: Baton, tmp_path: Path, name: str, message: str
) -> None:
    raw = dump(tmp_path / "jobs.psv")
    for command in (("ingest", raw, "--cluster", "lab"), ("report",), ("dagster-home",)):
        refused = baton(*command, "--data", tmp_path / name)
        assert_harmless(refused, 2)
        assert refused.out == "" and refused.err.count("\n") == 1 and message in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.psv"]


def test_a_stream_is_safe_in_any_encoding() -> None:
    raw = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    stream = SafeStream(raw)
    stream.writelines(["ü – \x1b[31m\n", "\udcff\t\u2028|\n"])
    stream.flush()
    written = raw.buffer.getvalue()
    assert written == b"\xfc \\u2013 \\x1b[31m\n\\xff\\t\\u2028|\n"
    before = sys.stdout, sys.stderr
    with safe_streams():
        assert isinstance(sys.stderr, SafeStream) and sys.stderr.encoding == before[1].encoding
    assert (sys.stdout, sys.stderr) == before


def test_json_of_hostile_names_is_one_object_of_plain_letters(baton: Baton, hostile_log: Path, tmp_path: Path) -> None:
    read = baton("ingest", hostile_log, "--cluster", "lab", "--data", tmp_path / "data", "--json")
    assert read.out.isascii() and read.out.count("\n") == 1 and "\x1b" not in read.out
    assert json.loads(read.out)["files"][0]["path"] == storable(hostile_log / f"{HOSTILE}.psv")
