"""The twin's nodes: those that can hold a job, and those that a placement takes.

docs/schedulers/slurm.md, "Words" and "Placement".
"""

from __future__ import annotations

from simulator.slurm import world as w
from tests.twins.slurm.state import PlainMachine, PlainSlurmJob


def _takes(machine: PlainMachine, job: PlainSlurmJob, node: int) -> tuple[int, ...]:
    return machine.total[node] if job.whole else job.share


def put(machine: PlainMachine, job: PlainSlurmJob, nodes: list[int]) -> None:
    """Let the job hold its share of each of these nodes."""
    for node in nodes:
        machine.running_on[node].append(job.row)
        machine.idle[node] = [
            has - need for has, need in zip(machine.idle[node], _takes(machine, job, node), strict=True)
        ]


def remove(machine: PlainMachine, job: PlainSlurmJob) -> None:
    """Free the job's shares."""
    for node in job.held:
        machine.running_on[node].remove(job.row)
        machine.idle[node] = [
            has + need for has, need in zip(machine.idle[node], _takes(machine, job, node), strict=True)
        ]


def could_hold(machine: PlainMachine, job: PlainSlurmJob, node: int) -> bool:
    """Whether the empty node can hold the share."""
    kind = int(machine.world.nodes.gpu_type[node])
    return not (job.gpu_type != w.NONE and job.share[2] > 0 and kind != job.gpu_type) and all(
        has >= need for has, need in zip(machine.total[node], job.share, strict=True)
    )


def holds(machine: PlainMachine, job: PlainSlurmJob, node: int) -> bool:
    """Whether the node can hold the share in addition to its running jobs."""
    if not could_hold(machine, job, node):
        return False
    if job.whole:
        return not machine.running_on[node]
    return all(has >= need for has, need in zip(machine.idle[node], job.share, strict=True))


def place(machine: PlainMachine, job: PlainSlurmJob, available: set[int]) -> list[int] | None:
    """Return the available nodes that the job would get, rising; None if they do not suffice."""
    fit = [node for node in sorted(available) if holds(machine, job, node)]
    if len(fit) < job.nodes:
        return None
    weight = machine.world.nodes.weight
    if machine.world.partitions.least_loaded[job.partition]:
        return sorted(sorted(fit, key=lambda node: (weight[node], -machine.idle[node][0], node))[: job.nodes])
    runs: list[list[int]] = []
    for node in fit:
        if runs and runs[-1][-1] == node - 1 and weight[node] == weight[node - 1]:
            runs[-1].append(node)
        else:
            runs.append([node])
    chosen: list[int] = []
    while len(chosen) < job.nodes:
        missing = job.nodes - len(chosen)
        run = min(runs, key=lambda run: _rank(machine, run, missing))
        runs.remove(run)
        chosen += run[:missing]
    return sorted(chosen)


def _rank(machine: PlainMachine, run: list[int], missing: int) -> tuple[int, bool, int, int]:
    """Rank a run: low weight first; then runs that suffice, shortest first; then the others, longest first."""
    enough = len(run) >= missing
    return int(machine.world.nodes.weight[run[0]]), not enough, len(run) if enough else -len(run), run[0]
