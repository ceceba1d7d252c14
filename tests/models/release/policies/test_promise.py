"""What a released version says of what it promises, what it did, and what hiding costs; and the rule that stands in."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent.__main__ import main
from agent.artifact import Artifact
from assets.release import _promise_check
from features.observe import HIDDEN_TOGETHER
from models.provisioning.comparison.outcomes import cost_h
from models.provisioning.comparison.promises import promises_of
from models.provisioning.learning.masking import masked
from models.release.policies.candidate import Candidate
from models.release.policies.decision import ReleaseOffer, release
from models.release.policies.gate import GateVerdict
from models.release.policies.note import model_card, release_note
from models.release.policies.promise import measured_on, promised
from models.release.policies.publish import best_rule
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from models.tracking.registered import folder
from tests.models.pair_tables import FIRST_S, artifact, context, quiet, random_pairs, trained, unlike_days
from traces.store.folder import DataFolder

SELECT, REPORT = random_pairs(1, 70), unlike_days(3, 30)
ONE = artifact(settings=(0.1, 0.5, 1.0, 2.0, 5.0), default=1.0)
AVERAGE = artifact(feature="recent_wait_mean_h", policy="average-wait", default=1.0)


def candidate(one: Artifact, policy: str) -> Candidate:
    return Candidate(policy, 0, float(one.manifest["default_setting"]), 1.0, one, "run")


def offer(one: Candidate, fallback: Candidate | None, pairs=REPORT) -> ReleaseOffer:  # type: ignore[no-untyped-def]
    return ReleaseOffer(
        one, pairs, SELECT, context(until_s=FIRST_S), lambda: one.artifact, {"world": "plain"}, "x", fallback, SELECT
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An initialised, empty store: making one takes seconds."""
    made = DataFolder(tmp_path_factory.mktemp("store") / "data")
    mlflow_store.initialise(made)
    return made.root


@pytest.fixture
def data(store: Path, tmp_path: Path) -> DataFolder:
    shutil.copytree(store, tmp_path / "data")
    return DataFolder(tmp_path / "data")


def test_what_it_did_is_measured_on_the_report_window_alone() -> None:
    found = measured_on(REPORT, ONE, SELECT, "injected")
    assert [one["risk"] for one in found["promises"]] == [0.05, 0.1, 0.2]
    for one, row in zip(found["promises"], promises_of(REPORT, ONE, SELECT), strict=True):
        assert one == {name: row[name] for name in one} and "weekly" not in one
    results = found["results"]
    assert results["n"] == len(REPORT) and results["cost_h"] == pytest.approx(cost_h(REPORT, ONE).mean())
    assert results["interruption_h"] + results["overlap_h"] == pytest.approx(results["cost_h"])
    low, high = results["ci95"]["cost_h"]
    assert low < results["cost_h"] < high
    assert measured_on(REPORT.take(np.zeros(len(REPORT), bool)), ONE, SELECT, "injected") == {}


def test_the_cost_of_each_hidden_group_is_that_by_hand() -> None:
    """A policy that goes by recent waits loses where these are hidden; one that goes by the start estimate does not."""
    hidden = measured_on(REPORT, AVERAGE, SELECT, "injected")["results"]["hidden"]
    assert list(hidden) == list(HIDDEN_TOGETHER)
    for group, row in hidden.items():
        less = cost_h(masked(REPORT, [group]), AVERAGE)
        assert row["cost_w1_hidden"] == pytest.approx(less.mean()) and row["n"] == len(REPORT)
        assert row["difference_h"] == pytest.approx(less.mean() - cost_h(REPORT, AVERAGE).mean())
    assert hidden["recent"]["difference_h"] != 0 == hidden["limits"]["difference_h"]
    assert measured_on(REPORT, ONE, SELECT, "injected")["results"]["hidden"]["recent"]["difference_h"] == 0


def test_the_card_says_what_is_promised_and_at_what_price() -> None:
    rows = measured_on(REPORT, ONE, SELECT, "injected")
    rows["promises"][0] |= {"interrupted_share": None, "is_next_promised": False, "at_once_share": 0.25}
    rows["promises"][1] |= {
        "interrupted_share": 0.08, "is_kept": True, "ci95": [0.05, 0.12], "promised_pairs": 99, "promised_weeks": 3,
        "weeks": 5, "overlap_h": 2.5, "is_next_promised": True, "next_setting": None,
    }  # fmt: skip
    rows["promises"][2] |= {"interrupted_share": 0.3, "is_kept": False, "is_next_promised": True, "next_setting": 2.0}
    it = candidate(ONE, "start-estimate")
    gate = GateVerdict("passed", "not worse")
    card = model_card(it, promised(ONE, it, gate, context(), SELECT, {}, rows), gate)
    for words in (
        "- 5%: no promise: submitting at once interrupts 25.0%; next: no setting keeps it, ",
        "- 10%: kept, 8.0% (95 % [5.0%, 12.0%]) of 99 pairs at 2.50 h of overlap, promised for 3 of 5 weeks; next: ",
        "- 20%: not kept, 30.0%",
        "next: knob = 2",
        "**Results** where it was judged, a pair: interruption ",
        "Extra cost if hidden: recent +0.00 h, limits +0.00 h",
        "A rule, without learning.",
    ):
        assert words in card, card
    learner = release_note(candidate(ONE, "forest"), ONE, gate)
    assert "without learning" not in learner and "random forest" in learner


