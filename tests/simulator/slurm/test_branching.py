"""Jobs submitted into any declared world: when they start, and what their user sees, as the plain twin has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from simulator.cluster import NO_LIMIT, Built, advance, place_of, start_of, submit, visible_state
from simulator.slurm import world as w
from simulator.slurm.branching import build
from simulator.slurm.inputs.submitted import Submitter, share, user_limits, with_jobs
from tests.simulator.slurm.worlds import FEATURES, random_world
from tests.twins.slurm import passes, rules
from tests.twins.slurm.clock import played, simulate
from tests.twins.slurm.moves import in_service, nodes_in_any
from tests.twins.slurm.priority import static_priority
from tests.twins.slurm.state import PlainController, PlainSlurmJob
from traces.errors import InputError

LIMIT_S = 300
cases = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
features = st.sets(st.sampled_from([one for one in FEATURES if one != "preemption"]), max_size=6)


def cut(seed: int, chosen: set[str]) -> tuple[w.SlurmWorld, Submitter]:
    """A random world, and somebody who submits into some partition of it."""
    world, rng = random_world(seed, chosen), np.random.default_rng(seed)
    row = int(rng.choice(np.flatnonzero(world.associations.user != w.NONE)))
    partition, qos = int(rng.integers(len(world.partitions))), int(rng.integers(len(world.qos)))
    assume(world.partitions.nodes[partition].any())
    return world, Submitter(partition, qos, int(world.associations.user[row]), row)


def built(world: w.SlurmWorld, by: Submitter, nodes: int = 1) -> Built:
    try:
        return build(world, by, extra=2, nodes=nodes, limit_s=LIMIT_S, threads=1)
    except InputError:  # it could never start
        assume(False)
        raise


def in_the_trace(world: w.SlurmWorld, by: Submitter, nodes: int, submits: list[int]) -> tuple[w.SlurmWorld, list[int]]:
    """The world with those jobs among its own, behind the others of their second, and their rows."""
    whole = with_jobs(world, by, count=len(submits), nodes=nodes, limit_s=LIMIT_S)
    submit_s = np.append(world.jobs.submit_s, submits)
    order = np.argsort(submit_s, kind="stable")
    row_of = np.argsort(order)
    columns = {name: getattr(whole.jobs, name)[order] for name in whole.jobs.__dataclass_fields__}
    edges = whole.dependencies
    parent = np.where(edges.parent == w.NONE, w.NONE, row_of[edges.parent])
    moved = replace(edges, job=row_of[edges.job], parent=parent)
    jobs = w.SlurmJobs(**(columns | {"submit_s": submit_s[order]}))
    return replace(whole, jobs=jobs, dependencies=moved), row_of[len(world.jobs) :].tolist()


@cases
@given(
    seed=st.integers(0, 2**32 - 1), chosen=features, at=st.integers(0, 600), nodes=st.integers(1, 3),
    more=st.integers(0, 1),
)  # fmt: skip
def test_a_submitted_job_starts_as_the_twin_says(seed: int, chosen: set[str], at: int, nodes: int, more: int) -> None:
    """And the next one, after the use of the first; both of fewer nodes than the world was built for, or as many."""
    world, by = cut(seed, chosen)
    here = built(world, by, nodes + more)
    cluster, branch, row = here.clusters[0], here.branch(64, 5), here.first_extra
    for job in (row, row + 1):
        here.resize(cluster, job, nodes)
    assert advance(cluster, branch, at - 1) == 0
    submit(cluster, branch, row, at)
    first_s = start_of(cluster, branch, row)
    assume(first_s != w.NONE)
    again_s = first_s + LIMIT_S // 2
    assert advance(cluster, branch, again_s - 1) == 0
    submit(cluster, branch, row + 1, again_s)
    whole, rows = in_the_trace(world, by, nodes, [at, again_s])
    starts = simulate(whole).start_s[rows].tolist()
    assert [first_s, start_of(cluster, branch, row + 1)] == starts


@cases
@given(seed=st.integers(0, 2**32 - 1), chosen=features, at=st.integers(0, 600))
def test_what_is_seen_is_what_the_twin_knows(seed: int, chosen: set[str], at: int) -> None:
    world, by = cut(seed, chosen)
    here = built(world, by)
    cluster, branch = here.clusters[0], here.branch(64, 5)
    assert advance(cluster, branch, at) == 0
    seen = visible_state(cluster, branch, at)
    controller = played(world, until=at)
    controller.now = at
    members = set(np.flatnonzero(world.partitions.nodes[by.partition]).tolist())
    outages = world.outages
    reserved = (outages.kind == w.RESERVATION) & (outages.begin_s <= at) & (outages.end_s > at)
    usable = (in_service(controller) & members) - nodes_in_any(outages.nodes[reserved])
    assert (seen.capacity, seen.usable) == (len(members - controller.out), len(usable))
    assert sorted(zip(*map(list, (seen.running_nodes, seen.running_limit_s, seen.running_start_s, seen.running_user)),
                      strict=True)) == running_in(controller, members)  # fmt: skip
    pending = list(zip(*map(list, (seen.pending_nodes, seen.pending_limit_s, seen.pending_held, seen.pending_user)),
                       strict=True))  # fmt: skip
    waiting = [job for job in passes.queue(controller) if partition_of(world, job) & members]
    others = [job for job in controller.jobs if job.state == w.PENDING and not job.queued]
    held = [asked(world, job, 1) for job in others if partition_of(world, job) & members]
    assert pending[: len(waiting)] == [asked(world, job, is_held(controller, job, by)) for job in waiting]
    assert sorted(pending[len(waiting) :]) == sorted(held)
    assert place_of(cluster, branch, here.first_extra, at) == place_in(controller, waiting, by)
    jobs = [job for job in controller.jobs if job.state not in (w.FUTURE, w.UNPLACEABLE) and job.submit <= at]
    arrived = sorted((job.submit, job.nodes * job.limit) for job in jobs if partition_of(world, job) & members)
    assert sorted(zip(seen.arrived_submit_s.tolist(), seen.arrived_node_s.tolist(), strict=True)) == arrived


def partition_of(world: w.SlurmWorld, job: PlainSlurmJob) -> set[int]:
    return set(np.flatnonzero(world.partitions.nodes[job.partition]).tolist())


def asked(world: w.SlurmWorld, job: PlainSlurmJob, held: int) -> tuple[int, int, int, int]:
    return job.nodes, job.limit, held, int(world.jobs.user[job.row])


def running_in(controller: PlainController, members: set[int]) -> list[tuple[int, ...]]:
    """(nodes, limit, start, user) of the jobs that hold a node there longer than any other may."""
    longest: dict[int, PlainSlurmJob] = {}
    for job in sorted(controller.running, key=lambda job: (job.start + job.limit, job.row)):
        longest |= dict.fromkeys(set(job.held) & members, job)
    rows = {job.row: job for job in longest.values()}
    count = {row: sum(other.row == row for other in longest.values()) for row in rows}
    user = controller.world.jobs.user
    return sorted((count[row], job.limit, job.start, int(user[row])) for row, job in rows.items())


def is_held(controller: PlainController, job: PlainSlurmJob, by: Submitter) -> int:
    over = controller.world.jobs.user[job.row] != by.user and not rules.within_limits(controller, job)
    return int(over or rules.throttled(controller, job))


def place_in(controller: PlainController, waiting: list[PlainSlurmJob], by: Submitter) -> int:
    """How many of them have at least the priority of a new job, and no lower tier."""
    world = with_jobs(controller.world, by, count=1, nodes=1, limit_s=LIMIT_S)
    new = played(world, until=-1).jobs[-1]
    fair_share = controller.settings.weight_fairshare * controller.usage.factor.get(by.association, 0.0)
    priority = int(min(max(static_priority(world, new) + fair_share, 1), 2**32 - 1))
    tier = world.partitions.priority_tier
    key = (int(tier[by.partition]), priority)
    return sum((int(tier[job.partition]), job.priority) >= key for job in waiting)


@cases
@given(seed=st.integers(0, 2**32 - 1), chosen=features)
def test_one_job_more_than_the_limits_of_the_user_is_over_them(seed: int, chosen: set[str]) -> None:
    """By the twin: so many jobs of one node run beside one another, and no more, where users alone are limited."""
    world, by = cut(seed, chosen | {"limits"})
    free, tres = np.full(len(world.qos), w.NO_LIMIT), np.full((len(world.qos), w.TRES), w.NO_LIMIT)
    shared: dict[str, Any] = {"group_jobs": free, "group_tres": tres, "account_jobs": free, "account_tres": tres}
    tree = world.associations
    above = replace(
        tree, group_jobs=np.full(len(tree), w.NO_LIMIT), group_tres=np.full((len(tree), w.TRES), w.NO_LIMIT)
    )
    world = replace(world, qos=replace(world.qos, **shared, job_tres=tres), associations=above)
    jobs, nodes = user_limits(world, by)
    most = min(jobs, nodes)
    count = 12 if most == NO_LIMIT else most + 1
    controller = played(with_jobs(world, by, count=count, nodes=1, limit_s=LIMIT_S), until=-1)
    mine = controller.jobs[len(world.jobs) :]
    for beside in range(count):
        assert rules.within_limits(controller, mine[beside]) == (beside < most)
        mine[beside].state = w.RUNNING


def test_what_every_node_of_the_partition_has_is_charged() -> None:
    nodes, partitions = w.whole_nodes(3)
    nodes = replace(nodes, cpus=np.array([2, 8, 4]), memory_mb=np.array([9, 7, 5]), gpus=np.array([0, 4, 2]))
    jobs = w.plain_jobs(*(np.ones(1, np.int64) for _ in range(4)))
    world = w.flat_world(jobs, 3, w.SlurmSettings())
    world = replace(world, nodes=nodes, partitions=replace(partitions, nodes=np.array([[False, True, True]])))
    assert share(world, 0) == (4, 5, 2)
    added = with_jobs(world, Submitter(0, 0, 0, 1), count=2, nodes=2, limit_s=7).jobs
    assert added.cpus_per_node.tolist() == [1, 4, 4] and added.gpus_per_node.tolist() == [0, 2, 2]
    assert added.run_s.tolist() == added.limit_s.tolist() == [1, 7, 7] and added.exclusive.tolist() == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(("nodes", "most_s", "reason"), [(3, w.NO_LIMIT, "larger than its"), (1, 9, "longer than the")])
def test_what_could_never_start_is_refused_with_its_reason(nodes: int, most_s: int, reason: str) -> None:
    world = w.flat_world(w.plain_jobs(*(np.ones(1, np.int64) for _ in range(4))), 2, w.SlurmSettings())
    world = replace(world, partitions=replace(world.partitions, max_time_s=np.array([most_s])))
    with pytest.raises(InputError, match=f"partition 'all': {reason}"):
        build(world, Submitter(0, 0, 0, 1), extra=2, nodes=nodes, limit_s=LIMIT_S, threads=1)
