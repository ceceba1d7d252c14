"""Every start equals, second for second, that of a program written from the text alone (`by_the_text`)."""

from __future__ import annotations

import gzip
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.flat.replay import simulate
from simulator.workload import Workload, from_swf
from tests.simulator.flat.by_the_text import SCHEDULERS, Job, jobs_of, max_procs, starts_of
from tests.simulator.flat.cases import small_cases
from traces.readers.published.swf import read_swf

# Jobs from the front of each log; BATON_TRACES_WHOLE=1 takes all of them (many minutes in plain Python).
MOST = None if os.environ.get("BATON_TRACES_WHOLE") else 1500
RULES = [
    (scheduler, estimate, pass_)
    for scheduler in SCHEDULERS
    for estimate in ("limit", "exact")
    for pass_ in ("event", "instant")
]


@cache
def both_read(path: Path) -> tuple[int, Workload, list[Job]]:
    """Processors and jobs of a log, read by either program; they must be the same jobs in the same order."""
    text = gzip.decompress(path.read_bytes()).decode()
    trace = read_swf(path)
    (jobs, _left_out), outside = from_swf(trace), jobs_of(text)
    columns = (jobs.submit_s, jobs.job_id, jobs.size, jobs.run_s, jobs.limit_s)
    assert np.array_equal(np.array(columns).T, outside) and trace.max_procs == max_procs(text)
    return max_procs(text), jobs, outside


@pytest.mark.parametrize("rules", RULES, ids="-".join)
@pytest.mark.parametrize(("name", "share"), [("theta_2022.swf.gz", 1.0), ("UniLu-Gaia-2014-1.swf.gz", 0.6)])
def test_every_start_on_two_real_logs(
    shared_traces: Path, name: str, share: float, rules: tuple[str, str, str]
) -> None:
    """On the header's machine, but for the front of Gaia's log: there hardly anybody would wait, so it is cut."""
    machine, jobs, outside = both_read(shared_traces / "swf" / name)
    capacity = int(machine * (share if MOST else 1.0))
    jobs, outside = jobs.take(jobs.size <= capacity), [job for job in outside if job[2] <= capacity]
    scheduler, estimate, pass_ = rules
    ours = simulate(
        jobs.take(np.arange(len(jobs))[:MOST]), scheduler=scheduler, capacity=capacity, estimate=estimate, pass_=pass_
    )
    assert ours.tolist() == starts_of(outside[:MOST], capacity, *rules)
    assert (ours > jobs.submit_s[:MOST]).mean() > 0.04  # a trace where nobody waits would show nothing


@pytest.mark.parametrize("rules", RULES, ids="-".join)
@settings(max_examples=60, deadline=None)
@given(case=small_cases())
def test_every_start_on_crowded_small_cases(rules: tuple[str, str, str], case: tuple[Workload, int]) -> None:
    """Jobs of no length, jobs past their limit, equal times: what a real log holds few of."""
    jobs, capacity = case
    columns = (jobs.submit_s, jobs.job_id, jobs.size, jobs.run_s, jobs.limit_s)
    outside = list(zip(*(column.tolist() for column in columns), strict=True))
    scheduler, estimate, pass_ = rules
    ours = simulate(jobs, scheduler=scheduler, capacity=capacity, estimate=estimate, pass_=pass_)
    assert ours.tolist() == starts_of(outside, capacity, *rules)
