"""docs/schedulers/slurm.md, "Priority": every term, the order of the queue and the fair tree, worked out by hand.

The kernel and its plain twin are both held against the figures here: that the two agree would not show a rule that both
misread.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.slurm import world as w
from simulator.slurm.compiled import priority as compiled
from simulator.slurm.compiled.fairtree import rank_users
from simulator.slurm.inputs.prepare import prepared
from simulator.slurm.run import advanced
from tests.simulator.slurm.test_kernel_rules import RARE, jobs
from tests.simulator.slurm.test_twin import assert_equal
from tests.twins.slurm import moves
from tests.twins.slurm import priority as plain
from tests.twins.slurm.state import PlainController, at_the_beginning
from traces.arrays import Bools


def partitions(nodes: Bools, **columns: list[int]) -> w.Partitions:
    """Partitions without limits whose jobs share nodes; `nodes` of shape (partitions, nodes)."""
    count = len(nodes)
    one = np.ones(count, np.int64)
    given = {"priority_tier": one, "priority_job_factor": one, "max_time_s": 0 * one - 1, "max_nodes": 0 * one - 1,
             "qos": 0 * one - 1, "preempt_mode": 0 * one,
             **{name: np.array(values) for name, values in columns.items()}}  # fmt: skip
    return w.Partitions(
        names=tuple(f"p{row}" for row in range(count)), nodes=nodes, exclusive=np.zeros(count, bool),
        least_loaded=np.zeros(count, bool), billing=np.tile([1.0, 0.0, 0.0, 0.0], (count, 1)), **given,
    )  # fmt: skip


def qos(count: int, **columns: object) -> w.SlurmQos:
    """So many QOS without limits."""
    one = w.no_qos()
    each = {name: np.repeat(value, count, axis=0) for name, value in vars(one).items() if name != "names"}
    each["preempts"] = np.zeros((count, count), bool)
    given = {name: np.array(values) for name, values in columns.items()}
    return w.SlurmQos(names=tuple(f"q{row}" for row in range(count)), **{**each, **given})


def terms_world(settings: w.SlurmSettings) -> w.SlurmWorld:
    """Four nodes of 4 cores, 10 MB and no GPU but for the last, which has 2; the job's partition is the last two."""
    machine, _ = w.whole_nodes(4)
    machine = replace(machine, cpus=np.full(4, 4), memory_mb=np.full(4, 10), gpus=np.array([0, 0, 0, 2]))
    members = np.array([[True] * 4, [False, False, True, True], [True, True, False, False]])
    queue = jobs([(0, 10, 10, 2), (0, 10, 10, 1)], cpus_per_node=[2, 1], memory_per_node_mb=[5, 0],
                 gpus_per_node=[1, 0], partition=[1, 2], qos=[1, 0], site_factor=[0.5, 0.0], nice=[7, 0])  # fmt: skip
    return w.flat_world(
        queue, 4, settings, nodes=machine, partitions=partitions(members, priority_job_factor=[8, 2, 0]),
        qos=qos(2, priority=[4, 3]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (w.SlurmSettings(), 0.0),
        (w.SlurmSettings(weight_job_size=1000), 1000 * 0.5 * (2 / 4 + 4 / 16)),
        (w.SlurmSettings(weight_job_size=1000, favor_small=True), 1000 * 0.5 * (2 / 4 + 12 / 16)),
        (w.SlurmSettings(weight_partition=1000), 250.0),
        (w.SlurmSettings(weight_qos=1000), 750.0),
        (w.SlurmSettings(weight_tres=(80.0, 0.0, 0.0, 0.0)), 80 * 4 / 8),
        (w.SlurmSettings(weight_tres=(0.0, 80.0, 0.0, 0.0)), 80 * 10 / 20),
        (w.SlurmSettings(weight_tres=(0.0, 0.0, 80.0, 0.0)), 80 * 2 / 2),
        (w.SlurmSettings(weight_tres=(0.0, 0.0, 0.0, 80.0)), 80 * 2 / 2),
    ],
)
def test_each_term_of_the_static_priority(settings: w.SlurmSettings, expected: float) -> None:
    """The page: "`static = ((((size + partition) + qos) + tres) + site_factor) - nice`", one term at a time."""
    world = terms_world(settings)
    job = at_the_beginning(world, -1, w.NEVER).jobs[0]
    assert compiled.static_priority(world)[0] == plain.static_priority(world, job) == expected + 0.5 - 7


