"""The candidate rule, the gate, and what happens to the registry."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from agent.artifact import Artifact
from models.provisioning.protocol import PairTable, TrainedPolicy
from models.provisioning.registry import POLICIES
from models.provisioning.scenario import Scenario
from models.release.champion import alone, promote, rollback
from models.release.log import POLICY_DECISIONS
from models.release.policies.candidate import Candidate, choose_candidate
from models.release.policies.decision import ReleaseDecision, ReleaseOffer, release, release_digest
from models.release.policies.gate import GateVerdict
from models.release.policies.note import WORDS, release_note
from models.tables import RELEASE_LOG, frame
from models.tracking import exported
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from models.tracking.versions import RegisteredVersion
from tests.models.pair_tables import (
    FIRST_S,
    artifact,
    context,
    mean_cost,
    quiet,
    random_pairs,
    reactive,
    trained,
    unlike_days,
)
from traces.errors import InputError, WorkError
from traces.store.folder import DataFolder

SELECT = random_pairs(1, 70)
LONG = unlike_days(3, 86)
GOOD = artifact("constant-lead", (1.5,), 1.5, policy="constant-lead")
BETTER = artifact(settings=(1.0,))
BAD = artifact("constant-lead", (4.0,), 4.0, policy="constant-lead")


def candidate(one: Artifact, cost_h: float = 1.0) -> Candidate:
    return Candidate("constant-lead", 0, one.settings[0], cost_h, one, "run")


def registered(data: DataFolder) -> RegisteredVersion:
    """The champion, which there must be."""
    champion = tracking.champion(data, "toy")
    assert champion is not None
    return champion


def champion_folder(data: DataFolder) -> Path:
    """What an agent of the cluster reads."""
    return (data.artifacts / "toy" / "champion").resolve()


def test_the_candidate_is_the_cheapest_on_average_over_sizes_and_seeds() -> None:
    lead = artifact("constant-lead", (0.0, 0.5, 1.0, 3.0), 0.0, policy="average-wait")
    seeds = [artifact(feature=name, policy="forest") for name in ("start_estimate_h", "recent_wait_mean_h", "hour_sin")]
    fits = [*trained("forest", *seeds), *trained("average-wait", lead), *trained("reactive", reactive())]
    expected = {}
    for name, artifacts in (("forest", seeds), ("average-wait", [lead]), ("reactive", [reactive()])):
        for setting in artifacts[0].settings:
            cost = [[mean_cost(SELECT, one, setting, size) for size in (1, 8)] for one in artifacts]
            expected[name, setting] = np.mean(cost)
    found = choose_candidate(SELECT, fits)
    assert (found.policy, found.setting) == min(expected, key=lambda key: expected[key])
    assert found.cost_h == pytest.approx(min(expected.values()))
    assert found.artifact.manifest["default_setting"] == found.setting


def test_of_a_learner_the_seed_of_median_cost_is_released() -> None:
    seeds = [artifact(settings=(1.0,), feature=name) for name in ("hour_sin", "start_estimate_h", "recent_wait_mean_h")]
    cost = [np.mean([mean_cost(SELECT, one, 1.0, size) for size in (1, 8)]) for one in seeds]
    found = choose_candidate(SELECT, trained("forest", *seeds))
    assert found.seed == int(np.argsort(cost)[1])
    assert found.run_id == f"run-forest-{found.seed}"


def test_equals_go_to_the_simpler() -> None:
    one = artifact()
    fits = [*trained("policy-gradient", one), *trained("start-estimate", one), *trained("forest", one)]
    assert choose_candidate(SELECT, fits).policy == "start-estimate"


def test_no_candidate_is_said_in_one_line() -> None:
    with pytest.raises(InputError, match="0 trained policies on 140 pairs"):
        choose_candidate(SELECT, [])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An initialised, empty store, copied by each test: making one takes seconds."""
    folder = DataFolder(tmp_path_factory.mktemp("data"))
    mlflow_store.initialise(folder)
    return folder.root


@pytest.fixture
def data(store: Path) -> DataFolder:
    """The store without any registered version."""
    folder = DataFolder(store)
    client = mlflow_store.client(folder)
    for model in client.search_registered_models():
        client.delete_registered_model(model.name)
    for left in (folder.artifacts, folder.lake):
        shutil.rmtree(left, ignore_errors=True)
    return folder


def offer(one: Artifact, pairs: PairTable = LONG, refit: Artifact | None = None, made_from: str = "x") -> ReleaseOffer:
    return ReleaseOffer(
        candidate(one), pairs, SELECT, context(until_s=FIRST_S), lambda: refit or one, {"world": "plain"}, made_from
    )


