"""The page of `baton simulate --plots`: its levels, its Gantt chart, its text."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.schedule import DrawnTrace, places, write_page
from simulator.flat.replay import replay
from simulator.metrics import mean_level
from simulator.workload import Workload
from tests.simulator.flat.cases import random_workload, small_cases, workload
from traces.errors import InputError

HOSTILE = '<script>alert(1)</script>"&.swf'


@given(
    changes=st.lists(st.tuples(st.integers(0, 30), st.integers(-3, 3)), max_size=12),
    edges=st.lists(st.integers(0, 30), min_size=2, max_size=6, unique=True).map(sorted),
)
def test_mean_level_is_the_mean_of_every_second(changes: list[tuple[int, int]], edges: list[int]) -> None:
    times, change = np.array(changes, np.int64).reshape(-1, 2).T
    found = mean_level(times, change, np.array(edges, np.float64))
    for index, (begin, end) in enumerate(itertools.pairwise(edges)):
        by_second = [change[times <= second].sum() for second in range(begin, end)]
        assert found[index] == pytest.approx(np.mean(by_second))


@settings(deadline=None)
@given(case=small_cases())
def test_no_two_bars_overlap_and_each_job_has_its_units(case: tuple[Workload, int]) -> None:
    jobs, capacity = case
    played = replay(jobs, scheduler="easy", capacity=capacity)
    rows = np.flatnonzero(jobs.run_s > 0)
    rows = rows[np.lexsort((rows, played.starts[rows]))]
    starts, ends = played.starts[rows], (played.starts + played.run_s)[rows]
    drawn = np.zeros((int(ends.max(initial=0)), capacity), np.int64)
    units = np.zeros(len(rows), np.int64)
    for job, first, count in places(starts, ends, jobs.size[rows], capacity):
        drawn[starts[job] : ends[job], first : first + count] += 1
        units[job] += count
    assert drawn.max(initial=0) <= 1 and units.tolist() == jobs.size[rows].tolist()


def test_the_page_holds_every_plot_and_no_trusted_name(tmp_path: Path) -> None:
    jobs = random_workload(seed=1, jobs=300, capacity=32, load=1.1)
    jobs = Workload(jobs.job_id, jobs.submit_s, jobs.size, jobs.run_s, jobs.limit_s, jobs.submit_s + 60)
    replays = [replay(jobs, scheduler=name, capacity=32) for name in ("easy", "fifo")]
    page = tmp_path / "page.html"
    write_page(page, DrawnTrace(HOSTILE, jobs, 32, "nodes"), replays, [{"scheduler": "easy", "jobs": 300}], ["Said."])
    html = page.read_text()
    assert "<script>alert" not in html and "&lt;script&gt;" in html
    titles = re.findall(r"<h3>(.*?)</h3>", html)
    charts = [f"Gantt chart, {name}" for name in ("easy", "fifo", "recorded")]
    assert titles == ["Jobs in the queue", "Nodes in use", "Waits", *charts, "Schedules side by side"]
    assert html.count("<svg") == 6 and not re.search(r'(?:src|href)="http', html)
    write_page(page, DrawnTrace("again", jobs, 32, "nodes"), replays, [], [], (0, 3600))
    many = workload([(0, 1, 1, 1)] * 2100)
    crowd = [replay(many, scheduler="fifo", capacity=32)]
    with pytest.raises(InputError, match="shorter --gantt"):
        write_page(page, DrawnTrace("many", many, 32, "nodes"), crowd, [], [], (0, 90))


def test_a_trace_of_one_job_is_drawn(tmp_path: Path) -> None:
    jobs = workload([(5, 1, 0, 1)])
    write_page(
        tmp_path / "one.html", DrawnTrace("one", jobs, 1, "nodes"), [replay(jobs, scheduler="easy", capacity=1)], [], []
    )
    assert "Gantt chart, easy" in (tmp_path / "one.html").read_text()
