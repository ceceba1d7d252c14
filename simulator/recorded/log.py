"""What was recorded, as arrays for compiled code, and what they answer: nodes in use over a time, the next event."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import kernel
from simulator.recorded.record import NONE, Events, Int64s, Record
from simulator.recorded.run_times import RunTimes, run_times
from simulator.recorded.search import first_not_before
from simulator.recorded.state import Jobs, Rules


class Log(NamedTuple):
    """What was recorded, int64: of each job, shape (jobs,), and of each event, shape (events,), in order of time.

    Rows beyond the record are jobs that may be submitted and run for their whole limit: in their stead the log holds a
    job that started at 0 and ended when its limit was over, and no event.
    """

    start_s: Int64s  # (jobs,) NEVER for one cancelled in the queue
    end_s: Int64s  # (jobs,) end, or the cancellation
    started_at: Int64s  # (jobs,) index of the job's start among the events; their number where it has none
    ended_at: Int64s  # (jobs,) likewise of its end
    time_s: Int64s  # (events,)
    job: Int64s  # (events,)
    kind: Int64s  # (events,)
    peak: Int64s  # (levels, events) `simulator.recorded.record.range_peaks` of the nodes in use
    run_times: RunTimes


def log_of(record: Record, events: Events, beyond_limit_s: Int64s | None = None) -> Log:
    """The log of a record and its events, and of one job beyond it for each limit given (s)."""
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
def most_in_use(jobs: Jobs, rules: Rules, log: Log, now: int, taken: int, target: int) -> int:
    """Usable nodes: the most in use over the window before `now`, of which the first `taken` events are known.

    The window begins with the nodes in use when it opens. `target` (a row, or NONE) holds its nodes between its own
    events; what others do then is counted without them.
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
    """Most nodes in use after any of the events low .. high - 1, 0 for none."""
    if high <= low:
        return 0
    k = 0
    while (2 << k) <= high - low:
        k += 1
    return int(max(peak[k, low], peak[k, high - (1 << k)]))


@kernel
def next_of_others(log: Log, event: int, job: int) -> int:
    """The first event from `event` on that is not of `job` (a row, or NONE); the number of events where none is."""
    while event < len(log.job) and log.job[event] == job:
        event += 1
    return event
