"""`baton simulate` on small traces: starts, tables, what is left out, and what is refused."""

from __future__ import annotations

import csv
import os
import threading
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.pipelines.conftest import SWF, Baton, dump


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.swf"
    path.write_text(SWF)
    return path


def test_a_workload_by_hand(baton: Baton, trace: Path, tmp_path: Path) -> None:
    """FIFO on 10 processors: job 2 waits for job 1, job 3 behind it though it would fit; job 4 never ran."""
    starts = tmp_path / "starts.csv"
    result = baton("simulate", "--trace", trace, "--scheduler", "fifo", "--starts", starts, "--json").json
    assert {"jobs", "mean_wait_s", "makespan_s", "utilization", "wall_s", "jobs_per_s"} <= set(result)
    assert list(csv.reader(starts.open())) == [["job_id", "start"], ["1", "0"], ["2", "100"], ["3", "100"]]
    assert result["mean_wait_s"] == pytest.approx((0 + 95 + 94) / 3)
    backfilled = baton("simulate", "--trace", trace, "--scheduler", "easy", "--starts", starts, "--json").json
    assert list(csv.reader(starts.open()))[3] == ["3", "6"]
    assert backfilled["mean_wait_s"] < result["mean_wait_s"]


def test_what_is_left_out_is_counted_and_the_capacity_explained(baton: Baton, trace: Path) -> None:
    result = baton("simulate", "--trace", trace, "--scheduler", "easy", "--json")
    assert result.json["left_out"] == {"run time unknown": 1} and result.json["jobs"] == 3
    assert result.json["recorded"] is None  # its waits are unknown
    assert (result.json["capacity"], result.json["capacity_from"]) == (10, "MaxProcs of the header")
    assert "10 processors (MaxProcs of the header)" in result.err
    assert "left out: 1 of 4 jobs: 1 run time unknown" in result.err
    small = baton("simulate", "--trace", trace, "--scheduler", "easy", "--capacity", 5, "--json")
    assert small.json["left_out"] == {"run time unknown": 1, "larger than 5 processors": 2}
    assert (small.json["jobs"], small.json["capacity_from"]) == (1, "--capacity")


def test_without_a_header_the_peak_in_use_is_the_capacity(baton: Baton, tmp_path: Path) -> None:
    """Job 2 starts in the second in which job 1 ends, job 3 runs beside it: 6 + 4, never 16."""
    trace = tmp_path / "headless.swf"
    jobs = SWF.split("\n", 1)[1]
    trace.write_text(jobs)
    assert "--capacity" in baton("simulate", "--trace", trace, "--scheduler", "fifo").err
    trace.write_text(jobs.replace("1 0 -1", "1 0 0").replace("2 5 -1", "2 5 95").replace("3 6 -1", "3 6 100"))
    result = baton("simulate", "--trace", trace, "--scheduler", "fifo", "--json")
    assert (result.json["capacity"], result.json["capacity_from"]) == (10, "peak in use")
    assert "peak in use" in result.err


def test_a_job_past_its_limit_runs_on_unless_it_is_ended_there(baton: Baton, tmp_path: Path) -> None:
    """Limit 50, run 80: the next starts at 80, or at 50. A plan that it ends at 50 does not free it."""
    trace, starts = tmp_path / "late.swf", tmp_path / "starts.csv"
    trace.write_text("; MaxProcs: 1\n1 0 0 80 1 -1 -1 1 50 -1 1" + " -1" * 7 + "\n2 1 0 5 1 -1 -1 1 9 -1 1" + " -1" * 7)
    for flags, start in ((), "80"), (("--kill-at-limit",), "50"):
        baton("simulate", "--trace", trace, "--scheduler", "easy", "--starts", starts, *flags)
        assert list(csv.reader(starts.open()))[2] == ["2", start]


def test_side_by_side_and_the_table_of_jobs(baton: Baton, trace: Path, tmp_path: Path) -> None:
    table = tmp_path / "deep" / "jobs.csv"
    result = baton("simulate", "--trace", trace, "--compare", "fifo,easy", "--jobs", table, "--mkdir", "--json").json
    assert [column["scheduler"] for column in result["schedulers"]] == ["fifo", "easy"]
    assert result["schedulers"][0]["mean_wait_s"] > result["schedulers"][1]["mean_wait_s"]
    rows = list(csv.DictReader(table.open()))
    assert len(rows) == 2 * 3
    assert rows[1] == {
        "job_id": "2", "scheduler": "fifo", "submit": "5", "start": "100", "end": "200", "wait": "95", "size": "6",
        "limit": "100", "bounded_slowdown": "1.95", "recorded_wait": "",
    }  # fmt: skip
    printed = baton("simulate", "--trace", trace, "--compare", "fifo,easy").out
    assert "3 jobs on 10 processors" in printed and printed.split("\n")[1].split() == ["fifo", "easy"]


