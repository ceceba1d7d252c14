"""Figures, differences and verdicts of a recorded scene, and the answer for a cluster of the warehouse."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from models.engine.local import each_here
from models.what_if.answers import REPORTED, what_if
from models.what_if.recorded.answer import answer_recorded, read_recorded_scene
from models.what_if.recorded.changes import changed_recorded
from models.what_if.recorded.outcomes import base_beside, figures, groups, outcome_of, rows
from models.what_if.recorded.scene import RecordedScene
from models.what_if.trust import trust, verdict
from tests.models.engine.pickled import each_pickled
from tests.models.what_if.recorded import cases
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store.folder import DataFolder
from traces.units import DAY_S, HOUR_S


@pytest.fixture(scope="module")
def scene() -> RecordedScene:
    return cases.scene()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return cases.in_warehouse(tmp_path_factory.mktemp("recorded"))


@pytest.mark.parametrize(
    ("recorded_s", "replayed_s", "rho", "level"),
    [
        (1000.0, 1250.0, 0.6, "figures"),
        (1000.0, 1251.0, 0.9, "direction"),
        (1000.0, 749.0, 0.9, "direction"),
        (1000.0, 1000.0, 0.59, "direction"),
        (1000.0, 1000.0, None, "direction"),
        (None, None, None, "unknown"),
    ],
)
def test_a_base_off_by_a_quarter_or_out_of_order_shows_directions_only(
    recorded_s: float | None, replayed_s: float | None, rho: float | None, level: str
) -> None:
    assert trust(recorded_s, replayed_s, rho)["level"] == level


@pytest.mark.parametrize(
    ("difference", "ci95", "error", "is_sampled", "found"),
    [
        (-10.0, [-15.0, -5.0], 9.0, True, "less"),
        (10.0, [5.0, 15.0], 9.0, True, "more"),
        (-10.0, [-15.0, -5.0], 11.0, True, "cannot tell"),
        (-10.0, [-25.0, 5.0], 0.0, True, "cannot tell"),
        (-10.0, None, 0.0, True, "cannot tell"),
        (-10.0, None, 0.0, False, "less"),
        (0.0, [0.0, 0.0], 0.0, True, "no change"),
        (0.0, None, 5.0, False, "no change"),
    ],
)
def test_a_difference_counts_beyond_chance_and_beyond_the_bases_error(
    difference: float, ci95: list[float] | None, error: float, is_sampled: bool, found: str
) -> None:
    assert verdict(difference, ci95, error, is_sampled=is_sampled) == found


def test_the_base_is_set_beside_the_record_as_a_whole_and_by_size(scene: RecordedScene) -> None:
    beside = base_beside(outcome_of(scene))
    assert beside["recorded"] == beside["replayed"] and beside["trust"]["level"] == "figures"
    assert beside["spearman"] == pytest.approx(1.0) and beside["held_share"] == 0.0
    assert [(row["dimension"], row["name"]) for row in beside["groups"]] == [("size", "1"), ("size", "2-4")]
    assert sum(row["jobs"] for row in beside["groups"]) == beside["jobs"] == scene.judged.sum()


def test_figures_are_those_of_the_jobs(scene: RecordedScene) -> None:
    short, jobs = outcome_of(changed_recorded(scene, "limit=1h"), is_whole=True), scene.judged
    found, record = figures(short, jobs), scene.record
    run_s = (record.end_s - record.start_s)[jobs]
    cut_h = (np.maximum(run_s - HOUR_S, 0) * record.size[jobs]).sum() / HOUR_S
    assert found["cut_node_h"] == pytest.approx(cut_h) and found["mean_wait_s"] == short.wait_s[jobs].mean()
    ran = record.ran & (record.end_s > scene.from_s) & (record.start_s < scene.until_s)
    held_s = np.minimum(record.end_s, scene.until_s)[ran] - np.maximum(record.start_s, scene.from_s)[ran]
    base = figures(outcome_of(scene, is_whole=True), jobs)
    offered_s = cases.NODES * (scene.until_s - scene.from_s)
    assert base["utilization"] == pytest.approx((held_s * record.size[ran]).sum() / offered_s, abs=0.01)
    assert base["gpu_h"] == pytest.approx((held_s * 4 * record.size[ran]).sum() / HOUR_S)
    in_use = base_beside(outcome_of(scene, is_whole=True))["utilization"]
    assert in_use["replayed"] == base["utilization"] and in_use["recorded"] == pytest.approx(base["utilization"])
    assert base_beside(outcome_of(scene))["utilization"] is None
    assert not {"utilization", "gpu_h"} & figures(outcome_of(scene), jobs).keys()


def test_differences_are_paired_and_their_parts_add_up(scene: RecordedScene) -> None:
    base, more = outcome_of(scene), outcome_of(changed_recorded(scene, "nodes=+2"))
    (mean,) = [row for row in rows(base, more, "nodes=+2", "daily") if row["figure"] == "mean_wait_s"]
    low, high = mean["difference_ci95"]
    assert low <= mean["difference"] <= high < 0 and mean["verdict"] == "less" and len(mean["parts"]) == 3
    assert mean["difference"] == pytest.approx(np.nanmean(more.wait_s) - np.nanmean(base.wait_s))
    gone = outcome_of(changed_recorded(scene, "arrivals.account.odd=0"))
    even = scene.judged & (scene.about["account"] == "even").to_numpy()
    (mean,) = [row for row in rows(base, gone, "gone", "daily") if row["figure"] == "mean_wait_s"]
    assert mean["jobs"] == even.sum()
    assert mean["difference"] == pytest.approx((gone.wait_s - base.wait_s)[even].mean())


def test_groups_are_sizes_accounts_and_the_users_with_most_jobs(scene: RecordedScene) -> None:
    found = {(dimension, name): int(mask.sum()) for dimension, name, mask in groups(scene, scene.judged)}
    assert found["account", "odd"] + found["account", "even"] == scene.judged.sum()
    assert sum(dimension == "user" for dimension, _name in found) == 20
    assert not any(dimension in ("partition", "qos") for dimension, _name in found)  # one, and unknown


def test_the_answer_names_unstarted_jobs_and_the_record(data: DataFolder) -> None:
    settings = ClusterSettings("busy")
    scene = read_recorded_scene(data, settings)
    assert (scene.until_s - scene.from_s) // DAY_S == cases.DAYS - 29
    result, daily, whole = answer_recorded(scene, "busy", ["max_nodes=1 and arrivals=+900%", "nodes=+1"])
    assert any("had not started ten days after the end of the window" in line for line in result["said"])
    assert any(line.startswith("arrivals=+900%: generated: ") for line in result["said"])
    assert [change for change, _outcome in whole] == [change for change, _outcome in daily]
    assert [change for change, _outcome in daily] == ["as it is", "max_nodes=1 and arrivals=+900%", "nodes=+1"]
    json.dumps(result)
    for engine in (partial(each_here, processes=1), each_pickled):
        again = answer_recorded(scene, "busy", ["max_nodes=1 and arrivals=+900%", "nodes=+1"], engine=engine)
        assert json.dumps(again.result) == json.dumps(result)


def test_the_table_of_the_pipeline(data: DataFolder) -> None:
    table = {row["change"]: row for row in what_if(data, ClusterSettings("busy")).to_dicts()}
    assert list(table) == ["as it is", *REPORTED]
    assert table["as it is"]["verdict"] == "no change" and table["as it is"]["trust"] == "figures"
    assert table["nodes=+10%"]["verdict"] == "less" and table["nodes=+10%"]["capacity_nodes"] == cases.NODES + 1
    assert table["nodes=-10%"]["wait_change_low_s"] > 0 and table["arrivals=+20%"]["verdict"] == "more"


@pytest.mark.parametrize(
    ("window", "why"),
    [
        ((None, cases.FIRST_S + 5 * DAY_S), "is shorter than a week"),
        ((cases.FIRST_S + 200 * DAY_S, None), "is shorter than a week"),
    ],
)
def test_a_window_that_is_too_short_is_refused(
    data: DataFolder, window: tuple[int | None, int | None], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        read_recorded_scene(data, ClusterSettings("busy"), window)


def test_copies_of_other_seeds_are_other_jobs(scene: RecordedScene) -> None:
    one, two = (changed_recorded(replace(scene, seed=seed), "arrivals=+20%").copied for seed in (0, 1))
    assert len(one) and not np.array_equal(one, two)
