"""What is fitted again before it is released."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.release.policies.candidate import Candidate
from models.release.policies.publish import refitted
from models.study import fits
from models.tracking import training_runs
from tests.models.toy_study import toy_study


def test_a_learner_is_fitted_on_everything_known_and_a_rule_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_runs, "MlflowTracker", lambda data: None)
    study = toy_study(tmp_path)
    names = ["average-wait", "forest"]
    trained, _ = fits.fit(study, names, study.windows.fit)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("manifest.json")}
    candidates = {
        one.name: Candidate(one.name, one.seed, one.artifact.settings[2], 1.0, one.artifact, one.run_id)
        for one in trained
    }
    rule, forest = candidates["average-wait"], candidates["forest"]
    assert refitted(study, rule) is rule.artifact
    again = refitted(study, forest)
    before, after = forest.artifact.manifest["trained_on"], again.manifest["trained_on"]
    assert (before["until_s"], after["until_s"]) == (study.windows.fit.until_s, study.windows.report.until_s)
    assert after["pairs"] > before["pairs"] and after["seed"] == before["seed"] == forest.seed
    assert again.manifest["default_setting"] == forest.setting
    assert {path: path.read_bytes() for path in tmp_path.rglob("manifest.json")} == kept, "the comparison's fits stay"
    assert fits.fit(study, names, study.windows.fit)[1] == names, "and are loaded by the next run"
