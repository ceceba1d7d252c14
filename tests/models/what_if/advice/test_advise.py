"""The advisor on a busy generated cluster: what it finds, what it refuses, and its check after the change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.engine.local import each_here
from models.engine.work import Engine
from models.what_if.advice.advise import AdviceQuestion, advice_on, judged, kept_advice
from models.what_if.advice.curves import POINTS, curve_rows, curves
from models.what_if.advice.names import OBJECTIVE_NAMES
from models.what_if.advice.objectives import (
    OBJECTIVES,
    difference_ci95,
    fair_groups,
    losers,
    objective,
    recorded_error,
    value_of,
)
from models.what_if.advice.search import Fairness, TriedChanges, pruned, search_changes
from models.what_if.advice.space import AREAS, choices
from models.what_if.advice.verify import verify
from models.what_if.recorded.changes import changed_recorded
from models.what_if.recorded.outcomes import outcome_of
from models.what_if.recorded.scene import RecordedScene
from simulator.recorded.free import free_starts
from simulator.recorded.parameters import jobs_of
from simulator.recorded.record import NEVER, RecordedTrace
from simulator.recorded.state import RecordedRules
from tests.models.engine.pickled import each_pickled
from tests.models.what_if.recorded import cases
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store.folder import DataFolder
from traces.units import DAY_S

BUSY = ClusterSettings("busy")


@pytest.fixture(scope="module")
def scene() -> RecordedScene:
    return cases.scene()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return cases.in_warehouse(tmp_path_factory.mktemp("advice"))


def test_objectives_are_those_of_their_jobs(scene: RecordedScene) -> None:
    base, jobs = outcome_of(scene), scene.judged
    assert value_of(objective("mean-wait"), base) == pytest.approx(base.wait_s[jobs].mean())
    assert value_of(objective("p90-wait"), base) == pytest.approx(np.quantile(base.wait_s[jobs], 0.9))
    small = jobs & (scene.record.size == 1)
    assert value_of(objective("p90-wait-small"), base) == pytest.approx(np.quantile(base.wait_s[small], 0.9))
    account = [base.wait_s[jobs & (scene.about["account"] == name).to_numpy()].mean() for name in ("odd", "even")]
    assert value_of(objective("worst-group"), base) == pytest.approx(max(account))
    held_s = np.minimum(base.start_s + scene.run_s, scene.until_s) - np.maximum(base.start_s, scene.from_s)
    earlier = scene.record.ran & (scene.record.submit_s < scene.from_s)
    held_s[earlier] = (scene.record.end_s - scene.from_s)[earlier]
    busy_s = (np.maximum(held_s, 0) * scene.record.size)[earlier | jobs].sum()
    idle = 1 - busy_s / (cases.NODES * (scene.until_s - scene.from_s))
    assert value_of(objective("utilization"), base) == pytest.approx(idle)
    assert tuple(OBJECTIVES) == OBJECTIVE_NAMES
    with pytest.raises(InputError, match="unknown objective 'speed': known are mean-wait, p90-wait"):
        objective("speed")


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_interval_encloses_the_difference_and_the_record_is_the_bases_error(scene: RecordedScene, name: str) -> None:
    of, base = objective(name), outcome_of(scene)
    more = outcome_of(changed_recorded(scene, "nodes=+2"))
    ends = difference_ci95(of, base, more)
    assert ends is not None
    sign = -1 if name == "utilization" else 1  # more nodes: shorter waits, and a larger share of them idle
    assert ends[0] <= value_of(of, more) - value_of(of, base) <= ends[1] and max(sign * ends[0], sign * ends[1]) < 0
    assert recorded_error(of, base) == 0.0  # the rules made the record
    late = base._replace(wait_s=base.wait_s + 100.0)
    if name == "utilization":
        assert 0.0 < recorded_error(of, late) < 0.001
    elif name != "slowdown":
        assert recorded_error(of, late) == pytest.approx(100.0)


def test_a_group_loses_if_it_waits_too_much_longer_and_notices_it(scene: RecordedScene) -> None:
    base = outcome_of(scene)
    odd = (scene.about["account"] == "odd").to_numpy()
    mean = base.wait_s[scene.judged & odd].mean()
    for more_s, lost in ((0.11 * mean + 601, ["odd"]), (0.09 * mean, [])):
        later = base._replace(wait_s=base.wait_s + np.where(odd, more_s, 0.0))
        assert [name for name, *_ in losers(base, later, "account", 0.1)] == lost
    assert [name for name, _ in fair_groups(scene)] == ["even", "odd"]
    assert [name for name, _ in fair_groups(scene, "qos")] == ["all jobs"]


def test_choices_are_those_of_the_cluster(scene: RecordedScene) -> None:
    with pytest.raises(InputError, match="--may 'magic' is unknown: known are weights, backfill, limits, qos"):
        choices(scene, ["magic"])
    with pytest.raises(InputError, match="allows no change in this cluster"):
        choices(scene, ["weights"])  # first come, first served: no points
    for choice in choices(scene, [area for area in AREAS if area != "weights"]):
        for change in choice.changes[1:]:
            changed_recorded(scene, change)
    sized = replace(scene, daily=tuple(stretch._replace(points_per_hour=10.0) for stretch in scene.daily))
    assert [choice.name for choice in choices(sized, ["weights"])] == ["age", "size"]


def test_a_search_is_resumed_and_its_best_is_no_worse_than_any_change_alone(
    scene: RecordedScene, tmp_path: Path
) -> None:
    of, allowed = objective("slowdown"), choices(scene, ["qos"])

    def run(candidates: int, journal: str = "one", engine: Engine = each_here) -> list[TriedChanges]:
        return search_changes(
            scene, of, allowed, Fairness(), candidates=candidates, budget_s=60.0, journal=tmp_path / journal,
            engine=engine,
        )  # fmt: skip

    alone = 1 + sum(len(choice.changes) - 1 for choice in allowed)
    first = run(alone)
    assert len(first) == alone and "" in {one.changes for one in first}
    assert run(alone) == first  # nothing is left to try
    more = run(alone + 20)
    assert run(alone, "two", each_pickled) == first and run(alone + 20, "two", each_pickled) == more
    assert len(more) > len(first) and more[0].value <= min(one.value for one in first if not one.losing)
    assert not any(one.losing for one in more[: sum(not one.losing for one in more)])
    (tmp_path / "damaged").write_text("not a journal\n")
    with pytest.raises(InputError, match="not a journal of a search"):
        run(1, "damaged")


def test_changes_that_gain_nothing_are_dropped(scene: RecordedScene) -> None:
    of, useful = objective("slowdown"), "priority.limit.2h=+12h"
    value = value_of(of, outcome_of(changed_recorded(scene, useful)))
    tried = [TriedChanges(f"backfill.depth=5000 and {useful}", value, 0), TriedChanges("", 1e9, 0)]
    assert [one.changes for one in pruned(scene, of, tried, Fairness("user", 9.0), 3)] == [useful]
    assert not pruned(scene, of, [TriedChanges(useful, value, 2)], Fairness(), 3)
    assert not pruned(scene, of, [TriedChanges("", value_of(of, outcome_of(scene)), 0)], Fairness(), 3)


def test_a_candidate_is_recommended_only_if_it_holds_on_later_weeks(scene: RecordedScene) -> None:
    of, fair = objective("slowdown"), Fairness("user", 9.0)
    good, bad = TriedChanges("priority.limit.2h=+12h", 1.0, 0), TriedChanges("max_nodes=1 and backfill=off", 1.0, 0)
    found = judged(scene, of, [bad, good], fair)
    assert found["recommended"] == ["priority.limit.2h=+12h"]
    assert found["curves"] == {
        "place": 2,
        **curves(outcome_of(scene), outcome_of(changed_recorded(scene, good.changes))),
    }
    worse, better = found["candidates"]
    assert worse["verdict"] == "more" and worse["why_not"].startswith("it is worse than no change")
    assert better["why_not"] is None
    assert better["difference"] < 0 and better["ci95"][1] < 0 and better["whole_difference"] < 0
    assert [part["change"] for part in worse["parts"]] == ["max_nodes=1", "backfill=off"]
    (unfair,) = judged(scene, of, [TriedChanges("priority.user.user1=+24h and priority.limit.2h=+12h", 1.0, 0)],
                       Fairness("account", 0.0))["candidates"]  # fmt: skip
    assert unfair["why_not"] is None or "would wait too much longer" in unfair["why_not"]
    off = replace(scene, record=replace(scene.record, start_s=scene.record.start_s + 40_000))
    (far,) = judged(off, of, [good], fair)["candidates"]
    assert far["why_not"].startswith("the base is too far from the record")


def test_curves_are_those_of_the_record_and_of_both_replays(scene: RecordedScene) -> None:
    base, changed = outcome_of(scene), outcome_of(changed_recorded(scene, "max_nodes=2"))
    drawn, jobs = curves(base, changed), scene.judged
    submit_s = scene.record.submit_s[jobs]
    recorded_s = (scene.record.start_s - scene.record.submit_s)[jobs]
    for name, wait_s in (("recorded", recorded_s), ("unchanged", base.wait_s[jobs]), ("changed", changed.wait_s[jobs])):
        assert (drawn["waits"][name][0], drawn["waits"][name][-1]) == (wait_s.min(), wait_s.max())
        waited_s = np.minimum(wait_s, scene.until_s - submit_s).sum()
        assert np.mean(drawn["queue"][name]) == pytest.approx(waited_s / (scene.until_s - submit_s.min()))
    assert drawn["queue"]["at"][-1] == pytest.approx((scene.until_s - submit_s.min()) / DAY_S)
    assert len(curve_rows({"cluster": "lab", "place": 1, **drawn})) == 2 * POINTS


def test_the_advice_is_searched_on_older_weeks_and_kept(data: DataFolder) -> None:
    question = AdviceQuestion("slowdown", ("qos",), candidates=30, budget_s=60.0)
    result = advice_on(data, BUSY, question)
    assert result["searched_from_utc"] < result["from_utc"] < result["until_utc"] and result["tried"] > 10
    assert result["recommended"] and result["recommended"][0].startswith("priority.")
    assert kept_advice(data, "busy") == json.loads(json.dumps(result))
    assert advice_on(data, BUSY, question)["candidates"] == result["candidates"]
    with pytest.raises(InputError, match="shorter than two weeks"):
        advice_on(data, BUSY, question, (cases.FIRST_S + 40 * DAY_S, cases.FIRST_S + 50 * DAY_S))
    with pytest.raises(InputError, match="there is no advice about cluster 'other'"):
        kept_advice(data, "other")


def limited_since(day: int) -> RecordedTrace:
    """The record of `cases`, in which every user may run one job at once from `day` on."""
    of, at_s = cases.record(), cases.FIRST_S + day * DAY_S
    ran = of.take(of.ran)
    parts = []
    for mask, most in ((ran.submit_s < at_s, NEVER), (ran.submit_s >= at_s, 1)):
        part = ran.take(mask)
        run_s = part.end_s - part.start_s
        blank = replace(part, start_s=part.submit_s, end_s=part.submit_s + run_s)
        rules = RecordedRules(cases.NODES, 0, 0, most, NEVER, 0, 0)
        start_s = free_starts(blank, jobs_of(blank, None), rules, np.array([cases.NODES]))
        parts.append(replace(part, start_s=start_s, end_s=start_s + run_s))
    start_s, end_s = (np.concatenate([getattr(part, name) for part in parts]) for name in ("start_s", "end_s"))
    return replace(ran, start_s=start_s, end_s=end_s)


@pytest.mark.parametrize(("day", "verdict"), [(42, "undo"), (None, "cannot tell")])
def test_a_change_is_verified_against_the_jobs_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: int | None, verdict: str
) -> None:
    data = cases.in_warehouse(tmp_path, limited_since(day) if day else None)
    found = verify(data, BUSY, "max_jobs=1", "mean-wait", cases.FIRST_S + 42 * DAY_S)
    assert found["verdict"] == verdict and found["predicted"] > 0
    if day:
        low, high = found["observed_ci95"]
        assert low > 0 and low <= found["predicted"] <= high
    else:
        assert found["observed"] == pytest.approx(0.0, abs=60.0)
    with pytest.raises(InputError, match="leaves jobs out, which no setting does"):
        verify(data, BUSY, "arrivals=50%", "mean-wait", cases.FIRST_S + 42 * DAY_S)
    with pytest.raises(InputError, match="less than a week since"):
        verify(data, BUSY, "max_jobs=1", "mean-wait", cases.FIRST_S + 60 * DAY_S)
