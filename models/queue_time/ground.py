"""What queue-time prediction reads of a cluster: every job at its submission, and what is fitted and judged on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from features.submission.index import ASKED_AT, CALENDAR, FEATURES, GROUPS, TALLIED, TALLIED_AT
from features.submission.log import COLUMNS, SubmissionLog, from_jobs, why_not_rebuilt
from models.queue_time.protocol import Bools, Float32s, Int64s, Past, Rows
from models.study.inputs import read_jobs
from simulator.recorded.record import events
from traces.counted import counted
from traces.errors import InputError
from traces.store.folder import DataFolder

DAY_S = 86400
GAP_S = DAY_S  # between the last submission that is fitted on and the fit: of later ones only short waits are known
MOST_FIT = 30_000  # rows of a fit, the newest
LEAST_FIT = 100
WEEK_S = 7 * DAY_S
# Of a group's earlier jobs, what a log shows that does not hold all of them.
OUTCOMES = ("last_log_wait", "mean_log_wait", "mean_use", "started_jobs")


@dataclass(frozen=True)
class Ground:
    """Every job of a cluster that started, at its submission, by rising submission."""

    rows: Rows
    log: SubmissionLog
    why_request_only: str | None  # why no queue is observed; None where it is
    fit_from_s: int | None  # as declared: earlier submissions are survivors

    def known(self, at_s: int) -> Bools:
        """(n,) the rows that may be fitted on at an instant: started before it, submitted GAP_S before it."""
        rows = self.rows
        known = (rows.submit_s + rows.wait_s < at_s) & (rows.submit_s < at_s - GAP_S)
        if self.fit_from_s is not None and (known & (rows.submit_s >= self.fit_from_s)).any():
            known &= rows.submit_s >= self.fit_from_s
        surplus = int(known.sum()) - MOST_FIT
        if surplus > 0:
            known &= np.cumsum(known) > surplus
        return known

    def within(self, from_s: int, to_s: int) -> Bools:
        """(n,) the rows submitted in [from_s, to_s)."""
        return np.asarray((self.rows.submit_s >= from_s) & (self.rows.submit_s < to_s), bool)

    def never_started(self, from_s: int, to_s: int) -> int:
        """Jobs submitted in [from_s, to_s) of which no start is known: cancelled in the queue, or still waiting."""
        record = self.log.record
        return int(((record.submit_s >= from_s) & (record.submit_s < to_s) & ~record.ran).sum())


def read_log(data: DataFolder, cluster: str) -> SubmissionLog:
    """All jobs of the cluster. Raises InputError where none is known with its submission."""
    frame, longest_s = read_jobs(data, cluster, COLUMNS, None, None)
    log = from_jobs(frame, default_limit_s=longest_s)
    if not log.record.ran.any():
        raise InputError(f"cluster {cluster!r}: none of its {counted(len(frame), 'job')} has a submission and a start")
    return log


def ground_of(log: SubmissionLog, known_s: int, fit_from_s: int | None = None) -> Ground:
    """The rows of a log; the rules of its queue are those inferred from what was recorded before `known_s`.

    Where the queue cannot be rebuilt they hold the request, the calendar and past outcomes.
    """
    record = log.record
    why = why_not_rebuilt(log)
    ran = record.ran
    if why is None:
        from features.submission.observed import observe_log
        from simulator.recorded.parameters import fit

        learned = record if fit_from_s is None else record.take(record.submit_s >= fit_from_s)
        observed = observe_log(log, fit(learned, known_s), ran)
    else:
        observed = request_only(log, ran)
    submit_s, wait_s = record.submit_s[ran], (record.start_s - record.submit_s)[ran]
    partition = np.unique(np.asarray(log.names["partition"], dtype=str), return_inverse=True)[1][ran]
    order = np.argsort(record.start_s[ran], kind="stable")
    past = Past(record.start_s[ran][order], wait_s[order], partition[order].astype(np.int64))
    size_class = size_classes(record.size[ran])
    return Ground(Rows(observed, submit_s, wait_s, partition.astype(np.int64), size_class, past), log, why, fit_from_s)


def size_classes(size: Int64s) -> Int64s:
    """(n,) 0 the smallest size that there is, 1 up to four times that, 2 above."""
    smallest = int(size.min()) if len(size) else 1
    return np.searchsorted([smallest, 4 * smallest], size).astype(np.int64)


def request_only(log: SubmissionLog, wanted: Bools) -> Float32s:
    """float32, (wanted, len(FEATURES)) without the queue: zeros but for request, calendar and earlier outcomes.

    Of the priority nothing is taken: such logs print the one of a later instant.
    """
    from features.observe import AT, fill_calendar
    from features.submission.tally import tallies

    record = log.record
    out = np.zeros((int(wanted.sum()), len(FEATURES)), np.float32)
    pair = np.zeros(len(AT), np.float32)
    columns = [FEATURES.index(name) for name in CALENDAR]
    places = [getattr(AT, name) for name in CALENDAR]
    for row, submit_s in enumerate(record.submit_s[wanted]):
        fill_calendar(pair, int(submit_s))
        out[row, columns] = pair[places]
    size, limit_h = record.size[wanted], record.limit_s[wanted] / 3600.0
    asked = log.asked[wanted]
    out[:, ASKED_AT : ASKED_AT + 3] = np.stack([size, limit_h, size * limit_h], axis=1)
    out[:, ASKED_AT + 3 : ASKED_AT + 6] = asked[:, :3]
    out[:, ASKED_AT + 7] = asked[:, 4]
    told = tallies(record, events(record), log.group_codes, wanted)
    for k in range(len(GROUPS)):
        for name in OUTCOMES:
            at = k * len(TALLIED) + TALLIED.index(name)
            out[:, TALLIED_AT + at] = told[:, at]
    return out
