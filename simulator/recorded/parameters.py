"""Infer the parameters of a scheduler from the record before an instant; no parameter is entered by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.recorded.record import ENDED, NEVER, STARTED, SUBMITTED, Events, RecordedTrace, events
from traces.arrays import Int64s
from traces.units import HOUR_S

if TYPE_CHECKING:  # compiled code takes numba seconds to import, and reading a record does not need it
    from simulator.recorded.state import RecordedJobs, RecordedRules

LEAST_FIT_S = 28 * 86400  # least length of record, s, before inferred rules are used to judge or train
WINDOW_S = 3 * 86400  # long enough to contain a busy hour, short enough to follow changes of nodes in service
STALL_S = 300  # a free node is filled within one backfill interval (30 s by default, 300 s on large sites)

MECHANISMS = {
    "priority": "recorded Priority plus points per hour waited, instead of first come, first served",
    "job limit": "running jobs of a user",
    "node limit": "nodes held by a user",
    "usable nodes": "the most in use over the last three days, instead of a constant",
    "holds": "a job that was overtaken is held and reserves nothing",
    "siblings": "a job waits for its user's held jobs ahead of it",
    "nodes out": "a startable job that stays pending shows that nodes are out of service",
}
REPLAYED = ("priority", "job limit", "node limit", "usable nodes")  # the mechanisms that a free-running replay can use

SHARED_BY = 3  # a number counts as a limit if at least 3 users stop at it
PILE = 2  # ... twice as many as at one less
BEYOND = 10  # ... and at most one in ten goes beyond it
_SLOPES = np.geomspace(1.0, 1000.0, 121)  # candidate values, points per hour
_LEAST_PAIRS = 200


@dataclass(frozen=True)
class Parameters:
    """The parameters of a scheduler, fitted on the record before `until_s` (epoch s)."""

    until_s: int
    nodes: int  # most in use over WINDOW_S before until_s
    max_jobs: int | None  # running jobs per user, None if no limit is visible
    max_nodes: int | None  # nodes per user
    points_per_hour: float | None  # growth of the priority; None: first come, first served
    concordance: float  # share of overtaking pairs that the order explains; NaN with too few pairs
    concordance_fcfs: float  # the same for first come, first served
    pairs: int


def known_before(record: RecordedTrace, until_s: int) -> RecordedTrace:
    """Return the record as known at `until_s`: without later submissions; later starts and ends are unknown (NEVER).

    A job that was cancelled in the queue later is still pending.
    """
    kept = record.take(record.submit_s < until_s)
    start, end = (np.where(column < until_s, column, NEVER) for column in (kept.start_s, kept.end_s))
    return RecordedTrace(
        kept.submit_s, start, end, kept.size, kept.limit_s, kept.user, kept.priority, kept.job_key, kept.name
    )


def infer_parameters(record: RecordedTrace, until_s: int) -> Parameters:
    """Fit all parameters on the record before `until_s`."""
    known = known_before(record, until_s)
    happened = events(known)
    level = happened.peak[0][max(int(np.searchsorted(happened.time_s, until_s - WINDOW_S)) - 1, 0) :]
    nodes = max(int(level.max()) if len(level) else 0, int(known.size.max()) if len(known) else 1)
    jobs, held = user_peaks(known, happened)
    max_jobs = shared_limit(jobs)
    priority, waited = overtaking_pairs(known, happened, max_jobs)
    slope, share = fit_slope(priority, waited)
    fcfs = _concordance(np.sign(waited))
    return Parameters(until_s, nodes, max_jobs, shared_limit(held), slope, share, fcfs, len(priority))


def user_peaks(record: RecordedTrace, happened: Events) -> tuple[Int64s, Int64s]:
    """Return each user's peak of running jobs, and of nodes held by at least two jobs; int64, (users,).

    A single job is no evidence of a limit on nodes: it may be as wide as its partition allows.
    """
    moves = np.flatnonzero((happened.kind == STARTED) | (happened.kind == ENDED))
    job = happened.job[moves]
    order = np.argsort(record.user[job], kind="stable")  # events are in order of time within each user
    job, sign = job[order], np.where(happened.kind[moves][order] == STARTED, 1, -1)
    user = record.user[job]
    running, nodes = np.cumsum(sign), np.cumsum(sign * record.size[job])
    first = np.flatnonzero(np.r_[True, np.diff(user) != 0]) if len(user) else np.zeros(0, np.int64)
    for level, change in ((running, sign), (nodes, sign * record.size[job])):
        level -= np.repeat(level[first] - change[first], np.diff(np.r_[first, len(user)]))
    peaks = np.zeros((2, max(record.users, 1)), np.int64)
    np.maximum.at(peaks[0], user, running)
    several = running >= 2
    np.maximum.at(peaks[1], user[several], nodes[several])
    return peaks[0], peaks[1]


def shared_limit(peaks: Int64s) -> int | None:
    """Return the smallest number above 1 at which users pile up and which hardly any user exceeds, or None.

    `peaks` holds each user's peak. At a limit at least SHARED_BY users stop, PILE times as many as at one less, and at
    most one in BEYOND as many go beyond it.
    """
    at = np.bincount(peaks)
    for number in range(2, len(at)):
        beyond = int(at[number + 1 :].sum())
        if at[number] >= max(SHARED_BY, PILE * at[number - 1]) and beyond * BEYOND <= at[number]:
            return number
    return None


def overtaking_pairs(
    record: RecordedTrace, happened: Events, max_jobs: int | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the pairs in which one job started while another pending job could have started in its place.

    The pending job asks for neither more nodes nor a longer limit, belongs to another user, and its user is below the
    limit on running jobs. Returns the differences (started minus pending) of the recorded priority and of the hours
    waited, each of shape (pairs,).
    """
    running = np.zeros(max(record.users, 1), np.int64)
    pending = np.zeros(len(record), np.bool_)
    differences: list[NDArray[np.float64]] = []
    allowed = NEVER if max_jobs is None else max_jobs
    for kind, job in zip(happened.kind, happened.job, strict=True):
        if kind == SUBMITTED:
            pending[job] = True
            continue
        pending[job] = False
        if kind == STARTED:
            queue = np.flatnonzero(pending[:job]) if job else pending[:0].nonzero()[0]
            queue = np.concatenate([queue, job + 1 + np.flatnonzero(pending[job + 1 :])])
            other = queue[
                (record.size[queue] <= record.size[job])
                & (record.limit_s[queue] <= record.limit_s[job])
                & (record.user[queue] != record.user[job])
                & (running[record.user[queue]] < allowed)
            ]
            if len(other):
                points = record.priority[job] - record.priority[other]
                hours = (record.submit_s[other] - record.submit_s[job]) / HOUR_S
                differences.append(np.stack([points.astype(np.float64), hours]))
            running[record.user[job]] += 1
        elif kind == ENDED:
            running[record.user[job]] -= 1
    points_and_hours = np.concatenate(differences, axis=1) if differences else np.zeros((2, 0))
    return points_and_hours[0], points_and_hours[1]


