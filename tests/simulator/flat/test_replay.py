"""What surrounds the kernel: checks, workloads from a jobs table, figures, the derived table, the code cache."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from simulator.flat.kernel import advance
from simulator.flat.replay import replay, simulate
from simulator.metrics import bounded_slowdown, schedule_summary, spearman, wait_distance
from simulator.names import SCHEDULERS
from simulator.tables import SIMULATED_STARTS, simulated_starts
from simulator.workload import Workload, workload_of
from tests.simulator.flat.cases import workload
from traces.errors import InputError

TWO_JOBS = [(0, 4, 100, 100), (10, 4, 50, 60)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scheduler": "eazy"}, r"'eazy'.*fifo, easy, conservative, mirage"),
        ({"estimate": "guess"}, r"'guess'.*limit, exact"),
        ({"pass_": "tick"}, r"'tick'.*event, instant"),
        ({"capacity": 3}, r"job 1 needs 4 .* has 3 \(2 such jobs\): give a capacity of 4"),
        ({"capacity": 0}, "capacity 0"),
        ({"scheduler": "mirage", "estimate": "exact"}, "time limits only"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(workload(TWO_JOBS), **{"scheduler": "easy", "capacity": 4, **change})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((5, 0, 1, 1), "job 1 has size 0"),
        ((5, 1, -3, 1), "job 1 has run_s -3"),
        ((5, 1, 1, 0), "job 1 has limit_s 0"),
        ((-5, 1, 1, 1), "job 1 has submit_s -5"),
    ],
)
def test_jobs_that_make_no_sense_are_named(row: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(workload([row]), scheduler="easy", capacity=4)


def test_unsorted_jobs_are_refused() -> None:
    with pytest.raises(InputError, match="sort the workload"):
        simulate(workload(TWO_JOBS).take(np.array([1, 0])), scheduler="easy", capacity=4)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_no_jobs_is_no_work(scheduler: str) -> None:
    assert len(simulate(workload([]), scheduler=scheduler, capacity=1)) == 0


def test_read_only_arrays_are_replayed_by_the_same_compiled_code() -> None:
    """Columns of a table frame are read-only: compiled again for them, the kernel's time would hold the compiler's."""
    jobs = workload(TWO_JOBS)
    simulate(jobs, scheduler="easy", capacity=4)
    compiled = len(advance.signatures)  # type: ignore[attr-defined]
    for column in vars(jobs).values():
        column.setflags(write=False)
    assert simulate(jobs, scheduler="easy", capacity=4).tolist() == [0, 100]
    assert len(advance.signatures) == compiled  # type: ignore[attr-defined]


def test_summary_of_two_jobs() -> None:
    jobs = workload(TWO_JOBS)
    starts = simulate(jobs, scheduler="fifo", capacity=8)
    assert starts.tolist() == [0, 10]
    starts = simulate(jobs, scheduler="fifo", capacity=4)
    figures = schedule_summary(jobs, starts, 4)
    assert figures == {
        "jobs": 2, "mean_wait_s": 45, "p50_wait_s": 45, "p95_wait_s": 85.5,
        "mean_bounded_slowdown": (1 + 140 / 50) / 2, "makespan_s": 150, "utilization": 1.0, "mean_queue_jobs": 0.6,
    }  # fmt: skip
    assert schedule_summary(workload([]), np.array([], np.int64), 4)["utilization"] == 0
    assert schedule_summary(workload([(0, 2, 100, 50)]), np.array([0]), 4, run_s=np.array([50]))["makespan_s"] == 50


def test_bounded_slowdown_is_bounded() -> None:
    assert bounded_slowdown([0, 90, 5], [100, 1, 1]).tolist() == [1.0, 9.1, 1.0]


def test_spearman_averages_ties() -> None:
    """Ranks 1, 2.5, 2.5, 4 against 1, 3, 2, 4: 4.5 / sqrt(4.5 * 5)."""
    assert spearman([0, 5, 5, 9], [1, 30, 20, 40]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert math.isnan(spearman([1, 1], [1, 2])) and math.isnan(spearman([], []))


def test_wait_distance() -> None:
    distance = wait_distance([0, 100, 2000, 800], [0, 300, 1000, 2000])
    assert distance["mean_absolute_error_s"] == (200 + 1000 + 1200) / 4
    assert distance["spearman"] == pytest.approx(0.8) and distance["spearman_waited"] == pytest.approx(-1)
    assert distance["recorded_mean_wait_s"] == 825 and distance["simulated_p50_wait_s"] == 450


def jobs_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    whole = {
        "job_key": "k", "job_id": "1", "job_id_raw": 1, "array_job_id": None, "array_task_id": None,
        "submit_utc": datetime(2022, 1, 1), "start_utc": datetime(2022, 1, 1, 1),
        "run_s": 60, "allocated_nodes": 2, "requested_nodes": 4, "limit_s": 3600,
    }  # fmt: skip
    return pl.DataFrame(
        [whole | row for row in rows], schema_overrides={"job_id_raw": pl.Int64, "start_utc": pl.Datetime}
    )


def test_from_jobs_keeps_what_ran() -> None:
    frame = jobs_frame(
        [
            {"job_key": "late", "job_id_raw": 1, "submit_utc": datetime(2022, 1, 1, 0, 30)},
            {"job_key": "second", "job_id_raw": 10, "allocated_nodes": 0, "limit_s": None},
            {"job_key": "first", "job_id_raw": 9, "allocated_nodes": None, "requested_nodes": None},
            {"job_key": "never started", "start_utc": None},
            {"job_key": "no time", "run_s": 0},
        ]
    )
    jobs, keys = workload_of(frame, default_limit_s=7200)
    assert keys.to_list() == ["first", "second", "late"] and jobs.job_id.tolist() == [9, 10, 1]
    assert jobs.size.tolist() == [1, 4, 2] and jobs.limit_s.tolist() == [3600, 7200, 3600]
    assert jobs.submit_s[0] == 1_640_995_200 and jobs.start_s[0] - jobs.submit_s[0] == 3600


def test_from_jobs_numbers_jobs_without_numeric_ids() -> None:
    jobs, keys = workload_of(jobs_frame([{"job_key": "b", "job_id_raw": None}, {"job_key": "a"}]), default_limit_s=1)
    assert keys.to_list() == ["a", "b"] and jobs.job_id.tolist() == [1, 2]


def test_simulated_starts_table() -> None:
    jobs, keys = workload_of(jobs_frame([{"job_key": "a"}, {"job_key": "b", "job_id_raw": 2}]), default_limit_s=1)
    frame = simulated_starts(
        jobs, keys, np.array([jobs.submit_s[0] + 5, -1]), cluster="c", scheduler="easy", capacity=4
    )
    assert frame.columns == list(SIMULATED_STARTS.names)
    assert frame["simulated_wait_s"].to_list() == [5, None] and frame["recorded_wait_s"].to_list() == [3600, 3600]
    assert frame["submit_utc"][0] == datetime(2022, 1, 1) and frame["nodes"].to_list() == [2, 2]
    empty = simulated_starts(
        jobs.take(np.arange(0)), keys.clear(), np.array([], np.int64), cluster="c", scheduler="easy", capacity=4
    )
    assert empty.schema == frame.schema


def test_without_a_cache_folder_the_simulator_still_runs(tmp_path: Path) -> None:
    """XDG_CACHE_HOME under a plain file: no folder can be made there, not even by root."""
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", "from traces import compiled; print(compiled.cache_folder('simulator.flat.kernel'))\n"
         "from simulator.compiled import njit\nprint(njit(lambda x: x + 1)(1))"],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file"), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "None\n2\n", done.stderr


def test_the_whole_a100_trace(shared_traces: Path) -> None:
    """At a flat 80 nodes the recorded waits are far above the simulated ones, and their order is poorly kept."""
    zone = ZoneInfo("America/Chicago")
    rows = []
    for line in (shared_traces / "tacc-lonestar6" / "ls6-a100.log").read_text().splitlines()[3:]:
        fields = line.split("\t")
        start, submit, end = (
            int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()) for text in fields[3:6]
        )
        if end > start:
            rows.append((int(fields[0]), submit, int(fields[9]), end - start, int(fields[7]) * 60, start))
    columns = np.array(sorted(rows, key=lambda row: (row[1], row[0])), np.int64).T
    jobs = Workload(*map(np.ascontiguousarray, columns))
    played = replay(jobs, scheduler="mirage", capacity=80)
    starts, seconds = played.starts, played.wall_s
    assert len(jobs) > 15_000 and (starts >= jobs.submit_s).all() and (starts % 60 == 0).all()
    wait = starts - jobs.submit_s
    assert 0.8 < wait.mean() / 3600 < 1.6
    distance = wait_distance(wait, jobs.start_s - jobs.submit_s)
    assert distance["recorded_mean_wait_s"] > 2 * distance["simulated_mean_wait_s"] and 0.3 < distance["spearman"] < 0.6
    assert seconds < 5  # tens of milliseconds on an idle machine; a runaway loop is what this catches
