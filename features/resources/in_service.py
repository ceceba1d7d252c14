"""Capacity in service where only counts are known, estimated as the plateau of use on days with a queue."""

from __future__ import annotations

import numpy as np

from features.resources.usage import LASTING_S, LASTING_SHARE, Steps, lasting
from simulator.recorded.parameters import WINDOW_S
from traces.arrays import Int64s
from traces.units import DAY_S

WINDOW_DAYS = WINDOW_S // DAY_S
PRESSED = 5  # mean number of queued users on a day from which we assume that everything in service is in use


def usable_capacity(used: Steps, queued: Steps, whole: int, shows_its_end: bool) -> Steps:
    """Estimate what is in service from the first change of use on: `whole`, but on days with a queue at most the use.

    The estimate is never less than the amount in use. On days (UTC) with jobs of PRESSED users in the queue on average,
    we assume that everything in service was in use. The amount is then the lesser of two levels: the highest daily
    level of the previous WINDOW_DAYS, and the highest from that day on for as many days. A daily level is one that use
    reached for LASTING_S. A window that extends before the first day is shifted inside; so is one after the last day,
    if the log shows the machine at its end. A long queue of a single user is no evidence, because that user may limit
    the number of running jobs.
    """
    if not len(used.times):
        return used
    levels, first = daily_levels(used)
    midnights = (first + np.arange(len(levels) + 1, dtype=np.int64)) * DAY_S
    edges = np.clip(midnights, used.times[0], used.times[-1])
    pressed = np.diff(queued.area(edges)) >= PRESSED * np.diff(edges)
    times = np.union1d(used.times, edges)
    day, last = times // DAY_S - first, len(levels) - 1
    before = _most(levels, np.maximum(day - 1, min(WINDOW_DAYS, last)))
    after = _most(levels[::-1], last - np.minimum(day, max(last - WINDOW_DAYS, 0) if shows_its_end else last))
    in_service = np.where(pressed[day], np.minimum(before, after), np.iinfo(np.int64).max)
    return Steps(times, np.maximum(np.minimum(in_service, whole), used.at(times)))


def _most(levels: Int64s, days: Int64s) -> Int64s:
    """Find the largest level of the WINDOW_DAYS up to and including each day of `days`."""
    padded = np.concatenate([np.zeros(WINDOW_DAYS, np.int64), levels])
    most: Int64s = np.lib.stride_tricks.sliding_window_view(padded, WINDOW_DAYS + 1).max(axis=1)[days]
    return most


def daily_levels(used: Steps) -> tuple[Int64s, int]:
    """Compute the lasting level of each day (UTC) from the first change to the last, (days,), and the first day."""
    first, last = int(used.times[0]) // DAY_S, int(used.times[-1]) // DAY_S
    midnights = np.arange(first + 1, last + 1, dtype=np.int64) * DAY_S
    times = np.union1d(used.times, midnights)
    values, seconds = used.at(times)[:-1], np.diff(times)
    bounds = np.searchsorted(times[:-1], midnights)
    least = min(LASTING_S, LASTING_SHARE * int(used.times[-1] - used.times[0]))
    parts = zip(np.split(values, bounds), np.split(seconds, bounds), strict=True)
    return np.array([lasting(*part, least) for part in parts], np.int64), first
