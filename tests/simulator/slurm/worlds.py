"""Random small worlds that cover every feature of the `slurm` scheduler.

Hypothesis draws the seed and the features; numpy draws the rest, which makes for busier worlds than hypothesis would.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from simulator.slurm import world as w
from traces.arrays import Bools, Int64s

FEATURES = (
    "partitions", "gpus", "limits", "dependencies", "arrays", "outages", "capacity", "fairshare", "preemption",
    "holds", "options", "completing", "zero",
)  # fmt: skip

Random = np.random.Generator


def _some(rng: Random, values: list[int], count: int) -> Int64s:
    return rng.choice(np.array(values, np.int64), count)


def _one(rng: Random, *values: int) -> int:
    return int(rng.choice(np.array(values, np.int64)))


def _flags(rng: Random, *shape: int) -> Bools:
    return rng.integers(0, 2, shape).astype(bool)


def _machine(rng: Random, features: set[str]) -> tuple[w.SlurmNodes, w.Partitions]:
    count = _one(rng, 2, 3, 4, 6)
    gpus = _some(rng, [0, 4, 4], count) if "gpus" in features else np.zeros(count, np.int64)
    nodes = w.SlurmNodes(
        names=tuple(f"n{row}" for row in range(count)),
        cpus=_some(rng, [4, 4, 8], count),
        memory_mb=_some(rng, [8, 16], count),
        gpus=gpus,
        gpu_type=np.where(gpus > 0, rng.integers(0, 2, count), w.NONE),
        weight=_some(rng, [1, 1, 2], count),
    )
    several = _one(rng, 2, 3) if "partitions" in features else 1
    members = rng.random((several, count)) < 0.7
    members[0] = True
    limits = [w.NO_LIMIT, w.NO_LIMIT] if several == 1 else [w.NO_LIMIT, 2]
    partitions = w.Partitions(
        names=tuple(f"p{row}" for row in range(several)),
        nodes=members,
        priority_tier=rng.integers(1, 3, several),
        priority_job_factor=rng.integers(0, 4, several),
        max_time_s=_some(rng, limits, several) * 300,
        max_nodes=_some(rng, limits, several),
        exclusive=_flags(rng, several) & ("partitions" in features),
        least_loaded=_flags(rng, several) & ("gpus" in features),
        qos=np.where(_flags(rng, several) & ("limits" in features), 0, w.NONE),
        billing=np.array([[1.0, 0.25, 0.0, 2.0]] * several),
        preempt_mode=rng.integers(0, 3, several),
    )
    return nodes, replace(partitions, max_time_s=np.maximum(partitions.max_time_s, w.NO_LIMIT))


def _limits(rng: Random, features: set[str], values: list[int], *shape: int) -> Int64s:
    """Mostly no limits, else one of the values."""
    if "limits" not in features:
        return np.full(shape, w.NO_LIMIT)
    return np.where(rng.random(shape) < 0.8, w.NO_LIMIT, rng.choice(np.array(values, np.int64), shape))


def _qos(rng: Random, features: set[str]) -> w.SlurmQos:
    count = _one(rng, 1, 2, 3)
    preempts = np.tril(rng.random((count, count)) < 0.8, -1)  # some of those before it, so there are no cycles
    return w.SlurmQos(
        names=tuple(f"q{row}" for row in range(count)),
        priority=rng.integers(0, 4, count),
        usage_factor=rng.choice(np.array([1.0, 0.5, 0.0]), count),
        group_jobs=_limits(rng, features, [1, 2], count),
        group_tres=_limits(rng, features, [4, 9], count, w.TRES),
        user_jobs=_limits(rng, features, [1, 2], count),
        user_tres=_limits(rng, features, [4, 9], count, w.TRES),
        account_jobs=_limits(rng, features, [1, 2], count),
        account_tres=_limits(rng, features, [4, 9], count, w.TRES),
        job_tres=_limits(rng, features, [9], count, w.TRES),
        preempts=preempts if "preemption" in features else np.zeros((count, count), bool),
        preempt_mode=rng.integers(0, 3, count),
        preempt_exempt_s=_some(rng, [0, 0, 40], count),
    )


def _associations(rng: Random, features: set[str]) -> w.Associations:
    """A root, up to three accounts below it or below one another, and users in them."""
    accounts, users = _one(rng, 1, 2, 3), _one(rng, 1, 2, 4)
    above = [int(rng.integers(0, row)) for row in range(1, accounts + 1)]
    homes = rng.integers(0, accounts + 1, users).tolist()
    count = 1 + accounts + users
    return w.Associations(
        parent=np.array([w.NONE, *above, *homes]),
        user=np.array([w.NONE] * (1 + accounts) + rng.integers(0, users, users).tolist()),
        account=np.array([*range(1 + accounts), *homes]),
        shares=rng.integers(0, 4, count),
        group_jobs=_limits(rng, features, [1, 3], count),
        group_tres=_limits(rng, features, [8, 16], count, w.TRES),
        max_jobs=_limits(rng, features, [1, 2], count),
    )


def _jobs(
    rng: Random, features: set[str], partitions: w.Partitions, qos: w.SlurmQos, tree: w.Associations
) -> tuple[w.SlurmJobs, int]:
    count, scale = int(rng.integers(2, 24)), _one(rng, 7, 30, 60)
    submit = np.sort(rng.integers(0, 6, count)) * scale
    association = _some(rng, np.flatnonzero(tree.user != w.NONE).tolist(), count)
    never = np.full(count, w.NEVER)
    rows = {
        "run_s": rng.integers(0 if "zero" in features else 1, 16, count) * scale,
        "limit_s": rng.choice([2, 5, 16, 20], count) * scale,
        "nodes": _some(rng, [1, 1, 1, 2, 3], count),
        "cpus_per_node": _some(rng, [1, 2, 3, 4, 4], count),
        "memory_per_node_mb": _some(rng, [0, 4, 8], count),
        "gpus_per_node": rng.integers(0, 3, count) * ("gpus" in features),
        "gpu_type": _some(rng, [w.NONE] * 4 + [0, 1], count),
        "qos": rng.integers(0, len(qos), count),
        "nice": _some(rng, [0, 0, 5], count),
        "name": rng.integers(0, 2, count),
        "association": association,
        "user": tree.user[association],
        "partition": np.where(
            (rng.random(count) < 0.05) & ("partitions" in features), w.NONE, rng.integers(0, len(partitions), count)
        ),
        "exclusive": rng.random(count) < 0.2,
        "any_dependency": _flags(rng, count),
    }
    arrays = _one(rng, 1, 2) if "arrays" in features else 0
    array = rng.integers(-1, arrays, count)
    for number in range(arrays):  # the tasks of an array are alike
        if len(tasks := np.flatnonzero(array == number)):
            for values in rows.values():
                values[tasks] = values[tasks[0]]
    rows |= {"array": array, "failed": _flags(rng, count)}
    if "holds" in features:
        rows["eligible_s"] = np.maximum(submit, _some(rng, [0, 100, 333], count))
        rows["cancel_s"] = np.where(_flags(rng, count), submit + _some(rng, [0, 50, 200, 400], count), never)
    run, limit, nodes = (rows.pop(name) for name in ("run_s", "limit_s", "nodes"))
    return w.plain_jobs(submit, run, limit, nodes, **rows), arrays


def _dependencies(rng: Random, jobs: int) -> w.Dependencies:
    count = int(rng.integers(1, 8))
    job, kind = rng.integers(0, jobs, count), rng.integers(0, 5, count)
    # Mostly on jobs before it, so that cycles are the exception.
    parent = np.where(rng.random(count) < 0.8, rng.integers(0, np.maximum(job, 1)), rng.integers(0, jobs, count))
    delay = _some(rng, [0, 45], count)
    singleton = kind == w.SINGLETON
    return w.Dependencies(job, np.where(singleton, w.NONE, parent), kind, delay)


def _outages(rng: Random, nodes: int) -> w.Outages:
    count = _one(rng, 1, 2, 3)
    begin = rng.integers(0, 400, count)
    notice, length = rng.integers(0, 400, count), rng.integers(1, 300, count)
    return w.Outages(
        rng.integers(0, 2, count), begin, begin + length, np.maximum(begin - notice, 0), _flags(rng, count, nodes)
    )


def _capacity(rng: Random, nodes: int) -> w.CapacityChanges:
    times = np.unique(rng.integers(0, 500, _one(rng, 1, 2, 3)))
    counts = rng.integers(0, nodes + 1, len(times))
    counts[-1] = nodes
    return w.CapacityChanges(times, counts)


def _settings(rng: Random, features: set[str]) -> w.SlurmSettings:
    settings = w.SlurmSettings(
        weight_age=_one(rng, 0, 1000),
        weight_job_size=_one(rng, 0, 500),
        weight_partition=_one(rng, 0, 100),
        weight_qos=_one(rng, 0, 300),
        weight_tres=(0.0, 0.0, 0.0, float(_one(rng, 0, 50))),
        favor_small=bool(_one(rng, 0, 1)),
        max_age_s=_one(rng, 200, 86_400),
        calc_period_s=_one(rng, 60, 300),
        bf_interval_s=_one(rng, 30, 45),
        kill_wait_s=_one(rng, 0, 30),
        over_time_limit_s=_one(rng, 0, 60),
    )
    settings = replace(settings, origin_s=_one(rng, 0, 0, 7, 1000))
    if "fairshare" in features:
        settings = replace(settings, weight_fairshare=1000, decay_half_life_s=_one(rng, 0, 600))
    if "completing" in features:
        settings = replace(settings, completing_s=_one(rng, 1, 2, 61))
    if "preemption" in features:
        settings = replace(
            settings,
            requeue_delay_s=_one(rng, 0, 20, 120),
            preempt_by_partition=bool(_one(rng, 0, 0, 1)),
            preempt_youngest_first=bool(_one(rng, 0, 0, 0, 1)),
            preempt_strict_order=bool(_one(rng, 0, 1)),
            preempt_reorder_count=_one(rng, 0, 1, 1, 3),
        )
    if "options" not in features:
        return settings
    return replace(
        settings,
        backfill=bool(_one(rng, 0, 1, 1, 1)),
        default_queue_depth=_one(rng, 0, 1, 100),
        sched_interval_s=_one(rng, 10, 60),
        batch_sched_delay_s=_one(rng, 0, 3, 20),
        bf_window_s=_one(rng, 120, 600, 86_400),
        bf_resolution_s=_one(rng, 1, 60, 100),
        bf_max_job_test=_one(rng, 1, 3, 500),
        bf_max_job_part=_one(rng, 0, 0, 2),
        bf_max_job_user=_one(rng, 0, 0, 2),
        bf_max_job_start=_one(rng, 0, 0, 1),
        bf_max_job_array_resv=_one(rng, 1, 20),
        bf_job_part_count_reserve=_one(rng, 0, 0, 1),
        bf_min_age_reserve_s=_one(rng, 0, 0, 60),
        bf_min_prio_reserve=_one(rng, 0, 0, 200),
    )


def random_world(seed: int, features: set[str]) -> w.SlurmWorld:
    """A crowded small world with these features, always the same for a seed."""
    rng = np.random.default_rng(seed)
    nodes, partitions = _machine(rng, features)
    qos, tree = _qos(rng, features), _associations(rng, features)
    jobs, arrays = _jobs(rng, features, partitions, qos, tree)
    count = len(nodes)
    return w.SlurmWorld(
        nodes=nodes,
        partitions=partitions,
        qos=qos,
        associations=tree,
        jobs=jobs,
        dependencies=_dependencies(rng, len(jobs)) if "dependencies" in features else w.no_dependencies(),
        outages=_outages(rng, count) if "outages" in features else w.no_outages(count),
        capacity=_capacity(rng, count) if "capacity" in features else w.constant_capacity(),
        pinned_first=np.zeros(len(jobs) + 1, np.int64),
        pinned_nodes=np.zeros(0, np.int64),
        array_throttle=rng.integers(0, 3, arrays),
        settings=_settings(rng, features),
    )


def crowded_world(seed: int) -> w.SlurmWorld:
    """One partition with a long queue of jobs of arbitrary lengths, for what a backfill pass plans and passes over."""
    rng = np.random.default_rng(seed)
    count, size = int(rng.integers(15, 50)), _one(rng, 2, 3, 5)
    run = np.maximum(rng.lognormal(np.log(_one(rng, 60, 900)), 1.5, count), 1).astype(np.int64)
    limit = (run * rng.uniform(0.9, 3, count)).astype(np.int64) // _one(rng, 1, 60) * 60 + 60
    submit = np.sort(rng.integers(0, _one(rng, 100, 1000, 4000), count))
    gpus = _some(rng, [1, 1, 2, 4, 4], count)
    jobs = w.plain_jobs(
        submit, run, limit, _some(rng, [1, 1, 1, 1, 2, 3], count), gpus_per_node=gpus, cpus_per_node=gpus,
        array=np.where(rng.random(count) < _one(rng, 0, 0, 1) / 4, 0, w.NONE),
    )  # fmt: skip
    machine, parts = w.whole_nodes(size)
    machine = replace(
        machine, cpus=np.full(size, 4), gpus=np.full(size, 4), gpu_type=np.zeros(size, np.int64),
        weight=_some(rng, [1, 1, 1, 2], size),
    )  # fmt: skip
    parts = replace(parts, exclusive=np.zeros(1, bool), least_loaded=np.full(1, _one(rng, 0, 0, 1), bool))
    settings = w.SlurmSettings(
        weight_age=1000,
        weight_job_size=_one(rng, 0, 5000),
        kill_wait_s=30,
        bf_interval_s=_one(rng, 60, 300),
        sched_interval_s=300,
        bf_resolution_s=_one(rng, 1, 60, 60, 100, 600),
        bf_window_s=_one(rng, 3600, 86_400, 86_400),
        bf_max_job_test=_one(rng, 5, 20, 500, 500),
        bf_max_job_user=_one(rng, 0, 0, 0, 5),
        bf_min_age_reserve_s=_one(rng, 0, 0, 0, 600),
    )
    world = w.flat_world(jobs, size, settings, nodes=machine, partitions=parts)
    return replace(world, array_throttle=np.zeros(int(jobs.array.max() + 1), np.int64))


def wide_world(seed: int) -> w.SlurmWorld:
    """One partition of more nodes than a word has bits; mostly jobs take them whole, some run beside each other.

    In some, nodes go in and out of service, or a QOS preempts the other.
    """
    rng = np.random.default_rng(seed)
    count, size = int(rng.integers(8, 24)), _one(rng, 63, 64, 65, 130)
    run = np.maximum(rng.lognormal(np.log(300), 1.0, count), 1).astype(np.int64)
    limit = (run * rng.uniform(0.9, 3, count)).astype(np.int64) // _one(rng, 1, 60) * 60 + 60
    submit = np.sort(rng.integers(0, _one(rng, 100, 1000), count))
    jobs = w.plain_jobs(
        submit, run, limit, _some(rng, [1, 7, 20, 33, size // 2, size // 2, size - 1], count),
        qos=rng.integers(0, 2, count), exclusive=rng.random(count) < _one(rng, 0, 1, 2) / 2,
    )  # fmt: skip
    machine, parts = w.whole_nodes(size)
    machine = replace(machine, cpus=np.full(size, 2), weight=_some(rng, [1] * _one(rng, 9, 99, 999) + [2], size))
    parts = replace(parts, exclusive=np.array([rng.random() < 0.7]), least_loaded=np.array([rng.random() < 0.2]))
    qos = _qos(rng, {"preemption"} if rng.random() < 0.2 else set())
    settings = w.SlurmSettings(
        bf_interval_s=_one(rng, 60, 300), sched_interval_s=300, bf_resolution_s=_one(rng, 1, 60, 600)
    )
    jobs = replace(jobs, qos=jobs.qos % len(qos))
    spoilt = rng.random() < 0.3
    return w.flat_world(
        jobs, size, settings, nodes=machine, partitions=parts, qos=qos,
        outages=_outages(rng, size) if spoilt else w.no_outages(size),
        capacity=_capacity(rng, size) if spoilt else w.constant_capacity(),
    )  # fmt: skip


@st.composite
def worlds(draw: st.DrawFn, *features: str) -> w.SlurmWorld:
    """A random world with some of the features drawn (from all, where none is named)."""
    chosen = draw(st.sets(st.sampled_from(features or FEATURES), max_size=6))
    return random_world(draw(st.integers(0, 2**32 - 1)), chosen)
