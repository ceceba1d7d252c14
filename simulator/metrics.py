"""Figures of a schedule (wait, slowdown, utilization), and the distance between simulated and recorded waits."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from simulator.workload import Workload
from traces.arrays import Int64s

BOUNDED_SLOWDOWN_TAU_S = 10
NOTICED_WAIT_S = 600  # a wait that a user notices; the limit of shares and figures "over ten minutes"
PODS_HELD = "kubernetes: pods of incomplete jobs held "  # start of the sentence in which `kubernetes` reports its cost
_SUMMARY = (
    "mean_wait_s",
    "p50_wait_s",
    "p95_wait_s",
    "mean_bounded_slowdown",
    "makespan_s",
    "utilization",
    "mean_queue_jobs",
)


def schedule_summary(
    workload: Workload, starts: Int64s, capacity: int, *, run_s: Int64s | None = None
) -> dict[str, float]:
    """Compute the figures of a schedule from `starts`, s, shape (jobs,), -1 for a job that never started.

    jobs, including those that never started; mean_wait_s, p50_wait_s, p95_wait_s; mean_bounded_slowdown (tau 10 s);
    makespan_s, from the first submission to the last end; utilization, the share of capacity x makespan that jobs held;
    mean_queue_jobs, the mean number of pending jobs over the makespan (Little's law). `run_s`, shape (jobs,), is each
    job's run time in this schedule (default: its recorded run time). The figures of an empty schedule are 0.
    """
    ran = starts >= 0
    kept, begun = workload.take(ran), starts[ran]
    result = {"jobs": float(len(workload))}
    if not len(kept):
        return result | dict.fromkeys(_SUMMARY, 0.0)
    run = (workload.run_s if run_s is None else run_s)[ran]
    wait = begun - kept.submit_s
    makespan = int((begun + run).max() - kept.submit_s.min())
    work = float(np.sum(kept.size * run.astype(np.float64)))
    figures = (
        float(wait.mean()),
        float(np.quantile(wait, 0.5)),
        float(np.quantile(wait, 0.95)),
        float(bounded_slowdown(wait, run).mean()),
        float(makespan),
        work / (capacity * makespan) if makespan else 0.0,
        float(wait.sum(dtype=np.float64)) / makespan if makespan else 0.0,
    )
    return result | dict(zip(_SUMMARY, figures, strict=True))


def mean_level(times_s: Int64s, change: Int64s, edges_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the mean of a step function in each bin; it changes by `change` at `times_s`, both (n,) in any order.

    `edges_s` are ascending, shape (bins + 1,); the result has shape (bins,). With +1 at submissions and -1 at starts
    this is the mean queue of each bin; with +size at starts and -size at ends, the units in use.
    """
    times = np.append(np.asarray(times_s, np.float64), edges_s[-1])
    order = np.argsort(times, kind="stable")
    level = np.cumsum(np.append(np.asarray(change, np.float64), 0.0)[order])
    times = times[order]
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])  # up to each change
    means: NDArray[np.float64] = np.diff(np.interp(edges_s, times, area)) / np.diff(edges_s)
    return means


def bounded_slowdown(wait_s: ArrayLike, run_s: ArrayLike) -> NDArray[np.float64]:
    """Return max(1, (wait + run) / max(run, tau)) for each job (Feitelson et al. 1997), tau 10 s."""
    wait, run = np.asarray(wait_s, np.float64), np.asarray(run_s, np.float64)
    return np.maximum(1.0, (wait + run) / np.maximum(run, BOUNDED_SLOWDOWN_TAU_S))


def wait_distance(simulated_wait_s: ArrayLike, recorded_wait_s: ArrayLike) -> dict[str, float]:
    """Compare simulated with recorded waits of the same jobs, both in s and of shape (jobs,).

    jobs; mean, p50, p90, p95, p99 of each; mean_absolute_error_s; spearman over all jobs; spearman_waited over jobs
    with recorded waits of more than ten minutes. Ties take the mean of their ranks. A figure is NaN if it is undefined
    (fewer than two jobs, or all waits equal).
    """
    simulated, recorded = np.asarray(simulated_wait_s, np.float64), np.asarray(recorded_wait_s, np.float64)
    result: dict[str, float] = {"jobs": float(len(recorded))}
    for name, wait in (("simulated", simulated), ("recorded", recorded)):
        result[f"{name}_mean_wait_s"] = float(wait.mean()) if len(wait) else float("nan")
        for percent in (50, 90, 95, 99):
            result[f"{name}_p{percent}_wait_s"] = float(np.percentile(wait, percent)) if len(wait) else float("nan")
    error = np.abs(simulated - recorded)
    result["mean_absolute_error_s"] = float(error.mean()) if len(error) else float("nan")
    waited = recorded > NOTICED_WAIT_S
    result["spearman"] = spearman(simulated, recorded)
    result["spearman_waited"] = spearman(simulated[waited], recorded[waited])
    return result


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Return Spearman's rank correlation, ties averaged; NaN for fewer than two pairs or a constant side."""
    ranks = [pl.Series(np.asarray(values, np.float64)).rank("average").to_numpy() for values in (first, second)]
    if len(ranks[0]) < 2 or ranks[0].std() == 0 or ranks[1].std() == 0:
        return float("nan")
    return float(np.corrcoef(np.stack(ranks))[0, 1])
