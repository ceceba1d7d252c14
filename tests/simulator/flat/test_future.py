"""One future of a flat cluster by hand: what is known of the jobs that come again, and what is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.flat.future import FlatHistory, new_room, start_in_future
from simulator.flat.kernel import advance
from simulator.flat.state import NEVER, NONE
from simulator.flat.world import FlatCluster, build
from simulator.marks import NO_ROOM
from simulator.workload import Workload

LONG, SHORT, SUCCESSOR = 0, 1, 2
NOW, CYCLE_S, LAST_S = 1100, 300, 9000


def start(short_end_s: int, drawn_s: tuple[int, int], arrivals: int = 50, later_s: int = 0) -> int:
    """Two nodes, the shortest limit first: a long job runs since 500, a short one since 1000; S asks for both nodes.

    The short one, which truly runs for 700 s, comes again every 300 s, from 1300 on.
    """
    columns = [(1, 2), (500, 1000), (1, 1), (5000, 700), (6000, 2000), (0, 0)]
    workload = Workload(*(np.array(column, np.int64) for column in columns))
    world = build(workload, scheduler="sjf", capacity=2, extra=1, nodes=2, limit_s=4000, threads=1)
    (cluster,) = world.clusters
    assert isinstance(cluster, FlatCluster)
    branch = world.branch(4, 0)
    advance(cluster.jobs, cluster.knobs, branch, cluster.starts, NOW - 1, NONE)
    room = new_room(cluster.knobs, cluster.jobs, arrivals)
    room.jobs.run_s[[LONG, SHORT]] = drawn_s
    past = FlatHistory(cluster.jobs, np.array([NEVER, short_end_s]))
    before = [column.copy() for column in branch[:4]]
    found = start_in_future(past, cluster.knobs, room, branch, NOW, CYCLE_S, LAST_S, SUCCESSOR, NOW + later_s)
    assert all((one == other).all() for one, other in zip(before, branch[:4], strict=True)), "the branch is read alone"
    return int(found)


@pytest.mark.parametrize(
    ("short_end_s", "drawn_s", "wanted"),
    [
        (NEVER, (900, 150), 1450),  # the long one ends at 1400, and the short one that came at 1300 at 1450
        (NEVER, (800, 150), 1300),  # in one second ends come before arrivals
        (NEVER, (900, 250), 1550),
        (1090, (900, 150), LAST_S),  # it is over and ran for 700 s: longer than it takes until the next comes
    ],
)
def test_what_comes_again_runs_as_drawn_unless_it_had_ended(
    short_end_s: int, drawn_s: tuple[int, int], wanted: int
) -> None:
    assert start(short_end_s, drawn_s) == wanted


def test_a_job_that_is_submitted_later_starts_then_or_waits_for_those_that_came_before() -> None:
    """Both nodes are free from 1450 on, until the short job comes again at 1600."""
    assert start(NEVER, (900, 150), later_s=390) == NOW + 390
    assert start(NEVER, (900, 150), later_s=550) > NOW + 600


def test_a_job_past_its_drawn_end_ends_now() -> None:
    assert start(NEVER, (10, 10)) == NOW


def test_a_future_that_does_not_fit_the_memory_says_so() -> None:
    assert start(NEVER, (4000, 150), arrivals=2) == NO_ROOM
