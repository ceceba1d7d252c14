"""The record as arrays for compiled code, with queries: nodes in use over a time, and the next event."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.recorded.record import NONE, Events, RecordedTrace
from simulator.recorded.run_times import RunTimes, run_times
from simulator.recorded.search import first_not_before
from simulator.recorded.state import RecordedJobs, RecordedRules
from traces.arrays import Int64s


class Log(NamedTuple):
    """The recorded jobs, shape (jobs,), and events in order of time, shape (events,); int64.

    Rows beyond the record are jobs that may be submitted and run for their whole limit. The log represents each by a
    job that started at 0 and ended at its limit, without events.
    """

    start_s: Int64s  # (jobs,) NEVER for a job cancelled in the queue
    end_s: Int64s  # (jobs,) end or cancellation
    started_at: Int64s  # (jobs,) index of the job's start among the events; the number of events if it has none
    ended_at: Int64s  # (jobs,) the same for its end
    time_s: Int64s  # (events,)
    job: Int64s  # (events,)
    kind: Int64s  # (events,)
    peak: Int64s  # (levels, events) `simulator.recorded.record.range_peaks` of the nodes in use
    run_times: RunTimes


def log_of(record: RecordedTrace, events: Events, beyond_limit_s: Int64s | None = None) -> Log:
    """Build the log of a record and its events, with one job beyond it for each given limit (s)."""
    limits = np.zeros(0, np.int64) if beyond_limit_s is None else beyond_limit_s
    none = np.full(len(limits), len(events.time_s))
    whole = np.ascontiguousarray
    return Log(
        start_s=np.append(record.start_s, np.zeros_like(limits)),
        end_s=np.append(record.end_s, limits),
        started_at=np.append(events.started_at, none),
        ended_at=np.append(events.ended_at, none),
        time_s=whole(events.time_s),
        job=whole(events.job),
        kind=whole(events.kind),
        peak=events.peak,
        run_times=run_times(record),
    )


@kernel
def most_in_use(jobs: RecordedJobs, rules: RecordedRules, log: Log, now: int, taken: int, target: int) -> int:
    """Return the usable nodes: the most in use in the window before `now`, by the first `taken` events.

    The window includes the nodes in use when it opens. The nodes that `target` (a row, or NONE) holds between its own
    events are not counted.
    """
    if rules.window_s == 0:
        return rules.nodes
    first = max(first_not_before(log.time_s, 0, len(log.time_s), now - rules.window_s) - 1, 0)
    if target == NONE:
        return _range_peak(log.peak, first, taken)
    started_at, ended_at = log.started_at[target], log.ended_at[target]
    most = _range_peak(log.peak, first, min(taken, started_at))
    most = max(most, _range_peak(log.peak, max(first, started_at), min(taken, ended_at)) - jobs.size[target])
    return int(max(most, _range_peak(log.peak, max(first, ended_at), taken)))


@kernel
def _range_peak(peak: Int64s, low: int, high: int) -> int:
    """Return the most nodes in use after any of the events low .. high - 1, 0 for none."""
    if high <= low:
        return 0
    k = 0
    while (2 << k) <= high - low:
        k += 1
    return int(max(peak[k, low], peak[k, high - (1 << k)]))


@kernel
def next_of_others(log: Log, event: int, job: int) -> int:
    """Return the first event from `event` on that is not of `job` (a row, or NONE), else the number of events."""
    while event < len(log.job) and log.job[event] == job:
        event += 1
    return event
