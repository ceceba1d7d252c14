"""Training sees only what was known, says what it was trained on, and leaves a run a fit."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.artifact import Artifact
from features.futures.summary import AHEAD
from features.observe import FEATURES
from models.engine.work import Engine
from models.provisioning import registry
from models.provisioning.comparison.outcomes import content_digest
from models.provisioning.learning.masking import hidden_at_random
from models.provisioning.policies.forest import RandomForest
from models.provisioning.protocol import PairTable, Policy
from models.provisioning.scenario import Context, Scenario, fit_scenarios
from models.provisioning.training import train as training
from models.provisioning.training.processes import Made
from models.provisioning.training.train import code_version, train
from models.study.cluster import Study
from models.study.fits import fit, last_fit
from models.study.windows import Window
from models.tracking import training_runs
from simulator.workload import Workload
from tests.models.pair_tables import FIRST_S, artifact, context, random_pairs
from tests.models.toy_study import KnownStudy, toy_study
from traces.cache.closure import ROOT
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store.folder import DataFolder
from traces.units import DAY_S


class Recorder:
    """A policy that remembers the pairs it was given."""

    knob, settings = "factor", (0.0, 0.5, 1.0, 2.0)

    def __init__(self, is_learned: bool = True) -> None:
        self.name, self.is_learned = "recorder", is_learned
        self.seen: list[tuple[PairTable, int]] = []

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        self.seen.append((pairs, seed))
        return artifact(policy=self.name), {"loss": [2.0, 1.0]}


class Notes:
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.trainings: list[tuple[Context, list[str], int]] = []

    @contextmanager
    def training(self, context: Context, policies: Sequence[str], pairs: PairTable) -> Iterator[Notes]:
        self.trainings.append((context, list(policies), len(pairs)))
        yield self

    def record(self, *_: Any, **fields: Any) -> str:
        self.runs.append(fields)
        return f"run-{len(self.runs)}"


def fitted_here(fits: Sequence[tuple[Policy, int]], pairs: PairTable, _engine: Engine) -> Iterator[Made]:
    """`models.provisioning.training.processes.fit_each` without other processes."""
    for policy, seed in fits:
        yield Made(policy.name, seed, *policy.fit(pairs, seed), 0.0)


class Given(registry.PolicyFactory):
    """A policy of a test; as far as fingerprints go it is made by the forest's module."""

    def __init__(self, policy: Any) -> None:
        super().__init__("models.provisioning.policies.forest:RandomForest")
        object.__setattr__(self, "policy", policy)

    def __call__(self) -> Any:
        return vars(self)["policy"]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a policy of a test is given can be looked at; the processes have tests of their own."""
    monkeypatch.setattr(training, "fit_each", fitted_here)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    policy = Recorder()
    monkeypatch.setitem(registry.POLICIES, "recorder", Given(policy))
    return policy


def test_learners_are_fitted_on_the_cluster_and_on_a_smaller_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    n = 650
    submit = np.sort(rng.integers(0, 12 * DAY_S, n))
    limit = rng.integers(1, 13, n) * 3600
    size = rng.integers(1, 5, n)
    workload = Workload(np.arange(n), submit, size=size, run_s=limit // 2, limit_s=limit, start_s=np.full(n, -1))
    scenario = Scenario("toy", capacity=20, pair_nodes=(1, 2), limit_s=4 * 3600, every_s=DAY_S)
    window = Window(3 * DAY_S, 6 * DAY_S, 1800)
    study = KnownStudy(DataFolder(tmp_path), ClusterSettings("toy"), scenario, workload)

    fitted, as_it_is = study.fit_pairs(window), study.pairs(window)

    capacity = fitted.observations[:, FEATURES.index("capacity_nodes")]
    assert sorted(set(capacity.tolist())) == [18, 20] and len(fitted) == 2 * len(as_it_is) == 12
    np.testing.assert_array_equal(fitted.observations[capacity == 20], as_it_is.observations)
    waits = fitted.successor_start_s - fitted.decision_s
    assert waits[capacity == 18].mean() > waits[capacity == 20].mean()
    assert study.context(window.until_s).as_dict()["fit_capacities"] == [20, 18]
    wide = replace(workload, size=np.full(n, 19))
    assert [each.capacity for each in fit_scenarios(scenario, wide)] == [20, 19]
    assert [each.capacity for each in fit_scenarios(scenario, replace(workload, size=np.full(n, 20)))] == [20]


def test_a_fit_never_sees_a_pair_known_after_until(recorder: Recorder) -> None:
    pairs = random_pairs(0, 60)
    rows = [slice(a, b) for a, b in itertools.pairwise(pairs.offset)]
    latest = np.array([pairs.successor_start_s[one].max() for one in rows])
    at_the_end = pairs.successor_start_s[pairs.last]
    odd = np.argmax(latest - at_the_end)
    until_s = int(at_the_end[odd]) + 1
    assert until_s <= latest[odd], "submitted earlier, a successor started later"
    train(pairs, ["recorder"], context=context(until_s), seeds=(7,))
    ((seen, seed),) = recorder.seen
    assert seed == 7 and 0 < len(seen) < len(pairs)
    assert seen.digest == hidden_at_random(pairs.take(latest < until_s)).digest


@pytest.mark.parametrize(
    "name", ["reactive", "average-wait", "start-estimate", pytest.param("forest", marks=pytest.mark.slow)]
)
def test_the_future_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens to pairs whose outcome came after `until`, the fit is the same to the byte."""
    pairs, until_s = random_pairs(0, 60), FIRST_S + 6 * DAY_S
    late = np.repeat(np.maximum.reduceat(pairs.successor_start_s, pairs.offset[:-1]) >= until_s, np.diff(pairs.offset))
    changed = replace(
        pairs,
        successor_start_s=np.where(late, pairs.successor_start_s + 40 * 3600, pairs.successor_start_s),
        observations=np.where(late[:, None], np.float32(9.0), pairs.observations),
    )
    assert late.any() and not late.all()
    if name == "forest":
        monkeypatch.setitem(registry.POLICIES, name, Given(RandomForest(trees=3)))
    fits = [train(table, [name], context=context(until_s), seeds=(0,))[0] for table in (pairs, changed)]
    assert content_digest(fits[0].artifact) == content_digest(fits[1].artifact)


