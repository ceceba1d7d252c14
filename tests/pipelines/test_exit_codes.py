"""What each kind of failure is called and which exit status it has: 2 where another input would do, 1 where not."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from pipelines import options
from tests.pipelines.conftest import SWF, Baton, dump
from traces import clusters, given_paths
from traces.errors import InputError, WorkError, of_system
from traces.files.whole import whole_file
from traces.store.folder import DataFolder

LONG = "n" * 300


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files and folders of every kind that can be named by mistake, and a data folder with the cluster `lab`."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "empty").mkdir()
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "dead").symlink_to(folder / "nothing")
    (folder / "odd").mkdir()
    os.mkfifo(folder / "odd" / "pipe")
    (folder / "odd" / "zero").symlink_to("/dev/zero")
    (folder / "trace.swf").write_text(SWF)
    (folder / "toml").mkdir()
    (folder / "toml" / "clusters.toml").symlink_to("/dev/zero")
    return {"tmp": folder, "log": dump(folder / "jobs.psv"), "data": folder / "data"}


@pytest.fixture
def lab(baton: Baton, places: dict[str, Path]) -> dict[str, Path]:
    if not places["data"].exists():
        assert baton("ingest", places["log"], "--cluster", "lab", "--data", places["data"]).code == 0
    return places


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        # raw logs
        ("ingest {tmp}/none --cluster lab", 2, "/none: no such file or folder"),
        ("ingest {tmp}/dead --cluster lab", 2, "/dead: no such file or folder"),
        ("ingest {tmp}/jobs.psv/below --cluster lab", 2, "/jobs.psv/below: no such file or folder"),
        ("ingest {tmp}/circle --cluster lab", 2, "/circle: cannot be read: Too many levels of symbolic links"),
        ("analyze {tmp}/circle", 2, "/circle: Too many levels of symbolic links"),
        ("ingest {tmp}/LONG --cluster lab", 2, "cannot be read: File name too long"),
        ("analyze {tmp}/LONG", 2, "File name too long"),
        ("ingest {tmp}/empty --cluster lab", 2, "/empty: no file in this folder has a known format"),
        ("ingest {tmp}/odd --cluster lab", 2, "pipe: not a regular file"),
        ("ingest /dev/zero --cluster lab", 2, "/dev/zero: not a regular file"),
        ("ingest /dev/null --cluster lab", 2, "/dev/null: not a regular file"),
        ("ingest /proc/self/mem --cluster lab", 2, "/proc/self/mem: cannot be read"),
        # data folders
        ("ingest {log} --cluster lab --data {log}", 2, "is not writable"),
        ("ingest {log} --cluster lab --data {tmp}/LONG", 2, "is not writable (File name too long)"),
        ("ingest {log} --cluster lab --data {tmp}/circle", 2, "Too many levels of symbolic links"),
        ("ingest {log} --cluster lab --data {tmp}/toml", 2, "clusters.toml: cannot be read: it is a device"),
        # what is not there
        ("report --data {tmp}/empty", 2, "no warehouse at"),
        ("explain 7", 2, "no job '7'"),
        ("promote 3 --cluster lab --reason tried", 2, "no version 3"),
        ("rollback --cluster lab", 1, "no champion to roll back from"),
        # where a result cannot be put
        ("report --out {tmp}/empty", 2, "is a folder; name a file in it"),
        ("report --out {log}/below", 2, "jobs.psv is a file, not a folder"),
        ("report --out {tmp}/LONG", 2, "File name too long"),
        ("report --out /dev/full", 1, "/dev/full: No space left on device"),
        ("report --offenders /proc/none/x --mkdir", 2, "/proc/none: No such file or directory"),
        ("report --offenders /dev/full", 1, "/dev/full: No space left on device"),
        ("export --cluster lab --out /dev/full", 1, "/dev/full: No space left on device"),
        ("export --format csv --tables jobs --out {log}", 2, "{log}: cannot be written as a folder (File exists)"),
        ("generate --jobs 9 --out {log}", 2, "{log}: cannot be written as a folder (File exists)"),
        ("simulate --trace {tmp}/trace.swf --scheduler fifo --starts /dev/full", 1, "/dev/full: No space left"),
        ("simulate --trace {tmp}/trace.swf --scheduler fifo --starts {tmp}/empty", 2, "is a folder"),
        # other files that are read
        ("simulate --trace /dev/null --scheduler fifo", 2, "/dev/null"),
        ("simulate --cluster lab --scheduler slurm --slurm-conf /dev/zero", 2, "it is a device or a pipe"),
        ("simulate --cluster lab --scheduler slurm --slurm-conf {tmp}/none", 2, "/none: cannot be read: No such file"),
        # values
        ("ingest {log} --cluster lab --timezone localtime", 2, "unknown time zone 'localtime'"),
        ("ingest {log} --cluster lab --timezone ../../etc/passwd", 2, "unknown time zone '../../etc/passwd'"),
        ("ingest {log} --cluster lab --timezone posix/UTC", 2, "unknown time zone 'posix/UTC'"),
        ("ingest {log} --cluster lab --nodes 99999999999999999999", 2, "is not in the range 1<=x<=10000000"),
        ("explain 101 --limit 99999999999999999d", 2, "longer than 100 years"),
        ("calibrate --cluster lab --until 0001-01-01T00:00+23:00", 2, "outside the years 1970 to 9998"),
        ("train --cluster lab --policies reactive --pair-nodes 99999999999999999999", 2, "positive integers"),
        ("generate --jobs 9 --seed -1 --out {tmp}/made", 2, "is not in the range x>=0"),
    ],
)  # fmt: skip
def test_a_failure_is_one_line_with_its_exit_status(
    baton: Baton, lab: dict[str, Path], line: str, code: int, message: str
) -> None:
    words = [word.format(**lab).replace("LONG", LONG) for word in line.split()]
    if "--data" not in words and words[0] != "generate":
        words += ["--data", str(lab["data"])]
    result = baton(*words)
    assert result.code == code and result.out == "", result
    *progress, last = result.err.splitlines()
    assert message.format(**lab) in last and "Errno" not in last and "no file named" not in last, result.err
    assert last.startswith(("baton: ", "Error: ")) and "Traceback" not in result.err
    said_before = ("cluster", "capacity", "left out", "compiling the simulator", "Usage: ", "Try ")
    assert all(line.startswith(said_before) for line in progress if line), progress


def test_what_was_written_before_stands_where_the_disk_is_full(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old")

    def fail(error: OSError) -> None:
        with whole_file(tmp_path / "out") as part:
            part.write_text("half")
            raise error

    with pytest.raises(WorkError, match=r"/out: No space left"):
        fail(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(WorkError, match=r"/out: quota \(os error 122\)"):
        fail(OSError("quota (os error 122)"))  # as polars raises them
    with pytest.raises(InputError, match=r"^/elsewhere: Permission denied$"):
        fail(PermissionError(errno.EACCES, "Permission denied", "/elsewhere"))
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and (tmp_path / "out").read_text() == "old"


def test_memory_that_is_not_enough_is_one_line(
    baton: Baton, lab: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("reports.build.build_report", short)
    result = baton("report", "--data", lab["data"])
    assert result.code == 1 and result.err.count("\n") == 1 and "memory" in result.err


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), InputError, "/x: No such file"),
        (PermissionError(errno.EACCES, "Permission denied", b"/\xff"), InputError, "/\udcff: Permission denied"),
        (OSError(errno.EIO, "Input/output error", "/x"), WorkError, "/x: Input/output error"),
        (OSError(errno.ENOSPC, "No space left on device"), WorkError, "out: No space left on device"),
        (OSError("strange"), WorkError, "out: strange"),
    ],
)
def test_what_the_system_says(error: OSError, kind: type[Exception], message: str) -> None:
    found = of_system(error, "out")
    assert type(found) is kind and str(found) == message


def test_a_folder_without_permission_is_told_from_one_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert given_paths.exists(tmp_path) and not given_paths.exists(tmp_path / "none")

    def forbidden(path: Path) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", forbidden)  # root, as which tests may run, may read everything
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        given_paths.exists(tmp_path / "secret")


def test_a_pipe_is_read_as_a_file_about_a_cluster_and_a_device_is_not(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"ClusterName=x\n",), daemon=True)
    writer.start()
    assert given_paths.bytes_of(tmp_path / "pipe") == b"ClusterName=x\n"
    writer.join()
    with pytest.raises(InputError, match="a device or a pipe"):
        given_paths.bytes_of(tmp_path / "pipe", pipes=False)
    with pytest.raises(FileNotFoundError):
        given_paths.bytes_of(tmp_path / "none")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(given_paths.MOST_TEXT_BYTES + 1)
    for path, found in (
        (Path("/dev/zero"), "device"),
        (tmp_path, "Is a directory"),
        (tmp_path / "large", "over 64 MiB"),
    ):
        with pytest.raises(InputError, match=found):
            given_paths.bytes_of(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[lab]\nfolder = '\udcff'\n", "not readable as TOML"),
        ("[lab]\ntimezone = 'localtime'\n", "unknown time zone 'localtime'"),
    ],
    ids=["no UTF-8", "zone"],
)
def test_clusters_toml_that_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "clusters.toml").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=message):
        clusters.load(DataFolder(tmp_path))


def test_every_zone_that_is_allowed_is_known_to_whoever_converts_times() -> None:
    instant = pl.Series([0], dtype=pl.Int64).cast(pl.Datetime("us"))
    for zone in clusters._zones():
        assert clusters.check_timezone(zone, "here") == zone
        instant.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")


@pytest.mark.parametrize(
    ("read", "text"),
    [(options.duration_s, "9" * 400), (options.duration_s, "36601d"), (options.utc_s, "9999-12-31T23:59-23:59")],
)
def test_values_that_no_calendar_holds(read: Callable[[str], int], text: str) -> None:
    with pytest.raises(InputError, match=r"longer than 100 years|outside the years"):
        read(text)
    assert options.duration_s("36600d") == 36_600 * 86_400 and options.utc_s("1970-01-01") == 0
