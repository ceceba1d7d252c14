"""The policies that look ahead: what they decide on, what they learn, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from agent.artifact import Artifact
from agent.chains.decide import ReleasedPolicy, load
from agent.futures import Site
from features.futures.summary import AHEAD
from features.observe import FEATURES
from models.provisioning.comparison.outcomes import play
from models.provisioning.policies.dqn import dqn_ahead
from models.provisioning.policies.fitted_q import fitted_q_ahead
from models.provisioning.policies.policy_gradient import policy_gradient_ahead
from models.provisioning.policies.simulate_ahead import SimulateAhead
from models.provisioning.policies.xgboost import xgboost_ahead
from models.provisioning.protocol import PairTable
from models.provisioning.registry import LOOKING_AHEAD, check_policy, every_policy, looks_ahead, make_policy
from models.provisioning.scenario import Scenario
from models.study.futures import check_world
from tests.models.generated import queue_table
from traces.errors import InputError

NAMES = sorted(LOOKING_AHEAD)
MADE = (SimulateAhead, xgboost_ahead, fitted_q_ahead, dqn_ahead, policy_gradient_ahead)


def clairvoyant(seed: int = 0, factor: float = 1.0) -> PairTable:
    """Generated pairs whose futures all say the truth, times a factor."""
    pairs = queue_table(seed=seed)
    wait_h = (pairs.successor_start_s - pairs.decision_s) / 3600.0
    in_time = pairs.gap_h <= 0
    columns = [factor * wait_h] * (len(AHEAD) - 1)
    return replace(pairs, ahead=np.stack([*columns, in_time], axis=1).astype(np.float32))


@cache
def fitted(name: str) -> Artifact:
    """The policy of that name, fitted to futures that say the truth."""
    return make_policy(name).fit(clairvoyant(), 0)[0]


def cost_h(pairs: PairTable, artifact: Artifact) -> float:
    """Least mean cost of weight 1 over the settings."""
    return float(play(pairs, [artifact], "any").cost_h(1.0).mean(axis=2).min())


@pytest.mark.parametrize("name", NAMES)
def test_is_made_by_name_and_never_without_being_asked_for(name: str) -> None:
    check_policy(name)
    assert looks_ahead(name) and name not in every_policy() and not looks_ahead("xgboost")
    assert make_policy(name).name == name and make_policy(name) in [make() for make in MADE]
    with pytest.raises(InputError, match=r"known: reactive.*simulate-ahead"):
        check_policy("simulate-behind")


@pytest.mark.parametrize("name", NAMES)
def test_decides_on_the_futures_beside_the_observation(name: str) -> None:
    pairs, artifact = clairvoyant(), fitted(name)
    assert artifact.manifest["features"] == [*FEATURES, *AHEAD]
    assert pairs.inputs_of(artifact).shape == (len(pairs.decision_s), len(FEATURES) + len(AHEAD))
    estimate = make_policy("start-estimate").fit(pairs, 0)[0]
    assert cost_h(pairs, artifact) < 0.7 * cost_h(pairs, estimate)
    with pytest.raises(InputError, match=f"'{name}' looks at simulated futures, which were not made"):
        replace(pairs, ahead=pairs.ahead[:0]).inputs_of(artifact)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"simulate-ahead"}))
def test_what_is_learned_corrects_futures_that_are_wrong(name: str) -> None:
    wrong = clairvoyant(factor=3.0)
    rule, learner = (make_policy(one).fit(wrong, 0)[0] for one in ("simulate-ahead", name))
    at_one = [artifact.settings.index(1.0) for artifact in (rule, learner)]
    missed = [
        float(play(wrong, [artifact], "any").cost_h(1.0)[0, at].mean())
        for artifact, at in zip((rule, learner), at_one, strict=True)
    ]
    assert missed[1] < 0.8 * missed[0]


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_takes_it_with_the_rules_of_its_site_alone(name: str, tmp_path: Path) -> None:
    artifact = fitted(name)
    artifact.save(tmp_path / "policy")
    with pytest.raises(ValueError, match=r"needs trained_on\.site with max_jobs, .*train it again"):
        load(tmp_path / "policy", None)
    site = {"max_jobs": 8, "max_nodes": None, "points_per_hour": 21.0, "siblings": True}
    found = replace(artifact, manifest={**artifact.manifest, "trained_on": {"site": site}})
    found.save(tmp_path / "policy")
    assert load(tmp_path / "policy", None).manifest["fills"]["ahead_wait_p50_h"] == "start_estimate_h"
    assert ReleasedPolicy(tmp_path / "policy").site == Site(8, None, 21.0, siblings=True)


def test_other_policies_know_nothing_of_futures() -> None:
    pairs = clairvoyant()
    with_futures, without = (make_policy("xgboost").fit(one, 0)[0] for one in (pairs, queue_table(seed=0)))
    np.testing.assert_array_equal(with_futures.arrays["value"], without.arrays["value"])
    assert pairs.inputs_of(without) is pairs.observations


def test_pairs_under_slurm_have_no_futures() -> None:
    with pytest.raises(
        InputError, match=r"'simulate-ahead' .*--scheduler slurm does not have: give one of fifo, easy, .*"
    ):
        check_world(Scenario("toy", capacity=80, scheduler="slurm"), "simulate-ahead")
    check_world(Scenario("toy", capacity=80), "simulate-ahead")
    check_world(Scenario("toy", capacity=80, scheduler="slurm", world="calibrated"), "simulate-ahead")
    check_world(Scenario("toy", capacity=80, world="recorded-wait"), "simulate-ahead")
