"""priority/multifactor (priority_multifactor.html): the constant part of a priority, and the sum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import kernel_inline
from simulator.slurm.compiled.state import SlurmRun, SlurmState
from simulator.slurm.world import CPU, GPU, MEMORY, NODE, TRES, SlurmWorld

LOWEST, HIGHEST = 1, (1 << 32) - 1


def requests(world: SlurmWorld) -> NDArray[np.int64]:
    """Return the total request of each job, shape (jobs, TRES): cores, MB, nodes, GPUs."""
    jobs = world.jobs
    request = np.empty((len(jobs), TRES), np.int64)
    for column, share in ((CPU, jobs.cpus_per_node), (MEMORY, jobs.memory_per_node_mb), (GPU, jobs.gpus_per_node)):
        request[:, column] = jobs.nodes * share
    request[:, NODE] = jobs.nodes
    return request


def static_priority(world: SlurmWorld) -> NDArray[np.float64]:
    """Return each job's priority without age and fair share, shape (jobs,), summed in the documented order."""
    settings, jobs, nodes, partitions = world.settings, world.jobs, world.nodes, world.partitions
    request = requests(world)
    count = len(jobs)
    # A job without a partition is unplaceable, so its partition row does not matter.
    partition = np.where((jobs.partition >= 0) & (jobs.partition < len(partitions)), jobs.partition, 0)
    size = np.zeros(count)
    if settings.weight_job_size:
        wanted_nodes, wanted_cpus = request[:, NODE], request[:, CPU]
        all_nodes, all_cpus = len(nodes), max(1, int(nodes.cpus.sum()))
        if settings.favor_small:
            wanted_nodes, wanted_cpus = all_nodes - wanted_nodes, all_cpus - wanted_cpus
        size = settings.weight_job_size * np.clip(0.5 * (wanted_nodes / all_nodes + wanted_cpus / all_cpus), 0.0, 1.0)
    by_partition = settings.weight_partition * _share_of_largest(partitions.priority_job_factor)
    by_qos = settings.weight_qos * _share_of_largest(world.qos.priority)
    per_node = np.column_stack([nodes.cpus, nodes.memory_mb, np.ones(len(nodes), np.int64), nodes.gpus])
    total = partitions.nodes.astype(np.int64) @ per_node
    tres = np.zeros(count)
    for column, weight in enumerate(settings.weight_tres):
        most = total[partition, column]
        if weight:
            tres += np.where(most > 0, weight * (request[:, column] / np.maximum(most, 1)), 0.0)
    return (((size + by_partition[partition]) + by_qos[jobs.qos]) + tres + jobs.site_factor) - jobs.nice


def _share_of_largest(values: NDArray[np.int64]) -> NDArray[np.float64]:
    largest = int(values.max(initial=0))
    return values / largest if largest > 0 else np.zeros(len(values))


@kernel_inline
def priority(run: SlurmRun, state: SlurmState, job: int, age_s: int) -> int:
    """Return the priority of row `job` after `age_s` seconds of waiting, truncated to an integer as by slurmctld."""
    knobs = run.knobs
    value = run.jobs.static[job] + knobs.weight_age * min(1.0, age_s / knobs.max_age_s)
    if knobs.weight_fairshare != 0.0:
        value += knobs.weight_fairshare * state.factor[run.jobs.association[job]]
    return int(min(max(value, LOWEST), HIGHEST))
