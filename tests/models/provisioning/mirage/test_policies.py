"""Mirage's networks as policies: fitted and played like others, stored in a form no agent loads, never a candidate."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from agent.artifact import Artifact
from models.provisioning.comparison.outcomes import cost_h, play
from models.provisioning.learning.hyperparameters import TUNABLE, with_values
from models.provisioning.mirage import foundations
from models.provisioning.mirage.artifact import DayArtifact
from models.provisioning.mirage.policies import MirageNetwork, moe_dqn, moe_pg, transformer_dqn, transformer_pg
from models.provisioning.mirage.snapshots import HISTORY, Histories
from models.provisioning.protocol import Learner, PairTable, TrainedPolicy, concatenate
from models.provisioning.registry import (
    READING_DAYS,
    artifact_of,
    check_policy,
    every_policy,
    is_releasable,
    make_policy,
    reads_days,
)
from models.provisioning.scenario import Scenario
from models.release.policies.candidate import choose_candidate
from models.study.days import check_world
from tests.models.pair_tables import reactive, trained
from tests.models.provisioning.mirage.days import HISTORIES, PAIRS
from traces.errors import InputError
from traces.units import HOUR_S

NAMES = list(READING_DAYS)
SMALL = {"epochs": 4, "expert_epochs": 2, "head_epochs": 4, "width": 9, "inner": 8, "experts": 2, "minutes": 60.0}
SEEN = HISTORIES.snapshots.added_to(PAIRS)


def small(name: str) -> MirageNetwork:
    made = with_values(make_policy(name), {one: value for one, value in SMALL.items() if one in TUNABLE[name]})
    assert isinstance(made, MirageNetwork)
    return made


@cache
def fitted(name: str) -> tuple[DayArtifact, dict[str, list[float]]]:
    return small(name).fit(SEEN, 3)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_is_asked_for_by_name_and_is_compared_not_released(name: str) -> None:
    check_policy(name)
    policy = make_policy(name)
    assert policy.name == name and policy.is_learned and isinstance(policy, Learner)
    assert policy in [made() for made in (transformer_dqn, transformer_pg, moe_dqn, moe_pg)]
    assert reads_days(name) and not is_releasable(name) and name not in every_policy()
    assert artifact_of(name) is DayArtifact and artifact_of("dqn") is Artifact
    assert is_releasable("dqn") and is_releasable("champion")
    with pytest.raises(InputError, match=r"known: reactive, .*mirage-transformer-dqn, .*mirage-moe-pg"):
        check_policy("mirage-lstm")


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_is_repeated_stored_and_played(name: str, tmp_path: Path) -> None:
    artifact, metrics = fitted(name)
    assert metrics["epochs"][-1] == 4 and ("reward" in metrics) == name.endswith("-pg")
    again, _ = small(name).fit(SEEN, 3)
    for array, same in zip(artifact.arrays.values(), again.arrays.values(), strict=True):
        np.testing.assert_array_equal(array, same)
    artifact.save(tmp_path / name)
    loaded = artifact_of(name).load(tmp_path / name)
    outcome = play(SEEN, [artifact, loaded, pickle.loads(pickle.dumps(artifact))], name)
    assert outcome.gap_h.shape == (3, len(artifact.settings), len(PAIRS)) and np.isfinite(outcome.gap_h).all()
    np.testing.assert_array_equal(outcome.gap_h[0], outcome.gap_h[1])
    np.testing.assert_array_equal(outcome.gap_h[0], outcome.gap_h[2])
    at = artifact.settings.index(outcome.default_setting)
    np.testing.assert_array_equal(cost_h(SEEN, artifact), np.abs(outcome.gap_h[0, at]))
    share = SEEN.decisions_of(artifact).mean(axis=1)
    assert (np.diff(share) >= 0).all(), "settings go from least to most overlap"
    with pytest.raises(ValueError, match="artifact of unknown kind 'mirage-network'"):
        Artifact.load(tmp_path / name)
    with pytest.raises(InputError, match=f"'{name}' decides on a day of snapshots, which an observation does not hold"):
        artifact.decide(PAIRS.observations)


@pytest.mark.parametrize("name", NAMES)
def test_an_untrained_network_is_the_one_a_fit_began_with(name: str) -> None:
    policy, (artifact, _) = small(name), fitted(name)
    start = make_policy(name).untrained(artifact, 3)  # type: ignore[attr-defined]
    assert {key: array.shape for key, array in start.arrays.items()} == {
        key: array.shape for key, array in artifact.arrays.items()
    }
    first = foundations.new_network(policy.foundation, policy.sizes, 3).state_dict().values()
    assert np.array_equal(start.arrays["weights"], np.concatenate([weight.numpy().ravel() for weight in first]))
    assert not np.array_equal(start.arrays["weights"], artifact.arrays["weights"])
    assert play(SEEN, [start], name).gap_h.shape[2] == len(PAIRS)


def test_it_is_asked_once_an_hour() -> None:
    artifact, _ = fitted("mirage-transformer-dqn")
    submit = SEEN.decisions_of(artifact, [-1e5])[0]
    left_s = PAIRS.predecessor_end_s[PAIRS.pair_of] - PAIRS.decision_s
    is_first = np.isin(np.arange(len(left_s)), PAIRS.offset[:-1])
    assert (left_s % HOUR_S != 0).any()
    np.testing.assert_array_equal(submit, is_first | (left_s % HOUR_S == 0))
    assert SEEN.decisions_of(artifact, [1e5])[0].nonzero()[0].tolist() == PAIRS.last.tolist()
    few = foundations.hourly(SEEN)
    assert len(few.decision_s) == submit.sum() == len(few.last_snapshot) and len(few) == len(PAIRS)
    np.testing.assert_array_equal(few.gap_h, PAIRS.gap_h[submit])


def test_pairs_of_several_clusters_keep_their_own_snapshots() -> None:
    busier = replace(HISTORIES.snapshots, rows=9 * HISTORIES.snapshots.rows).added_to(PAIRS)
    both = concatenate([SEEN, busier, SEEN.take(np.arange(2))])
    states, d = Histories.of_table(both), len(PAIRS.decision_s)
    at = np.array([0, 5, d - 1])
    np.testing.assert_array_equal(states.at(at), HISTORIES.at(at))
    np.testing.assert_array_equal(states.at(at + d)[:, :, 0], 9 * HISTORIES.at(at)[:, :, 0])
    np.testing.assert_array_equal(states.at(np.array([2 * d + 5])), HISTORIES.at(np.array([5])))
    part = both.take(np.array([len(PAIRS) + 1]))
    np.testing.assert_array_equal(
        Histories.of_table(part).at(np.array([0]))[0, :, 0],
        9 * HISTORIES.at(np.array([int(PAIRS.offset[1])]))[0, :, 0],
    )
    assert states.at(at).shape == (3, HISTORY, 42)


def test_pairs_without_snapshots_are_refused() -> None:
    artifact, _ = fitted("mirage-transformer-dqn")
    for ask in (lambda: small("mirage-moe-dqn").fit(PAIRS, 0), lambda: PAIRS.decisions_of(artifact)):
        with pytest.raises(InputError, match="these pairs have no snapshots of their cluster"):
            ask()


def test_a_damaged_fit_is_refused() -> None:
    artifact, _ = fitted("mirage-transformer-dqn")
    parameters = artifact.manifest["parameters"]
    for change, said in (
        ({"kind": "mlp"}, "not a fit of kind mirage-network"),
        ({"parameters": {**parameters, "state_version": 0}}, "state version 0; this program reads 1"),
        ({"parameters": {**parameters, "foundation": "lstm"}}, "unknown foundation 'lstm'"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            replace(artifact, manifest={**artifact.manifest, **change})


@pytest.mark.parametrize("name", NAMES)
def test_it_is_never_the_candidate(name: str) -> None:
    """Its fit is the only one that costs nothing, since the pairs are such that submitting at the start is best."""
    artifact, _ = fitted(name)
    best = replace(artifact, manifest={**artifact.manifest, "settings": [-1e5], "default_setting": -1e5})
    start = PAIRS.predecessor_end_s[PAIRS.pair_of]
    at_once = np.isin(np.arange(len(start)), PAIRS.offset[:-1])
    pairs: PairTable = replace(SEEN, successor_start_s=start + HOUR_S * ~at_once)
    mine = [TrainedPolicy(name, 0, best, "run", 0.0)]
    assert cost_h(pairs, best).max() == 0.0 < cost_h(pairs, reactive()).min()
    chosen = choose_candidate(pairs, [*mine, *trained("reactive", reactive())])
    assert chosen.policy == "reactive"
    renamed = [replace(mine[0], name="champion"), *trained("reactive", reactive())]
    assert choose_candidate(pairs, renamed).policy == "reactive"
    with pytest.raises(
        InputError, match=f"no candidate: 0 trained policies on 10 pairs .*; {name} is compared, not released"
    ):
        choose_candidate(pairs, mine)


def test_worlds_that_are_not_replayed_have_no_snapshots() -> None:
    check_world(Scenario("toy", capacity=80), NAMES[0])
    for world in ("calibrated", "recorded-wait"):
        with pytest.raises(InputError, match=f"'{NAMES[0]}' .*--world {world} does not replay: give --world plain"):
            check_world(Scenario("toy", capacity=80, world=world), NAMES[0])
    with pytest.raises(InputError, match="not taken under --scheduler slurm: give one of fifo, easy"):
        check_world(Scenario("toy", capacity=80, scheduler="slurm"), NAMES[0])
