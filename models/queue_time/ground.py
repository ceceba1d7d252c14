"""The data of queue-time prediction: every job of a cluster at its submission, and the rows to fit on and to judge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from features.submission.index import ASKED_AT, CALENDAR, FEATURES, GROUPS, TALLIED, TALLIED_AT
from features.submission.log import COLUMNS, SubmissionLog, submissions_of, why_not_rebuilt
from models.queue_time.protocol import KnownStarts, Rows
from models.study.inputs import read_jobs
from simulator.recorded.record import events
from traces.arrays import Bools, Float32s, Int64s
from traces.counted import counted
from traces.errors import InputError
from traces.store.folder import DataFolder
from traces.units import DAY_S

GAP_S = DAY_S  # between the last submission of a fit and the fit: of later jobs only short waits are known
MOST_FIT = 30_000  # rows of a fit, the newest
LEAST_FIT = 100
# The outcomes of a group's earlier jobs that an incomplete log shows too.
OUTCOMES = ("last_log_wait", "mean_log_wait", "mean_use", "started_jobs")


@dataclass(frozen=True)
class SubmittedJobs:
    """All jobs of a cluster that started, at their submissions, by rising submission."""

    rows: Rows
    log: SubmissionLog
    why_request_only: str | None  # why no queue is observed; None if it is observed
    fit_from_s: int | None  # as declared: of earlier submissions the log holds only survivors

    def known(self, at_s: int) -> Bools:
        """(n,) the rows that a fit at an instant may use: started before it, submitted GAP_S before it."""
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
        """Number of jobs submitted in [from_s, to_s) without a known start: cancelled while pending, or pending."""
        record = self.log.record
        return int(((record.submit_s >= from_s) & (record.submit_s < to_s) & ~record.ran).sum())


def read_log(data: DataFolder, cluster: str) -> SubmissionLog:
    """Read all jobs of the cluster. Raises InputError if no job has both a submission and a start."""
    frame, longest_s = read_jobs(data, cluster, COLUMNS, None, None)
    log = submissions_of(frame, default_limit_s=longest_s)
    if not log.record.ran.any():
        raise InputError(f"cluster {cluster!r}: none of its {counted(len(frame), 'job')} has a submission and a start")
    return log


def submitted_jobs(log: SubmissionLog, known_s: int, fit_from_s: int | None = None) -> SubmittedJobs:
    """Observe the jobs of a log; the rules of its queue are inferred from what was recorded before `known_s`.

    If the queue cannot be rebuilt, rows hold only the request, the calendar and past outcomes.
    """
    record = log.record
    why = why_not_rebuilt(log)
    ran = record.ran
    if why is None:
        from features.submission.observed import observe_log
        from simulator.recorded.parameters import infer_parameters

        learned = record if fit_from_s is None else record.take(record.submit_s >= fit_from_s)
        observed = observe_log(log, infer_parameters(learned, known_s), ran)
    else:
        observed = request_only(log, ran)
    submit_s, wait_s = record.submit_s[ran], (record.start_s - record.submit_s)[ran]
    partition = np.unique(np.asarray(log.names["partition"], dtype=str), return_inverse=True)[1][ran]
    order = np.argsort(record.start_s[ran], kind="stable")
    past = KnownStarts(record.start_s[ran][order], wait_s[order], partition[order].astype(np.int64))
    size_class = size_classes(record.size[ran])
    rows = Rows(observed, submit_s, wait_s, partition.astype(np.int64), size_class, past)
    return SubmittedJobs(rows, log, why, fit_from_s)


def size_classes(size: Int64s) -> Int64s:
    """(n,) 0 for the smallest size in the log, 1 up to four times that, 2 above."""
    smallest = int(size.min()) if len(size) else 1
    return np.searchsorted([smallest, 4 * smallest], size).astype(np.int64)


def request_only(log: SubmissionLog, chosen: Bools) -> Float32s:
    """Observe the chosen jobs (mask) without the queue: float32, (chosen, len(FEATURES)).

    All features are zero except those of request, calendar and earlier outcomes. The priority is not used, because such
    logs print that of a later instant.
    """
    from features.observe import AT, fill_calendar
    from features.submission.tally import tallies

    record = log.record
    out = np.zeros((int(chosen.sum()), len(FEATURES)), np.float32)
    pair = np.zeros(len(AT), np.float32)
    columns = [FEATURES.index(name) for name in CALENDAR]
    places = [getattr(AT, name) for name in CALENDAR]
    for row, submit_s in enumerate(record.submit_s[chosen]):
        fill_calendar(pair, int(submit_s))
        out[row, columns] = pair[places]
    size, limit_h = record.size[chosen], record.limit_s[chosen] / 3600.0
    asked = log.asked[chosen]
    out[:, ASKED_AT : ASKED_AT + 3] = np.stack([size, limit_h, size * limit_h], axis=1)
    out[:, ASKED_AT + 3 : ASKED_AT + 6] = asked[:, :3]
    out[:, ASKED_AT + 7] = asked[:, 4]
    tallied = tallies(record, events(record), log.group_codes, chosen)
    for k in range(len(GROUPS)):
        for name in OUTCOMES:
            at = k * len(TALLIED) + TALLIED.index(name)
            out[:, TALLIED_AT + at] = tallied[:, at]
    return out
