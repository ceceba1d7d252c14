"""Gandiva's random pairs in Gavel's form: equal GPUs only, blind at first, dropped when both together are too slow."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.gpu.algorithms.random_pairs import RandomPairs
from simulator.gpu.policies.gandiva import Gandiva
from simulator.gpu.policies.gavel.makespan import GavelMakespan
from simulator.gpu.round_policy import GpuJob, GpuMachine
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu.models import MODELS
from traces.errors import InputError


def test_no_job_is_paired_while_all_fit() -> None:
    assert RandomPairs(0).pair({0: 1, 1: 1, 2: 2}, 4, lambda pair: 2.0) == [(0,), (1,), (2,)]


def test_pairs_have_equal_gpus_and_every_job_is_in_one_place() -> None:
    gpus = {job: 1 + job % 2 for job in range(20)}
    for seed in range(10):
        found = RandomPairs(seed).pair(gpus, 4, lambda pair: 2.0)
        assert sorted(job for members in found for job in members) == list(gpus)
        pairs = [members for members in found if len(members) == 2]
        assert pairs and all(gpus[a] == gpus[b] for a, b in pairs)


def test_a_pair_stays_while_it_is_worth_it_and_both_are_there() -> None:
    gpus = dict.fromkeys(range(6), 1)
    pairs = RandomPairs(0)
    first = {members for members in pairs.pair(gpus, 1, lambda pair: 0.0) if len(members) == 2}
    assert len(first) == 3, "the first draw is blind"
    bad, gone, kept = sorted(first)
    left = {job: 1 for job in gpus if job != gone[0]}
    again = pairs.pair(left, 1, lambda pair: 0.99 if pair == bad else 1.0)
    assert kept in again and gone not in again
    assert sorted(job for members in again for job in members) == list(left)


def test_released_gandiva_packs_only_pairs_that_were_measured() -> None:
    machine = GpuMachine(np.array([2]), ["T4"], "T4")
    model = MODELS["resnet18-cifar10"]
    for known in (True, False):
        policy = Gandiva(round_s=360.0, pause_s=0.0, released=True)
        jobs = [GpuJob(n, 0.0, 1, 3600.0, model=model if known else None) for n in range(4)]
        result = simulate_rounds(jobs, machine, policy)
        if known:  # two that each use 45 % of a GPU do not slow down
            assert policy.packed_pairs == 20 and result.end_s.tolist() == [3600.0] * 4
        else:
            assert policy.packed_pairs == 0 and result.end_s.max() == 7200.0


def test_a_precision_of_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"gavel-makespan: precision of 1: it must be at least 0 and below 1"):
        GavelMakespan(precision=1.0)
