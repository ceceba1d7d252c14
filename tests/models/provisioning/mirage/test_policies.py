"""Mirage's methods as policies: fitted and played like others, stored in a form no agent loads, never a candidate."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.artifact import Artifact
from models.provisioning.comparison.compare import compare
from models.provisioning.comparison.outcomes import cost_h, play
from models.provisioning.learning.hyperparameters import TUNABLE, with_values
from models.provisioning.mirage import foundations, training
from models.provisioning.mirage.artifact import DayArtifact
from models.provisioning.mirage.policies import MirageNetwork, moe_dqn, moe_pg, transformer_dqn, transformer_pg
from models.provisioning.mirage.snapshots import HISTORY, Histories
from models.provisioning.mirage.trees import MirageTrees, flat, forest, xgboost
from models.provisioning.protocol import Learner, PairTable, Resumable, TrainedPolicy, concatenate
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
from tests.models.pair_tables import context, reactive, trained
from tests.models.provisioning.mirage.days import HISTORIES, PAIRS
from tests.models.provisioning.mirage.days import SMALL as SIZES
from traces.errors import InputError
from traces.units import HOUR_S

NAMES = list(READING_DAYS)
NETWORKS = [name for name in NAMES if name.endswith(("-dqn", "-pg"))]
SMALL = {
    "trees": 8,
    "epochs": 4,
    "expert_epochs": 2,
    "head_epochs": 4,
    "width": 9,
    "inner": 8,
    "experts": 2,
    "minutes": 60.0,
}
SEEN = HISTORIES.pairs


def small(name: str) -> MirageNetwork | MirageTrees:
    made = with_values(make_policy(name), {one: value for one, value in SMALL.items() if one in TUNABLE[name]})
    assert isinstance(made, MirageNetwork | MirageTrees)
    return made


@cache
def fitted(name: str) -> tuple[Artifact, dict[str, list[float]]]:
    return small(name).fit(SEEN, 3)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_is_asked_for_by_name_and_is_compared_not_released(name: str) -> None:
    check_policy(name)
    policy = make_policy(name)
    assert policy.name == name and policy.is_learned and isinstance(policy, Learner)
    assert policy in [made() for made in (forest, xgboost, transformer_dqn, transformer_pg, moe_dqn, moe_pg)]
    assert reads_days(name) and not is_releasable(name) and name not in every_policy()
    assert issubclass(artifact_of(name), DayArtifact) and artifact_of("dqn") is Artifact
    assert is_releasable("dqn") and is_releasable("champion")
    with pytest.raises(InputError, match=r"known: reactive, .*mirage-forest, .*mirage-moe-pg"):
        check_policy("mirage-lstm")


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_is_repeated_stored_and_played(name: str, tmp_path: Path) -> None:
    artifact, metrics = fitted(name)
    assert ("reward" in metrics) == name.endswith("-pg") and (name not in NETWORKS or metrics["epochs"][-1] == 4)
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
    with pytest.raises(ValueError, match=r"artifact of unknown kind 'mirage-(network|trees)'"):
        Artifact.load(tmp_path / name)
    with pytest.raises(InputError, match=f"'{name}' decides on a day of snapshots, which an observation does not hold"):
        artifact.decide(PAIRS.observations)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_untrained_network_is_the_one_a_fit_began_with(name: str) -> None:
    policy, (artifact, _) = small(name), fitted(name)
    assert isinstance(policy, MirageNetwork)
    start = make_policy(name).untrained(artifact, 3)  # type: ignore[attr-defined]
    assert {key: array.shape for key, array in start.arrays.items()} == {
        key: array.shape for key, array in artifact.arrays.items()
    }
    first = foundations.new_network(policy.foundation, policy.sizes, 3).state_dict().values()
    assert np.array_equal(start.arrays["weights"], np.concatenate([weight.numpy().ravel() for weight in first]))
    assert not np.array_equal(start.arrays["weights"], artifact.arrays["weights"])
    assert play(SEEN, [start], name).gap_h.shape[2] == len(PAIRS)


def test_it_decides_at_every_decision_and_its_head_learns_with_one_an_hour() -> None:
    artifact, _ = fitted("mirage-transformer-dqn")
    assert SEEN.decisions_of(artifact, [-1e5]).all()
    assert SEEN.decisions_of(artifact, [1e5])[0].nonzero()[0].tolist() == PAIRS.last.tolist()
    left_s = PAIRS.predecessor_end_s[PAIRS.pair_of] - PAIRS.decision_s
    kept = np.isin(np.arange(len(left_s)), PAIRS.offset[:-1]) | (left_s % HOUR_S == 0)
    few = foundations.hourly(SEEN)
    assert kept.sum() == len(few.decision_s) == len(few.last_snapshot) < len(kept) and len(few) == len(PAIRS)
    np.testing.assert_array_equal(few.gap_h, PAIRS.gap_h[kept])


@pytest.mark.parametrize("name", ["mirage-forest", "mirage-xgboost"])
def test_trees_lose_what_their_library_loses_pair_by_pair(name: str) -> None:
    """Reduction and zero share against a loop over the pairs, with the prediction of the library's own model."""
    from sklearn.ensemble import RandomForestRegressor
    from xgboost import XGBRegressor

    kind = RandomForestRegressor if name == "mirage-forest" else XGBRegressor
    states, probes = Histories.of_table(SEEN), training.probe_rows(SEEN)
    model = kind(n_estimators=8, random_state=3, n_jobs=1).fit(flat(states, probes), SEEN.gap_h[probes])
    lost, zero, of_reactive = 0.0, 0, 0.0
    for begin, end in pairwise(SEEN.offset.tolist()):
        gaps = SEEN.gap_h[begin:end].tolist()
        said = [float(model.predict(flat(states, np.array([row])))[0]) for row in range(begin, end)]
        gap = next((one for one, predicted in zip(gaps, said, strict=True) if -0.5 <= predicted <= 500), gaps[-1])
        lost, zero, of_reactive = lost + max(gap, 0.0), zero + (gap <= 0), of_reactive + max(gaps[-1], 0.0)
    rows = compare(SEEN, trained(name, fitted(name)[0]), context=context(), draws=1).results
    (row,) = (row for row in rows if (row["policy"], row["load"]) == (name, "all"))
    assert row["setting"] == -0.5 and row["n"] == len(SEEN)
    assert row["reduction"] == pytest.approx(1 - lost / of_reactive) and 0.1 < row["reduction"] < 1
    assert row["zero_share"] == pytest.approx(zero / len(SEEN)) and row["overlap_h"] > 0


