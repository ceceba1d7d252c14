"""The recorded world behind the interface of `simulator.cluster`: the log, and what becomes of it after a submission.

Until a job is submitted a branch shows what the log shows. From its first submission on, all others are simulated too
(`simulator.recorded.forked`), under rules that were inferred from the record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from simulator import cluster as interface
from simulator.cluster import DAY_S, NO_LIMIT, Built, Operations, Visible
from simulator.compiled import kernel, njit
from simulator.recent import ENDS, NODES, STARTS, TIME, WAIT
from simulator.recorded import branch as recorded
from simulator.recorded.branch import ARRIVED, Beyond, Branch, Cluster, new_branch, new_cluster, usable_nodes
from simulator.recorded.parameters import HOUR_S, jobs_of
from simulator.recorded.passes import new_scratch
from simulator.recorded.record import NEVER, NONE, Int64s, Record, events
from simulator.recorded.state import BUSY, PENDING, RUNNING, Jobs, Rules

USUAL_JOBS = 1000  # of those that arrived last: their median Priority is what a new job gets


class Extra(NamedTuple):
    """Jobs beyond the record, one an entry: what each asks for. int64, shape (extra,)."""

    nodes: Int64s
    limit_s: Int64s
    user: Int64s  # one of the record's, or `record.users` for somebody new
    priority: Int64s  # at its submission, as Slurm records it; NONE: the usual one (`_usual`)


def build(
    record: Record,
    *,
    rules: Rules,
    points_per_hour: float | None,
    extra: int,
    nodes: int,
    limit_s: int,
    threads: int,
) -> Built:
    """The world with `extra` jobs alike of a user who is not in the record, of the usual priority."""
    alike = (np.full(extra, value, np.int64) for value in (nodes, limit_s, record.users, NONE))
    built = build_with(record, Extra(*alike), rules=rules, points_per_hour=points_per_hour, threads=threads)
    return built._replace(user=record.users)


def build_with(record: Record, extra: Extra, *, rules: Rules, points_per_hour: float | None, threads: int) -> Built:
    """The world of a record, under rules and a growth of the priority (`simulator.recorded.parameters`).

    An extra job runs for its whole limit, counts against its user's limits, and its Priority grows as the others' do.
    """
    happened = events(record)
    later = np.full(len(extra.nodes), NEVER)
    added = (later, extra.nodes, extra.limit_s, extra.user, np.zeros_like(later))
    columns = zip(jobs_of(record, points_per_hour), added, strict=True)
    jobs = Jobs(*(np.append(column, more) for column, more in columns))
    beyond = _beyond(record, extra, points_per_hour)
    first = new_cluster(record, happened, jobs, rules, beyond)
    users = len(first.scratch.placed_jobs)
    others = (first._replace(scratch=new_scratch(len(jobs.user), users)) for _ in range(1, threads))

    def branch(rows: int, remembered: int) -> Branch:
        return new_branch(first, remembered)  # with room for all jobs

    most = max(rules.nodes, int(happened.peak[0].max(initial=0)))
    return Built((first, *others), len(record), most, branch)


def _beyond(record: Record, extra: Extra, points_per_hour: float | None) -> Beyond:
    """The keys of jobs that are not in the record, by `simulator.recorded.parameters.jobs_of`.

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
def _advance(cluster: Cluster, branch: Branch, until_s: int) -> int:
    recorded.advance(cluster, branch, until_s, NONE)
    return 0


@kernel
def _start_of(cluster: Cluster, branch: Branch, job: int) -> int:
    return recorded.advance(cluster, branch, NEVER, job)


@njit
def _visible(cluster: Cluster, branch: Branch, now_s: int) -> Visible:
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
    Cluster, Operations(_advance, recorded.copy_branch, recorded.submit, _start_of, recorded.place_of, _visible)
)
