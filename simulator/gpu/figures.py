"""Figures of a run of GPU jobs: completion times, queueing, fairness, fragmentation, and preemption cost."""

from __future__ import annotations

import numpy as np

from simulator.gpu.cluster import GpuCluster
from simulator.gpu.jobs import GpuJobs, origin_s
from simulator.gpu.result import GpuResult
from traces.arrays import Float64s

FIGURES: dict[str, str] = {
    "mean_jct_s": "mean job completion time: last end minus submission",
    "p50_jct_s": "median job completion time",
    "p99_jct_s": "99th percentile of the job completion time",
    "mean_queueing_s": "mean time without GPUs between submission and end",
    "makespan_s": "first submission to last end",
    "utilization": "share of GPUs x makespan, and of loans, that jobs held and made progress on",
    "fragmentation": "share of GPUs x makespan, and of loans, that was free while a job waited",
    "worst_rho": "largest finish-time fairness: completion time over that alone on a 1/N share",
    "mean_rho": "mean finish-time fairness",
    "preemptions": "stops before the end",
    "lost_gpu_h": "GPU hours held without progress, for restarts",
}  # name -> meaning; unit at the end of the name


def contention(jobs: GpuJobs) -> float:
    """Return the mean number of concurrent jobs if each ran from its submission: the N of finish-time fairness.

    It depends on the trace only, so it is the same for every scheduler. At least 1.
    """
    span = float((jobs.submit_s + jobs.run_s).max() - jobs.submit_s.min())
    return max(1.0, float(jobs.run_s.sum()) / span)


def rho(cluster: GpuCluster, jobs: GpuJobs, result: GpuResult) -> Float64s:
    """Return each job's finish-time fairness, (jobs,): Themis (NSDI 2020), section 3.1, with each job as an app."""
    share = max(1.0, cluster.gpus / contention(jobs))
    alone = jobs.run_s * np.maximum(1.0, jobs.gpus / share)
    return np.asarray(jct_s(jobs, result) / alone, dtype=np.float64)


def jct_s(jobs: GpuJobs, result: GpuResult) -> Float64s:
    """Return the completion time of each job, (jobs,) s."""
    return np.asarray(result.end_s - (jobs.submit_s - origin_s(jobs)), dtype=np.float64)


def queueing_s(jobs: GpuJobs, result: GpuResult) -> Float64s:
    """Return the time of each job without GPUs, (jobs,) s."""
    return np.asarray(jct_s(jobs, result) - result.ran_s, dtype=np.float64)


def figures(cluster: GpuCluster, jobs: GpuJobs, result: GpuResult) -> dict[str, float]:
    """Compute every figure of FIGURES."""
    jct = jct_s(jobs, result)
    fairness = rho(cluster, jobs, result)
    makespan = float(result.end_s.max() - (jobs.submit_s.min() - origin_s(jobs)))
    capacity = cluster.gpus * makespan + result.loaned_gpu_s
    return {
        "mean_jct_s": float(jct.mean()),
        "p50_jct_s": float(np.quantile(jct, 0.5)),
        "p99_jct_s": float(np.quantile(jct, 0.99)),
        "mean_queueing_s": float(queueing_s(jobs, result).mean()),
        "makespan_s": makespan,
        "utilization": float((result.gpu_s - result.lost_gpu_s).sum()) / capacity,
        "fragmentation": max(0.0, result.stranded_gpu_s / capacity),  # rounding must not make it negative
        "worst_rho": float(fairness.max()),
        "mean_rho": float(fairness.mean()),
        "preemptions": float(result.preemptions.sum()),
        "lost_gpu_h": float(result.lost_gpu_s.sum()) / 3600.0,
    }
