"""The twin's priorities: docs/schedulers/slurm.md, "Priority"."""

from __future__ import annotations

import math

from simulator.slurm import world as w
from tests.twins.slurm.state import PlainController, PlainSlurmJob


def static_priority(world: w.SlurmWorld, job: PlainSlurmJob) -> float:
    """Return the sum of the terms that do not change while the job waits."""
    settings, jobs, request = world.settings, world.jobs, job.request
    every_node, every_cpu = len(world.nodes), int(world.nodes.cpus.sum())
    size = 0.0
    if settings.weight_job_size:
        if settings.favor_small:
            factor = 0.5 * ((every_node - job.nodes) / every_node + (every_cpu - request[w.CPU]) / every_cpu)
        else:
            factor = 0.5 * (job.nodes / every_node + request[w.CPU] / every_cpu)
        size = settings.weight_job_size * min(1.0, max(0.0, factor))
    factors = world.partitions.priority_job_factor.tolist()
    partition = settings.weight_partition * (factors[job.partition] / max(factors)) if max(factors) else 0.0
    priorities = world.qos.priority.tolist()
    qos = settings.weight_qos * (priorities[job.qos] / max(priorities)) if max(priorities) else 0.0
    members = world.partitions.nodes[job.partition]
    totals = [
        int(world.nodes.cpus[members].sum()),
        int(world.nodes.memory_mb[members].sum()),
        int(members.sum()),
        int(world.nodes.gpus[members].sum()),
    ]
    tres = 0.0
    for weight, need, total in zip(settings.weight_tres, request, totals, strict=True):
        if total:
            tres += weight * (need / total)
    return ((((size + partition) + qos) + tres) + float(jobs.site_factor[job.row])) - int(jobs.nice[job.row])


def set_priority(controller: PlainController, job: PlainSlurmJob) -> None:
    """Set the job's current priority from its age and its user's fair share."""
    settings = controller.settings
    age = settings.weight_age * min(1.0, (controller.now - job.accrue) / settings.max_age_s)
    fairshare = 0.0
    if settings.weight_fairshare:
        association = int(controller.world.jobs.association[job.row])
        fairshare = settings.weight_fairshare * controller.usage.factor[association]
    job.priority = max(1, min(2**32 - 1, math.trunc(job.static + age + fairshare)))


def charge(controller: PlainController, job: PlainSlurmJob, *, ends: bool) -> None:
    """Charge a running job up to now to its association and all above."""
    world, usage = controller.world, controller.usage
    seconds = controller.now - usage.since.pop(job.row)
    if not ends:
        usage.since[job.row] = controller.now
    billing = 0.0
    for weight, need in zip(world.partitions.billing[job.partition].tolist(), job.request, strict=True):
        billing += weight * need
    rate = round(1000 * float(world.qos.usage_factor[job.qos]) * billing)
    association = int(world.jobs.association[job.row])
    while association != w.NONE:
        usage.fresh[association] += rate * seconds
        association = int(world.associations.parent[association])


def calculate_usage(controller: PlainController) -> None:
    """End a decay period: charge running jobs, let usage decay, and rank the users again."""
    settings, usage = controller.settings, controller.usage
    for job in controller.running:
        charge(controller, job, ends=False)
    decay = 1.0
    if settings.decay_half_life_s:
        decay = (1 - 0.693 / settings.decay_half_life_s) ** settings.calc_period_s
    usage.decayed = [used * decay + fresh for used, fresh in zip(usage.decayed, usage.fresh, strict=True)]
    usage.fresh = [0] * len(usage.fresh)
    usage.factor = fair_share_factors(controller)


def fair_share_factors(controller: PlainController) -> dict[int, float]:
    """Return the fair-tree factors: users ranked by a walk from the root, siblings by falling fair share."""
    is_user = controller.world.associations.user != w.NONE
    children = controller.usage.children
    level = {row: _level_fairshare(controller, row) for row in range(1, len(is_user))}
    users = int(is_user.sum())
    next_rank = users
    factor: dict[int, float] = dict.fromkeys(range(len(is_user)), 0.0)

    def walk(rows: list[int]) -> None:
        """Visit siblings (of one account, or of several merged accounts)."""
        nonlocal next_rank
        order = sorted(rows, key=lambda row: (-level[row], not is_user[row], row))
        at = 0
        while at < len(order):
            same = [order[at]]
            for row in order[at + 1 :]:
                if level[row] != level[same[0]] or is_user[row] != is_user[same[0]]:
                    break
                same.append(row)
            at += len(same)
            if is_user[same[0]]:
                for row in same:
                    factor[row] = next_rank / users
                next_rank -= len(same)
            else:
                walk([child for row in same for child in children[row]])

    walk(children[0])
    return factor


def _level_fairshare(controller: PlainController, row: int) -> float:
    """Return the row's part of its siblings' shares over its part of their usage; infinite if it used nothing."""
    tree, usage = controller.world.associations, controller.usage
    siblings = usage.children[int(tree.parent[row])]
    if usage.decayed[row] == 0:
        return math.inf
    if tree.shares[row] == 0:
        return 0.0
    shares = int(tree.shares[row]) / int(sum(tree.shares[other] for other in siblings))
    used = 0.0
    for other in siblings:  # by row: sums of doubles depend on their order
        used += usage.decayed[other]
    return shares / (usage.decayed[row] / used)
