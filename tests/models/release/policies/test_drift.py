"""Which weeks a champion's drift compares: those of its fit, and each whole one since whose outcomes are known."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from agent.artifact import Artifact
from models.release.policies.drift import cause, drift
from models.tables import CHAMPION_DRIFT, frame
from models.tracking import exported, versions
from models.tracking.versions import RegisteredVersion
from tests.models.pair_tables import artifact
from tests.pipelines.conftest import HEADER
from traces import clusters, ingest, instants
from traces.clusters import ClusterSettings
from traces.errors import WorkError
from traces.store import warehouse
from traces.store.folder import DataFolder

FIRST = datetime(2026, 1, 5)  # a Monday
WEEKS, A_WEEK = 14, 56
UNTIL = FIRST + timedelta(weeks=10, days=2)  # of the fit: in the middle of a week
ROW = (
    "{id}|{id}|train|{user}|physics|gpu|COMPLETED|{submit}|{submit}|{start}|{end}|3600|120|{nodes}|billing=8,node=1|0:0"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A job of an hour every three hours, of ever another user; in the last two whole weeks all are of one."""
    folder = tmp_path_factory.mktemp("drift")
    rows = [HEADER]
    for number in range(WEEKS * A_WEEK):
        submit = FIRST + timedelta(hours=3 * number)
        times = (submit, submit + timedelta(minutes=5 + number * 7 % 50), submit + timedelta(minutes=125))
        texts = dict(zip(("submit", "start", "end"), (f"{time:%Y-%m-%dT%H:%M:%S}" for time in times), strict=True))
        user = "stranger" if number >= 11 * A_WEEK else f"u{number * number % 11}"
        rows.append(ROW.format(id=number + 1, user=user, nodes=1 + number * number % 7 % 4, **texts))
    (folder / "jobs.psv").write_text("\n".join(rows) + "\n")
    made = DataFolder(folder / "data")
    ingest.ingest([folder / "jobs.psv"], cluster=ClusterSettings("lab"), data=made)
    made.clusters_toml.write_text("[lab]\nnodes = 4\n")
    warehouse.build(made)
    return made


@pytest.fixture
def champion(monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """Version 3, fitted until UNTIL on this cluster; what it says of itself may be changed."""
    made = artifact()
    made.manifest["trained_on"] = {"cluster": "lab", "until_s": instants.epoch_s(UNTIL)}
    monkeypatch.setattr(versions, "champion", lambda *_: RegisteredVersion(3, "", {}))
    monkeypatch.setattr(exported, "load_policy", lambda *_: made)
    return made


def settings(data: DataFolder) -> ClusterSettings:
    return clusters.resolve(data, cluster="lab")


@pytest.mark.usefixtures("champion")
def test_whole_weeks_since_the_fit_are_held_against_those_of_the_fit(data: DataFolder) -> None:
    found = drift(data, settings(data))
    assert found["week_utc"].unique().sort().to_list() == [FIRST + timedelta(weeks=n) for n in (11, 12)], (
        "the week in which the fit ends is of neither; of the last one outcomes are not known yet"
    )
    assert set(found["before_from_utc"]) == {FIRST} and set(found["before_until_utc"]) == {FIRST + timedelta(weeks=10)}
    assert set(found["weeks"]) == {10} and set(found["champion_version"]) == {3}
    users = found.filter(pl.col("feature") == "user_name")
    assert users["is_beyond"].all() and set(users["n"]) == {A_WEEK} and set(users["n_before"]) == {10 * A_WEEK}
    assert (found["is_beyond"] == (found["psi"] > found["bound"])).all()


def test_weeks_that_a_rule_was_judged_by_are_no_news_to_it(data: DataFolder, champion: Artifact) -> None:
    until_utc = instants.text(instants.epoch_s(FIRST + timedelta(weeks=12)))
    champion.manifest["release"] = {"windows": {"report": {"until_utc": until_utc}}}
    assert drift(data, settings(data))["week_utc"].unique().to_list() == [FIRST + timedelta(weeks=12)]


@pytest.mark.usefixtures("champion")
def test_a_declared_beginning_of_the_fit_counts(data: DataFolder) -> None:
    data_from = ClusterSettings("lab", nodes=4, fit_from=FIRST + timedelta(weeks=2, hours=1))
    assert set(drift(data, data_from)["before_from_utc"]) == {FIRST + timedelta(weeks=3)}


@pytest.mark.usefixtures("champion")
def test_what_agents_predicted_is_held_against_the_weeks_before(data: DataFolder) -> None:
    hours = range(24 * 7 * WEEKS)
    predicted = pl.DataFrame(
        {
            "submit_utc": [FIRST + timedelta(hours=hour) for hour in hours],
            "wait_error_s": [hour * hour % 977 + (5000.0 if hour >= 24 * 7 * 12 else 0.0) for hour in hours],
        }
    )
    found = drift(data, settings(data), predicted).filter(pl.col("feature") == "wait_error_s").sort("week_utc")
    assert found["week_utc"].to_list() == [FIRST + timedelta(weeks=n) for n in range(6, 13)]
    assert found["weeks"].to_list() == list(range(6, 13))
    assert found["is_beyond"].to_list()[-1] and found["is_beyond"].sum() <= 2


def test_without_a_champion_there_is_nothing_to_drift_from(data: DataFolder) -> None:
    found = drift(data, settings(data))
    assert found.is_empty() and found.columns == list(CHAMPION_DRIFT.names) and cause(found) is None


def test_a_champion_whose_folder_is_gone_is_named(data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "champion", lambda *_: RegisteredVersion(3, "", {}))
    with pytest.raises(
        WorkError, match=r"artifacts/lab/3: the champion of cluster 'lab' cannot be read .*baton promote"
    ):
        drift(data, settings(data))


def test_the_cause_is_the_newest_week_of_a_champion() -> None:
    def rows(version: int, *beyond: tuple[int, bool]) -> pl.DataFrame:
        shared = {
            "cluster": "lab", "feature": "nodes", "champion_version": version, "before_from_utc": FIRST,
            "before_until_utc": FIRST, "weeks": 9, "n_before": 9, "n": 9, "psi": 0.1, "bound": 0.2, "chance": 0.1,
        }  # fmt: skip
        return frame(
            CHAMPION_DRIFT,
            [{**shared, "week_utc": FIRST + timedelta(weeks=week), "is_beyond": is_so} for week, is_so in beyond],
        )

    assert cause(rows(3, (1, True), (2, False))) is None
    found = cause(rows(3, (1, False), (2, True)))
    assert found is not None and found == cause(rows(3, (2, True))) == cause(rows(3, (2, False), (2, True)))
    assert len({found, cause(rows(4, (2, True))), cause(rows(3, (3, True)))}) == 3
