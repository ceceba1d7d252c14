"""Gavel's rounds by hand: the fractions of time are received, in turns, on the same nodes."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.gpu.policies.gavel.share_rounds import Members, ShareRounds
from simulator.gpu.round_policy import GpuJob, GpuMachine, Placed, View
from traces.errors import InputError

ROUND_S = 360.0


def machine(*gpus: int, types: list[str] | None = None) -> GpuMachine:
    names = types or ["T4"] * len(gpus)
    return GpuMachine(np.array(gpus), names, names[0])


def played(
    rounds: ShareRounds, where: GpuMachine, jobs: list[GpuJob], shares: dict[Members, list[float]], count: int
) -> list[dict[int, Placed]]:
    """The places in each of `count` rounds; `shares` come into force in the first."""
    found = []
    for number in range(count):
        view = View(number * ROUND_S, where, jobs)
        if rounds.is_due(view):
            own = np.array(list(shares.values()))
            rounds.reset(list(shares), np.ones_like(own), own, view.now_s)
        found.append(rounds.place(view, list(range(len(rounds.capacity)))))
        for job in jobs:
            job.placed = found[-1].get(job.number, {})
    return found


def test_a_gpu_is_divided_as_three_to_one() -> None:
    jobs = [GpuJob(0, 0.0, 1, 1e6), GpuJob(1, 0.0, 1, 1e6)]
    found = played(ShareRounds(ROUND_S, 0.0), machine(1), jobs, {(0,): [0.75], (1,): [0.25]}, 8)
    # received 0.5, 0.5 -> 0; 1.5, 0.5: equal -> the larger deficit is none, the larger fraction 0; 2.5, 0.5 -> 1; ...
    assert [next(iter(placed)) for placed in found] == [0, 0, 1, 0, 0, 0, 1, 0]


def test_a_job_on_one_type_does_not_count_on_the_other() -> None:
    jobs = [GpuJob(0, 0.0, 1, 1e6), GpuJob(1, 0.0, 1, 1e6)]
    shares: dict[Members, list[float]] = {(0,): [0.5, 0.5], (1,): [0.5, 0.5]}
    found = played(ShareRounds(ROUND_S, 0.0), machine(1, 1, types=["A", "B"]), jobs, shares, 4)
    assert [placed[0] for placed in found] == [{0: 1}, {1: 1}, {0: 1}, {1: 1}]
    assert [placed[1] for placed in found] == [{1: 1}, {0: 1}, {1: 1}, {0: 1}]


def test_what_is_left_over_goes_to_jobs_without_a_fraction_there() -> None:
    jobs = [GpuJob(0, 0.0, 4, 1e6), GpuJob(1, 0.0, 2, 1e6), GpuJob(2, 0.0, 2, 1e6)]
    (placed,) = played(ShareRounds(ROUND_S, 0.0), machine(8), jobs, {(0,): [0.0], (1,): [0.9], (2,): [0.5]}, 1)
    assert set(placed) == {0, 1, 2}


def test_a_gang_that_does_not_fit_lets_others_pass_and_those_who_can_stay_do() -> None:
    jobs = [GpuJob(0, 0.0, 3, 1e6), GpuJob(1, 0.0, 3, 1e6), GpuJob(2, 0.0, 1, 1e6)]
    jobs[2].placed = {1: 1}
    (placed,) = played(ShareRounds(ROUND_S, 0.0), machine(2, 2), jobs, {(0,): [0.9], (1,): [0.5], (2,): [0.1]}, 1)
    assert placed == {0: {0: 2, 1: 1}, 2: {1: 1}}


def test_new_fractions_wait_for_a_change_and_for_the_least_time() -> None:
    rounds, where = ShareRounds(ROUND_S, 1920.0), machine(4)
    jobs = [GpuJob(n, 0.0, 1, 1e6) for n in range(4)]

    def is_due(now_s: float, count: int) -> bool:
        due = rounds.is_due(View(now_s, where, jobs[:count]))
        if due:
            rounds.reset([(job.number,) for job in jobs[:count]], np.ones((count, 1)), np.ones((count, 1)), now_s)
        return due

    assert is_due(0.0, 1) and not is_due(360.0, 1)
    assert is_due(720.0, 2)  # the fractions of second 0 delay nothing
    assert not is_due(1080.0, 3) and not is_due(2520.0, 3) and is_due(2880.0, 3)
    assert not is_due(9000.0, 3)
    assert set(rounds.place(View(9000.0, where, jobs), [0])) == {0, 1, 2}  # job 3 is not known yet


def test_two_jobs_that_share_gpus_run_together() -> None:
    jobs = [GpuJob(0, 0.0, 2, 1e6), GpuJob(1, 0.0, 2, 1e6), GpuJob(2, 0.0, 2, 1e6)]
    rounds = ShareRounds(ROUND_S, 0.0)
    first, second = played(rounds, machine(2), jobs, {(0, 2): [0.6], (1,): [0.5]}, 2)
    assert first == {0: {0: 2}, 2: {0: 2}} and second == {1: {0: 2}} and rounds.guests == {}


def test_a_job_wider_than_each_type_is_refused() -> None:
    rounds = ShareRounds(ROUND_S, 0.0)
    with pytest.raises(InputError, match="job 7 asks for 6 GPUs, but no GPU type has more than 4"):
        rounds.is_due(View(0.0, machine(4, 4, types=["A", "B"]), [GpuJob(7, 0.0, 6, 60.0)]))
