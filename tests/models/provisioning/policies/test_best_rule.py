"""The rule that networks imitate, against a search over every rule and setting."""

from __future__ import annotations

import numpy as np
import pytest

from models.provisioning.policies.best_rule import best_rules
from models.provisioning.registry import make_policy
from tests.models.pair_tables import random_pairs

PAIRS = random_pairs(7, starts=30)


@pytest.mark.parametrize("weight", [0.05, 1.0, 30.0])
def test_the_rule_of_least_cost_is_taken(weight: float) -> None:
    costs = {}
    for name in ("average-wait", "start-estimate", "start-expected"):
        rule, _ = make_policy(name).fit(PAIRS, 0)
        for setting in rule.settings:
            submit = rule.decide(PAIRS.observations, setting)
            lost = []
            for pair in range(len(PAIRS)):
                rows = range(PAIRS.offset[pair], PAIRS.offset[pair + 1])
                gap = PAIRS.gap_h[next(row for row in rows if submit[row] or row == rows[-1])]
                lost.append(max(gap, 0.0) + weight * max(-gap, 0.0))
            costs[name, setting] = float(np.mean(lost))
    name, setting = min(costs, key=costs.__getitem__)
    (found,) = best_rules(PAIRS, np.array([weight]))
    expected = make_policy(name).fit(PAIRS, 0)[0].decide(PAIRS.observations, setting)
    np.testing.assert_array_equal(found, expected)
