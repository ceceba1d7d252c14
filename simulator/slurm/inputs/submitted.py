"""Extra jobs that are submitted into a world: their submitter and partition, their size, and their user's limits."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from simulator.cluster import NO_LIMIT
from simulator.slurm import world as w
from simulator.slurm.world import NONE


class SubmitterNames(NamedTuple):
    """The partition, account and user of a submitter, named as in the cluster's files and logs."""

    partition: str
    account: str
    user: str


class Submitter(NamedTuple):
    """A submitter as rows of a world's partitions, QOS and associations, and the number of the user."""

    partition: int
    qos: int
    user: int
    association: int
    site_factor: float = 0.0  # added to the priority of the jobs


def with_jobs(world: w.SlurmWorld, submitter: Submitter, *, count: int, nodes: int, limit_s: int) -> w.SlurmWorld:
    """Return the world with `count` equal extra jobs after its own; each runs to its limit.

    They take `nodes` whole nodes. On each node they are charged for the amounts that every node of the partition has
    (`share`).
    """
    last_s = int(world.jobs.submit_s[-1:].max(initial=0))  # rows of jobs are in order of submission
    cpus, memory_mb, gpus = share(world, submitter.partition)
    columns = {
        "partition": submitter.partition,
        "qos": submitter.qos,
        "user": submitter.user,
        "association": submitter.association,
        "cpus_per_node": cpus,
        "memory_per_node_mb": memory_mb,
        "gpus_per_node": gpus,
    }
    more = w.plain_jobs(
        *(np.full(count, value, np.int64) for value in (last_s, limit_s, limit_s, nodes)),
        exclusive=np.ones(count, bool),
        site_factor=np.full(count, submitter.site_factor),
        **{name: np.full(count, value, np.int64) for name, value in columns.items()},
    )
    both = (np.append(getattr(world.jobs, one.name), getattr(more, one.name)) for one in fields(w.SlurmJobs))
    first = np.append(world.pinned_first, np.full(count, world.pinned_first[-1]))
    return replace(world, jobs=w.SlurmJobs(*both), pinned_first=first)


def share(world: w.SlurmWorld, partition: int) -> tuple[int, int, int]:
    """Return the smallest numbers of CPUs, MB and GPUs over the nodes of the partition."""
    of_it = world.partitions.nodes[partition]
    cpus, memory_mb, gpus = (
        int(column[of_it].min(initial=w.NEVER)) if of_it.any() else 0
        for column in (world.nodes.cpus, world.nodes.memory_mb, world.nodes.gpus)
    )
    return cpus, memory_mb, gpus


def user_limits(world: w.SlurmWorld, submitter: Submitter) -> tuple[int, int]:
    """Return the most running jobs, and the most nodes, that per-user limits allow the submitter; NO_LIMIT for none.

    These limits are MaxJobsPerUser and MaxTRESPerUser of the job's and the partition's QOS, and MaxJobs of the
    association. A limit on CPUs, memory or GPUs counts as the number of whole nodes that it allows.
    """
    cpus, memory_mb, gpus = share(world, submitter.partition)
    per_node = {w.CPU: cpus, w.MEMORY: memory_mb, w.NODE: 1, w.GPU: gpus}
    jobs = [int(world.associations.max_jobs[submitter.association])]
    nodes = []
    for qos in {submitter.qos, int(world.partitions.qos[submitter.partition])} - {NONE}:
        jobs.append(int(world.qos.user_jobs[qos]))
        nodes += [
            int(world.qos.user_tres[qos, tres]) // held
            for tres, held in per_node.items()
            if held and world.qos.user_tres[qos, tres] != w.NO_LIMIT
        ]
    return min([NO_LIMIT, *(most for most in jobs if most != w.NO_LIMIT)]), min([NO_LIMIT, *nodes])
