"""The futures of jobs at their submissions: what `models.ahead.futures` plays for policies, for jobs of the log itself.

A job is in the queue of the recorded cluster as it was at that instant, and the futures are those in which it starts.
A future that lasts longer than HORIZON_S ends there, and the wait is said to be as long.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from features.ahead.summary import FUTURES
from features.submission.log import SubmissionLog
from models.ahead.told import NOTHING, Told
from models.queue_time.ground import Ground
from models.queue_time.protocol import Bools, Int64s, Rows
from simulator.recorded.record import NONE

HORIZON_S = 14 * 86_400
MOST_PLAYED = 2_000  # rows of a fit whose futures are played, the newest: they take most of the time
ALL = Told(run_times=True, arrivals=True, holds=True)
LOOKS: dict[str, Told] = {
    "simulate-ahead": NOTHING,
    "boosting-ahead": NOTHING,
    "combination-ahead": NOTHING,
    "informed": ALL,
}


def waits_in_futures(log: SubmissionLog, wanted: Bools, told: Told = NOTHING) -> Int64s:
    """(wanted, futures) s: how long each of the wanted jobs (mask of those that ran) waits in each of its futures.

    The rules of each week are those inferred from what was recorded before it. One future where all is told.
    """
    from models.ahead.futures import Asked, start_in_futures  # which compiles

    record = log.record
    row = np.flatnonzero(record.ran)[wanted]
    none = np.full(len(row), NONE)
    asked = Asked(
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
    starts = start_in_futures(record, asked, futures=1 if told == ALL else FUTURES, told=told)
    waits: Int64s = np.maximum(starts - record.submit_s[row][:, None], 0)
    return waits


def with_futures(ground: Ground, fit_on: Bools, judge: Bools, told: Told) -> tuple[Rows, Rows]:
    """The rows that are fitted on and those that are judged (masks) with their futures.

    Of the rows of the fit those of the newest MOST_PLAYED are played, those of the others are negative.
    """
    newest = fit_on & (np.cumsum(fit_on) > fit_on.sum() - MOST_PLAYED)
    wanted = newest | judge
    waits_s = waits_in_futures(ground.log, wanted, told)
    futures_s = np.full((len(wanted), waits_s.shape[1]), NONE)
    futures_s[wanted] = waits_s
    rows = replace(ground.rows, futures_s=futures_s)
    return rows.take(fit_on), rows.take(judge)
