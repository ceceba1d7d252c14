"""Compare the weekly scores of the released queue-time model since its release with the weeks it was judged on.

The mechanism is that of the policies' drift (`features.load.bounds`), on scores instead of differences between jobs. A
release promises its method's scores on the whole weeks of the select and the report window, each on jobs later than
those of its fit. A busier week has a larger CRPS, however good the model is. Drift therefore means that waits are
predicted less well than promised; the share of waits outside the intervals shows whether the model's own uncertainty
covers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from features.load.bounds import LEAST_WEEKS, bounds
from models.queue_time.artifact import describe_log, released
from models.queue_time.ground import read_log, submitted_jobs
from models.queue_time.protocol import Forecast
from models.queue_time.tables import QUEUE_TIME_DRIFT
from models.release.queue_time.promise import SCORES, WeekScores, by_week
from models.study.inputs import declared_dates
from models.study.windows import COOL_DOWN_S
from models.tables import frame
from models.tracking import versions as tracking
from models.tracking.kinds import QUEUE_TIME
from traces import instants
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.units import WEEK_S


def drift(data: DataFolder, settings: ClusterSettings) -> pl.DataFrame:
    """Make `queue_time_drift` of the cluster: every whole week since its champion's fit and report window.

    Weeks end COOL_DOWN_S or more before the last submission. The table is empty if there is no champion, if no whole
    week has passed since, if it was judged by fewer than LEAST_WEEKS weeks, or if the queue cannot be rebuilt. Raises
    WorkError if the champion cannot be read.
    """
    champion = tracking.champion(data, settings.name, QUEUE_TIME)
    if champion is None:
        return frame(QUEUE_TIME_DRIFT, [])
    model = released(data, settings.name, champion.version)
    fitted_s, release = int(model.manifest["trained_on"]["until_s"]), model.manifest["release"]
    promised = [WeekScores(**week) for week in release.get("weeks", [])]
    since_s = max(fitted_s, instants.epoch_s(instants.parse(release["windows"]["report"]["until_utc"])))
    log = read_log(data, settings.name)
    known_s = int(log.record.submit_s[-1]) - COOL_DOWN_S
    if len(promised) < LEAST_WEEKS or known_s - since_s < WEEK_S:
        return frame(QUEUE_TIME_DRIFT, [])
    jobs = submitted_jobs(log, fitted_s, declared_dates(settings).fit_from_s)
    if jobs.why_request_only is not None:
        return frame(QUEUE_TIME_DRIFT, [])
    rows, names = jobs.rows.take(jobs.within(since_s, known_s)), describe_log(jobs).partitions
    forecast = Forecast(*model.forecast(rows.observed, [names[one] for one in rows.partition.tolist()]))
    since = by_week(forecast, rows, since_s, known_s)
    shared = {"cluster": settings.name, "champion_version": champion.version}
    return frame(QUEUE_TIME_DRIFT, [{**shared, **row} for week in since for row in against(promised, week)])


def against(promised: Sequence[WeekScores], week: WeekScores) -> list[dict[str, Any]]:
    """The rows of one week, one per score, without the columns that all rows share."""
    values = {name: np.array([getattr(one, name) for one in (*promised, week)]) for name in SCORES}
    held = bounds(values, len(promised))
    if held is None:
        return []
    return [
        {
            "week_utc": instants.utc(week.week_s),
            "score": name,
            "weeks": len(promised),
            "n": week.n,
            "value": float(values[name][-1]),
            "promised": float(np.median(values[name][:-1])),
            "bound": bound,
            "chance": held.chance,
            "is_beyond": bool(values[name][-1] > bound),
        }
        for name, bound in held.of.items()
    ]