def test_learners_are_fitted_once_a_seed_and_the_others_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, plain = Recorder(), Recorder(is_learned=False)
    learner.name, plain.name = "learner", "plain"
    monkeypatch.setitem(registry.POLICIES, "learner", Given(learner))
    monkeypatch.setitem(registry.POLICIES, "plain", Given(plain))
    fits = train(random_pairs(0, 12), ["learner", "plain"], context=context(FIRST_S + 90 * DAY_S))
    assert [seed for _, seed in learner.seen] == list(training.SEEDS) == [0, 1, 2, 3, 4]
    assert [seed for _, seed in plain.seen] == [0]
    assert len(fits) == 6


def test_every_fit_is_recorded_with_what_it_was_made_from(recorder: Recorder) -> None:
    notes, where = Notes(), context(FIRST_S + 90 * DAY_S)
    fits = train(random_pairs(0, 12), ["recorder"], context=where, seeds=(0, 1), tracker=notes)
    assert [one.run_id for one in fits] == ["run-1", "run-2"]
    run = notes.runs[1]
    assert run["params"]["seed"] == 1 and run["params"]["pairs"] == 24 and run["params"]["until_s"] == where.until_s
    assert run["metrics"]["loss"] == [2.0, 1.0] and run["metrics"]["fit_wall_s"][0] >= 0
    assert run["ended_s"] - run["began_s"] == pytest.approx(fits[1].wall_s, abs=1e-6)
    assert run["began_s"] >= notes.runs[0]["ended_s"] - 1e-3
    assert notes.trainings == [(where, ["recorder"], 24)]
    note = fits[1].artifact.manifest["trained_on"]
    assert (note["cluster"], note["until_s"], note["seed"]) == ("toy", where.until_s, 1)
    json.dumps(fits[1].artifact.manifest, allow_nan=False)


def test_a_clusters_hyperparameters_reach_the_fit_and_others_are_refused() -> None:
    pairs = random_pairs(1, starts=12)
    late = context(until_s=FIRST_S + 365 * DAY_S)

    def trees(values: dict[str, dict[str, float]]) -> int:
        (one,) = train(pairs, ["forest"], context=late, seeds=[0], hyperparameters=values)
        return len(one.artifact.arrays["root"])

    assert trees({"forest": {"trees": 11}, "dqn": {"updates": 300}}) == 11
    assert trees({}) == 50
    with pytest.raises(InputError, match="hyperparameters of cluster 'toy': forest has no 'depth'"):
        trees({"forest": {"depth": 3}})
    with pytest.raises(InputError, match="policy 'oak' has no hyper-parameters"):
        trees({"oak": {"depth": 3}})