def test_a_resource_that_the_partition_has_none_of_adds_nothing() -> None:
    """`tres` is a sum "leaving out totals of 0": the second job's partition has no GPU."""
    world = terms_world(w.SlurmSettings(weight_tres=(0.0, 0.0, 0.0, 80.0)))
    job = at_the_beginning(world, -1, w.NEVER).jobs[1]
    assert compiled.static_priority(world)[1] == plain.static_priority(world, job) == 0.0


@pytest.mark.parametrize(
    ("first", "second", "order"),
    [
        (-9000.0, -5000.0, [1, 2]),  # both 1
        (2.0**33, 2.0**34, [1, 2]),  # both 2^32 - 1
        (10.2, 10.9, [1, 2]),  # both 10
        (10.9, 11.0, [2, 1]),
        (1.9, 2.0, [2, 1]),
    ],
)
def test_a_priority_is_a_whole_number_between_bounds(first: float, second: float, order: list[int]) -> None:
    """`max(1, min(2^32 - 1, trunc(...)))`; jobs of equal priority go by their submit second."""
    queue = jobs([(0, 100, 100, 1), (1, 10, 10, 1), (2, 10, 10, 1)], site_factor=[0.0, first, second])
    assert np.argsort(assert_equal(w.flat_world(queue, 1, RARE)).start_s).tolist() == [0, *order]


@pytest.mark.parametrize(("ahead", "starts"), [(0.0, [100, 110]), (1.0, [110, 100])])
def test_age_counts_up_to_its_maximum(ahead: float, starts: list[int]) -> None:
    """The page: "`age = weight_age * min(1, (now - accrue time) / max_age_s)`": 99 s and 90 s count as 50 s."""
    aged = replace(RARE, weight_age=1000, max_age_s=50, calc_period_s=100)
    queue = jobs([(0, 100, 100, 1), (1, 10, 10, 1), (10, 10, 10, 1)], site_factor=[0.0, 0.0, ahead])
    assert assert_equal(w.flat_world(queue, 1, aged)).start_s.tolist() == [0, *starts]


def test_age_counts_from_the_second_in_which_a_job_enters_the_queue() -> None:
    """The page: "That second is its *accrue time*": job 1 was submitted long before job 2, but eligible after it."""
    aged = replace(RARE, weight_age=1000, max_age_s=1000, calc_period_s=100)
    queue = jobs([(0, 100, 100, 1), (1, 10, 10, 1), (10, 10, 10, 1)], eligible_s=[0, 50, 0])
    assert assert_equal(w.flat_world(queue, 1, aged)).start_s.tolist() == [0, 110, 100]


def test_the_order_of_the_queue() -> None:
    """The page: "Preemption level of the QOS, `priority_tier` of the partition, priority, submit second"."""
    two = partitions(np.ones((2, 1), bool), priority_tier=[1, 2])
    kinds = qos(2, preempts=[[False, False], [True, False]], preempt_mode=[w.PREEMPT_OFF] * 2)
    queue = jobs(
        [(0, 100, 100, 1)] + [(submit, 10, 10, 1) for submit in (1, 2, 3, 4, 5)],
        partition=[0, 0, 0, 0, 1, 0], qos=[0, 0, 0, 0, 0, 1], site_factor=[0.0, 50.0, 50.0, 90.0, 0.0, 0.0],
    )  # fmt: skip
    world = w.flat_world(queue, 1, replace(RARE, backfill=False), partitions=two, qos=kinds)
    # Level (job 5), tier (job 4), priority (job 3), then by submission.
    assert assert_equal(world).start_s.tolist() == [0, 130, 140, 120, 110, 100]


