"""Differences of replays over draws: paired, spread told, and as tables whose parts add up."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from models.tables import WHAT_IF_GROUPS, WHAT_IF_SCHEDULERS
from models.what_if.changes import AS_IT_IS, GpuScene, parameters_of
from models.what_if.differences import frames, replayed, rows
from models.what_if.schedulers import combinations, replays
from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import of_arrays
from tests.simulator.gpu.models import drawn_jobs
from traces.units import DAY_S


@pytest.fixture(scope="module")
def drawn() -> GpuScene:
    rng = np.random.default_rng(4)
    submit = 1.7e9 + np.sort(rng.integers(0, 28 * DAY_S, 150)).astype(float)
    jobs = of_arrays(submit, rng.choice([1, 2, 4, 8], 150), rng.lognormal(10.5, 1.3, 150), rng.integers(0, 2, 150))
    return GpuScene(of_nodes(np.array([4, 4, 4])), drawn_jobs(jobs, 7), seed=7)


def test_every_draw_has_its_own_seed_and_is_held_against_its_own_base(drawn: GpuScene) -> None:
    asked = combinations(drawn, ["srtf", "fifo"], ["mix=none"], draws=3)
    assert [one.scene.seed for one in asked[:3]] == [7, 8, 9]
    assert len({one.scene.jobs.model.tobytes() for one in asked[:3]}) == 3
    outcomes = replays(asked, lambda _: None, workers=1)
    first, bare, fifo, _ = replayed(outcomes)
    assert (first.is_base, bare.is_base, fifo.scheduler) == (True, False, "fifo")
    by_hand = [outcomes[6 + k].of_jobs["mean_jct_s"] - outcomes[k].of_jobs["mean_jct_s"] for k in range(3)]
    np.testing.assert_array_equal(fifo.changes("mean_jct_s"), by_hand)
    found = {
        (row["scheduler"], row["change"]): row for row in rows(drawn.jobs, outcomes) if row["figure"] == "mean_jct_s"
    }
    row = found["fifo", AS_IT_IS]
    each = [float(of_draw.mean()) for of_draw in by_hand]
    assert row["difference"] == pytest.approx(np.mean(each))
    assert row["difference_draws"] == pytest.approx([min(each), max(each)]) and min(each) < max(each)
    low, high = row["difference_ci95"]
    assert low < row["difference"] < high
    without = found["srtf", "mix=none"]["draws"]
    assert without[0] == without[1]  # nothing is drawn there, so no seed makes a difference


def test_a_scene_without_profiles_is_replayed_once(drawn: GpuScene) -> None:
    bare = GpuScene(drawn.cluster, of_arrays(drawn.jobs.submit_s, drawn.jobs.gpus, drawn.jobs.run_s))
    assert len(combinations(bare, ["fifo", "sjf", "fifo"], [], draws=5)) == 2


def test_the_load_of_inference_is_drawn_with_the_seed_of_the_scene(drawn: GpuScene) -> None:
    assert parameters_of(drawn, "lyra") == {"seed": 7.0}
    assert parameters_of(drawn, "fifo") == {}


def test_the_tables_are_as_declared_and_their_parts_add_up(drawn: GpuScene) -> None:
    asked = combinations(drawn, ["fifo", "sjf"], ["nodes=+3"], draws=2)
    schedulers, groups = frames("lab", asked, replays(asked, lambda _: None, workers=1))
    assert tuple(schedulers.columns) == WHAT_IF_SCHEDULERS.names and tuple(groups.columns) == WHAT_IF_GROUPS.names
    for table, frame in ((WHAT_IF_SCHEDULERS, schedulers), (WHAT_IF_GROUPS, groups)):
        assert frame.select(table.key).is_unique().all()
        required = [column.name for column in table.columns if not column.nullable]
        assert frame.select(required).null_count().row(0) == (0,) * len(required)
    assert schedulers["place"].to_list() == [1, 2, 3, 4]
    assert schedulers["capacity_gpus"].to_list() == [12, 24, 12, 24]
    assert schedulers["jct_change_low_s"].is_null().to_list() == [True, False, False, False]
    assert "2 draws" in schedulers["assumptions"][0]
    summed = (
        groups.filter(pl.col("dimension") == "size")
        .group_by("scheduler", "change")
        .agg(
            (pl.col("jct_change_s") * pl.col("jobs")).sum() / pl.col("jobs").sum(), pl.col("jobs").sum().alias("found")
        )
        .join(schedulers, on=["scheduler", "change"])
    )
    assert summed["found"].to_list() == [150] * 3
    assert summed["jct_change_s"].to_list() == pytest.approx(summed["jct_change_s_right"].to_list())