def test_rules_of_the_site_are_recorded_for_policies_that_look_ahead_alone() -> None:
    late, pairs = replace(context(FIRST_S + 365 * DAY_S), site={"max_jobs": 3}), random_pairs(1, starts=12)
    pairs = replace(pairs, ahead=np.zeros((len(pairs.decision_s), len(AHEAD)), np.float32))
    fits = {one.name: one.artifact for one in train(pairs, ["reactive", "simulate-ahead"], context=late, seeds=[0])}
    assert fits["simulate-ahead"].manifest["trained_on"]["site"] == {"max_jobs": 3}
    assert "site" not in fits["reactive"].manifest["trained_on"]


def test_progress_goes_to_standard_error(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    train(random_pairs(0, 4), ["recorder"], context=context(FIRST_S + 90 * DAY_S), seeds=(0,))
    captured = capsys.readouterr()
    assert captured.out == "" and "trained on 8 pairs" in captured.err


def test_nothing_known_is_said_in_one_line(recorder: Recorder) -> None:
    with pytest.raises(InputError, match=r"'toy': none of the 8 pairs had an outcome before 2023-01-01T00:00:00"):
        train(random_pairs(0, 4), ["recorder"], context=context(FIRST_S))
    assert recorder.seen == []


def test_an_unknown_policy_lists_the_known_before_anything_is_fitted(recorder: Recorder) -> None:
    with pytest.raises(InputError, match="reactive, average-wait"):
        train(random_pairs(0, 4), ["recorder", "oracel"], context=context(FIRST_S + 90 * DAY_S))
    assert recorder.seen == []


def test_the_code_version_names_the_commit_or_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    code_version.cache_clear()

    def no_git(*arguments: str) -> str:
        raise subprocess.CalledProcessError(128, "git")

    with monkeypatch.context() as patch:
        patch.setattr(training, "_git", no_git)
        assert code_version().partition("+")[2]
    code_version.cache_clear()
    monkeypatch.setattr(training, "_git", lambda *arguments: "abc123" if "rev-parse" in arguments else "")
    found = code_version()
    assert found == "abc123" if (ROOT / ".git").exists() else "+" in found
    code_version.cache_clear()


class Interrupted(Recorder):
    """Fits so many seeds, then is stopped."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        if len(self.seen) == self.most:
            raise KeyboardInterrupt
        return super().fit(pairs, seed)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A small study that MLflow hears nothing of."""
    monkeypatch.setattr(training_runs, "MlflowTracker", lambda data: None)
    return toy_study(tmp_path)


def test_an_interrupted_training_keeps_what_was_fitted(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window(3 * DAY_S, 8 * DAY_S, 1800)
    policy = Interrupted(most=2)
    monkeypatch.setitem(registry.POLICIES, "recorder", Given(policy))

    with pytest.raises(KeyboardInterrupt):
        fit(study, ["reactive", "recorder"], window)
    with pytest.raises(InputError, match="'recorder' is not trained"):
        last_fit(study, "recorder")
    policy.most = 99
    fits, kept = fit(study, ["reactive", "recorder"], window)

    assert [seed for _, seed in policy.seen] == [0, 1, 2], "the third alone is fitted again"
    assert [(one.name, one.seed) for one in fits] == [("reactive", 0), *(("recorder", seed) for seed in range(3))]
    assert kept == ["reactive"]
    assert fit(study, ["reactive", "recorder"], window)[1] == ["reactive", "recorder"]
    assert [one.seed for one in last_fit(study, "recorder")[0]] == [0, 1, 2]
    fit(study, ["recorder"], Window(3 * DAY_S, 7 * DAY_S, 1800), seeds=(0,))
    assert [one.seed for one in last_fit(study, "recorder")[0]] == [0], "seeds of two windows are not mixed"


def test_a_kill_between_a_fit_and_its_stamp_passes_nothing_off_as_another(
    study: Study, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, late = (Window(3 * DAY_S, until * DAY_S, 1800) for until in (7, 8))
    fit(study, ["recorder"], early, seeds=(0,))

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("models.study.fits.write_stamp", killed)
        with pytest.raises(KeyboardInterrupt):
            fit(study, ["recorder"], late, seeds=(0,))
    with pytest.raises(InputError, match="'recorder' is not trained"):
        last_fit(study, "recorder")
    ((again,), _) = fit(study, ["recorder"], early, seeds=(0,))
    assert again.artifact.manifest["trained_on"]["until_s"] == early.until_s, "of outcomes after that it knows nothing"
