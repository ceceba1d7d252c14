"""What is kept of fits beside the artifacts: for which scenarios a policy is trained, its runs, and the champion."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent.artifact import Artifact
from features.observe import FEATURES, VERSION
from models.provisioning.protocol import PairTable
from models.provisioning.training.train import train
from models.study import fits
from models.study.cluster import Study
from models.study.fits import champion, champion_policy, fit, fit_fingerprint, last_fit, remember_champion, run_ids
from models.study.windows import Window
from models.tracking import exported, training_runs
from models.tracking import registered as tracking_registered
from tests.models.pair_tables import artifact, random_pairs
from tests.models.toy_study import KnownStudy, toy_study
from traces.errors import InputError
from traces.store.stamps import write_stamp
from traces.units import DAY_S

WINDOW = Window(3 * DAY_S, 5 * DAY_S, 1800)
RULES = ["reactive", "start-estimate"]


class Handed(KnownStudy):
    """Its pairs are random ones, all known."""

    def fit_pairs(self, window: Window) -> PairTable:
        pairs = random_pairs(0, 6)
        return replace(pairs, successor_start_s=pairs.successor_start_s * 0)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """MLflow hears nothing of it, but the fits say that it did."""
    monkeypatch.setattr(training_runs, "MlflowTracker", lambda data: None)

    def noted(*arguments: object, keep: object, **named: object) -> object:
        return train(*arguments, keep=lambda one: keep(replace(one, run_id=f"run of {one.name}")), **named)  # type: ignore

    monkeypatch.setattr(fits, "train", noted)
    toy = toy_study(tmp_path)
    return Handed(toy.data, toy.settings, toy.scenario, toy.workload)


def busier(study: Study) -> Study:
    return replace(study, scenario=replace(study.scenario, capacity=18))


def test_who_asks_for_another_scenario_is_told_for_which_it_is_trained(study: Study) -> None:
    fit(study, RULES, WINDOW)
    said = f"is not trained for {busier(study).scenario}; it is trained for {study.scenario}; run `baton train"
    with pytest.raises(InputError, match=re.escape(said)):
        last_fit(busier(study), "reactive")
    fit(replace(study, scenario=replace(study.scenario, scheduler="fifo")), ["reactive"], WINDOW)
    with pytest.raises(InputError, match=r"it is trained for toy: fifo on .*, and for toy: mirage on"):
        last_fit(busier(study), "reactive")
    with pytest.raises(InputError, match=r"'average-wait' is not trained for [^;]*; run"):
        last_fit(study, "average-wait")
    with pytest.raises(InputError, match="unknown policy 'best'"):
        last_fit(study, "best")


def test_a_fit_is_that_of_the_scenario_wherever_its_starts_lie(study: Study) -> None:
    fit(study, RULES, WINDOW)
    moved = replace(study, scenario=replace(study.scenario, every_s=7200, from_s=60, known_until_s=9 * DAY_S))
    (trained,), until_s = last_fit(moved, "reactive")
    assert (trained.name, trained.seed, trained.run_id, until_s) == ("reactive", 0, "run of reactive", WINDOW.until_s)


def test_a_fit_of_an_interrupted_training_is_not_taken_for_one_of_the_last(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second window begins elsewhere; its fit is kept, and then nobody writes down that the training ended."""
    fit(study, ["reactive"], WINDOW)

    def stop_at_the_end(data: object, step: str, *rest: object) -> None:
        if "-seed-" not in step:
            raise KeyboardInterrupt
        write_stamp(data, step, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fits, "write_stamp", stop_at_the_end)
    with pytest.raises(KeyboardInterrupt):
        fit(study, ["reactive"], replace(WINDOW, from_s=WINDOW.from_s + DAY_S))
    with pytest.raises(InputError, match="'reactive' is not trained"):
        last_fit(study, "reactive")


def test_runs_are_those_of_the_last_fits(study: Study) -> None:
    fit(study, RULES, WINDOW)
    assert run_ids(study, [*RULES, "average-wait"]) == ["run of reactive", "run of start-estimate"]
    assert run_ids(busier(study), RULES) == []


def test_a_fingerprint_changes_with_what_a_fit_is_made_from(study: Study) -> None:
    same = fit_fingerprint(study, "forest", WINDOW, (0, 1))
    assert same == fit_fingerprint(study, "forest", WINDOW, (0, 1))
    others = {
        fit_fingerprint(study, "lightgbm", WINDOW, (0, 1)),
        fit_fingerprint(study, "forest", replace(WINDOW, until_s=WINDOW.until_s + 1), (0, 1)),
        fit_fingerprint(study, "forest", WINDOW, (0,)),
        fit_fingerprint(busier(study), "forest", WINDOW, (0, 1)),
    }
    assert len(others) == 4 and same not in others


def registered(monkeypatch: pytest.MonkeyPatch, one: Artifact | None) -> None:
    version = None if one is None else 3
    monkeypatch.setattr(tracking_registered, "champion_version", lambda data, cluster, *_: {"toy": version}[cluster])
    monkeypatch.setattr(exported, "load_policy", lambda data, cluster, number: {("toy", 3): one}[cluster, number])


def with_version(one: Artifact, number: int) -> Artifact:
    return replace(one, manifest={**one.manifest, "observe_version": number})


def test_the_champion_is_what_was_trained_under_that_name_else_the_registered_version(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(monkeypatch, with_version(artifact(until_s=77), VERSION))
    (one,), until_s = champion(study)
    assert (one.name, one.seed, one.run_id, one.wall_s, until_s) == ("champion", 0, "", 0.0, 77)
    assert champion_policy(study.data, "toy") == one.artifact.manifest["policy"] == "start-estimate"
    registered(monkeypatch, with_version(artifact(), VERSION))
    assert champion(study)[1] == 0  # fitted on no outcomes
    fit(study, RULES, WINDOW)
    remember_champion(study, "reactive")
    (one,), until_s = champion(study)
    assert (one.name, one.artifact.manifest["policy"], until_s) == ("champion", "reactive", WINDOW.until_s)


def test_a_champion_of_other_observations_is_refused(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, with_version(artifact(), VERSION - 1))
    with pytest.raises(InputError, match=rf"by observations of version {VERSION - 1}, but those here are of version"):
        champion(study)
    registered(monkeypatch, artifact())  # it does not say: of the first
    with pytest.raises(InputError, match="by observations of version 1, but those here"):
        champion(study)
    fewer = with_version(artifact(), VERSION)
    registered(monkeypatch, replace(fewer, manifest={**fewer.manifest, "features": list(FEATURES[:-1])}))
    with pytest.raises(InputError, match="release again"):
        champion(study)
    registered(monkeypatch, None)
    with pytest.raises(InputError, match="cluster 'toy' has no champion in"):
        champion(study)
