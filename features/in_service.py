"""How much of a machine is in service where only counts are known: the plateau of use on days with a queue."""

from __future__ import annotations

import numpy as np

from features.usage import LASTING_S, LASTING_SHARE, Int64s, Steps, lasting
from simulator.recorded.parameters import WINDOW_S

DAY_S = 86_400
WINDOW_DAYS = WINDOW_S // DAY_S
PRESSED = 5  # users with jobs in the queue on average of a day before what is in use is taken to be all there is


def usable(used: Steps, queued: Steps, whole: int, shows_its_end: bool) -> Steps:
    """What is in service from the first change of use on: all of `whole`, but on days with a queue no more than was in
    use. Never less than is in use.

    On days (UTC) with jobs of PRESSED users in the queue on average, what was in use is what there was: the level that
    use reached for LASTING_S of any of the WINDOW_DAYS before, or of any from that day on, the lesser of both. A window
    that reaches beyond the first day is moved inside; so is one beyond the last, if the log shows the machine there.
    The long queue of one user is no sign: that user may let few jobs run at a time.
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


def _most(levels: Int64s, at: Int64s) -> Int64s:
    """Largest level of the WINDOW_DAYS up to and with each day of `at`."""
    padded = np.concatenate([np.zeros(WINDOW_DAYS, np.int64), levels])
    most: Int64s = np.lib.stride_tricks.sliding_window_view(padded, WINDOW_DAYS + 1).max(axis=1)[at]
    return most


def daily_levels(used: Steps) -> tuple[Int64s, int]:
    """Of each day (UTC) from the first change to the last, the level that lasted (days,); and the first day."""
    first, last = int(used.times[0]) // DAY_S, int(used.times[-1]) // DAY_S
    midnights = np.arange(first + 1, last + 1, dtype=np.int64) * DAY_S
    times = np.union1d(used.times, midnights)
    values, seconds = used.at(times)[:-1], np.diff(times)
    bounds = np.searchsorted(times[:-1], midnights)
    least = min(LASTING_S, LASTING_SHARE * int(used.times[-1] - used.times[0]))
    parts = zip(np.split(values, bounds), np.split(seconds, bounds), strict=True)
    return np.array([lasting(*part, least) for part in parts], np.int64), first
