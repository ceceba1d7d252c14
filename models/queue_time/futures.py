"""The futures of jobs at their submissions: `models.provisioning.futures.recorded`, for the jobs of the log.

A job joins the queue of the recorded cluster as it was at that instant. Each future lasts until the job starts. A
future longer than HORIZON_S ends there, and counts as a wait of that length.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from features.futures.summary import FUTURES
from features.submission.log import SubmissionLog
from models.engine.local import each_here
from models.engine.work import Engine
from models.provisioning.futures.revealed import NOTHING, RevealedTruth
from models.queue_time.ground import SubmittedJobs
from models.queue_time.protocol import Rows
from simulator.recorded.record import NONE
from traces.arrays import Bools, Int64s

HORIZON_S = 14 * 86_400
MOST_PLAYED = 2_000  # newest rows of a fit with played futures, which take most of the time
ALL = RevealedTruth(run_times=True, arrivals=True, holds=True)
LOOKS: dict[str, RevealedTruth] = {
    "simulate-ahead": NOTHING,
    "boosting-ahead": NOTHING,
    "combination-ahead": NOTHING,
    "informed": ALL,
}


def waits_in_futures(
    log: SubmissionLog, chosen: Bools, revealed: RevealedTruth = NOTHING, engine: Engine = each_here
) -> Int64s:
    """(chosen, futures) wait, s, of each chosen job (mask of those that ran) in each of its futures.

    The rules of each week are inferred from what was recorded before it. If all is revealed, there is one future.
    """
    from models.provisioning.futures.recorded import HypotheticalJobs, start_in_futures  # compiles at import

    record = log.record
    row = np.flatnonzero(record.ran)[chosen]
    none = np.full(len(row), NONE)
    jobs = HypotheticalJobs(
        at_s=record.submit_s[row],
        nodes=record.size[row],
        limit_s=record.limit_s[row],
        user=record.user[row],
        name=none,
        priority=record.priority[row],
        horizon_s=np.full(len(row), HORIZON_S),
        own_row=none,
        own_end_s=none,
        row=row,
    )
    futures = 1 if revealed == ALL else FUTURES
    starts = start_in_futures(record, jobs, futures=futures, revealed=revealed, engine=engine)
    waits: Int64s = np.maximum(starts - record.submit_s[row][:, None], 0)
    return waits


def rows_with_futures(
    jobs: SubmittedJobs, fit_on: Bools, judge: Bools, revealed: RevealedTruth, engine: Engine = each_here
) -> tuple[Rows, Rows]:
    """The rows of the fit and those to judge (masks), with their futures.

    Of the rows of the fit only the newest MOST_PLAYED are played; the futures of the others are negative.
    """
    newest = fit_on & (np.cumsum(fit_on) > fit_on.sum() - MOST_PLAYED)
    chosen = newest | judge
    waits_s = waits_in_futures(jobs.log, chosen, revealed, engine)
    futures_s = np.full((len(chosen), waits_s.shape[1]), NONE)
    futures_s[chosen] = waits_s
    rows = replace(jobs.rows, futures_s=futures_s)
    return rows.take(fit_on), rows.take(judge)
