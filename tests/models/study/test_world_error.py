"""The error of a world: its figures by hand, and of which jobs they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.provisioning.pairs.recorded_waits import leave_one_out
from models.provisioning.protocol import NONE
from models.provisioning.scenario import CALIBRATED, PLAIN, RECORDED_WAIT
from models.study import inputs
from models.study import world_error as module
from models.study.cluster import Study
from models.study.windows import Window
from models.study.world_error import world_error
from simulator.flat.replay import simulate
from simulator.metrics import wait_distance
from simulator.recorded.calibration import judge
from tests.models.provisioning.pairs.test_recorded_waits import random_record
from tests.models.toy_study import toy_study
from traces.units import HOUR_S


def study_of(root: Path, world: str, from_s: int | None = None) -> Study:
    study = toy_study(root)
    workload = replace(study.workload, start_s=study.workload.submit_s + np.arange(400) * 60)
    return replace(study, workload=workload, scenario=replace(study.scenario, world=world, from_s=from_s))


def asserted(found: dict[str, Any], simulated_s: list[int], recorded_s: list[int]) -> None:
    """The figures are those of these waits, in hours."""
    expected = wait_distance(np.array(simulated_s), np.array(recorded_s))
    assert found == {
        "jobs": len(simulated_s),
        "spearman": pytest.approx(expected["spearman"]),
        "spearman_waited": pytest.approx(expected["spearman_waited"]),
        "error_over_mean": pytest.approx(np.abs(np.subtract(simulated_s, recorded_s)).mean() / np.mean(recorded_s)),
        "mean_wait_h": pytest.approx(np.mean(simulated_s) / HOUR_S),
        "recorded_mean_wait_h": pytest.approx(np.mean(recorded_s) / HOUR_S),
        "p90_wait_h": pytest.approx(np.quantile(simulated_s, 0.9) / HOUR_S),
        "recorded_p90_wait_h": pytest.approx(np.quantile(recorded_s, 0.9) / HOUR_S),
    }


def test_in_the_plain_world_all_jobs_of_the_window_are_replayed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the one submitted just when the window begins to the last before it ends."""
    study = study_of(tmp_path, PLAIN)
    study = replace(study, scenario=replace(study.scenario, scheduler="fifo"))
    submit_s = study.workload.submit_s
    begun = simulate(study.workload, scheduler="fifo", capacity=20)
    assert (begun > submit_s).any()
    window = Window(int(submit_s[50]), int(submit_s[150]))
    found = world_error(study, window)
    asserted(found, (begun - submit_s)[50:150].tolist(), [60 * k for k in range(50, 150)])
    monkeypatch.setattr(module, "_replayed", lambda *_: pytest.fail("computed again"))
    assert world_error(study, window) == found
    monkeypatch.setattr(module, "_replayed", lambda *_: (submit_s[:0], submit_s[:0]))
    nothing = world_error(study, Window(0, 1))
    assert nothing.pop("jobs") == 0 and set(nothing.values()) == {None}
    monkeypatch.setattr(module, "_replayed", lambda *_: (np.array([60, 30]), np.array([0, 0])))
    nobody_waited = world_error(study, Window(1, 2))
    assert nobody_waited["error_over_mean"] is None and nobody_waited["mean_wait_h"] == 45 / HOUR_S


@pytest.mark.parametrize("most", [99, 100, 2000])
def test_in_the_recorded_wait_world_each_draws_among_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Of 300 jobs every third where 100 may be drawn for, every fourth where 99 may."""
    record = random_record(4, jobs=900)
    ran = np.flatnonzero(record.ran)
    monkeypatch.setattr(inputs, "read_record", lambda *_: record)
    monkeypatch.setattr(module, "MOST_JOBS", most)
    window = Window(int(record.submit_s[ran[300]]), int(record.submit_s[ran[600]]))
    rows = ran[300:600][:: {99: 4, 100: 3, 2000: 1}[most]]
    drawn_s = leave_one_out(record, rows)
    pairs = [
        (int(drawn), int(record.start_s[row] - record.submit_s[row]))
        for row, drawn in zip(rows, drawn_s, strict=True)
        if drawn != NONE
    ]
    assert 20 < len(pairs) < len(rows)
    simulated_s, recorded_s = ([pair[k] for pair in pairs] for k in (0, 1))
    asserted(world_error(study_of(tmp_path, RECORDED_WAIT), window), simulated_s, recorded_s)


@pytest.mark.parametrize(("most", "every"), [(99, 4), (100, 3), (2000, 1)])
@pytest.mark.parametrize("from_s", [None, 7])
def test_in_the_calibrated_world_each_starts_by_the_forked_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, every: int, from_s: int | None
) -> None:
    """Of a long record, whose newest part alone is read, each week is fitted on what is near it."""
    record = random_record(4, jobs=900)
    ran = np.flatnonzero(record.ran)
    asked: list[judge.Month] = []

    def starts(form: str, record: Any, happened: Any, month: judge.Month, fitted: Any) -> Any:
        assert form == judge.FORKED and fitted == "fitted"
        asked.append(month)
        return record.submit_s + np.arange(len(record)) ** 2

    monkeypatch.setattr(inputs, "read_record", lambda *_: record)
    monkeypatch.setattr(module, "MOST_JOBS", most)
    monkeypatch.setattr(judge, "judged_starts", starts)
    monkeypatch.setattr(judge, "fits", lambda record, month: "fitted")
    window = Window(int(record.submit_s[ran[300]]), int(record.submit_s[ran[600]]))
    study = study_of(tmp_path, CALIBRATED, from_s)
    found = world_error(study, window)
    assert asked == [judge.Month(window.from_s, window.until_s, every, is_near=from_s is not None)]
    rows = ran[300:600][every - 1 :: every]
    asserted(found, [int(row) ** 2 for row in rows], (record.start_s - record.submit_s)[rows].tolist())
    assert world_error(study, Window(-9, -1))["jobs"] == 0 and len(asked) == 1