def test_a_release_carries_its_promises_and_the_agent_shows_them(
    data: DataFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    release(data, offer(candidate(ONE, "start-estimate"), None))
    place = folder(data, "toy") / "champion"
    loaded = Artifact.load(place)
    found = measured_on(REPORT, ONE, SELECT, "injected")
    assert loaded.promises == found["promises"]
    assert loaded.manifest["release"]["results"] == found["results"]
    assert "**Promises**" in (place / "MODEL_CARD.md").read_text()
    assert main([str(place)]) == 0
    assert json.loads(capsys.readouterr().out)["promises"] == found["promises"]


@pytest.mark.parametrize(("is_kept", "passed"), [(True, True), (None, True), (False, False)])
def test_the_check_fails_where_a_promise_was_not_kept(tmp_path: Path, is_kept: bool | None, passed: bool) -> None:
    rows = measured_on(REPORT, ONE, SELECT, "injected")
    for row in rows["promises"]:
        row["is_kept"] = True
    rows["promises"][1]["is_kept"] = is_kept
    it = candidate(ONE, "start-estimate")
    promised(ONE, it, GateVerdict("passed", "fine"), context(), SELECT, {}, rows).save(tmp_path / "champion")
    assert _promise_check(tmp_path / "champion").passed is passed
    assert _promise_check(tmp_path / "nothing").passed
    ONE.save(tmp_path / "older")
    assert _promise_check(tmp_path / "older").passed


def test_a_learner_that_nobody_can_tell_from_reactive_gives_way_to_the_best_rule(data: DataFolder) -> None:
    short = unlike_days(3, 10)
    learner, rule = candidate(ONE, "forest"), candidate(artifact(default=0.5), "start-estimate")
    made = release(data, offer(learner, rule, short))
    assert (made.policy, made.version, made.is_provisional, made.gate.verdict) == (
        "start-estimate", 2, True, "cannot tell"
    )  # fmt: skip
    assert "instead of forest, which is not shown better than reactive" in made.reason
    challenger = tracking.aliased(data, "toy", tracking.CHALLENGER)
    assert challenger is not None and challenger.version == 1 and challenger.tags["policy"] == "forest"
    note = (folder(data, "toy") / "champion" / "MODEL_CARD.md").read_text()
    assert "A rule, without learning." in note
    later = release(data, offer(learner, rule, short))
    assert later.version == 2 and later.candidate_version == 1, "the learner must now be told better than the rule"


def test_a_rule_needs_no_stand_in_and_what_is_worse_gets_none(data: DataFolder) -> None:
    bad = artifact("constant-lead", (4.0,), 4.0, policy="constant-lead")
    found = release(
        data, offer(candidate(bad, "forest"), candidate(ONE, "start-estimate"), quiet(unlike_days(3, 86), 1.0))
    )
    assert found.version is None and found.gate.verdict == "failed"
    fits = [*trained("forest", ONE), *trained("start-estimate", artifact()), *trained("average-wait", AVERAGE)]
    best = best_rule(SELECT, fits, candidate(ONE, "forest"), "injected")
    assert best is not None and best.policy in ("start-estimate", "average-wait")
    assert best_rule(SELECT, fits, candidate(ONE, "average-wait"), "injected") is None
    assert best_rule(SELECT, fits[:1], candidate(ONE, "forest"), "injected") is None


@pytest.mark.parametrize(
    "promises",
    [
        {"risk": 0.1},
        [{"risk": 2.0, "next_setting": 1.0, "is_next_promised": True}],
        [{"risk": 0.1, "next_setting": "x", "is_next_promised": True}],
        [{"risk": 0.1, "next_setting": 1e9, "is_next_promised": True}],
        [{"risk": 0.1, "next_setting": None, "is_next_promised": 1}],
        [{"risk": 0.1, "next_setting": None, "is_next_promised": True}] * 17,
        ["0.1"],
    ],
)
def test_promises_that_are_none_are_refused(promises: object) -> None:
    with pytest.raises(ValueError, match=r"release\.promises"):
        replace(ONE, manifest={**ONE.manifest, "release": {"promises": promises}})
    fine = {"risk": 0.1, "next_setting": None, "is_next_promised": True}
    assert replace(ONE, manifest={**ONE.manifest, "release": {"promises": [fine]}}).promises == [fine]