def test_the_life_of_a_champion(data: DataFolder) -> None:
    """First release, nothing new, a worse candidate, a better one, rollback, and no return by itself."""
    when = datetime(2023, 3, 1, 12)

    def run(one: Artifact, pairs: PairTable = LONG) -> ReleaseDecision:
        return release(data, offer(one, pairs), when)

    start = reactive()
    first = run(start)
    assert first.passed and first.is_new and first.version == 1 and first.champion_version is None
    assert "reactive" in first.reason and not first.is_provisional
    tags = registered(data).tags
    assert tags["policy"] == "constant-lead" and tags["cluster"] == "toy" and tags["setting"] == "0"
    assert (tags["verdict"], tags["reason"]) == ("passed", first.reason)

    again = run(start)
    assert again.passed and not again.is_new and again.version == 1 and "nothing new" in again.reason

    for is_new in (True, False):
        worse = run(BAD)
        assert worse.gate.verdict == "failed" and worse.version == 1 and worse.champion_version == 1
        assert "the champion" in worse.reason and tracking.versions(data, "toy") == [1, 2]
        assert (worse.candidate_version, worse.is_new) == (2, is_new)
    challenger = tracking.aliased(data, "toy", tracking.CHALLENGER)
    assert challenger is not None and challenger.version == 2 and challenger.tags["reason"] == worse.reason

    better = run(BETTER)
    assert better.passed and better.is_new and better.version == 3
    assert registered(data).version == 3 and tracking.versions(data, "toy") == [1, 2, 3]
    assert champion_folder(data).name == "3"

    assert rollback(data, "toy") == 1 and registered(data).version == 1 and champion_folder(data).name == "1"
    back = run(exported.load_policy(data, "toy", 3))
    assert not back.passed and back.version == 1 and "version 3, which was rolled back" in back.reason
    with pytest.raises(WorkError, match=r"version 1 .* is the first champion"):
        rollback(data, "toy")

    assert promote(data, "toy", 3, "the  \nfirst was better") == 3 and promote(data, "toy", 3, "still") == 3
    reasons = POLICY_DECISIONS.read(data, "toy").select("registered_version", "verdict", "reason").rows()
    assert reasons[-2:] == [(3, "by hand", "the first was better"), (3, "by hand", "still")]
    assert promote(data, "toy", 2, "to see") == 2 and tracking.aliased(data, "toy", tracking.CHALLENGER) is None
    assert rollback(data, "toy") == 3 and rollback(data, "toy") == 1

    decisions = [first, again, worse, better, back]
    log = frame(RELEASE_LOG, [decision.log_row() for decision in decisions])
    assert log["verdict"].to_list() == ["passed", "passed", "failed", "passed", "failed"]
    assert log["registered_version"].to_list() == [1, 1, 1, 3, 1]
    assert log["candidate_version"].to_list() == [1, 1, 2, 3, 3]
    assert log["champion_version"].to_list() == [None, 1, 1, 1, 1]


def test_a_release_for_one_cluster_leaves_the_others_champion(data: DataFolder) -> None:
    release(data, offer(reactive()))
    other = replace(offer(BETTER), context=replace(context(), scenario=Scenario("other", capacity=8)))
    found = release(data, other)
    assert found.passed and found.version == 1 and found.champion_version is None, "held against reactive"
    assert registered(data).tags["setting"] == "0" and champion_folder(data).parent.name == "toy"


def test_what_is_worse_than_reactive_becomes_no_champion(data: DataFolder) -> None:
    found = release(data, offer(BAD, quiet(LONG, 1.0)))
    assert found.gate.verdict == "failed" and found.version is None and found.candidate_version == 1
    assert tracking.champion(data, "toy") is None and not champion_folder(data).exists()


def test_the_first_champion_may_be_provisional_and_no_later_one(data: DataFolder) -> None:
    short = unlike_days(3, 10)
    found = release(data, offer(BETTER, short))
    assert found.gate.verdict == "cannot tell" and found.is_provisional and found.version == 1
    assert "there is no champion, so this one becomes provisional" in found.reason
    again = release(data, offer(BETTER, short))
    assert "nothing new" in again.reason
    assert (again.gate.verdict, again.is_provisional) == ("cannot tell", True), (
        "it is not proven by being offered again"
    )
    next_one = release(data, offer(GOOD, short))
    assert (next_one.gate.verdict, next_one.version, next_one.is_provisional) == ("cannot tell", 1, False)


def test_what_is_released_is_the_refit_and_it_is_judged_too(data: DataFolder) -> None:
    refit = artifact(settings=(1.25,), default=1.25)
    found = release(data, offer(BETTER, refit=refit))
    assert found.passed and exported.load_policy(data, "toy", 1).settings == (1.25,)
    assert "nothing new" in release(data, offer(BETTER, refit=refit)).reason
    data_of_other = replace(context(), scenario=Scenario("other", capacity=8))
    worse = replace(offer(reactive(), quiet(LONG, 1.0), refit=BAD), context=data_of_other)
    found = release(data, worse)
    assert found.gate.verdict == "failed" and "refitted on all data, it is worse" in found.reason
    assert found.version is None