# A root (0) with user r (1) and accounts A (2) and B (3); a1 and a2 (4, 5) in A, b1 (6) in B.
def tree(shares: list[int]) -> w.Associations:
    free = np.full(7, w.NO_LIMIT)
    return w.Associations(
        parent=np.array([w.NONE, 0, 0, 0, 2, 2, 3]), user=np.array([w.NONE, 0, w.NONE, w.NONE, 1, 2, 3]),
        account=np.array([0, 0, 1, 2, 1, 1, 2]), shares=np.array(shares), group_jobs=free,
        group_tres=np.full((7, w.TRES), w.NO_LIMIT), max_jobs=free,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shares", "usage", "factors"),
    [
        # Nothing used: all LF are infinite. The user comes before the accounts; these are walked as one.
        ([1, 1, 3, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0], [1.0, 0.75, 0.75, 0.75]),
        # LF of r, A and B: .2/.2, .6/.6, .2/.2. A and B as one: a2 (infinite), b1 (1/1), a1 (.5/1).
        ([1, 1, 3, 1, 1, 1, 1], [100, 20, 60, 20, 60, 0, 20], [1.0, 0.25, 0.75, 0.5]),
        # LF of r, A and B: .2/.1, .6/.6, .2/.3. r, then A with a1 (.5/.75) behind a2 (.5/.25), then B.
        ([1, 1, 3, 1, 1, 1, 1], [100, 10, 60, 30, 45, 15, 30], [1.0, 0.5, 0.75, 0.25]),
        # LF of r, A and B: .2/.6, .6/.3, .2/.1: A and B (2 each) as one, a1 and b1 at LF 1, behind them r.
        ([1, 1, 3, 1, 1, 0, 1], [100, 60, 30, 10, 30, 0, 10], [0.25, 0.75, 1.0, 0.75]),
        # No shares and some usage: LF 0, behind all; no shares and no usage: infinite, before all.
        ([1, 0, 3, 1, 0, 1, 1], [100, 1, 79, 20, 40, 39, 20], [0.25, 0.5, 0.75, 1.0]),
    ],
)
def test_the_fair_tree_ranks_users(shares: list[int], usage: list[float], factors: list[float]) -> None:
    """Factors of r, a1, a2, b1: "siblings by falling LF, users before accounts at equal LF", "walked as one"."""
    fair = replace(RARE, weight_fairshare=1)
    world = w.flat_world(jobs([(0, 1, 1, 1)]), 1, fair, associations=tree(shares), users=4)
    controller = at_the_beginning(world, -1, w.NEVER)
    controller.usage.decayed = list(usage)
    ready = prepared(world)
    ready.state.usage[:] = usage
    rank_users(ready.run, ready.state)
    found = plain.fair_share_factors(controller)
    users = [1, 4, 5, 6]
    assert [found[row] for row in users] == factors
    assert ready.state.factor[users].tolist() == factors


def test_usage_is_what_ran_and_decays() -> None:
    """The page: "Each association's usage becomes `usage * D + fresh`", `fresh` in thousandths of billing-seconds.

    2 nodes of 4 cores and 1 GPU at weights 1 and 2, usage factor .5: 6 a second, and .999 of usage is left after one.
    """
    fair = replace(RARE, weight_fairshare=1, calc_period_s=100, decay_half_life_s=693)
    machine, whole = w.whole_nodes(2)
    machine = replace(machine, cpus=np.full(2, 4), gpus=np.full(2, 1), gpu_type=np.zeros(2, np.int64))
    queue = jobs([(0, 150, 500, 2), (999, 1, 1, 1)], cpus_per_node=[4, 1], gpus_per_node=[1, 0], association=[4, 4],
                 user=[1, 1])  # fmt: skip
    world = w.flat_world(
        queue, 2, fair, nodes=machine, partitions=replace(whole, billing=np.array([[1.0, 0.0, 0.0, 2.0]])),
        qos=qos(1, usage_factor=[0.5]), associations=tree([1] * 7), users=4,
    )  # fmt: skip
    first = 6000 * 100.0
    second = first * 0.999**100 + 6000 * 50
    for until, expected in ((100, first), (200, second), (300, second * 0.999**100)):
        used = advanced(prepared(world), until).state.usage
        np.testing.assert_allclose(used, [expected, 0, expected, 0, expected, 0, 0], rtol=1e-12)
    np.testing.assert_allclose(_usage_of_the_twin(world), [second, 0, second, 0, second, 0, 0], rtol=1e-12)


def _usage_of_the_twin(world: w.SlurmWorld) -> list[float]:
    """The usage at 200 by the twin's own steps: the job starts at 0 and ends at 150."""
    controller: PlainController = at_the_beginning(world, -1, w.NEVER)
    moves.start(controller, controller.jobs[0], [0, 1], by_backfill=False)
    controller.now = 100
    plain.calculate_usage(controller)
    controller.now = 150
    assert moves.take_ends(controller)
    controller.now = 200
    plain.calculate_usage(controller)
    return controller.usage.decayed
