"""Which pairs are held out, what a state loses on them, and that the best state is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from models.provisioning.learning import early_stopping, networks
from models.provisioning.learning.early_stopping import LEAST_PAIRS, WEIGHTS, Best, held_out, mean_cost
from tests.models.pair_tables import random_pairs

PAIRS = random_pairs(2, starts=60)


def test_the_newest_pairs_are_held_out_and_the_others_were_known_before() -> None:
    early, newest = held_out(PAIRS)
    assert newest is not None
    assert len(newest) == 24  # a fifth of 120
    assert newest.submit_s.min() >= np.sort(PAIRS.submit_s)[-24]
    first = int(newest.submit_s.min())
    for pair in range(len(PAIRS)):
        rows = slice(PAIRS.offset[pair], PAIRS.offset[pair + 1])
        known = PAIRS.submit_s[pair] < first and PAIRS.successor_start_s[rows].max() < first
        assert known == bool(
            ((early.submit_s == PAIRS.submit_s[pair]) & (early.pair_nodes == PAIRS.pair_nodes[pair])).any()
        )


def test_pairs_whose_outcome_came_later_teach_nothing() -> None:
    late = PAIRS.successor_start_s.copy()
    late[PAIRS.offset[3] : PAIRS.offset[4]] += 100 * 86_400
    assert len(held_out(replace(PAIRS, successor_start_s=late))[0]) == len(held_out(PAIRS)[0]) - 1


@pytest.mark.parametrize("count", [1, 5 * LEAST_PAIRS - 1])
def test_of_few_pairs_nothing_is_held_out(count: int) -> None:
    few = PAIRS.take(np.arange(count))
    assert held_out(few) == (few, None)


def test_where_no_older_outcome_was_known_nothing_is_held_out() -> None:
    same_day = replace(PAIRS, submit_s=np.full(len(PAIRS), PAIRS.submit_s[0]))
    assert held_out(same_day) == (same_day, None)


def test_costs_by_hand() -> None:
    few = PAIRS.take(np.arange(4))
    submit = np.random.default_rng(0).random((len(WEIGHTS), len(few.decision_s))) < 0.1
    costs = []
    for rule, weight in zip(submit, WEIGHTS, strict=True):
        for pair in range(4):
            rows = range(few.offset[pair], few.offset[pair + 1])
            row = next((row for row in rows if rule[row]), rows[-1])
            gap = few.gap_h[row]
            costs.append((max(gap, 0) + weight * max(-gap, 0)) / (1 + weight))
    assert mean_cost(few, submit) == pytest.approx(np.mean(costs))


def network(bias: float) -> torch.nn.Module:
    made = torch.nn.Linear(1, 1)
    with torch.no_grad():
        made.bias.fill_(bias)
    return made


def test_the_state_that_lost_least_is_restored() -> None:
    """A bias of b submits at the first decision with less than b hours left; the best of four is known."""
    few = PAIRS.take(np.arange(20))
    remaining = few.observations[:, 0]

    def decide(one: torch.nn.Module) -> np.ndarray:
        return np.tile(remaining <= one.get_parameter("bias").item(), (len(WEIGHTS), 1))

    best = Best(few, decide)
    biases = [3.0, 0.0, 1.0, 2.0]
    for bias in biases:
        best.look(network(bias))
    expected = [mean_cost(few, decide(network(bias))) for bias in biases]
    assert best.costs == pytest.approx(expected)
    final = network(9.0)
    best.restore(final)
    assert final.get_parameter("bias").item() == biases[int(np.argmin(expected))]


def test_without_pairs_held_out_the_last_state_stays() -> None:
    best = Best(None, lambda one: np.zeros((len(WEIGHTS), 0), bool))
    best.look(network(1.0))
    last = network(2.0)
    best.restore(last)
    assert best.costs == [] and last.get_parameter("bias").item() == 2.0


@pytest.mark.parametrize(("outputs", "decides"), [(2, early_stopping.q_decisions), (1, early_stopping.logit_decisions)])
def test_decisions_are_those_of_the_artifact(outputs: int, decides: object) -> None:
    """On other pairs than those that the scaling is of."""
    from models.provisioning.learning.manifest import new_artifact
    from models.provisioning.policies.dqn import DQN

    few = PAIRS.take(np.arange(30, 40))
    inputs = networks.Inputs.of(PAIRS.take(np.arange(20)).observations)
    with networks.repeatable(0):
        one = networks.network(inputs.width, (8,), outputs)
        torch.nn.init.normal_(one.get_parameter("skip.weight"))
    found = decides(inputs, few)(one)  # type: ignore[operator]
    parameters = {"head": "q" if outputs == 2 else "logit", "layers": 2}
    artifact = new_artifact(DQN(), "mlp", 1.0, parameters=parameters, arrays=inputs.export(one))
    expected = artifact.scores(few.observations, WEIGHTS) >= 0
    assert (found == expected).mean() > 0.999
    assert 0.02 < found.mean() < 0.98
