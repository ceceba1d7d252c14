"""Of a long trace the newest part is replayed pair by pair, and that is said; one within the bounds is taken whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from models.study import calibrations, extent
from models.study.cluster import open_study
from simulator.workload import Workload
from tests.pipelines.conftest import HEADER
from traces import clusters, ingest, instants
from traces.clusters import ClusterSettings
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import DAY_S

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
DAYS, A_DAY = 120, 8
MARCH_22 = datetime(2026, 3, 22)  # naive is UTC
ROW = "{id}|{id}|train|anna|physics|gpu|COMPLETED|{submit}|{submit}|{start}|{end}|3600|120|1|billing=8,node=1|0:0"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A job of an hour every three hours for 120 days, on 4 nodes."""
    folder = tmp_path_factory.mktemp("extent")
    rows = [HEADER]
    for number in range(DAYS * A_DAY):
        submit = FIRST + timedelta(hours=number * 24 / A_DAY)
        times = (submit, submit + timedelta(minutes=5), submit + timedelta(minutes=65))
        texts = dict(zip(("submit", "start", "end"), (f"{time:%Y-%m-%dT%H:%M:%S}" for time in times), strict=True))
        rows.append(ROW.format(id=number + 1, **texts))
    (folder / "jobs.psv").write_text("\n".join(rows) + "\n")
    made = DataFolder(folder / "data")
    ingest.ingest([folder / "jobs.psv"], cluster=ClusterSettings("lab"), data=made)
    made.clusters_toml.write_text("[lab]\nnodes = 4\n")
    warehouse.build(made)
    return made


def test_a_trace_within_the_bounds_is_taken_whole(data: DataFolder) -> None:
    study = open_study(data, clusters.resolve(data, cluster="lab"))
    assert len(study.workload) == DAYS * A_DAY and study.scenario.from_s is None
    assert study.scenario.every_s == 4 * 3600 and "longer trace" not in str(study.scenario)
    found = study.context(study.windows.report.from_s)
    assert "trace_from_utc" not in found.as_dict() and found.scenario.brief == "mirage, 4 nodes, plain"


def test_of_a_longer_one_the_newest_days_are(data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = clusters.resolve(data, cluster="lab")
    whole = open_study(data, settings)
    monkeypatch.setattr(extent, "MOST_DAYS", 56)
    study = open_study(data, settings)
    assert study.scenario.from_s is not None and study.scenario.from_s % DAY_S == 0
    assert int(study.workload.submit_s[0]) == study.scenario.from_s
    np.testing.assert_array_equal(study.workload.submit_s, whole.workload.submit_s[-len(study.workload) :])
    assert study.windows.report.until_s - study.usable.from_s == 56 * DAY_S, "it moves in whole weeks, as they do"
    assert study.usable.until_s == whole.usable.until_s
    from_utc = instants.text(study.scenario.from_s)
    assert str(study.scenario).endswith(f", of a longer trace what was submitted from {from_utc}")
    found = study.context(study.windows.report.from_s)
    assert found.as_dict()["trace_from_utc"] == from_utc and found.scenario.brief.endswith(f"the trace from {from_utc}")


def test_windows_that_were_declared_are_kept(data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extent, "MOST_DAYS", 30)
    settings = clusters.resolve(data, cluster="lab")
    until = datetime(2026, 3, 10), datetime(2026, 3, 15), MARCH_22
    early = open_study(data, replace(settings, fit_until=until[0], select_until=until[1], report_until=until[2]))
    assert early.scenario.from_s == datetime(2026, 2, 18, tzinfo=UTC).timestamp()  # 30 days, and two to warm up
    assert early.windows.report.until_s == MARCH_22.replace(tzinfo=UTC).timestamp()
    long = open_study(data, replace(settings, fit_from=datetime(2026, 1, 20)))
    assert long.windows.fit.from_s == datetime(2026, 1, 20, tzinfo=UTC).timestamp()


def test_calibration_judges_the_newest_months_of_the_newest_jobs(
    data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = clusters.resolve(data, cluster="lab")
    whole, every = calibrations.months_to_judge(data, settings)
    assert len(whole) == DAYS * A_DAY and len(every) == 3 and extent.calibration_cut(data, "lab") == ""
    monkeypatch.setattr(extent, "MOST_CALIBRATED", 100 * A_DAY)
    monkeypatch.setattr(extent, "NEWEST_CALIBRATED", 95 * A_DAY)
    monkeypatch.setattr(extent, "MOST_MONTHS", 1)
    record, judged = calibrations.months_to_judge(data, settings)
    assert len(record) == 95 * A_DAY
    assert [(month.from_s, month.until_s) for month in judged] == [(every[-1].from_s, every[-1].until_s)]
    assert judged[0].is_near and not any(month.is_near for month in every)
    np.testing.assert_array_equal(record.submit_s, whole.submit_s[-len(record) :])
    assert "the newest 760 jobs" in extent.calibration_cut(data, "lab")
    monkeypatch.setattr(extent, "MOST_JUDGED", 100)
    (sampled,) = calibrations.months_to_judge(data, settings)[1]
    assert 50 < np.count_nonzero(sampled.of(record)) <= 100
    monkeypatch.setattr(extent, "NEWEST_CALIBRATED", 35 * A_DAY)
    assert calibrations.months_to_judge(data, settings)[1] == []  # no four weeks before any month


@pytest.mark.parametrize(
    ("jobs_a_day", "days", "every_h"),
    [
        (100, 365, 4),
        (2_000, 365, 4),  # just within
        (2_100, 365, 8),
        (8_000, 365, 16),
        (100_000, 365, 32),  # as sparse as it gets: 274 starts
        (100_000, 30, 4),
    ],
)
def test_starts_are_sparser_where_each_costs_more(jobs_a_day: int, days: int, every_h: int) -> None:
    jobs = jobs_a_day * days
    none = np.zeros(jobs, np.int64)
    submit_s = np.linspace(0, days * DAY_S, jobs).astype(np.int64)
    workload = Workload(none, submit_s, none, none, none, none)
    assert extent.starts_every_s(workload, days * DAY_S) == every_h * 3600
