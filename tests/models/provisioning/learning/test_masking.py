"""Training pairs from which something is hidden: which, how many, and that a learner then loses less by not seeing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from features.observe import AT, HIDDEN_TOGETHER
from models.engine.work import Engine
from models.provisioning.comparison.masked import cost_of_hiding
from models.provisioning.learning.masking import HIDDEN_SHARE, hidden_at_random, masked
from models.provisioning.policies.lightgbm import LightGBMQuantile
from models.provisioning.protocol import PairTable
from models.provisioning.training import train as module
from models.provisioning.training.processes import Made
from tests.models.pair_tables import artifact, context, random_pairs, trained

PAIRS = random_pairs(3, 400)


def test_a_share_of_whole_pairs_is_masked_one_group_or_all() -> None:
    hidden = hidden_at_random(PAIRS)
    ways = [[group] for group in HIDDEN_TOGETHER] + [list(HIDDEN_TOGETHER)]
    of_way = [masked(PAIRS, way).observations for way in ways]
    counts = dict.fromkeys(range(-1, len(ways)), 0)
    for pair in range(len(PAIRS)):
        rows = slice(PAIRS.offset[pair], PAIRS.offset[pair + 1])
        if np.array_equal(hidden.observations[rows], PAIRS.observations[rows]):
            counts[-1] += 1
            continue
        found = [place for place, one in enumerate(of_way) if np.array_equal(hidden.observations[rows], one[rows])]
        counts[found[0]] += 1
    assert sum(counts.values()) == len(PAIRS) and all(counts.values())
    assert 1 - counts[-1] / len(PAIRS) == pytest.approx(HIDDEN_SHARE, abs=0.05)
    for name in PairTable.__dataclass_fields__:
        if name != "observations":
            assert np.array_equal(getattr(hidden, name), getattr(PAIRS, name))
    assert hidden_at_random(PAIRS).digest == hidden.digest != hidden_at_random(PAIRS, seed=1).digest
    assert hidden_at_random(PAIRS, 0.0).digest == PAIRS.digest


def test_learners_are_fitted_on_masked_pairs_and_rules_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    def fit_each(fits: list[Any], pairs: PairTable, _engine: Engine) -> Iterator[Made]:
        for policy, seed in fits:
            seen[policy.name] = pairs.digest
            yield Made(policy.name, seed, artifact(policy=policy.name), {}, 0.0)

    monkeypatch.setattr(module, "fit_each", fit_each)
    until = context(until_s=int(PAIRS.successor_start_s.max()) + 1)
    made = module.train(PAIRS, ["start-estimate", "forest"], context=until, seeds=[0])
    assert seen == {"forest": hidden_at_random(PAIRS).digest}
    assert [one.artifact.manifest["trained_on"]["hidden_share"] for one in made] == [0.0, HIDDEN_SHARE]


def test_hiding_costs_less_after_masking_than_before() -> None:
    """A learner that has only ever seen everything takes no recent wait for no queue."""
    fit, report = (_told_by_recent_waits(random_pairs(seed, 300), seed) for seed in (0, 1))
    costs = {}
    for name, pairs in (("before", fit), ("after", hidden_at_random(fit))):
        one, _ = LightGBMQuantile().fit(pairs, 0)
        (row,) = cost_of_hiding(report, trained(name, one), ["recent"], kind="injected", every_size=True)
        costs[name] = row["difference_h"]
    assert costs["before"] > 1.0 and costs["after"] < 0.75 * costs["before"], costs


def _told_by_recent_waits(pairs: PairTable, seed: int) -> PairTable:
    """Four pairs of five wait 1 to 2 h whenever submitted, the others not at all; only recent waits tell which."""
    rng = np.random.default_rng(seed)
    wait_h = np.where(rng.random(len(pairs)) < 0.8, rng.uniform(1, 2, len(pairs)), 0.0)[pairs.pair_of]
    observations = np.zeros_like(pairs.observations)
    observations[:, AT.remaining_h] = pairs.observations[:, AT.remaining_h]
    observations[:, AT.recent_wait_mean_h] = wait_h
    observations[:, AT.limit_use_mean] = 0.5
    start_s = pairs.decision_s + np.rint(3600 * wait_h).astype(np.int64)
    return replace(pairs, observations=observations, successor_start_s=start_s)
