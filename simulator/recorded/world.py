"""The recorded world of `simulator.cluster`: a branch follows the log until a job is submitted into it.

From the first submission on, all jobs are simulated (`simulator.recorded.forked`) under rules that were inferred from
the record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from simulator import cluster as interface
from simulator.cluster import NO_LIMIT, Built, Operations, Visible
from simulator.compiled import kernel, njit
from simulator.recent import ENDS, NODES, STARTS, TIME, WAIT
from simulator.recorded import branch as recorded
from simulator.recorded.branch import (
    ARRIVED,
    Beyond,
    RecordedBranch,
    RecordedCluster,
    new_branch,
    new_cluster,
    usable_nodes,
)
from simulator.recorded.parameters import jobs_of
from simulator.recorded.passes import new_scratch
from simulator.recorded.record import NEVER, NONE, RecordedTrace, events
from simulator.recorded.state import BUSY, PENDING, RUNNING, RecordedJobs, RecordedRules
from traces.arrays import Int64s
from traces.units import DAY_S, HOUR_S

USUAL_JOBS = 1000  # a new job gets the median Priority of this many latest arrivals


class Extra(NamedTuple):
    """The requests of the jobs beyond the record, int64, shape (extra,)."""

    nodes: Int64s
    limit_s: Int64s
    user: Int64s  # a user of the record, or `record.users` for a new user
    priority: Int64s  # Priority at submission, as recorded by Slurm; NONE: the usual one (`_beyond`)


def build(
    record: RecordedTrace,
    *,
    rules: RecordedRules,
    points_per_hour: float | None,
    extra: int,
    nodes: int,
    limit_s: int,
    threads: int,
) -> Built:
    """Build the world with `extra` equal jobs of a user who is not in the record, with the usual priority."""
    columns = (np.full(extra, value, np.int64) for value in (nodes, limit_s, record.users, NONE))
    built = build_with(record, Extra(*columns), rules=rules, points_per_hour=points_per_hour, threads=threads)
    return built._replace(user=record.users)


def build_with(
    record: RecordedTrace, extra: Extra, *, rules: RecordedRules, points_per_hour: float | None, threads: int
) -> Built:
    """Build the world of a record with rules and a growth of the priority (`simulator.recorded.parameters`).

    An extra job runs for its whole limit and counts against its user's limits. Its Priority grows like that of others.
    """
    happened = events(record)
    later = np.full(len(extra.nodes), NEVER)
    added = (later, extra.nodes, extra.limit_s, extra.user, np.zeros_like(later))
    columns = zip(jobs_of(record, points_per_hour), added, strict=True)
    jobs = RecordedJobs(*(np.append(column, more) for column, more in columns))
    beyond = _beyond(record, extra, points_per_hour)
    first = new_cluster(record, happened, jobs, rules, beyond)
    users = len(first.scratch.placed_jobs)
    others = (first._replace(scratch=new_scratch(len(jobs.user), users)) for _ in range(1, threads))

    def branch(rows: int, remembered: int) -> RecordedBranch:
        return new_branch(first, remembered)  # with room for all jobs

    def resize(cluster: RecordedCluster, job: int, nodes: int) -> None:
        cluster.jobs.size[job] = nodes

    most = max(rules.nodes, int(happened.peak[0].max(initial=0)))
    return Built((first, *others), len(record), most, branch, resize)


def _beyond(record: RecordedTrace, extra: Extra, points_per_hour: float | None) -> Beyond:
    """Return the keys of jobs beyond the record (`simulator.recorded.parameters.jobs_of`).

    The usual Priority is the median of the last USUAL_JOBS jobs that arrived before the submission.
    """
    origin_s = int(record.submit_s[0]) if len(record) else 0
    if points_per_hour is None:
        return Beyond(np.full(len(extra.nodes), NONE), np.zeros(len(record) + 1, np.int64), -1.0, origin_s)
    usual = pl.Series(record.priority).rolling_median(USUAL_JOBS, min_samples=1).to_numpy()
    usual_key: Int64s = np.rint(HOUR_S * np.append(0.0, usual)).astype(np.int64)
    own_key = np.where(extra.priority == NONE, NONE, HOUR_S * extra.priority)
    return Beyond(own_key, usual_key, -points_per_hour, origin_s)


@kernel
def _advance(cluster: RecordedCluster, branch: RecordedBranch, until_s: int) -> int:
    recorded.advance(cluster, branch, until_s, NONE)
    return 0


@kernel
def _start_of(cluster: RecordedCluster, branch: RecordedBranch, job: int) -> int:
    return recorded.advance(cluster, branch, NEVER, job)


@njit
def _visible(cluster: RecordedCluster, branch: RecordedBranch, now_s: int) -> Visible:
    jobs, state, recent = cluster.jobs, branch.state, branch.state.recent
    pending = state.pending[: state.scalars[PENDING]]
    running = state.running[: state.scalars[RUNNING]]
    started = recent.started[: min(recent.counts[STARTS], len(recent.started))]
    arrived = branch.scalars[ARRIVED]
    first = np.searchsorted(jobs.submit_s[:arrived], now_s - DAY_S)
    usable = max(usable_nodes(cluster, branch, now_s), state.scalars[BUSY])
    return Visible(
        max(cluster.rules.nodes, usable),
        usable,
        jobs.size[pending],
        jobs.limit_s[pending],
        state.submit_s[pending],
        state.held[pending],
        jobs.user[pending],
        jobs.size[running],
        jobs.limit_s[running],
        state.start_s[running],
        jobs.user[running],
        started[:, TIME],
        started[:, WAIT],
        started[:, NODES],
        recent.ended_use[: min(recent.counts[ENDS], len(recent.ended_use))],
        jobs.submit_s[first:arrived],
        jobs.size[first:arrived] * jobs.limit_s[first:arrived],
        min(cluster.rules.max_jobs, NO_LIMIT),
        min(cluster.rules.max_nodes, NO_LIMIT),
    )


interface.implement(
    RecordedCluster, Operations(_advance, recorded.copy_branch, recorded.submit, _start_of, recorded.place_of, _visible)
)
