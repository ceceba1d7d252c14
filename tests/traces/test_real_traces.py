"""The real logs beside the checkout: every record accounted for, and what is known of them from elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from traces import clusters
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.ingest import ingest
from traces.readers.staged import FileResult
from traces.store import warehouse
from traces.store.folder import DataFolder

_XDMOD = """
jobid jobidraw cluster partition qos account group gid user uid submit eligible start end elapsed exitcode state nnodes
ncpus reqcpus reqmem reqtres alloctres timelimit nodelist jobname
"""
XDMOD = _XDMOD.split()


def read(path: Path, data: DataFolder, settings: ClusterSettings, fields: list[str] | None = None) -> list[FileResult]:
    results = ingest([path], cluster=settings, data=data, fields=fields)
    for r in results:
        assert r.rows == r.allocations + r.steps + r.samples + r.duplicates + r.rejects
    warehouse.build(data)
    return results


def test_the_a100_log(shared_traces: Path, tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    folder = shared_traces / "tacc-lonestar6"
    skipped, log = read(folder, data, clusters.resolve(data, raw=folder))
    assert skipped.skipped_reason and "LICENSE" in skipped.path
    assert (log.rows, log.allocations, log.jobs, log.rejects, log.duplicates) == (17_975, 17_975, 17_975, 0, 0)
    jobs = warehouse.read(data, "SELECT * FROM jobs")
    ran = jobs.filter(pl.col("start_utc").is_not_null())
    assert (len(ran), log.attempts) == (15_611, 15_611)
    assert set(jobs.filter(pl.col("start_utc").is_null())["state"]) == {"CANCELLED"}
    assert ran.filter(pl.col("wait_s") < 0).is_empty() and ran.filter(pl.col("run_s") <= 0).is_empty()
    # no run exceeds its limit by more than the kill wait: the clock change of 2022-11-06 is undone
    assert int((ran["run_s"] - ran["limit_s"]).max()) <= 60  # type: ignore[arg-type]
    assert (ran["allocated_gpus"] == 3 * ran["allocated_nodes"]).all()
    assert int(jobs["is_time_ambiguous"].sum()) <= 2


def test_a_dump_without_a_header(shared_traces: Path, tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    (result,) = read(shared_traces / "xdmod" / "pozidriv.log", data, ClusterSettings("pozidriv"), XDMOD)
    assert (result.rows, result.allocations, result.rejects, result.jobs) == (11_704, 11_704, 0, 11_704)
    jobs = warehouse.read(data, "SELECT * FROM jobs")
    # Elapsed is printed too: where nothing was suspended it is End - Start
    ran = jobs.filter(pl.col("start_utc").is_not_null() & pl.col("end_utc").is_not_null())
    assert ((ran["end_utc"] - ran["start_utc"]).dt.total_seconds() - ran["run_s"]).abs().max() == 0
    nodes = warehouse.read(data, "SELECT count(*) AS n FROM placements")["n"][0]
    assert nodes == int(ran["allocated_nodes"].sum())


@pytest.mark.parametrize(
    ("name", "rows", "steps", "jobs"),
    [
        ("sacct_all_dup.psv.gz", 1433, 960, 457),
        ("sacct_narrow_dup.psv", 1433, 960, 457),
        ("sacct_delim_us.txt", 473, 0, 457),
    ],
)
def test_a_real_22_05(shared_traces: Path, tmp_path: Path, name: str, rows: int, steps: int, jobs: int) -> None:
    data = DataFolder(tmp_path)
    (result,) = read(shared_traces / "slurm-22.05-lab" / name, data, ClusterSettings("lab"))
    assert (result.rows, result.allocations, result.steps, result.jobs) == (rows, 473, steps, jobs)
    assert (result.rejects, result.duplicates) == (0, 0)
    names = set(warehouse.read(data, "SELECT job_name FROM jobs")["job_name"])
    assert {"pipe|in|name", "|", "nl\nname"} <= names
    multi = warehouse.read(data, "SELECT job_key, attempts FROM jobs WHERE attempts > 1 ORDER BY 1")
    assert len(multi) == 10
    assert warehouse.read(data, "SELECT * FROM jobs WHERE wait_s < 0 OR run_s < 0").is_empty()


def test_three_dumps_of_one_cluster_tell_of_the_same_jobs(shared_traces: Path, tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    for name in ("sacct_all_dup.psv.gz", "sacct_narrow_dup.psv", "sacct_delim_us.txt"):
        read(shared_traces / "slurm-22.05-lab" / name, data, ClusterSettings("lab"))
    counts = warehouse.read(data, "SELECT count(*) AS n, count(DISTINCT job_key) AS k FROM jobs").row(0)
    assert counts == (457, 457)
    assert int(warehouse.read(data, "SELECT sum(superseded) AS s FROM trace_files")["s"][0]) == 2 * 457
    assert warehouse.read(data, "SELECT count(*) AS n FROM attempts")["n"][0] == 440


def test_full_width_dumps_with_broken_lines_do_not_crash(shared_traces: Path, tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    results: dict[str, int | str] = {}
    for path in sorted((shared_traces / "gcm").glob("*.txt")):
        try:
            results[path.name] = read(path, data, ClusterSettings("gcm"))[0].rows
        except InputError as error:
            results[path.name] = str(error)
    assert results["sample-sacct-output.txt"] == 68
    assert "a record of cluster 'cluster', but line 2 is of" in str(results["sample-sacct-one-multiline.txt"])
    assert "cut short" in str(results["sample-sacct-output-with-invalid-lines.txt"])


def test_the_philly_machine_list(shared_traces: Path, tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    settings = replace(ClusterSettings("philly"), timezone="America/Los_Angeles")
    (result,) = read(shared_traces / "philly" / "cluster_machine_list", data, settings)
    assert (result.format, result.samples) == ("philly-machines", 552)
    assert warehouse.read(data, "SELECT sum(gpus) AS n FROM nodes")["n"][0] == 2490


@pytest.mark.parametrize(
    ("name", "format", "zone", "jobs", "ran", "ambiguous"),
    [
        ("mila-graham/jobs_graham.csv.gz", "graham", "America/Toronto", 171_584, 171_584, 0),
        ("philly/philly.csv", "philly-derived", "America/Los_Angeles", 82_247, 82_247, 7),
        ("swf/theta_2022.swf.gz", "swf", "UTC", 23_911, 23_911, 0),
        ("swf/UniLu-Gaia-2014-1.swf.gz", "swf", "UTC", 51_987, 51_987, 0),
    ],
)
def test_published_logs(
    shared_traces: Path, tmp_path: Path, name: str, format: str, zone: str, jobs: int, ran: int, ambiguous: int
) -> None:
    data = DataFolder(tmp_path)
    (result,) = read(shared_traces / name, data, ClusterSettings("published", timezone=zone))
    assert (result.format, result.rows, result.rejects, result.duplicates) == (format, jobs, 0, 0)
    assert (result.jobs, result.attempts) == (jobs, ran)
    table = warehouse.read(data, "SELECT * FROM jobs")
    assert int(table["is_time_ambiguous"].sum()) == ambiguous
    if name.startswith("mila"):
        assert table.filter(pl.col("requested_gpus") > 0).height == 19_407
        assert (table["wait_s"] > 0).all()  # only jobs that were seen waiting are in it
    if "theta" in name:
        assert table["wait_s"].median() == 25_754


def test_the_corrected_machine_list(shared_traces: Path, tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    (result,) = read(shared_traces / "philly" / "revised_machine_list.csv", data, ClusterSettings("philly"))
    assert (result.format, result.samples) == ("philly-machines", 552)
    assert warehouse.read(data, "SELECT sum(gpus) AS n, count(*) FILTER (gpus > 0) AS m FROM nodes").row(0) == (
        3205,
        539,
    )