def fit_slope(priority: NDArray[np.float64], waited: NDArray[np.float64]) -> tuple[float | None, float]:
    """Fit the points per hour that order most pairs; return them and that share, or (None, share) for FCFS.

    Slurm's age factor grows linearly up to PriorityMaxAge (priority_multifactor.html); the recorded Priority is the
    value at submission.
    """
    fcfs = _concordance(np.sign(waited))
    if len(priority) < _LEAST_PAIRS or not priority.any():
        return None, fcfs
    shares = [_concordance(np.sign(priority + slope * waited)) for slope in _SLOPES]
    best = int(np.argmax(shares))
    return (float(_SLOPES[best]), shares[best]) if shares[best] > fcfs else (None, fcfs)


def _concordance(signs: NDArray[np.float64]) -> float:
    return float(np.mean((signs + 1) / 2)) if len(signs) else float("nan")


def jobs_of(record: RecordedTrace, points_per_hour: float | None) -> RecordedJobs:
    """Build the kernel's jobs, ordered by recorded priority and its growth, or (None) first come, first served.

    All jobs age alike, so their order never changes: key = 3600 * Priority - points_per_hour * seconds of submission.
    """
    from simulator.recorded.state import RecordedJobs

    key = -(record.submit_s - record.submit_s.min()) if len(record) else record.submit_s
    if points_per_hour is not None:
        key = HOUR_S * record.priority + np.rint(points_per_hour * key).astype(np.int64)
    columns = (record.submit_s, record.size, record.limit_s, record.user, key)
    return RecordedJobs(*(np.ascontiguousarray(column, np.int64) for column in columns))


def rules_of(parameters: Parameters, mechanisms: frozenset[str]) -> RecordedRules:
    """Build the kernel's rules with these mechanisms switched on."""
    from simulator.recorded.state import RecordedRules

    unlimited = NEVER
    max_jobs = parameters.max_jobs if "job limit" in mechanisms else None
    max_nodes = parameters.max_nodes if "node limit" in mechanisms else None
    return RecordedRules(
        nodes=parameters.nodes,
        window_s=WINDOW_S if "usable nodes" in mechanisms else 0,
        stall_s=STALL_S if "nodes out" in mechanisms else 0,
        max_jobs=unlimited if max_jobs is None else max_jobs,
        max_nodes=unlimited if max_nodes is None else max_nodes,
        overtaken=int("holds" in mechanisms),
        siblings=int("siblings" in mechanisms),
    )