class Stopped(Exception):
    """What ends a training early in these tests."""


@pytest.mark.parametrize("name", NETWORKS)
def test_a_fit_that_was_stopped_resumes_to_the_same_bits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, (whole, expected) = small(name), fitted(name)
    assert isinstance(policy, Resumable)
    made: list[object] = []
    epoch = training._epoch

    def one_of_three(*arguments: Any) -> float:
        if len(made) == 3:
            raise Stopped
        made.append(arguments)
        return epoch(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(training, "_epoch", one_of_three)
        with pytest.raises(Stopped):
            policy.resuming_in(tmp_path).fit(SEEN, 3)
    (kept,) = tmp_path.glob("*.npz")
    again, metrics = policy.resuming_in(tmp_path).fit(SEEN, 3)
    assert metrics["held_out_mse_h2"] == expected["held_out_mse_h2"] and metrics["epochs"] == expected["epochs"]
    for array, same in zip(whole.arrays.values(), again.arrays.values(), strict=True):
        np.testing.assert_array_equal(array, same)
    other = name.replace("-dqn", "-pg") if name.endswith("-dqn") else name.replace("-pg", "-dqn")
    done = kept.read_bytes()
    small(other).resuming_in(tmp_path).fit(SEEN, 3)  # type: ignore[union-attr]
    assert [path.name for path in tmp_path.glob("*.npz")] == [kept.name] and kept.read_bytes() == done, "shared"
    policy.resuming_in(tmp_path).fit(SEEN.take(np.arange(9)), 3)
    assert len(list(tmp_path.glob("*.npz"))) == 2, "other pairs, another training"


@pytest.mark.parametrize("kind", [foundations.TRANSFORMER, foundations.MIXTURE])
def test_the_gap_is_what_the_network_says(kind: str) -> None:
    """A mixture's comes from its experts and its gate, looked at apart."""
    network = foundations.new_network(kind, SIZES, 1)
    found = foundations.outputs(kind, network, HISTORIES)
    every = np.arange(len(SEEN.decision_s))
    np.testing.assert_allclose(found[:, :1], training.looked_at(network, HISTORIES, every), rtol=1e-4, atol=1e-4)
    assert np.ptp(found[:, 0]) > 0.01 and found.shape[1] == (1 if kind == foundations.TRANSFORMER else 3)
    head = np.array([[0.0] * (found.shape[1] - (kind == foundations.MIXTURE)) + [1.0]] * 2)
    head[1, -2:] = 2.0, 0.5
    np.testing.assert_allclose(foundations.log_odds(head, found), 2.0 * found[:, -1] - 0.5)


def test_pairs_of_several_clusters_keep_their_own_snapshots() -> None:
    busier = replace(SEEN, snapshots=9 * SEEN.snapshots)
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
    trees, _ = fitted("mirage-xgboost")
    with pytest.raises(ValueError, match="state version 0; this program reads 1"):
        replace(trees, manifest={**trees.manifest, "parameters": {"state_version": 0}})
    with pytest.raises(ValueError, match="a tree splits on a feature outside 0 to 6047"):
        replace(trees, arrays={**trees.arrays, "feature": trees.arrays["feature"] + HISTORY * 42})


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