def test_a_cluster_of_the_warehouse(baton: Baton, tmp_path: Path) -> None:
    """Its nodes are the peak in use where nothing declares them; ids that look like formulas are defused."""
    raw, data, starts = dump(tmp_path / "jobs.psv", nodes=2), tmp_path / "data", tmp_path / "starts.csv"
    raw.write_text(raw.read_text().replace("106|106|", "106_[1-3]|106|").replace("COMPLETED", "PENDING", 1))
    assert baton("ingest", raw, "--cluster", "lab", "--data", data).code == 0
    options = ("--cluster", "lab", "--data", data, "--starts", starts, "--json")
    result = baton("simulate", "--scheduler", "easy", *options).json
    assert (result["capacity"], result["capacity_from"], result["unit"]) == (2, "peak in use", "nodes")
    assert result["jobs"] + sum(result["left_out"].values()) == 6
    assert len(list(csv.reader(starts.open()))) == result["jobs"] + 1
    assert result["mean_absolute_error_s"] == pytest.approx(3600) and result["spearman"] is None


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--scheduler", "easy", "--compare", "easy"), "either --scheduler"),
        ((), "either --scheduler"),
        (("--compare", ","), "names no scheduler"),
        (("--compare", "easy,magic"), "'magic'"),
        (("--compare", "easy,fifo", "--starts", "x.csv"), "--jobs"),
        (("--scheduler", "easy", "--capacity", "3"), "every one of its 3 jobs is larger"),
        (("--scheduler", "easy", "--cluster", "lab"), "either --trace"),
        (("--scheduler", "mirage", "--capacity", str(2**63)), "is implausible"),
        (("--scheduler", "easy", "--gantt", "24h"), "give --plots"),
        (("--scheduler", "slurm", "--capacity", str(10**12)), "models each node"),
    ],
)
def test_wrong_usage_is_one_line(baton: Baton, trace: Path, arguments: tuple[str, ...], part: str) -> None:
    result = baton("simulate", "--trace", trace, *arguments)
    assert result.code == 2 and result.out == "" and result.err.count("\n") == 1
    assert part in result.err


def test_results_may_go_into_a_pipe_and_not_over_a_folder(baton: Baton, trace: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert baton("simulate", "--trace", trace, "--scheduler", "easy", "--starts", pipe).code == 0
    reader.join()
    assert read[0].startswith("job_id,start\n") and pipe.is_fifo()
    refused = baton("simulate", "--trace", trace, "--scheduler", "easy", "--starts", tmp_path)
    assert refused.code == 2 and refused.err.strip().endswith("is a folder; name a file in it")


def test_a_trace_of_jobs_that_never_ran(baton: Baton, tmp_path: Path) -> None:
    trace = tmp_path / "idle.swf"
    trace.write_text("4 7 -1 -1 4 -1 -1 4 60 -1 5 1 1 1 1 1 -1 -1\n5 -9 0 10 4 -1 -1 -1 60 -1 1 1 1 1 1 1 -1 -1\n"
                     "6 1 0 10 -1 -1 -1 -1 60 -1 1 1 1 1 1 1 -1 -1\n")  # fmt: skip
    result = baton("simulate", "--trace", trace, "--scheduler", "easy")
    assert result.code == 2 and "1 run time unknown, 1 processors unknown, 1 submitted before" in result.err


def test_plots_of_a_window(baton: Baton, trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "plots.html"
    command = ("simulate", "--trace", trace, "--compare", "fifo,easy", "--plots", page)
    assert baton(*command, "--gantt-from", "5s", "--gantt", "2m").code == 0
    assert "Left out: 1 of 4 jobs: 1 run time unknown." in page.read_text()
    assert "'soon'" in baton(*command, "--gantt", "soon").err


def test_one_shape_of_json_for_every_scheduler_and_trace(baton: Baton, trace: Path, tmp_path: Path) -> None:
    """Alone or compared, of an SWF file or of a cluster: the same keys, those that the page of schedulers names."""
    data = tmp_path / "data"
    assert baton("ingest", dump(tmp_path / "jobs.psv"), "--cluster", "lab", "--data", data).code == 0
    shapes = []
    for source in (("--trace", trace), ("--cluster", "lab", "--data", data)):
        for asked in (("--scheduler", "easy"), ("--scheduler", "slurm"), ("--compare", "fifo,mirage,slurm")):
            found = baton("simulate", *source, *asked, "--json").json
            names = [entry["scheduler"] for entry in found["schedulers"]]
            assert names == asked[1].split(",")
            assert all(found[key] == value for key, value in found["schedulers"][0].items())
            assert all(bool(entry["notes"]) == (entry["scheduler"] == "slurm") for entry in found["schedulers"])
            shapes.append(frozenset(found))
            shapes += [frozenset(entry) | shapes[0] for entry in found["schedulers"]]
    assert len(set(shapes)) == 1
    page = (REPOSITORY / "docs" / "schedulers" / "README.md").read_text()
    for key in (*shapes[0], *found["schedulers"][2]["notes"]):
        assert f"`{key}`" in page, key
