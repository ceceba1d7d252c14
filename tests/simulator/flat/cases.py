"""Workloads that the simulator's tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from simulator.names import SCHEDULERS
from simulator.workload import Workload

EVENT_SCHEDULERS = tuple(name for name in SCHEDULERS if name != "mirage")
# Every combination of knobs that means something; mirage has none.
SETTINGS: list[dict[str, Any]] = [
    {"scheduler": scheduler, "estimate": estimate, "pass_": pass_, "kill_at_limit": kill}
    for scheduler in EVENT_SCHEDULERS
    for estimate in ("limit", "exact")
    for pass_ in ("event", "instant")
    for kill in (False, True)
] + [{"scheduler": "mirage"}]


def workload(rows: list[tuple[int, int, int, int]]) -> Workload:
    """Jobs from (submit, size, run, limit), s; ids 1.. in order of submission."""
    columns = np.array(sorted(rows, key=lambda row: row[0]), np.int64).reshape(-1, 4).T
    submit, size, run, limit = (np.ascontiguousarray(column) for column in columns)
    return Workload(np.arange(1, len(submit) + 1), submit, size, run, limit, submit)


@st.composite
def small_cases(draw: st.DrawFn, *, scale: int = 1, overrun: bool = True, most: int = 14) -> tuple[Workload, int]:
    """A crowded few jobs and a capacity. Times are small multiples of `scale` (and one off), so that ties abound."""
    capacity = draw(st.integers(1, 8))
    row = st.tuples(
        st.integers(0, 12),
        st.integers(1, capacity),
        st.integers(0, 8),
        st.integers(1, 8),
        st.sampled_from([0, 0, 1, 7]),
    )
    rows = []
    for submit, size, run, limit, off in draw(st.lists(row, max_size=most)):
        limit_s = limit * scale
        run_s = run * scale + (off if scale > 1 else 0)
        rows.append(
            (submit * scale + (off if scale > 1 else 0), size, run_s if overrun else min(run_s, limit_s), limit_s)
        )
    return workload(rows), capacity


def random_workload(seed: int, jobs: int, capacity: int, load: float) -> Workload:
    """Poisson arrivals, sizes 1 to half the cluster, log-normal run times near an hour, limits up to 8 times that."""
    rng = np.random.default_rng(seed)
    size = np.minimum(2 ** rng.integers(0, 5, jobs), max(capacity // 2, 1))
    run = np.maximum(rng.lognormal(7.5, 1.2, jobs), 1).astype(np.int64)
    limit = (run * rng.uniform(1, 8, jobs)).astype(np.int64) + 1
    gap = float((size * run).mean()) / (capacity * load)
    submit = np.cumsum(rng.exponential(gap, jobs)).astype(np.int64)
    return Workload(np.arange(1, jobs + 1), submit, size, run, limit, np.full(jobs, -1))
