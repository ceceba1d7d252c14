"""The main road: any log that an operator has ends in a report and exit 0; what is no job log is refused in one line.

Over every public dump in ../shared/traces, logs that lack something, cuts of a real log, one user's log and a cluster
without GPUs. Where nothing is trained the whole pipeline runs; training itself is in test_pipeline. A dump that repeats
the jobs of another in another form, or that holds no jobs, is only ingested; the long form analyses it too.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from io import BytesIO, StringIO
from pathlib import Path

import dagster as dg
import pytest
from matplotlib.figure import Figure

from models.provisioning import registry
from pipelines.runs import home
from tests.features.odd_logs import DAY, ODD, row, sacct
from tests.pipelines.conftest import Baton, Result
from traces.store import warehouse
from traces.store.folder import DataFolder

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
A100 = TRACES / "tacc-lonestar6" / "ls6-a100.log"
XDMOD = (
    "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,"
    "nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname"
)
LARGEST = "jobs_graham.csv.gz"  # read whole in the long form; every other dump is read whole each time
LINES = 4_000  # of it that are read in the short form
NO_JOB_LOG = {
    "README.md", "LICENSE", "LICENSE.md", "LICENSE.txt", "CITATION.cff", "index.tsv", "slurm.conf", "sprio.txt",
    "acme_cluster_summary.csv", "acme_util_gpu_philly_cdf.csv", "scontrol_partitions_o.txt",
    "squeue.json.gz", "squeue_o.psv",
    "sample-sacct-one-multiline.txt",  # of two clusters
    "sample-sacct-output-with-invalid-lines.txt",  # a header of 109 columns, and no record that has them
}  # fmt: skip
# Of the logs that lack something, those that the whole pipeline runs over: why it trains nothing.
TRAINS_NOTHING = {
    "one_day": "the trace spans 0.8 days",
    "all_cancelled": "none of the 19 jobs of cluster 'odd' ran",
    "gap_of_weeks": "the trace is too short to learn from: the fit window",
    "no_gpu_column": "no job of cluster 'odd' has a time limit",
}
# The same jobs as in another dump of the folder, and machine lists without jobs.
REPEATED = {
    "sacct_all_dup.psv.gz", "sacct_delim_us.txt", "sacct_narrow_dup.psv", "sinfo.json", "sinfo_N.psv", "sinfo_o.psv",
    "revised_machine_list.csv",
}  # fmt: skip
IS_LONG = "BATON_LARGEST" in os.environ
DUMPS = sorted(path for path in TRACES.rglob("*") if path.is_file())
needs_traces = pytest.mark.skipif(not DUMPS, reason=f"{TRACES} is not there")


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Dagster's records in memory, and of the policies those that learn nothing."""
    with dg.DagsterInstance.ephemeral() as instance:
        monkeypatch.setattr(home, "instance_of", lambda _data: _Kept(instance))
        monkeypatch.setattr(registry, "every_policy", lambda: ["reactive", "average-wait"])
        yield


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are painted but not rendered, which takes a third of a run; the other tests here render them."""
    blank = '<svg viewBox="0 0 1 1"></svg>'

    def save_blank(_figure: Figure, file: StringIO | BytesIO, **_how: object) -> None:
        if isinstance(file, StringIO):
            file.write(blank)
        else:
            file.write(blank.encode())

    monkeypatch.setattr(Figure, "savefig", save_blank)


class _Kept:
    """The instance as a context that does not close it."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance

    def __enter__(self) -> dg.DagsterInstance:
        return self.instance

    def __exit__(self, *_: object) -> None:
        pass


def assert_a_report(result: Result, data: Path) -> str:
    """Exit 0, the report's path last, and the report; returns its text."""
    assert result.code == 0, result.err[-2000:]
    report = data / "reports" / "report.html"
    assert str(report) in result.out.splitlines()[-1] or f"report: {report}" in result.out.splitlines()
    text = report.read_text()
    assert "</html>" in text and "Traceback" not in text
    return text


