"""What-if for flat schedulers: give out whole nodes in another order, with one thing changed or nothing.

The world is one pool of nodes with jobs in one queue, planned with time limits. Outcomes have the form of
`models.what_if.schedulers`, with nodes instead of GPUs, so that the same code computes their differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from models.what_if.changes import AS_IT_IS, arrival_rate, limit_of, relative
from models.what_if.schedulers import SchedulerOutcome
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.metrics import schedule_summary
from simulator.workload import Workload, peak_in_use
from traces.arrays import Float64s, Int64s
from traces.counted import counted
from traces.errors import InputError

KNOWN = ("nodes", "limit", "arrivals")


def replayed_capacity(workload: Workload, nodes: int | None) -> int:
    """Return the nodes of the replayed cluster: as declared, else the most ever in use; enough for the largest job."""
    return max(nodes or peak_in_use(workload), int(workload.size.max()))


class PlannedFlatReplay(NamedTuple):
    """One planned replay, with its assumptions."""

    workload: Workload
    capacity: int  # nodes
    scheduler: str
    change: str
    assumptions: tuple[str, ...] = ()


def combinations(
    workload: Workload, capacity: int, schedulers: Sequence[str], changes: Sequence[str]
) -> list[PlannedFlatReplay]:
    """Plan every scheduler with nothing changed and with each change. Raises InputError for an impossible change."""
    base = PlannedFlatReplay(workload, capacity, "", AS_IT_IS)
    scenes = [base, *(_changed(base, change) for change in dict.fromkeys(changes))]
    return [scene._replace(scheduler=name) for name in dict.fromkeys(schedulers) for scene in scenes]


def as_jobs(workload: Workload) -> GpuJobs:
    """Convert the jobs to the form that differences need: nodes instead of GPUs, no users, one group."""
    jobs = of_arrays(workload.submit_s.astype(float), workload.size, workload.run_s.astype(float))
    known = workload.start_s >= 0
    return replace(jobs, recorded_wait_s=np.where(known, workload.start_s - workload.submit_s, np.nan))


def replays(planned: Sequence[PlannedFlatReplay], report: Callable[[str], None]) -> list[SchedulerOutcome]:
    """Make the replays; outcomes are in the order planned. `report` is called with the name of each when it is done."""
    from simulator.flat.replay import simulate

    outcomes = []
    for one in planned:
        starts = simulate(one.workload, scheduler=one.scheduler, capacity=one.capacity)
        outcomes.append(_outcome(one, starts))
        report(f"{one.scheduler}, {one.change}")
    return outcomes


def _outcome(one: PlannedFlatReplay, starts: Int64s) -> SchedulerOutcome:
    wait: Float64s = (starts - one.workload.submit_s).astype(np.float64)
    jct = wait + one.workload.run_s
    whole = schedule_summary(one.workload, starts, one.capacity)
    figures = {
        "mean_jct_s": float(jct.mean()),
        "p50_jct_s": float(np.quantile(jct, 0.5)),
        "p99_jct_s": float(np.quantile(jct, 0.99)),
        "mean_queueing_s": float(wait.mean()),
        "makespan_s": whole["makespan_s"],
        "utilization": whole["utilization"],
    }
    submit_s, run_s = one.workload.submit_s.astype(np.float64), one.workload.run_s.astype(np.float64)
    times: dict[str, Float64s] = {"submit_s": submit_s, "start_s": submit_s + wait, "end_s": submit_s + wait + run_s}
    of_jobs = {"mean_jct_s": jct, "mean_queueing_s": wait}
    return SchedulerOutcome(one.scheduler, one.change, 0, figures, of_jobs, one.assumptions, times)


def _changed(base: PlannedFlatReplay, change: str) -> PlannedFlatReplay:
    name, _equals, value = (part.strip() for part in change.partition("="))
    jobs = base.workload
    if name not in KNOWN or not value:
        raise InputError(
            f"change {change[:80]!r} does not apply to whole nodes; known: {', '.join(f'{one}=...' for one in KNOWN)}"
        )
    if name == "nodes":
        nodes, largest = round(relative(base.capacity, value, change)), int(jobs.size.max())
        if nodes < largest:
            raise InputError(
                f"change {change!r} leaves {counted(nodes, 'node')} of {base.capacity}: a job needs {largest}"
            )
        return base._replace(capacity=nodes, change=change)
    if name == "limit":
        most = min(limit_of(value, change), float(np.iinfo(np.int64).max >> 1))
        cut = int((jobs.run_s > most).sum())
        ends = {key: np.minimum(getattr(jobs, key), int(most)) for key in ("run_s", "limit_s")}
        assumptions = (f"{change}: {counted(cut, 'job', 'is')} cut and not submitted again",)
        return base._replace(workload=replace(jobs, **ends), change=change, assumptions=assumptions)
    first, rate = jobs.submit_s[0], arrival_rate(value, change)
    submit_s = first + np.round((jobs.submit_s - first) / rate).astype(np.int64)
    return base._replace(workload=replace(jobs, submit_s=submit_s), change=change)
