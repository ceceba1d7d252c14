"""What would change if: the trace replayed again with one thing different, beside the replay without it.

Every row is a comparison inside the simulated world: both sides are replays of the same jobs, so what the simulator
leaves out (fair share, limits a user, drained nodes) is left out of both. How far that world is from the recorded one
is told by `simulated_starts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from features.bootstrap import Floats, interval, start_weights
from models.tables import WHAT_IF, frame
from simulator.metrics import summary
from simulator.workload import Int64s, Workload, peak_in_use
from traces.counted import plural

DAY_S = 86400
BASE = "mirage"  # the scheduler of every other figure of the pipeline
SCHEDULERS = ("fifo", "easy")  # conservative costs the square of the queue, and comes close to EASY
NODE_FACTORS = (0.9, 1.1, 1.25)


@dataclass(frozen=True)
class Change:
    """One thing that differs from the base; `scheduler` and `capacity` are those of the replay."""

    name: str
    workload: Workload
    scheduler: str
    capacity: int


def changes(workload: Workload, capacity: int) -> Iterator[Change]:
    """The base, then each change of it; a cluster too small for its largest job is left out."""
    yield Change("as it is", workload, BASE, capacity)
    for scheduler in SCHEDULERS:
        yield Change(f"{scheduler} scheduling", workload, scheduler, capacity)
    for factor in NODE_FACTORS:
        nodes = round(capacity * factor)
        if nodes != capacity and nodes >= int(workload.size.max()):
            yield Change(
                f"{nodes - capacity:+d} {plural(abs(nodes - capacity), 'node')} ({100 * (factor - 1):+.0f} %)",
                workload,
                BASE,
                nodes,
            )
    exact = replace(workload, limit_s=np.maximum(workload.run_s, 1))
    yield Change("exact time limits", exact, BASE, capacity)
    halved = replace(workload, limit_s=np.maximum(workload.run_s, -(-(workload.run_s + workload.limit_s) // 2)))
    yield Change("half the slack in time limits", halved, BASE, capacity)


def capacity_of(workload: Workload, nodes: int | None) -> int:
    """Nodes of the replayed cluster: those declared, else as many as were ever in use at once; its largest job fits."""
    return max(nodes or peak_in_use(workload), int(workload.size.max()))


def what_if(workload: Workload, cluster: str, nodes: int | None) -> pl.DataFrame:
    """Rows of `what_if`: one a change, with the mean difference of a job's wait to the base and its 95 % interval.

    nodes: of the cluster; None takes as many as were ever in use at once.
    """
    from simulator.flat.replay import simulate

    capacity = capacity_of(workload, nodes)
    rows: list[dict[str, object]] = []
    base = np.zeros(0, np.int64)
    for change in changes(workload, capacity):
        starts = simulate(change.workload, scheduler=change.scheduler, capacity=change.capacity)
        wait = starts - workload.submit_s
        base = base if rows else wait
        low, high = mean_interval(wait - base, workload.submit_s) or (None, None)
        rows.append(
            {
                **{name: value for name, value in summary(workload, starts, change.capacity).items() if name in _KEPT},
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


def mean_interval(values: Int64s | Floats, submit_s: Int64s) -> list[float] | None:
    """95 % interval of the mean of `values` (jobs,): 7-day blocks of submission days are drawn.

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
