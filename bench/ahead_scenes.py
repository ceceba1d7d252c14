"""What an agent would see of a recorded cluster at an instant, and play its futures from: for a bench and a test."""

from __future__ import annotations

from typing import Any

import numpy as np

from features.futures.arrivals import MOST_S
from features.futures.plain import FAR_S, FutureUserLimits, Usable
from features.futures.played import FutureInputs, ObservedJob, PastArrival
from features.futures.run_times import history
from models.provisioning.futures.recorded import HypotheticalJobs
from models.provisioning.pairs.recorded import week_of, week_world
from simulator.cluster import advance
from simulator.recorded.branch import ARRIVED, OWN, TAKEN, usable_nodes
from simulator.recorded.log import most_in_use
from simulator.recorded.record import NEVER, NONE, RecordedTrace
from simulator.recorded.state import PENDING, RUNNING
from simulator.recorded.world import Extra
from traces.units import HOUR_S


def scene_of(record: RecordedTrace, asked: HypotheticalJobs, d: int) -> FutureInputs:
    """The scene of job `d` of `asked`. Nothing is read that was recorded at or after its instant.

    Over 50 lines: what a scene is made of, field by field.
    """
    now_s = int(asked.at_s[d])
    nobody = np.zeros(0, np.int64)
    world, place = week_world(record, int(week_of(asked.at_s)[d]), Extra(nobody, nobody, nobody, nobody), None)
    cluster: Any = world.clusters[0]
    branch = world.branch(0, 0)
    advance(cluster, branch, now_s - 1)
    state, beyond, rules = branch.state, cluster.beyond, cluster.rules
    at = np.flatnonzero(place != NONE)
    name = record.name if len(record.name) else 0 * record.user
    has_priority = bool(beyond.usual.any())

    def seen(row: int, *, runs: bool) -> ObservedJob:
        number = int(at[row])
        return ObservedJob(
            number,
            int(record.size[number]),
            int(record.limit_s[number]),
            int(record.user[number]),
            int(name[number]),
            int(state.key[row]),
            int(state.submit_s[row]),
            int(state.start_s[row]) if runs else None,
            not runs and bool(state.held[row]),
            int(asked.own_end_s[d]) if number == asked.own_row[d] else None,
        )

    def key_at(priority_key: int, submit_s: int) -> int:
        return priority_key + int(np.rint(beyond.key_per_s * (submit_s - beyond.origin_s)))

    known = record.ran & (record.end_s < now_s)
    came = np.flatnonzero((record.submit_s >= now_s - MOST_S) & (record.submit_s < now_s))
    is_over = record.end_s < now_s
    own_key = int(beyond.usual[branch.scalars[ARRIVED]])
    if has_priority and asked.priority[d] != NONE:
        own_key = int(HOUR_S * asked.priority[d])
    nodes, limit_s, user, named = (int(column[d]) for column in (asked.nodes, asked.limit_s, asked.user, asked.name))
    usable_yet = int(usable_nodes(cluster, branch, now_s))
    taken, own = branch.scalars[TAKEN], branch.scalars[OWN]
    usable = int(most_in_use(cluster.jobs, rules, cluster.log, now_s, taken, own))
    return FutureInputs(
        now_s=now_s,
        pending=[seen(row, runs=False) for row in state.pending[: state.scalars[PENDING]]],
        running=[seen(row, runs=True) for row in state.running[: state.scalars[RUNNING]]],
        came=[
            PastArrival(
                int(row),
                int(record.size[row]),
                int(record.limit_s[row]),
                int(record.user[row]),
                int(name[row]),
                int(record.submit_s[row]),
                int(record.end_s[row] - record.start_s[row]) if is_over[row] else None,
            )
            for row in came
            if not (is_over[row] and record.start_s[row] == NEVER)
        ],
        key_of=lambda one, submit_s: key_at(HOUR_S * int(record.priority[one.number]) * has_priority, submit_s),
        history=history(
            record.end_s[known],
            (record.end_s - record.start_s)[known],
            record.limit_s[known],
            record.user[known],
            name[known],
        ),
        successor=ObservedJob(NONE, nodes, limit_s, user, named, key_at(own_key, now_s), now_s),
        limits=FutureUserLimits(
            min(int(rules.max_jobs), FAR_S), min(int(rules.max_nodes), FAR_S), bool(rules.siblings)
        ),
        usable=Usable(usable_yet, usable),
        horizon_s=int(asked.horizon_s[d]),
    )
