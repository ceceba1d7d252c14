"""The candidate rule, the gate, and what happens to the registry."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from agent.artifact import Artifact
from models.protocol import PairTable, TrainedPolicy
from models.registry import POLICIES
from models.release.candidate import Candidate, choose_candidate
from models.release.champion import promote, rollback
from models.release.decision import ReleaseDecision, release, release_digest
from models.release.gate import Gate, gate, gate_window
from models.release.note import WORDS, release_note
from models.tables import release_log_frame
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from models.tracking.versions import RegisteredVersion
from tests.models.pair_tables import FIRST_S, artifact, context, random_pairs, reactive, trained
from traces.errors import InputError, WorkError
from traces.store.folder import DataFolder

DAY_S = 86_400
SELECT = random_pairs(1, 70)
MONTH = random_pairs(2, 40 * 6)  # 40 days
GOOD = artifact("constant-lead", (1.5,), 1.5, policy="constant-lead")
BAD = artifact("constant-lead", (3.0,), 3.0, policy="constant-lead")


def candidate(one: Artifact = GOOD, cost_h: float = 1.0) -> Candidate:
    return Candidate("constant-lead", 0, one.settings[0], cost_h, one, "run")


def registered(data: DataFolder) -> RegisteredVersion:
    """The champion, which there must be."""
    champion = tracking.champion(data)
    assert champion is not None
    return champion


def quiet(pairs: PairTable, most_h: float) -> PairTable:
    """The same with no wait above `most_h`."""
    wait_s = np.minimum(pairs.successor_start_s - pairs.decision_s, round(3600 * most_h))
    return replace(pairs, successor_start_s=pairs.decision_s + wait_s)


def mean_cost(pairs: PairTable, one: Artifact, setting: float, size: int) -> float:
    """Cost of weight 1, one pair at a time."""
    costs = []
    for i in np.flatnonzero(pairs.pair_nodes == size):
        rows = np.arange(pairs.offset[i], pairs.offset[i + 1])
        yes = np.flatnonzero(one.decide(pairs.observations[rows], setting))
        costs.append(abs(pairs.gap_h[rows[yes[0]]]))
    return float(np.mean(costs))


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


def test_the_gate_takes_the_newest_28_days_that_nobody_was_fitted_on() -> None:
    newest = int(MONTH.submit_s.max())
    part = gate_window(MONTH, [artifact(until_s=FIRST_S), reactive()], "toy")
    assert part.submit_s.min() == newest - 28 * DAY_S + 14_400 and part.submit_s.max() == newest
    assert len(np.unique(part.submit_s)) == 28 * 6
    late = FIRST_S + 30 * DAY_S
    part = gate_window(MONTH, [artifact(until_s=FIRST_S), reactive(until_s=late)], "toy")
    assert part.submit_s.min() == late  # the later of the two fits counts
    assert len(gate_window(MONTH, [artifact(until_s=newest + 1)], "toy")) == 0
    assert gate_window(MONTH, [artifact(until_s=newest + 1)], "another cluster").submit_s.max() == newest
    known = gate_window(MONTH, [artifact()], "toy", known_until_s=late)
    assert (known.successor_start_s[known.last] < late).all() and known.submit_s.min() < newest - 28 * DAY_S


def test_the_gate_is_a_paired_comparison() -> None:
    same = gate(MONTH, GOOD, GOOD, "toy")
    assert same.passed and (same.difference_h, same.low_h, same.high_h) == (0.0, 0.0, 0.0)
    calm = quiet(MONTH, 1.0)
    better, worse = gate(calm, reactive(), BAD, "toy"), gate(calm, BAD, reactive(), "toy")
    assert worse.low_h is not None and worse.difference_h is not None and worse.high_h is not None
    assert better.difference_h == pytest.approx(-worse.difference_h)
    assert (better.low_h, better.high_h) == pytest.approx((-worse.high_h, -worse.low_h))
    assert better.passed and not worse.passed and worse.high_h > 0.1
    assert worse.low_h < worse.difference_h < worse.high_h
    cost = [np.mean([mean_cost(gate_window(calm, [BAD], "toy"), one, one.settings[0], s) for s in (1, 8)])
            for one in (BAD, reactive())]  # fmt: skip
    assert worse.difference_h == pytest.approx(cost[0] - cost[1])
    assert "4 blocks, indicative" in worse.reason


@pytest.mark.parametrize(("excess_h", "passes"), [(0.05, True), (0.15, False)])
def test_not_worse_means_by_at_most_a_tenth_of_an_hour(excess_h: float, passes: bool) -> None:
    """Every successor submitted ten minutes early overlaps by the same `excess_h`: a difference without spread."""
    pairs = quiet(MONTH, 0.0)
    pairs.successor_start_s[pairs.last - 1] = pairs.predecessor_end_s - round(3600 * excess_h)
    found = gate(pairs, artifact("constant-lead", (0.2,), 0.2), None, "toy")
    assert (found.low_h, found.difference_h, found.high_h) == pytest.approx((excess_h,) * 3)
    assert found.passed is passes


def test_the_gate_says_what_it_compared() -> None:
    part, found = gate_window(MONTH, [GOOD, BAD], "toy"), gate(MONTH, GOOD, BAD, "toy")
    assert (found.n, found.from_s, found.until_s) == (len(part), min(part.submit_s), max(part.submit_s))
    assert found.blocks == 4  # 28 days
    assert found.difference_h is not None and found.low_h is not None and found.high_h is not None
    assert found.low_h < found.difference_h < found.high_h


def test_too_little_to_compare_does_not_pass() -> None:
    short = gate(random_pairs(2, 30), GOOD, None, "toy")
    assert not short.passed and "no more than one block of 7 days" in short.reason
    none = gate(MONTH, artifact(until_s=FIRST_S + 400 * DAY_S), None, "toy")
    assert not none.passed and none.n == 0 and "no pair starts after candidate and reactive" in none.reason


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
    return folder


def test_the_life_of_a_champion(data: DataFolder) -> None:
    """First release, nothing new, a worse candidate, a better one, rollback, and no return by itself."""
    when = datetime(2023, 3, 1, 12)

    def run(one: Artifact, pairs: PairTable = MONTH) -> ReleaseDecision:
        return release(data, candidate(one), pairs, context=context(), decided_utc=when)

    start = artifact("constant-lead", (0.0,), 0.0, policy="constant-lead")
    first = run(start)
    assert first.passed and first.is_new and first.version == 1 and first.champion_version is None
    assert "reactive" in first.reason and "no champion yet" in first.reason
    tags = registered(data).tags
    assert tags["policy"] == "constant-lead" and tags["cluster"] == "toy" and tags["setting"] == "0"

    again = run(start)
    assert again.passed and not again.is_new and again.version == 1 and "nothing new" in again.reason

    worse = run(BAD)
    assert not worse.passed and worse.version == 1 and worse.champion_version == 1
    assert "the champion" in worse.reason and tracking.versions(data) == [1]

    better = run(artifact(settings=(1.0,)))
    assert better.passed and better.is_new and better.version == 2
    assert registered(data).version == 2 and tracking.versions(data) == [1, 2]

    assert rollback(data) == 1 and registered(data).version == 1
    back = run(tracking.load_artifact(data, 2))
    assert not back.passed and back.version == 1 and "version 2, which was rolled back" in back.reason
    with pytest.raises(WorkError, match=r"version 1 .* is the first champion"):
        rollback(data)

    assert promote(data, 2) == 2 and promote(data, 2) == 2
    assert rollback(data) == 1

    decisions = [first, again, worse, better, back]
    log = release_log_frame([decision.log_row() for decision in decisions])
    assert log["passed"].to_list() == [True, True, False, True, False]
    assert log["registered_version"].to_list() == [1, 1, 1, 2, 1]
    assert log["champion_version"].to_list() == [None, 1, 1, 1, 1]


def test_a_failed_first_gate_registers_nothing(data: DataFolder) -> None:
    found = release(data, candidate(BAD), MONTH, context=context())
    assert not found.passed and found.version is None and not found.is_new
    assert tracking.versions(data) == [] and tracking.champion(data) is None


def test_a_champion_for_other_features_gives_way_to_reactive(data: DataFolder) -> None:
    old = artifact("constant-lead", (0.0,), 0.0)
    old.manifest["features"] = ["remaining_h"]
    promote(data, tracking.register(data, old, tags={}, description="d", metrics={}))
    found = release(data, candidate(artifact("constant-lead", (0.0,), 0.0)), MONTH, context=context())
    assert found.passed and found.version == 2 and found.champion_version is None
    assert "champion version 1 was made for other features" in found.reason


def test_a_damaged_champion_gives_way_to_reactive(data: DataFolder) -> None:
    promote(data, tracking.register(data, BAD, tags={}, description="d", metrics={}))
    (tracking.download(data) / "artifacts" / "policy" / "manifest.json").unlink()
    found = release(data, candidate(artifact("constant-lead", (0.0,), 0.0)), MONTH, context=context())
    assert found.passed and "champion version 1 cannot be compared with" in found.reason


def test_promoting_what_is_not_there_lists_what_is(data: DataFolder) -> None:
    for version in (0, -1, 7):
        with pytest.raises(InputError, match=f"no version {version}; registered: none"):
            promote(data, version)
    with pytest.raises(WorkError, match="no champion to roll back from"):
        rollback(data)


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
    note = release_note(chosen, Gate(True, "not worse than reactive"))
    for words in (
        "**start-estimate**: submits when the wait that running and queued jobs leave",
        f"Knob “factor” = {chosen.setting:g} (declared from 0 to 2, least to most overlap)",
        "cluster `toy`: 1,234 pairs whose outcome was known before 2023-01-01T00:00:00 UTC",
        f"{chosen.cost_h:.2f} h a pair, 95 % [{low:.2f}, {high:.2f}]; 240 pairs from 2023-01-01T00:00",
        "**Gate**: not worse than reactive.",
    ):
        assert words in note, note
    assert set(WORDS) == set(POLICIES)
    short = choose_candidate(random_pairs(3, 12), fits)
    assert "no interval, all within one block" in release_note(short, Gate(True, "x"))
