"""The agent's memory of started and ended jobs: filled first from accounting, then from the queue itself.

A day after the first look it is as complete without accounting, except for jobs that came and went between two looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from agent.slurm.accounting import AccountingRecords, PastJob
from agent.slurm.queue import ENDED, Queue, SqueueJob
from features.observe import RECENT
from traces.arrays import Float64s, Int64s
from traces.slurm.text import parse_job_id, parse_state
from traces.units import DAY_S

HOLDING = frozenset({"RUNNING", "SUSPENDED", "RESIZING"})  # base states (`traces.slurm.text.parse_state`)


class AccountedJobs(NamedTuple):
    """The fields of `features.snapshot.Snapshot` with the same names: the last RECENT jobs, and a day's arrivals."""

    recent_start_s: Int64s
    recent_wait_s: Int64s
    recent_nodes: Int64s
    ended_use: Float64s
    arrived_submit_s: Int64s
    arrived_node_s: Int64s


def holds_nodes(job: SqueueJob) -> bool:
    """Whether a job of the queue is running. A completing job has ended; Slurm is cleaning its nodes."""
    return job.state != "COMPLETING" and parse_state(job.state) in HOLDING


class Memory:
    """Jobs by id, as last seen: those submitted within `keep_s` seconds, and the last to start or end."""

    def __init__(self, keep_s: int = DAY_S) -> None:
        self._keep_s = keep_s
        self._jobs: dict[str, PastJob] = {}
        self._first_s: int | None = None
        self._last_s: int | None = None
        self._asked = False

    def learn(self, past: AccountingRecords) -> None:
        """Add the jobs from accounting, which holds every job of a day, or of `keep_s`."""
        self._jobs |= {job.id: job for job in past.jobs}
        self._asked = True

    def follow(self, queue: Queue) -> None:
        """Update from a queue that is no older than the last one."""
        self._first_s = queue.now_s if self._first_s is None else self._first_s
        alive = {job.id: _of_queue(job) for job in queue.jobs}
        ended = {job.id: _of_queue(job) for job in queue.ended}
        for job in self._jobs.values():
            if job.end_s is None and job.id not in alive and job.id not in ended:
                ended[job.id] = self._gone(job, queue.now_s)
        for one in (*ended.values(), *alive.values()):
            known = self._jobs.get(one.id)
            self._jobs[one.id] = one if known is None else replace(one, priority=known.priority)
        self._last_s = queue.now_s
        self._forget(queue.now_s)

    def knows_past(self, now_s: int) -> bool:
        """Whether the starts and ends of the last `keep_s` are known, from accounting or from observing the queue."""
        return self._asked or (self._first_s is not None and now_s - self._first_s >= self._keep_s)

    def past(self, counts: Callable[[str], bool]) -> list[PastJob]:
        """List every remembered job whose partition satisfies `counts`, in order of submission."""
        jobs = (job for job in self._jobs.values() if counts(job.partition))
        return sorted(jobs, key=lambda job: (job.submit_s, *_number(job)))

    def recent(self, now_s: int, counts: Callable[[str], bool]) -> AccountedJobs:
        """Return the recent jobs whose partition satisfies `counts`."""
        jobs = [job for job in self._jobs.values() if counts(job.partition)]
        started = _last_started(jobs)
        arrived = [job for job in jobs if 0 <= now_s - job.submit_s <= DAY_S]
        return AccountedJobs(
            _ints([job.start_s or 0 for job in started]),
            _ints([max((job.start_s or 0) - job.submit_s, 0) for job in started]),
            _ints([job.nodes for job in started]),
            np.array([_run_s(job) / job.limit_s for job in _last_ended(jobs)], np.float64),
            _ints([job.submit_s for job in arrived]),
            _ints([job.nodes * job.limit_s for job in arrived]),
        )

    def _gone(self, job: PastJob, now_s: int) -> PastJob:
        """Estimate the end of a job that left the queue between two looks: halfway, but not after its time limit.

        A pending job may have run in between or been cancelled. We assume that it did not run.
        """
        last_s = now_s if self._last_s is None else self._last_s
        end_s = (last_s + now_s) // 2
        if job.start_s is not None:
            end_s = max(min(end_s, job.start_s + job.limit_s), job.start_s)
        return replace(job, end_s=end_s)

    def _forget(self, now_s: int) -> None:
        """Forget ended jobs submitted over `keep_s` ago, except the last to start or end in their partition."""
        by_partition: dict[str, list[PastJob]] = {}
        for job in self._jobs.values():
            by_partition.setdefault(job.partition, []).append(job)
        last = {job.id for jobs in by_partition.values() for job in (*_last_started(jobs), *_last_ended(jobs))}
        self._jobs = {
            job.id: job
            for job in self._jobs.values()
            if job.end_s is None or now_s - job.submit_s <= self._keep_s or job.id in last
        }


def _of_queue(job: SqueueJob) -> PastJob:
    """Convert a job of squeue. A pending job's start is only an estimate; a job that never ran has no nodes."""
    runs, is_over = holds_nodes(job), job.state == "COMPLETING" or job.state in ENDED
    start_s = job.start_s if runs or (is_over and job.node_list) else None
    end_s = job.end_s if is_over else None
    columns = (job.id, job.user, job.partition, job.nodes, job.limit_s, job.submit_s, start_s, end_s)
    return PastJob(*columns, job.name, job.priority)


def _last_started(jobs: list[PastJob]) -> list[PastJob]:
    started = [(job.start_s, _number(job), job) for job in jobs if job.start_s is not None]
    return [job for *_, job in sorted(started, key=lambda one: one[:2])[-RECENT:]]


def _last_ended(jobs: list[PastJob]) -> list[PastJob]:
    ended = [(job.end_s, _number(job), job) for job in jobs if job.start_s is not None and job.end_s is not None]
    return [job for *_, job in sorted(ended, key=lambda one: one[:2])[-RECENT:]]


def _number(job: PastJob) -> tuple[int, int]:
    identity = parse_job_id(job.id)
    return identity.job, identity.task or 0


def _run_s(job: PastJob) -> int:
    return max((job.end_s or 0) - (job.start_s or 0), 0)


def _ints(numbers: list[int]) -> Int64s:
    return np.array(numbers, np.int64)
