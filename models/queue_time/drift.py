"""How well the released queue-time model does since its release, week by week, against the weeks it was judged by.

The mechanism is that of the policies' drift (`features.bounds`), on scores in place of how far jobs differ. What
a release promises is its method's scores on the whole weeks of the select and the report window, each time of jobs
later than all that it was fitted on. A busier week has a larger CRPS however good the model is: that its waits are less
well known than was promised is what is told here, and the share of waits outside the intervals says whether it knew so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from features.bounds import LEAST_WEEKS, bounds
from models.queue_time.artifact import described, released
from models.queue_time.ground import ground_of, read_log
from models.queue_time.promise import SCORES, Scored, by_week
from models.queue_time.protocol import Forecast
from models.queue_time.tables import QUEUE_TIME_DRIFT
from models.study.inputs import declared_dates
from models.study.windows import COOL_DOWN_S, WEEK_S
from models.tables import frame
from models.tracking import versions as tracking
from models.tracking.versions import QUEUE_TIME
from traces import instants
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder


def drift(data: DataFolder, settings: ClusterSettings) -> pl.DataFrame:
    """`queue_time_drift` of the cluster: every whole week since its champion's fit and report window.

    Weeks end COOL_DOWN_S or more before the last submission. No rows where there is no champion, no whole week has
    passed since, it was judged by fewer than LEAST_WEEKS weeks, or the queue cannot be rebuilt. Raises WorkError where
    the champion cannot be read.
    """
    champion = tracking.champion(data, settings.name, QUEUE_TIME)
    if champion is None:
        return frame(QUEUE_TIME_DRIFT, [])
    model = released(data, settings.name, champion.version)
    fitted_s, release = int(model.manifest["trained_on"]["until_s"]), model.manifest["release"]
    promised = [Scored(**week) for week in release.get("weeks", [])]
    since_s = max(fitted_s, instants.epoch_s(instants.parse(release["windows"]["report"]["until_utc"])))
    log = read_log(data, settings.name)
    known_s = int(log.record.submit_s[-1]) - COOL_DOWN_S
    if len(promised) < LEAST_WEEKS or known_s - since_s < WEEK_S:
        return frame(QUEUE_TIME_DRIFT, [])
    ground = ground_of(log, fitted_s, declared_dates(settings).fit_from_s)
    if ground.why_request_only is not None:
        return frame(QUEUE_TIME_DRIFT, [])
    rows, names = ground.rows.take(ground.within(since_s, known_s)), described(ground).partitions
    told = Forecast(*model.forecast(rows.observed, [names[one] for one in rows.partition.tolist()]))
    since = by_week(told, rows, since_s, known_s)
    shared = {"cluster": settings.name, "champion_version": champion.version}
    return frame(QUEUE_TIME_DRIFT, [{**shared, **row} for week in since for row in against(promised, week)])


def against(promised: Sequence[Scored], week: Scored) -> list[dict[str, Any]]:
    """The rows of one week, a score each, without the columns that all rows share."""
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
