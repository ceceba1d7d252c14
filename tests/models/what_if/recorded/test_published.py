"""Published schedulers in the machine of the record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.what_if.recorded.published import answer_published, outcome_under, published_scene
from models.what_if.recorded.replays import usable_nodes_of
from models.what_if.recorded.scene import RecordedScene
from simulator.gpu.run import simulate
from simulator.recorded.free import Anchor
from simulator.recorded.record import NEVER
from tests.models.what_if.recorded import cases
from traces.arrays import Bools
from traces.clusters import ClusterSettings
from traces.errors import InputError

SETTINGS = ClusterSettings("busy", nodes=cases.NODES, gpus_per_node=4)


@pytest.fixture(scope="module")
def scene() -> RecordedScene:
    return cases.scene()


def with_held(scene: RecordedScene, held: Bools) -> RecordedScene:
    """The scene in which the record shows these positions of the whole stretch as held."""
    assert scene.whole is not None
    shown = replace(scene.whole.shown, held=held.astype(np.int64))
    return replace(scene, whole=scene.whole._replace(shown=shown))


def test_without_outages_holds_and_limits_it_is_the_plain_replay(scene: RecordedScene) -> None:
    assert scene.whole is not None
    shown = replace(
        scene.whole.shown,
        usable=np.full_like(scene.whole.shown.usable, cases.NODES),
        held=np.zeros_like(scene.whole.shown.held),
        anchors=(Anchor(scene.from_s, np.zeros(0, np.int64), np.zeros(0, np.int64)),),
    )
    rules = scene.whole.rules._replace(max_jobs=NEVER, max_nodes=NEVER)
    published = published_scene(replace(scene, whole=scene.whole._replace(shown=shown, rules=rules)), SETTINGS)
    assert published.gpu_scene.cluster.gpus == 4 * cases.NODES
    for name in ("sjf", "tiresias"):
        jobs, cluster = published.gpu_scene.jobs, published.gpu_scene.cluster
        within = simulate(cluster, jobs, name, in_machine=published.machine).result
        plain = simulate(cluster, jobs, name).result
        assert within.end_s.tobytes() == plain.end_s.tobytes() and within.restarts.tobytes() == plain.restarts.tobytes()


def test_held_jobs_start_when_they_did_and_take_nodes_from_the_others(scene: RecordedScene) -> None:
    assert scene.whole is not None
    stretch, record = scene.whole, scene.record
    held = np.arange(len(stretch.rows)) % 5 == 0
    published = published_scene(with_held(scene, held), SETTINGS)
    result = simulate(published.gpu_scene.cluster, published.gpu_scene.jobs, "sjf", in_machine=published.machine).result
    outcome = outcome_under(scene, published, result)
    mine = scene.judged & published.is_held
    assert mine.any() and not np.isin(np.flatnonzero(published.is_held), published.row).any()
    assert (outcome.wait_s[mine] == (record.start_s - record.submit_s)[mine]).all()
    running = stretch.rows[stretch.shown.anchors[0].running]
    begin_s, end_s, size = record.start_s.astype(float), record.end_s.astype(float), record.size
    begin_s[published.row] = record.submit_s[published.row] + outcome.wait_s[published.row]
    end_s[published.row] = begin_s[published.row] + scene.run_s[published.row]
    there = np.concatenate([running, np.flatnonzero(published.is_held), published.row])
    tick_s, usable = usable_nodes_of(scene, stretch)
    for row in published.row[scene.judged[published.row]]:
        at_s = begin_s[row]
        busy = size[there][(begin_s[there] <= at_s) & (end_s[there] > at_s)].sum()
        given = there[: -len(published.row)]  # they may take more nodes than are usable
        assert (
            busy <= max(usable[np.searchsorted(tick_s, at_s, side="right") - 1], 0)
            or ((begin_s[given] == at_s) & (end_s[given] > at_s)).any()
        )


def test_the_answer_compares_with_the_clusters_own_scheduler(scene: RecordedScene) -> None:
    reported: list[str] = []
    result, ids, outcomes = answer_published(
        scene, SETTINGS, ("tiresias", "sjf"), ("tiresias.promote=0",), reported.append
    )
    assert [one.scheduler for one in outcomes] == ["recorded", "tiresias", "sjf"]
    assert reported[0] == "recorded" and set(reported[1:]) == {"tiresias", "sjf"}
    assert len(ids) == result["jobs"] == result["base"]["jobs"]
    of_sjf = next(row for row in result["results"] if (row["scheduler"], row["figure"]) == ("sjf", "mean_wait_s"))
    base = result["base"]["replayed"]["mean_wait_s"]
    assert of_sjf["difference"] == pytest.approx(of_sjf["value"] - base) and of_sjf["verdict"] == "less"
    times = outcomes[2].times
    assert (times["start_s"] - times["submit_s"]).mean() == pytest.approx(of_sjf["value"])
    stops = {run["scheduler"]: run["preemptions"] for run in result["runs"]}
    assert stops["tiresias"] > 0 == stops["sjf"] and outcomes[1].times["preemptions"].sum() <= stops["tiresias"]
    assert {row["scheduler"] for row in result["groups"]} == {"tiresias", "sjf"}
    assert "sjf knows every run time in advance, so no cluster can run it" in result["said"]
    bare = answer_published(scene, ClusterSettings("busy"), ("fifo",)).result
    assert "gpus_per_node of cluster 'busy' is not declared: a node counts as one GPU" in bare["said"]


def test_a_window_of_held_jobs_leaves_no_question(scene: RecordedScene) -> None:
    assert scene.whole is not None
    with pytest.raises(InputError, match="all jobs of the window were held"):
        published_scene(with_held(scene, np.ones(len(scene.whole.rows), np.bool_)), SETTINGS)
