"""docs/schedulers/slurm.md, "Preemption": who gives way, worked out by hand; the kernel and its twin agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.slurm import world as w
from tests.simulator.slurm.test_kernel_rules import RARE, jobs
from tests.simulator.slurm.test_rules_passes import PLANNED, nodes_of
from tests.simulator.slurm.test_rules_priority import partitions, qos
from tests.simulator.slurm.test_twin import assert_equal

CANCELLED = {"preempts": [[False] * 3, [False] * 3, [True, True, False]], "preempt_mode": [w.PREEMPT_CANCEL] * 3}


@pytest.mark.parametrize(
    ("wanted", "of_first", "preempted"),
    [
        (1, w.PREEMPT_CANCEL, [1]),  # lowest QOS priority, then the lower row
        (2, w.PREEMPT_CANCEL, [1, 2]),
        (3, w.PREEMPT_CANCEL, [0, 1, 2]),
        (1, w.PREEMPT_OFF, [0]),
    ],
)
def test_the_order_in_which_jobs_are_preempted(wanted: int, of_first: int, preempted: list[int]) -> None:
    """The page: "In the order of (QOS priority, nodes, row)"."""
    kinds = qos(3, priority=[0, 1, 2], preempts=[[False] * 3, [False] * 3, [True, True, False]],
                preempt_mode=[of_first, w.PREEMPT_CANCEL, w.PREEMPT_OFF])  # fmt: skip
    queue = jobs([(0, 100, 100, 1), (0, 100, 100, 1), (5, 100, 100, 1), (10, 20, 20, wanted)], qos=[1, 0, 0, 2])
    result = assert_equal(w.flat_world(queue, 3, RARE, qos=kinds))
    assert np.flatnonzero(result.state == w.PREEMPTED).tolist() == preempted
    assert result.start_s[3] == 10 and (result.end_s[preempted] == 10).all()


@pytest.mark.parametrize(("youngest", "preempted"), [(False, [1]), (True, [2])])
def test_smaller_jobs_give_way_first_or_the_youngest(youngest: bool, preempted: list[int]) -> None:
    """The page: "With `preempt_youngest_first` in the order of (latest start, row)"."""
    queue = jobs([(0, 90, 90, 2), (0, 90, 90, 1), (5, 90, 90, 2), (10, 20, 20, 1)], qos=[0, 0, 0, 2])
    settings = replace(RARE, preempt_youngest_first=youngest)
    result = assert_equal(w.flat_world(queue, 5, settings, qos=qos(3, **CANCELLED)))
    assert np.flatnonzero(result.state == w.PREEMPTED).tolist() == preempted


@pytest.mark.parametrize("strict", [False, True])
def test_candidates_are_put_in_another_order_so_that_fewer_end(strict: bool) -> None:
    """The page: "The last one goes to the front": job 1 (node 3) alone is no room, and job 2 (4 and 5) alone is."""
    queue = jobs([(0, 100, 100, 2), (0, 100, 100, 1), (0, 100, 100, 2), (10, 20, 20, 2)], qos=[2, 0, 0, 2])
    settings = replace(RARE, preempt_strict_order=strict, preempt_reorder_count=0)
    result = assert_equal(w.flat_world(queue, 5, settings, qos=qos(3, **CANCELLED)))
    assert result.state.tolist() == [w.COMPLETED, w.COMPLETED, w.PREEMPTED, w.COMPLETED]
    assert nodes_of(result)[3] == [3, 4]


@pytest.mark.parametrize(("modes", "states"), [
    ((w.PREEMPT_REQUEUE, w.PREEMPT_CANCEL, w.PREEMPT_OFF), (w.PREEMPTED, w.COMPLETED)),
    ((w.PREEMPT_REQUEUE, w.PREEMPT_OFF, w.PREEMPT_OFF), (w.COMPLETED, w.COMPLETED)),
    ((w.PREEMPT_CANCEL, w.PREEMPT_REQUEUE, w.PREEMPT_OFF), (w.COMPLETED, w.COMPLETED)),
])  # fmt: skip
def test_partitions_preempt_by_tier(modes: tuple[int, ...], states: tuple[int, int]) -> None:
    """The page: "Running jobs of partitions of a lower tier": partition 1 is the lowest, 2 preempts it before 0."""
    rooms = partitions(np.ones((3, 2), bool), priority_tier=[2, 1, 3], preempt_mode=list(modes))
    queue = jobs([(0, 50, 50, 1), (0, 50, 50, 1), (10, 20, 20, 1)], partition=[0, 1, 2])
    machine, _ = w.whole_nodes(2)
    world = replace(
        w.flat_world(queue, 2, replace(RARE, preempt_by_partition=True, requeue_delay_s=5)),
        nodes=machine, partitions=replace(rooms, exclusive=np.ones(3, bool)),
    )  # fmt: skip
    result = assert_equal(world)
    assert result.state[1] == states[0] and result.state[0] == states[1]
    assert result.restarts.sum() == (1 if states[0] == w.COMPLETED else 0)
    assert result.start_s[2] == 10


def test_what_may_be_preempted_is_gone_for_a_plan() -> None:
    """The page: "When looking ahead the candidates are gone": job 3 is planned for 30, so job 4 does not fit before."""
    queue = jobs(
        [(0, 90, 90, 1), (0, 30, 30, 1), (0, 600, 600, 1), (1, 20, 20, 3), (2, 40, 40, 1)], qos=[0, 2, 2, 2, 1]
    )
    result = assert_equal(w.flat_world(queue, 4, PLANNED, qos=qos(3, **CANCELLED)))
    assert result.start_s[3:].tolist() == [30, 50]
    assert result.state[0] == w.PREEMPTED and result.end_s[0] == 30
