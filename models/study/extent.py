"""Limit the part of a long trace that is replayed pair by pair and job by job to the newest, so that cost is bounded.

The cost of a pair depends on the live jobs in the cluster while it runs, so all pairs of a trace cost its span times
its density. Whole replays of a trace are cheap and use all of it. Calibration costs a replay for each month judged.
Each bound is above what a year of a cluster with hundreds of nodes holds; a trace within the bounds is used whole.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from models.provisioning.scenario import EVERY_S
from models.study.as_of import RAN_OR_OPEN, jobs_as_of
from models.study.windows import whole_step_s
from simulator.workload import Workload
from traces import instants
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import DAY_S, WEEK_S

MOST_DAYS = 365  # of starts of pairs
MOST_WORK = 4_400_000  # starts times jobs per day: a year of starts at 2,000 jobs per day
LEAST_STARTS = 250  # however dense the trace: fewer are too few to learn from and to judge on
MOST_CALIBRATED = 180_000  # jobs of a record that calibration reads whole
NEWEST_CALIBRATED = 90_000  # jobs of a longer one: each month judged replays them
MOST_MONTHS = 3  # judged, if the record was cut
MOST_JUDGED = 150  # jobs of a month that are judged, if the record was cut; each is simulated by itself
MECHANISMS_EVERY = 4  # of the last month's judged jobs: measuring the mechanisms takes fourteen runs of them


def first_replayed_s(
    data: DataFolder,
    cluster: str,
    *,
    warm_up_s: int,
    cool_down_s: int,
    from_s: int | None,
    until_s: int | None,
    known_until_s: int | None = None,
) -> int | None:
    """First submission, epoch s, that pairs are made of; None for the whole trace. A whole day, UTC.

    warm_up_s, cool_down_s: trace needed before the first start of a pair and after the last. from_s, until_s: declared
    bounds of the starts, if any; a declared begin is kept, however long ago. known_until_s: use only what a dump taken
    then (epoch s) would hold.
    """
    row = warehouse.read(
        data,
        "SELECT epoch(min(submit_utc))::BIGINT AS first, epoch(max(submit_utc))::BIGINT AS last "  # noqa: S608 - ours
        f"FROM ({jobs_as_of(known_until_s)}) WHERE cluster = ? AND {RAN_OR_OPEN}",
        (cluster,),
    ).row(0, named=True)
    if row["first"] is None:
        return None
    newest_s = (until_s or whole_step_s(row["last"] - cool_down_s, WEEK_S)) - MOST_DAYS * DAY_S
    first_s = (min(newest_s, from_s or newest_s) - warm_up_s) // DAY_S * DAY_S
    return None if first_s <= row["first"] else int(first_s)


def first_calibrated_s(data: DataFolder, cluster: str, known_until_s: int | None = None) -> int | None:
    """Submission, epoch s, of the first of the newest NEWEST_CALIBRATED jobs; None for up to MOST_CALIBRATED jobs.

    With `known_until_s` (epoch s), use a dump taken then. Jobs pending then do not count: an array's pending tasks are
    one record in a dump, and many in a later one.
    """
    counted = warehouse.read(
        data,
        f"WITH submitted AS (SELECT submit_utc FROM ({jobs_as_of(known_until_s)}) "  # noqa: S608 - our own words
        "WHERE cluster = ? AND submit_utc IS NOT NULL AND (start_utc IS NOT NULL OR NOT is_open)) "
        "SELECT count(*) AS jobs, epoch((SELECT submit_utc FROM submitted ORDER BY submit_utc DESC LIMIT 1 OFFSET ?))"
        "::BIGINT AS submit_s FROM submitted",
        (cluster, NEWEST_CALIBRATED),
    ).row(0, named=True)
    return int(counted["submit_s"]) + 1 if counted["jobs"] > MOST_CALIBRATED else None


def calibration_cut(data: DataFolder, cluster: str) -> str:
    """Describe what calibration leaves out of a long record, in a phrase; empty if nothing."""
    from_s = first_calibrated_s(data, cluster)
    if from_s is None:
        return ""
    first = f"{instants.utc(from_s):%Y-%m-%d}"
    return (
        f"all but the newest {NEWEST_CALIBRATED:,} jobs, submitted from {first}; of each of their last "
        f"{MOST_MONTHS} months at most {MOST_JUDGED:,} are judged, each week fitted on the four before it"
    )


def calibration_cuts(data: DataFolder, clusters: Iterable[str]) -> dict[str, str]:
    """`calibration_cut` of those clusters for which something is left out."""
    return {name: cut for name in clusters if (cut := calibration_cut(data, name))}


def starts_every_s(workload: Workload, span_s: int) -> int:
    """Seconds between starts in a span of them: EVERY_S, or a multiple if the trace is too dense for that.

    The cost of a start is about proportional to the jobs that arrive in a day.
    """
    days = max(int(np.ptp(workload.submit_s)), DAY_S) / DAY_S
    work = span_s / EVERY_S * (len(workload) / days)
    most = span_s // EVERY_S // LEAST_STARTS  # the largest multiple
    return EVERY_S * max(1, min(int(-(-work // MOST_WORK)), most))
