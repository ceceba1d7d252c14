"""Gavel with the largest sum of throughputs: fractions of time with which all jobs together make most steps a second.

As `gavel`, with another objective (Narayanan et al., OSDI 2020, section 4.2, maximum throughput): the sum of the jobs'
steps per second. The steps of each GPU count, so models with short steps go first and others may wait long.

| point | paper | authors' program (c4fa400) | here |
|---|---|---|---|
| objective | steps per second, or per dollar | as the paper | steps per second |
| several optimal allocations | open | where its interior-point solver ends | where HiGHS ends |

Sia's authors compare with a Gavel of their own under this objective. It never forgets the time that a job received, and
orders all GPU types in one list. It fills nodes in order, so that gangs are spread. These rules are not here; on their
40 jobs the mean completion time here is 0.83 of theirs. Parameters as for `gavel`.
"""

from __future__ import annotations

import numpy as np

from simulator.gpu.algorithms import time_shares
from simulator.gpu.algorithms.placement import fewest_nodes, packed_whole
from simulator.gpu.algorithms.time_shares import SharedGpus
from simulator.gpu.policies.gavel.max_min import Gavel
from simulator.gpu.profiles.scaling import throughput
from simulator.gpu.round_policy import GpuJob, GpuMachine, View
from simulator.gpu.scheduler import RoundScheduler
from traces.arrays import Float64s


class GavelThroughput(Gavel):
    """Gavel with the objective of the largest sum of throughputs."""

    name = "gavel-throughput"

    def _shares(self, view: View, shared: SharedGpus) -> Float64s:
        own = np.array([_own_steps(job, view.machine) for job in view.jobs])
        return time_shares.most_throughput(shared, shared.speed * own[:, None])


def _own_steps(job: GpuJob, machine: GpuMachine) -> float:
    """Return the steps per second, summed over the GPUs requested, packed on the reference type; 1 without a model."""
    if job.model is None:
        return 1.0
    if job.training is not None:
        placement = packed_whole(job.gpus, machine.widest)
        return job.gpus * job.training.steps_per_s((machine.reference,), placement)
    nodes = fewest_nodes(job.gpus, machine.widest)
    return throughput(job.model, machine.reference, job.gpus, nodes) / job.model.local_batch


SCHEDULER = RoundScheduler(GavelThroughput)