def head_of(path: Path, lines: int, to: Path) -> Path:
    """The first lines of a dump, unpacked, under its own name."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        to.write_bytes(b"".join(line for line, _ in zip(stream, range(lines), strict=False)))
    return to


@needs_traces
@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("dump", DUMPS, ids=named)
def test_every_public_dump_ends_in_a_report_or_is_refused(baton: Baton, tmp_path: Path, dump: Path) -> None:
    name = dump.name
    if name == LARGEST:
        dump = head_of(dump, LINES, tmp_path / name.removesuffix(".gz"))
    how = ["--fields", XDMOD] if dump.name == "pozidriv.log" else []
    command = "ingest" if name in REPEATED and not IS_LONG else "analyze"
    how += ["--cluster", "lab"] if command == "ingest" else []  # which `ingest` always needs
    result = baton(command, dump, *how, "--data", tmp_path / "data")
    if command == "ingest":
        assert result.code == 0 and (tmp_path / "data" / "warehouse.duckdb").is_file()
        return
    if name in NO_JOB_LOG:
        assert result.code == 2 and result.out == "" and result.err.splitlines()[-1].startswith("baton: ")
        assert name.removesuffix(".gz") in result.err and not (tmp_path / "data" / "warehouse.duckdb").exists()
        return
    assert_a_report(result, tmp_path / "data")


@needs_traces
@pytest.mark.slow
@pytest.mark.skipif(not IS_LONG, reason="the long form: set BATON_LARGEST")
@pytest.mark.parametrize("dump", [path for path in DUMPS if path.name == LARGEST], ids=named)
def test_the_largest_dump_whole(baton: Baton, tmp_path: Path, dump: Path) -> None:
    assert_a_report(baton("analyze", dump, "--data", tmp_path / "data"), tmp_path / "data")


@pytest.mark.parametrize("name", ODD)
def test_a_log_that_lacks_something(baton: Baton, tmp_path: Path, name: str) -> None:
    paths, settings = ODD[name](tmp_path / "raw")
    flags = [f"--nodes={settings.nodes}"] if settings.nodes else []
    data = tmp_path / "data"
    command = "run" if name in TRAINS_NOTHING else "analyze"
    result = baton(command, *paths, "--cluster", settings.name, *flags, "--data", data)
    assert_a_report(result, data)
    if command == "run":
        assert f"{settings.name}: no policies: {TRAINS_NOTHING[name]}" in result.out
        assert not (data / "artifacts" / "policies").exists() and not (data / "artifacts" / "pairs").exists()


def cut(to: Path, days: int, since: datetime = datetime(2022, 12, 5)) -> Path:
    """Those days of submissions of the A100 log, which is ordered by nothing."""
    lines = A100.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    header, rows = lines[1:3], lines[3:]
    at = header[0].split().index("Submit")
    until = since + timedelta(days=days)
    kept = [line for line in rows if since.isoformat() <= line.split("\t")[at] < until.isoformat()]
    assert kept, (header, rows[:2])
    to.mkdir()
    (to / "ls6-a100.log").write_text("".join([*header, *kept]))
    return to


@pytest.mark.skipif(not A100.is_file(), reason=f"{A100} is not there")
@pytest.mark.parametrize("days", [1, 10])
def test_days_of_the_a100_log_train_nothing(baton: Baton, tmp_path: Path, days: int) -> None:
    data = tmp_path / "data"
    result = baton(
        "run" if days != 1 else "analyze",
        cut(tmp_path / "raw", days),
        "--cluster",
        "days",
        "--nodes",
        80,
        "--data",
        data,
    )
    text = assert_a_report(result, data)
    assert not (data / "artifacts" / "policies").exists() and "days" in text
    if days != 1:
        assert "days: no policies: the trace " in result.out
        assert result.out.splitlines()[-1] == f"report: {data / 'reports' / 'report.html'}"


@pytest.mark.parametrize("name", ["one user", "processors alone"])
def test_a_cluster_of_one_kind(baton: Baton, tmp_path: Path, name: str) -> None:
    rows = [
        row(i, DAY + timedelta(hours=i), wait_s=60 * i)
        if name == "one user"
        else row(i, DAY + timedelta(hours=i), gpus=None, user=f"u{i % 5}")
        for i in range(1, 60)
    ]
    data = tmp_path / "data"
    assert_a_report(baton("analyze", *sacct(tmp_path / "raw", rows), "--cluster", "odd", "--data", data), data)
    jobs = warehouse.read(
        DataFolder(data), "SELECT count(DISTINCT user_name) AS users, sum(gpu_time_s) AS held FROM jobs"
    )
    assert jobs.row(0) == ((1, 59 * 4 * 3600) if name == "one user" else (5, 0))


@needs_traces
def test_without_any_time_failures_still_stand(baton: Baton, tmp_path: Path) -> None:
    data = tmp_path / "data"
    dump = TRACES / "slurm-22.05-lab" / "sacct_default_dup.txt"
    assert_a_report(baton("analyze", dump, "--data", data), data)
    folder = DataFolder(data)
    failed = warehouse.read(folder, "SELECT value, attempts FROM failures_by WHERE dimension = 'reason'")
    assert dict(failed.iter_rows())["out of memory"] >= 5
    assert warehouse.read(folder, "SELECT count(wait_s) AS n FROM jobs")["n"][0] == 0


def test_training_that_fails_leaves_the_report(baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no such kernel")

    from assets import policies

    monkeypatch.setattr(policies, "headline_study", broken)
    data = tmp_path / "data"
    paths, _ = ODD["one_day"](tmp_path / "raw")
    result = baton("run", *paths, "--cluster", "odd", "--nodes", 12, "--data", data)
    assert result.code == 1 and "no such kernel" in result.err.splitlines()[-1]
    assert (data / "reports" / "report.html").is_file()
    assert "training or comparison failed" in result.out


def test_what_was_read_before_is_analysed_again(baton: Baton, tmp_path: Path) -> None:
    data = tmp_path / "data"
    paths, _ = ODD["one_day"](tmp_path / "raw")
    assert baton("ingest", *paths, "--cluster", "odd", "--data", data).code == 0
    result = baton("analyze", "--data", data, "--json")
    assert result.json["clusters"] == ["odd"] and Path(result.json["report"]).is_file()
    assert [file["jobs"] for file in result.json["files"]] == [59]
    assert [found["kind"] for found in result.json["findings"]] == ["who", "why", "do"]
    empty = baton("analyze", "--data", tmp_path / "none")
    assert empty.code == 2 and "baton analyze sacct.txt" in empty.err


def test_the_name_of_an_undeclared_cluster_is_told(baton: Baton, tmp_path: Path) -> None:
    paths, _ = ODD["one_job"](tmp_path / "raw")
    log = paths[0].rename(paths[0].with_name("März 2024.psv"))
    result = baton("analyze", log, "--data", tmp_path / "data", "--json")
    assert result.json["clusters"] == ["M-rz-2024"]
    assert "'M-rz-2024' is taken from 'März 2024.psv'" in result.err and "--cluster" in result.err
    assert "local times of cluster 'M-rz-2024' are read as UTC; --timezone sets another zone" in result.err


def test_no_zone_is_told_where_one_is_given(baton: Baton, tmp_path: Path) -> None:
    paths, _ = ODD["one_job"](tmp_path / "raw")
    result = baton("analyze", *paths, "--timezone", "UTC", "--data", tmp_path / "data", "--json")
    assert "local times" not in result.err


def test_how_a_dump_is_laid_out_reaches_its_reader(baton: Baton, tmp_path: Path) -> None:
    path = tmp_path / "bare.txt"
    path.write_text("1;ann;2024-05-01T10:00:00;2024-05-01T10:30:00;2024-05-01T11:00:00;COMPLETED\n")
    how = ("--fields", "JobID,User,Submit,Start,End,State", "--delimiter", ";", "--format", "sacct")
    result = baton("analyze", path, *how, "--timezone", "America/Chicago", "--data", tmp_path / "data")
    assert_a_report(result, tmp_path / "data")
    (job,) = warehouse.read(DataFolder(tmp_path / "data"), "SELECT submit_utc, wait_s FROM jobs").iter_rows()
    assert job == (datetime(2024, 5, 1, 15), 1800)
    refused = baton("analyze", path, "--format", "magic", "--data", tmp_path / "data")
    assert refused.code == 2 and "unknown format 'magic'" in refused.err
