"""What-if for a whole cluster: replay the trace with one thing changed, and compare with the unchanged replay.

Every row is a comparison inside the simulated world. Both sides are replays of the same jobs, so both lack what the
simulator leaves out (fair share, limits on users, drained nodes). `simulated_starts` shows how far that world is from
the recorded one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from features.bootstrap import interval, start_weights
from models.tables import WHAT_IF, frame
from simulator.metrics import schedule_summary
from simulator.workload import Workload, peak_in_use
from traces.arrays import Float64s, Int64s
from traces.counted import plural
from traces.units import DAY_S

BASE = "mirage"  # the scheduler of every other figure of the pipeline
SCHEDULERS = ("fifo", "easy")  # not conservative: it takes the square of the queue's length, and resembles EASY
NODE_FACTORS = (0.9, 1.1, 1.25)


@dataclass(frozen=True)
class ClusterChange:
    """One difference to the base; `scheduler` and `capacity` are those of the replay."""

    name: str
    workload: Workload
    scheduler: str
    capacity: int


def changes(workload: Workload, capacity: int) -> Iterator[ClusterChange]:
    """Yield the base, then each change of it; a cluster too small for its largest job is left out."""
    yield ClusterChange("as it is", workload, BASE, capacity)
    for scheduler in SCHEDULERS:
        yield ClusterChange(f"{scheduler} scheduling", workload, scheduler, capacity)
    for factor in NODE_FACTORS:
        nodes = round(capacity * factor)
        if nodes != capacity and nodes >= int(workload.size.max()):
            yield ClusterChange(
                f"{nodes - capacity:+d} {plural(abs(nodes - capacity), 'node')} ({100 * (factor - 1):+.0f} %)",
                workload,
                BASE,
                nodes,
            )
    exact = replace(workload, limit_s=np.maximum(workload.run_s, 1))
    yield ClusterChange("exact time limits", exact, BASE, capacity)
    halved = replace(workload, limit_s=np.maximum(workload.run_s, -(-(workload.run_s + workload.limit_s) // 2)))
    yield ClusterChange("half the slack in time limits", halved, BASE, capacity)


def replayed_capacity(workload: Workload, nodes: int | None) -> int:
    """Nodes of the replayed cluster: those declared, else the most ever in use at once; enough for the largest job."""
    return max(nodes or peak_in_use(workload), int(workload.size.max()))


def what_if_cluster(workload: Workload, cluster: str, nodes: int | None) -> pl.DataFrame:
    """Make the rows of the table `what_if`: one per change, with the mean difference of waits and its interval.

    nodes: of the cluster; None means the most ever in use at once.
    """
    from simulator.flat.replay import simulate

    capacity = replayed_capacity(workload, nodes)
    rows: list[dict[str, object]] = []
    base = np.zeros(0, np.int64)
    for change in changes(workload, capacity):
        starts = simulate(change.workload, scheduler=change.scheduler, capacity=change.capacity)
        wait = starts - workload.submit_s
        base = base if rows else wait
        low, high = mean_interval(wait - base, workload.submit_s) or (None, None)
        rows.append(
            {
                **{
                    name: value
                    for name, value in schedule_summary(workload, starts, change.capacity).items()
                    if name in _KEPT
                },
                "cluster": cluster,
                "change": change.name,
                "scheduler": change.scheduler,
                "capacity_nodes": change.capacity,
                "jobs": len(workload),
                "wait_change_s": float((wait - base).mean()),
                "wait_change_low_s": low,
                "wait_change_high_s": high,
            }
        )
    return frame(WHAT_IF, rows)


_KEPT = ("mean_wait_s", "p50_wait_s", "p95_wait_s", "mean_bounded_slowdown")


def mean_interval(values: Int64s | Float64s, submit_s: Int64s) -> list[float] | None:
    """95 % interval of the mean of `values` (jobs,), by drawing 7-day blocks of submission days.

    Days, not jobs, are drawn (a ratio of sums), which keeps the draws small on any trace. None within one block.
    """
    days, where = np.unique(submit_s // DAY_S, return_inverse=True)
    weights = start_weights(days * DAY_S)
    if weights is None:
        return None
    sums = np.bincount(where, weights=values).astype(np.float64)
    counts = np.bincount(where).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return interval((weights @ sums) / (weights @ counts))