def test_a_champion_that_cannot_be_read_stops_the_release(data: DataFolder) -> None:
    release(data, offer(reactive()))
    (tracking.download(data, "toy", 1) / "artifacts" / "policy" / "manifest.json").unlink()
    (champion_folder(data) / "manifest.json").unlink()
    for _ in range(2):
        with pytest.raises(
            WorkError, match=r"champion version 1 cannot be compared with: .*The candidate is version 2"
        ):
            release(data, offer(BETTER))
    assert registered(data).version == 1 and tracking.versions(data, "toy") == [1, 2]
    assert promote(data, "toy", 2, "the first is damaged") == 2 and champion_folder(data).name == "2"
    with pytest.raises(WorkError, match=r"version 1 of baton-policy-toy cannot be released: .*manifest\.json"):
        rollback(data, "toy")
    assert registered(data).version == 2


def test_a_champion_for_other_features_stops_the_release_too(data: DataFolder) -> None:
    old = artifact("constant-lead", (0.0,), 0.0)
    old.manifest["features"] = ["remaining_h"]
    number = tracking.register(data, "toy", old, tags={}, description="d", metrics={})
    promote(data, "toy", number, "as it was")
    with pytest.raises(WorkError, match="champion version 1 cannot be compared with: it uses other features"):
        release(data, offer(BETTER))


def test_a_released_artifact_says_where_it_is_from_and_checks_itself(data: DataFolder) -> None:
    release(data, offer(BETTER))
    folder = champion_folder(data)
    assert sorted(path.name for path in folder.iterdir()) == [
        "MODEL_CARD.md", "arrays.npz", "checks.json", "manifest.json"
    ]  # fmt: skip
    loaded = Artifact.load(folder)
    notes = loaded.manifest["release"]
    assert (notes["cluster"], notes["capacity_nodes"], notes["overlap_weight"]) == ("toy", 80, 1.0)
    assert notes["gate"]["verdict"] == "passed" and notes["gate"]["n"] > 900 and notes["gate"]["level"] == 0.98
    assert loaded.checks is not None and set(loaded.checks["submit"]) == {True, False}
    assert 24 < len(loaded.checks["observations"]) <= 48
    card = (folder / "MODEL_CARD.md").read_text()
    assert card.startswith("# start-estimate for cluster `toy`") and "**Gate**, passed: not worse than reactive" in card
    wrong = json.loads((folder / "checks.json").read_text())
    wrong["scores"][0] += 1.0
    (folder / "checks.json").write_text(json.dumps(wrong))
    with pytest.raises(ValueError, match=r"checks\.json"):
        Artifact.load(folder)
    with alone(data, "toy"):
        pass
    assert Artifact.load(champion_folder(data)) == loaded, "the next command makes it whole again"
    link = data.artifacts / "toy" / "champion"
    link.unlink()
    shutil.copytree(link.with_name("1"), link)  # as of a data folder that was copied by what follows links
    with alone(data, "toy"):
        pass
    assert link.is_symlink() and champion_folder(data).name == "1"


def test_promoting_what_is_not_there_lists_what_is(data: DataFolder) -> None:
    for version in (0, -1, 7):
        with pytest.raises(InputError, match=f"no version {version}; registered: none"):
            promote(data, "toy", version, "tried")
    for reason in (" ", "x" * 501):
        with pytest.raises(InputError, match="give 1 to 500 to explain the choice"):
            promote(data, "toy", 1, reason)
    with pytest.raises(WorkError, match="no champion to roll back from"):
        rollback(data, "toy")


def test_a_digest_is_of_content_and_not_of_the_training_run() -> None:
    assert release_digest(artifact(until_s=1)) == release_digest(artifact(until_s=2)) == release_digest(artifact())
    assert release_digest(artifact(default=2.0)) != release_digest(artifact())


def test_the_note_of_a_version_can_be_read() -> None:
    """Policy, knob, what it was trained on until when, cost with its interval, and how it passed."""
    fits = [TrainedPolicy("start-estimate", seed, artifact(until_s=FIRST_S), "run", 0.0) for seed in (0, 1)]
    for one in fits:
        one.artifact.manifest["trained_on"] |= {
            **context().as_dict(),
            "pairs": 1234,
            "until_utc": "2023-01-01T00:00:00",
        }
    select = random_pairs(3, 120)
    chosen = choose_candidate(select, fits)
    assert chosen.selected is not None and chosen.selected.n == len(select)
    low, high = chosen.selected.ci95 or (1.0, 0.0)
    assert low < chosen.cost_h < high
    note = release_note(chosen, chosen.artifact, GateVerdict("passed", "not worse than reactive"))
    for words in (
        "**start-estimate**: submits when the wait estimated from running and queued jobs",
        f"Knob “factor” = {chosen.setting:g} (declared from 0 to 2, least to most overlap)",
        "cluster `toy`: 1,234 pairs whose outcome was known before 2023-01-01T00:00:00 UTC",
        f"{chosen.cost_h:.2f} h a pair, 95 % [{low:.2f}, {high:.2f}]; 240 pairs from 2023-01-01T00:00",
        "**Gate**, passed: not worse than reactive.",
    ):
        assert words in note, note
    assert set(WORDS) == set(POLICIES)
    short = choose_candidate(random_pairs(3, 12), fits)
    assert "no interval, all within one block" in release_note(short, short.artifact, GateVerdict("passed", "x"))
