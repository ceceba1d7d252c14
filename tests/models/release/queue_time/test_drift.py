"""Whether the queue-time champion does worse since its release than in the weeks it was judged by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from features.submission.log import SubmissionLog
from models.queue_time.artifact import describe_log, distribution
from models.queue_time.conformal import Calibrated
from models.queue_time.ground import submitted_jobs
from models.queue_time.protocol import LEVELS, Forecast
from models.queue_time.registry import make_method
from models.queue_time.tables import QUEUE_TIME_DRIFT
from models.release.policies.drift import cause
from models.release.queue_time import drift as module
from models.release.queue_time.drift import against, drift
from models.release.queue_time.promise import WeekScores, by_week
from models.study.windows import whole_step_s
from models.tracking import versions
from models.tracking.versions import RegisteredVersion
from simulator.recorded.record import NEVER
from tests.features.submission.logs import ORIGIN_S, generated_log
from tests.models.queue_time.grounds import generated_rows
from traces import instants
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.units import DAY_S, WEEK_S

LAB = ClusterSettings("lab", nodes=10)
MONDAY_S = whole_step_s(ORIGIN_S, WEEK_S) + WEEK_S
FITTED_S, JUDGED_S = MONDAY_S + 6 * WEEK_S, MONDAY_S + 14 * WEEK_S


def slower(log: SubmissionLog, from_s: int) -> SubmissionLog:
    """Of what is submitted from then on everything starts a day later than it would."""
    record = log.record
    late = np.where((record.submit_s >= from_s) & (record.start_s < NEVER), DAY_S, 0)
    return replace(log, record=replace(record, start_s=record.start_s + late, end_s=record.end_s + late))


@pytest.fixture(scope="module")
def calm() -> SubmissionLog:
    return generated_log(3, jobs=2400, days=130)


@pytest.fixture
def released(calm: SubmissionLog, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Version 4, the start estimate fitted until FITTED_S and judged until JUDGED_S; its manifest."""
    ground = submitted_jobs(calm, FITTED_S)
    fitted = Calibrated(make_method("limits")).fit(ground.rows.take(ground.known(FITTED_S)), 0)
    rows = ground.rows.take(ground.within(FITTED_S, JUDGED_S))
    note = {
        "trained_on": {"until_s": FITTED_S},
        "release": {
            "windows": {"report": {"until_utc": instants.text(JUDGED_S)}},
            "weeks": [one._asdict() for one in by_week(fitted.forecast(rows), rows, FITTED_S, JUDGED_S)],
        },
    }
    model = distribution("limits", fitted, describe_log(ground), note)
    monkeypatch.setattr(versions, "champion", lambda *_: RegisteredVersion(4, "", {}))
    monkeypatch.setattr(module, "released", lambda *_: model)
    return model.manifest["release"]  # type: ignore[no-any-return]


def found_of(log: SubmissionLog, data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    monkeypatch.setattr(module, "read_log", lambda *_: log)
    return drift(data, LAB)


def test_weeks_as_promised_ask_for_nothing_and_slower_ones_for_training(
    calm: SubmissionLog, released: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataFolder(tmp_path)
    found = found_of(calm, data, monkeypatch)
    weeks = [instants.utc(JUDGED_S + n * WEEK_S) for n in range(3)]
    assert found["week_utc"].unique().sort().to_list() == weeks, "those of the report window are no news"
    assert len(released["weeks"]) == 8 and set(found["weeks"]) == {8} and set(found["champion_version"]) == {4}
    assert not found["is_beyond"].any() and cause(found) is None

    found = found_of(slower(calm, JUDGED_S + 2 * WEEK_S), data, monkeypatch)
    beyond = found.filter("is_beyond")
    assert beyond["week_utc"].unique().to_list() == weeks[2:] and beyond["score"].sort().to_list() == [
        "crps_h", "missed_95",
    ]  # fmt: skip
    assert beyond.filter(score="missed_95")["value"][0] > 0.9 and cause(found) is not None


@pytest.mark.parametrize("lack", ["champion", "weeks", "since"])
def test_nothing_is_said_where_nothing_can_be(
    lack: str, calm: SubmissionLog, released: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lack == "champion":
        monkeypatch.setattr(versions, "champion", lambda *_: None)
    elif lack == "weeks":
        released["weeks"] = released["weeks"][:5]
    else:
        released["windows"]["report"]["until_utc"] = instants.text(int(calm.record.submit_s[-1]) - 6 * DAY_S)
    found = found_of(calm, DataFolder(tmp_path), monkeypatch)
    assert found.is_empty() and found.columns == list(QUEUE_TIME_DRIFT.names) and cause(found) is None


def test_scores_of_whole_weeks_by_hand() -> None:
    rows = generated_rows(700, days=42)
    result = Forecast(np.broadcast_to(LEVELS * 1e9, (len(rows), len(LEVELS))), np.zeros(len(rows)))
    first_s, last_s = int(rows.submit_s[0]), int(rows.submit_s[-1])
    found = by_week(result, rows, first_s, last_s)
    assert [one.week_s % WEEK_S for one in found] == [4 * DAY_S] * 5, "Mondays; what is left at both ends is no week"
    assert first_s <= found[0].week_s and found[-1].week_s + WEEK_S <= last_s
    for one in found:
        inside = (rows.submit_s >= one.week_s) & (rows.submit_s < one.week_s + WEEK_S)
        assert one.n == inside.sum() > 0 and one.missed_95 == 1.0, "every wait is below .025 of 1e9 s"
    assert by_week(result, rows, first_s, first_s + WEEK_S) == []


def test_a_week_is_beyond_where_one_score_is_worse_than_every_week_before() -> None:
    before = [WeekScores(0, 50, 1.0 + 0.1 * k, 0.05 + 0.01 * k) for k in range(7)]

    def beyond(crps_h: float, missed: float) -> dict[str, bool]:
        return {row["score"]: row["is_beyond"] for row in against(before, WeekScores(0, 50, crps_h, missed))}

    assert beyond(1.3, 0.08) == {"crps_h": False, "missed_95": False}
    assert beyond(9.0, 0.08) == {"crps_h": True, "missed_95": False}
    assert beyond(1.3, 0.90) == {"crps_h": False, "missed_95": True}
    assert beyond(0.001, 0.001) == {"crps_h": False, "missed_95": False}, "better is no drift"
    (row, _) = against(before, WeekScores(0, 50, 1.3, 0.08))
    assert row["promised"] == pytest.approx(1.3) and row["chance"] == 1 / 8 and row["weeks"] == 7


def test_of_weeks_alike_as_many_are_beyond_as_is_stated() -> None:
    rng = np.random.default_rng(0)
    drawn = [[WeekScores(0, 50, *rng.lognormal(0, 0.5, 2)) for _ in range(20)] for _ in range(2000)]
    beyond = [any(row["is_beyond"] for row in against(weeks[:-1], weeks[-1])) for weeks in drawn]
    assert abs(np.mean(beyond) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / len(drawn))
