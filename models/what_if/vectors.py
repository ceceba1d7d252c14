"""Resources besides GPUs, as a log records them for jobs and nodes: CPUs, memory, parts of GPUs, GPU models,
priorities.

A resource counts if the log knows its size on every node and a job names it. Otherwise it is left out, and the
assumptions say so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from simulator.gpu.cluster import GpuCluster
from simulator.gpu.jobs import GpuJobs
from simulator.gpu.run import fits
from traces.arrays import Int64s
from traces.counted import counted

_SIZES = {"CPUs": ("cpus", "cpus", 1000), "memory": ("memory_mib", "mem_mib", 1)}  # of nodes, of jobs, units of one
# Our reading: openb names a class of service and no priority. LS is latency sensitive, BE best effort.
PRIORITIES = {"BE": 0, "BestEffort": 0, "Burstable": 1, "LS": 2, "Guaranteed": 2}


def with_vectors(
    cluster: GpuCluster, jobs: GpuJobs, nodes: pl.DataFrame | None, rows: pl.DataFrame
) -> tuple[GpuCluster, GpuJobs, list[str]]:
    """Add the CPUs and memory of `nodes` and of the jobs' `rows`; also return the assumptions.

    nodes: cpus and memory_mib of each node, in the order of the cluster. None: no list of nodes was read. rows: cpus
    and mem_mib of each job in order, summed over its GPUs.
    """
    used, said = [], []
    for name, (of_node, of_job, _unit) in _SIZES.items():
        if nodes is None or nodes[of_node].null_count() or not (nodes[of_node] > 0).all():
            said.append(f"{name}: not every node's is known, so no job waits for it")
        elif not (rows[of_job].fill_null(0) > 0).any():
            said.append(f"{name}: the log does not say what jobs take, so no job waits for it")
        else:
            used.append(name)
            without = int((rows[of_job].fill_null(0) == 0).sum())
            more = f"; {counted(without, 'job')} without a request take none" if without else ""
            said.append(f"{name}: jobs wait for it as the log records its use{more}")
    if nodes is None or not used:
        return cluster, jobs, said
    sizes = np.column_stack([_units(nodes[_SIZES[name][0]], _SIZES[name][2]) for name in used])
    need = np.column_stack([_units(rows[_SIZES[name][1]], _SIZES[name][2]) // jobs.gpus for name in used])
    whole = cluster._replace(capacity=np.column_stack([cluster.capacity[:, 0], sizes]))
    asking = replace(jobs, need=np.column_stack([jobs.need[:, 0], need]))
    odd = fits(cluster, jobs) & ~fits(whole, asking)
    if odd.any():
        asking.need[odd, 1:] = 0
        said.append(f"{counted(int(odd.sum()), 'job')} with more CPUs or memory than any place has, by GPUs alone")
    return whole, asking, said


def _units(amounts: pl.Series, unit: int) -> Int64s:
    return np.asarray(amounts.fill_null(0).to_numpy(), dtype=np.int64) * unit


def of_pods(jobs: GpuJobs, rows: pl.DataFrame) -> tuple[GpuJobs, list[str]]:
    """Add the GPU models that pods ask for (`partition`, as `T4|P100`) and priorities by class of service (`qos`)."""
    asked = [tuple(sorted(set(text.split("|")))) if text else () for text in rows["partition"].to_list()]
    sets = tuple(sorted(set(asked) - {()}))
    at = {models: index for index, models in enumerate(sets)}
    priority = rows["qos"].replace_strict(PRIORITIES, default=0, return_dtype=pl.Int64).to_numpy()
    named = sum(1 for models in asked if models)
    said = [f"kubernetes keeps {counted(named, 'job')} on the GPU models that its pods name"] if named else []
    if priority.any():
        said.append("kubernetes: priorities follow the class of service: LS and Guaranteed, Burstable, then others")
    accepts = np.array([at.get(models, -1) for models in asked], dtype=np.int64)
    return replace(jobs, accepts=accepts, models_asked=sets, priority=priority.astype(np.int64)), said
