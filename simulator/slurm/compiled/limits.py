"""Limits of QOS and associations, and array throttles: count running jobs and test new ones. Compiled."""

from __future__ import annotations

from simulator.compiled import kernel_inline
from simulator.slurm.compiled.state import SlurmRun, SlurmState
from simulator.slurm.world import NONE


@kernel_inline
def over_limit(run: SlurmRun, state: SlurmState, job: int) -> bool:
    """Whether one more start would take a QOS or association over a limit."""
    tables, used = run.tables, state.pool_used
    limits = run.jobs.pools[job]
    if limits == NONE:
        return False
    for i in range(tables.pool_first[limits], tables.pool_first[limits + 1]):
        p = tables.pool_ids[i]
        if used[p, 0] + 1 > tables.pool_limit[p, 0]:
            return True
        for t in range(4):
            if used[p, t + 1] + _request(run, job, t) > tables.pool_limit[p, t + 1]:
                return True
    return False


@kernel_inline
def _request(run: SlurmRun, job: int, tres: int) -> int:
    """Return the total request of row `job` for a TRES: CPU, MEMORY, NODE or GPU."""
    nodes = int(run.jobs.nodes[job])
    if tres == 2:
        return nodes
    return nodes * int(run.tables.shape_share[run.jobs.shape[job], 2 if tres == 3 else tres])


@kernel_inline
def count_in(run: SlurmRun, state: SlurmState, job: int, change: int) -> None:
    """Count a start (+1) or end (-1) of row `job` in all its limits."""
    tables = run.tables
    limits = run.jobs.pools[job]
    if limits != NONE:
        for i in range(tables.pool_first[limits], tables.pool_first[limits + 1]):
            p = tables.pool_ids[i]
            state.pool_used[p, 0] += change
            for t in range(4):
                state.pool_used[p, t + 1] += change * _request(run, job, t)
    if run.jobs.array[job] != NONE:
        state.array_running[run.jobs.array[job]] += change


@kernel_inline
def throttled(run: SlurmRun, state: SlurmState, job: int) -> bool:
    """Whether the array of row `job` already runs its maximum number of tasks."""
    array = run.jobs.array[job]
    if array == NONE or run.tables.throttle[array] == 0:
        return False
    return bool(state.array_running[array] >= run.tables.throttle[array])
