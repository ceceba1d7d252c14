"""Gandiva's slices per server: homes, turns at home, and moves to idle servers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.gpu.policies.gandiva import Gandiva
from simulator.gpu.round_policy import GpuJob, GpuMachine, Placed, View
from simulator.gpu.rounds import simulate_rounds

ROUND_S = 60.0


class Watched(Gandiva):
    """Gandiva whose decisions are kept."""

    def __init__(self, *, migrates: bool) -> None:
        super().__init__(ROUND_S, 2.0, 2.0, migrates=migrates, grows=False)
        self.kept: list[tuple[list[int], dict[int, Placed]]] = []  # the present jobs, and the places

    def decide(self, view: View) -> dict[int, Placed]:
        placed = super().decide(view)
        self.kept.append(([job.number for job in view.jobs], {number: dict(at) for number, at in placed.items()}))
        return placed


def played(gpus: list[int], jobs: list[GpuJob], *, migrates: bool) -> Watched:
    policy = Watched(migrates=migrates)
    simulate_rounds(jobs, GpuMachine(np.array(gpus), ["T4"] * len(gpus), "T4"), policy)
    return policy


def test_jobs_take_turns_on_their_server() -> None:
    """Two servers of two GPUs: jobs 0 and 2 live on the first, 1 and 3 on the second."""
    jobs = [GpuJob(number, 0.0, 2, 150.0) for number in range(4)]
    kept = played([2, 2], jobs, migrates=False).kept
    assert [placed for _, placed in kept[:3]] == [
        {0: {0: 2}, 1: {1: 2}},
        {2: {0: 2}, 3: {1: 2}},
        {0: {0: 2}, 1: {1: 2}},
    ]


@pytest.mark.parametrize(("migrates", "node"), [(True, 1), (False, 0)])
def test_a_job_moves_to_a_server_that_becomes_idle(migrates: bool, node: int) -> None:
    """Job 1 ends in the first round. Of jobs 0 and 2, which share the first server, one may have the second."""
    jobs = [GpuJob(0, 0.0, 2, 600.0), GpuJob(1, 0.0, 2, 30.0), GpuJob(2, 0.0, 2, 600.0)]
    kept = played([2, 2], jobs, migrates=migrates).kept
    assert kept[1][1][2] == {0: 2}  # its turn
    assert kept[1][1].get(0, {0: 2}) == {node: 2}
    assert (0 in kept[1][1]) == migrates


def test_a_gang_on_two_servers_runs_when_it_is_its_turn_on_both() -> None:
    jobs = [GpuJob(0, 0.0, 2, 300.0), GpuJob(1, 0.0, 2, 300.0), GpuJob(2, 60.0, 4, 300.0)]
    kept = played([2, 2], jobs, migrates=True).kept
    assert [sorted(placed) for _, placed in kept[:4]] == [[0, 1], [2], [0, 1], [2]]
    assert kept[1][1] == {2: {0: 2, 1: 2}}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8), st.integers(1, 600)), min_size=1, max_size=14),
    st.booleans(),
)
def test_homes_hold_and_everybody_gets_a_turn(
    gpus: list[int], drawn: list[tuple[int, int, int]], migrates: bool
) -> None:
    jobs = [
        GpuJob(number, ROUND_S * at, min(size, sum(gpus)), float(run_s))
        for number, (at, size, run_s) in enumerate(sorted(drawn))
    ]
    kept = played(gpus, jobs, migrates=migrates).kept
    places: dict[int, Placed] = {}
    waited: dict[int, int] = dict.fromkeys(range(len(jobs)), 0)
    for there, placed in kept:
        for number, at in placed.items():
            assert sum(at.values()) == jobs[number].gpus
            assert migrates or places.setdefault(number, at) == at  # never elsewhere than at home
        for number in there:
            waited[number] = 0 if number in placed else waited[number] + 1
        assert max(waited[number] for number in there) < len(jobs)  # each other job has one slice before it at most
