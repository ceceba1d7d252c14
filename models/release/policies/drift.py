"""Measure weekly how far the jobs since a champion's fit differ from those of its fit, as a reason to train again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from agent.artifact import Artifact
from features.load import drift as weekly
from features.load.load import drift_features
from features.trace import ASKED, read_trace
from models.release.policies.gate import seen_until_s
from models.study.inputs import declared_dates
from models.study.windows import COOL_DOWN_S
from models.tables import CHAMPION_DRIFT, frame
from models.tracking import exported
from models.tracking import versions as tracking
from traces import instants
from traces.cache.digests import digest
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.units import WEEK_S

NUMBERS = (
    "nodes", "gpus", "limit_s", "run_s", "limit_used_share", "wait_s", "interarrival_s", "queued_jobs", "running_jobs",
)  # fmt: skip
NAMES = ("user_name", "partition")
PREDICTED = "wait_error_s"
MOST_WEEKS = 52  # newest weeks of a fit that are compared


def drift(data: DataFolder, settings: ClusterSettings, predicted: pl.DataFrame | None = None) -> pl.DataFrame:
    """Make `champion_drift` of the cluster: compare every whole week since the champion's fit with the weeks before.

    Weeks begin on Mondays, 00:00 UTC, and end COOL_DOWN_S or more before the last submission, so that waits and run
    times are known. For a champion without learning, the fit is the data on which its setting was picked. The report
    window that released it does not count as later: a learner was refitted on it, and a rule was judged by it.

    predicted: the logged predictions of agents with this champion, and their outcomes: `submit_utc` of the successor
    and `wait_error_s`, the predicted wait less the actual one. Each of its weeks is compared with the weeks of it
    before.

    The table is empty without a champion, if its fit has too few weeks, or if no whole week has passed since. Raises
    WorkError if the champion's folder cannot be read.
    """
    champion = tracking.champion(data, settings.name)
    if champion is None:
        return frame(CHAMPION_DRIFT, [])
    released = exported.load_policy(data, settings.name, champion.version)
    until_s = seen_until_s(released, settings.name)
    described_columns = ("limit_s", "run_s", "wait_s", "eligible_wait_s", "gpu_time_s", "qos")
    jobs = _weekly(drift_features(read_trace(data, settings.name, jobs=(*ASKED, *described_columns)), settings))
    if until_s is None or jobs.is_empty():
        return frame(CHAMPION_DRIFT, [])
    from_s = max(declared_dates(settings).fit_from_s or 0, until_s - MOST_WEEKS * WEEK_S)
    known_s = int(jobs["submit_utc"].dt.epoch("s").max()) - COOL_DOWN_S  # type: ignore[arg-type]  # of a column of times
    begin, end = pl.col("week_s"), pl.col("week_s") + WEEK_S
    fitted_on = jobs.filter((begin >= max(from_s, int(jobs["submit_utc"].dt.epoch("s").min()))) & (end <= until_s))  # type: ignore[arg-type]
    since = jobs.filter((begin >= max(until_s, _judged_until_s(released))) & (end <= known_s))
    rows = [
        row
        for _, week in since.group_by("week_utc", maintain_order=True)
        for row in _rows(fitted_on, week, numbers=NUMBERS, names=NAMES)
    ]
    if predicted is not None:
        logged = _weekly(predicted).filter(end <= known_s)
        for (week_s,), week in logged.group_by("week_s", maintain_order=True):
            rows += _rows(logged.filter(begin < week_s), week, numbers=(PREDICTED,))
    return frame(CHAMPION_DRIFT, [{"cluster": settings.name, "champion_version": champion.version, **r} for r in rows])


def cause(found: pl.DataFrame) -> str | None:
    """A digest that identifies a reason to train again, from rows of `champion_drift`; None without a reason.

    The reason is that the newest week is beyond a bound for that champion, whatever else becomes known about the week.
    """
    newest = found.filter(pl.col("week_utc") == pl.col("week_utc").max())
    if not newest["is_beyond"].any():
        return None
    row = newest.row(0, named=True)
    return digest(row["cluster"], row["champion_version"], row["week_utc"].isoformat())[:16]


def _judged_until_s(released: Artifact) -> int:
    """Epoch s: the end of the report window that released it; 0 if its manifest states none."""
    window = released.manifest.get("release", {}).get("windows", {}).get("report")
    return 0 if window is None else instants.epoch_s(instants.parse(window["until_utc"]))


def _weekly(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the week of each submission, `week_s` (epoch s) and `week_utc`, and sort by submission."""
    week = pl.col("submit_utc").dt.truncate("1w")
    return (
        rows.drop_nulls("submit_utc")
        .sort("submit_utc")
        .with_columns(week.alias("week_utc"), week.dt.epoch("s").alias("week_s"))
    )


def _rows(before: pl.DataFrame, week: pl.DataFrame, **features: Any) -> list[Mapping[str, Any]]:
    """The rows of one week, without the columns that all rows share."""
    found = weekly.against(before, week, **features)
    if found is None:
        return []
    span = {
        "week_utc": week["week_utc"][0],
        "before_from_utc": before["week_utc"].min(),
        "before_until_utc": instants.utc(int(before["week_s"].max()) + WEEK_S),  # type: ignore[arg-type]
        "weeks": found.weeks,
        "chance": found.chance,
    }
    return [
        {
            **span,
            "feature": one.feature,
            "n_before": one.n_before,
            "n": one.n,
            "psi": one.psi,
            "bound": one.bound,
            "is_beyond": one.feature in found.beyond,
        }
        for one in found.distances
    ]
