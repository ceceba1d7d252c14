"""Build the pair table of a record: each predecessor is a job that the log shows cut by its limit, at its real times.

At a decision instant t the cluster is the recorded one at t: the running jobs and their starts, the pending and held
jobs, the nodes out of service. The successor requests what the predecessor requested, counts against the same user's
limits, is submitted at t, and starts by the forked form (`simulator.recorded.forked`). Every decision thus starts from
the record again, and no simulation runs for longer than a wait.

The user's actual next job is left out from t on if it was submitted after t: the successor replaces it. The rules are
those inferred from what was recorded before the week of the decision.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from features import observe
from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
from models.provisioning.pairs.injected import write_observation
from models.provisioning.protocol import PairTable
from simulator.cluster import NONE, Built, advance, copy, place_of, start_of, submit, visible_state
from simulator.compiled import njit
from simulator.recorded.branch import RecordedBranch, RecordedCluster, pass_over
from simulator.recorded.calibration.judge import ALL, REFIT_S
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.parameters import infer_parameters, rules_of
from simulator.recorded.record import NEVER, RecordedTrace
from simulator.recorded.single import is_around
from simulator.recorded.world import Extra, build_with
from traces import instants
from traces.arrays import Float32s, Int64s
from traces.counted import counted
from traces.progress import Progress, say
from traces.units import DAY_S

WEEK_ORIGIN_S = 4 * DAY_S  # the first Monday of 1970: rules change on Mondays, 0:00 UTC
SAMPLE = 400  # decisions timed to estimate the duration of a whole table


@dataclass(frozen=True)
class Predecessors:
    """Jobs of a record that were cut by their limits, int64, shape (p,). Rows are those of the record."""

    row: Int64s
    next_row: Int64s  # the job with which its user continued; NONE if there is none


@njit
def _decide(
    cluster: RecordedCluster,
    branches: tuple[RecordedBranch, RecordedBranch],
    first_extra: int,
    at_s: Int64s,
    pair_of: Int64s,
    pairs: Int64s,
    successor_start_s: Int64s,
    observations: Float32s,
) -> None:
    """Fill the decisions at `at_s` (rising). Decision d belongs to the pair in row `pair_of[d]` of `pairs`.

    pairs: (p, 7) start, wait and end of P, nodes, limit and user of S, row of the user's next job or NONE. The extra
    job of pair i is row first_extra + i. branches: one that follows the log, and one that departs from it.
    """
    followed, leaf = branches
    for d in range(len(at_s)):
        now, i = at_s[d], pair_of[d]
        advance(cluster, followed, now - 1)
        pair = (pairs[i, 0], pairs[i, 1], pairs[i, 2], pairs[i, 3], pairs[i, 4], pairs[i, 5])
        place = place_of(cluster, followed, first_extra + i, now)
        write_observation(observations[d], visible_state(cluster, followed, now), now, pair, place)
        copy(cluster, leaf, followed)
        if pairs[i, 6] != NONE:
            pass_over(leaf, pairs[i, 6])
        submit(cluster, leaf, first_extra + i, now)
        start = start_of(cluster, leaf, first_extra + i)
        successor_start_s[d] = now + HORIZON_S if start == NONE else start


def decision_instants(start_s: Int64s, end_s: Int64s, decision_s: int) -> tuple[Int64s, Int64s]:
    """Each exact end, and the instants every `decision_s` before it that are after the start.

    Returns the instants, (d,), and the position of each pair's first one, (p + 1,).
    """
    each = [np.arange(b, a, -decision_s)[::-1] for a, b in zip(start_s, end_s, strict=True)]
    offset = np.cumsum([0, *map(len, each)], dtype=np.int64)
    return (np.concatenate(each) if each else np.zeros(0, np.int64)), offset


def build_recorded_pairs(
    record: RecordedTrace,
    predecessors: Predecessors,
    *,
    decision_s: int,
    fit_span_s: int | None = None,
    engine: Engine = each_here,
) -> PairTable:
    """Build the table of every predecessor with all its decisions. The result does not depend on the engine.

    Rules are fitted on what was recorded before the week; for a long record, in the last `fit_span_s` before it. A
    successor that has not started in the simulation after `follow.HORIZON_S` counts as started then.
    """
    row, next_row = predecessors.row, predecessors.next_row
    start_s, end_s, next_start_s = record.start_s[row], record.end_s[row], record.start_s[next_row]
    decision, offset = decision_instants(start_s, end_s, decision_s)
    table = PairTable(
        record.size[row],
        record.limit_s[row],
        record.submit_s[row],
        start_s,
        end_s,
        np.where((next_row == NONE) | (next_start_s == NEVER), NONE, next_start_s),
        offset,
        decision,
        np.zeros(0, np.int64),
        np.zeros((0, len(observe.FEATURES)), np.float32),
    )
    weeks = PairWeeks(record, predecessors, table, fit_span_s)
    starts = np.zeros(len(decision), np.int64)
    observations = np.zeros((len(decision), len(observe.FEATURES)), np.float32)
    parts = _parts(table)
    if parts:
        name = f"{counted(len(row), 'recorded pair')}"
        cost_s = _cost_s(weeks, parts)
        threads = min(os.cpu_count() or 1, len(parts))
        say(f"{name}: {counted(len(decision), 'start')}, about {cost_s / threads:.0f} s")
        tasks = [
            Task(f"the pairs of the week from {instants.text(from_s)}", (from_s, at), about_count(len(at)))
            for from_s, at in parts
        ]
        work = Work(decide_week, tasks, weeks, prepare=compile_decisions, is_compiled=True, about_s=cost_s)
        with Progress(name, len(decision), stays=False, each=True) as progress:
            progress.reach(0)
            done = 0
            for place, found in engine(work, sys.maxsize):
                at = parts[place][1]
                starts[at], observations[at] = found
                done += len(at)
                progress.reach(done)
    return replace(table, successor_start_s=starts, observations=observations)


class PairWeeks(NamedTuple):
    """What the tasks share: one task makes the decisions of a week."""

    record: RecordedTrace
    predecessors: Predecessors
    table: PairTable  # without what the tasks fill in
    fit_span_s: int | None


@dataclass(frozen=True)
class _Part:
    """The decisions of one week in their world."""

    world: Built
    pairs: Int64s  # (p, 7) as `_decide` takes them
    pair_of: Int64s  # (d,) rows of `pairs`
    decision_s: Int64s  # (d,) rising


def _parts(table: PairTable) -> list[tuple[int, Int64s]]:
    """The weeks that hold decisions, in order: their beginning, epoch s, and the decisions' rows in the table."""
    week = week_of(table.decision_s)
    order = np.lexsort((table.pair_of, table.decision_s))
    return [(int(from_s), order[week[order] == from_s]) for from_s in np.unique(week)]


def _part(weeks: PairWeeks, from_s: int, at: Int64s) -> _Part:
    """The decisions `at` of the week that begins at `from_s`, among the jobs around it and under its rules."""
    record, predecessors, table, fit_span_s = weeks
    chosen, pair_of = np.unique(table.pair_of[at], return_inverse=True)
    row, next_row = predecessors.row[chosen], predecessors.next_row[chosen]
    nodes, limit_s, user = table.pair_nodes[chosen], table.limit_s[chosen], record.user[row]
    world, place = week_world(record, from_s, Extra(nodes, limit_s, user, record.priority[row]), fit_span_s)
    pairs = np.stack(
        [
            table.predecessor_start_s[chosen],
            table.predecessor_start_s[chosen] - table.submit_s[chosen],
            table.predecessor_end_s[chosen],
            nodes,
            limit_s,
            user,
            np.where(next_row == NONE, NONE, place[next_row]),
        ],
        axis=1,
    )
    return _Part(world, pairs, pair_of, table.decision_s[at])


def about_count(count: int) -> str:
    """The kind of a task with so many items: those with as many binary digits take about as long as each other."""
    return f"up to {1 << count.bit_length()}"


def week_of(at_s: Int64s) -> Int64s:
    """For each instant, the start (epoch s) of its week. The rules of a week are fitted at its start."""
    return WEEK_ORIGIN_S + (at_s - WEEK_ORIGIN_S) // REFIT_S * REFIT_S


def week_world(record: RecordedTrace, from_s: int, extra: Extra, fit_span_s: int | None) -> tuple[Built, Int64s]:
    """The world of the week that begins at `from_s`, under the rules fitted then, and the row of each job in it.

    The row is NONE for a job of the record that is too far away in time to be played.
    """
    learned = record if fit_span_s is None else record.take(record.submit_s >= from_s - fit_span_s)
    parameters = infer_parameters(learned, from_s)
    inside = is_around(record, from_s, from_s + REFIT_S)
    rules, slope = rules_of(parameters, ALL), parameters.points_per_hour
    world = build_with(record.take(inside), extra, rules=rules, points_per_hour=slope, threads=1)
    return world, np.where(inside, np.cumsum(inside) - 1, NONE)


def decide_week(weeks: PairWeeks, week: tuple[int, Int64s]) -> tuple[Int64s, Float32s]:
    """Make the decisions of a week: (its beginning, rows of the table). Returns starts and observations, (d, ...)."""
    return _filled(_part(weeks, *week))


def compile_decisions(weeks: PairWeeks) -> None:
    """Make no decision of a week, because numba's compiler is not safe in threads."""
    from_s, at = _parts(weeks.table)[0]
    _filled(_part(weeks, from_s, at), slice(0))


def _filled(part: _Part, chosen: slice = slice(None)) -> tuple[Int64s, Float32s]:
    """Make some decisions of a week."""
    decision_s, pair_of = (np.ascontiguousarray(column[chosen]) for column in (part.decision_s, part.pair_of))
    starts = np.empty(len(decision_s), np.int64)
    observations = np.empty((len(decision_s), len(observe.FEATURES)), np.float32)
    branches = part.world.branch(0, observe.RECENT), part.world.branch(0, 0)
    cluster: Any = part.world.clusters[0]
    _decide(cluster, branches, part.world.first_extra, decision_s, pair_of, part.pairs, starts, observations)
    return starts, observations


def _cost_s(weeks: PairWeeks, parts: list[tuple[int, Int64s]]) -> float:
    """Estimate the seconds of one processor for all decisions, by timing SAMPLE decisions of the largest week."""
    from_s, at = max(parts, key=lambda part: len(part[1]))
    largest = _part(weeks, from_s, at)
    every = -(-len(at) // SAMPLE)
    seconds = []
    last = slice(-1, None)
    for timed in (slice(0), last, last, slice(None, None, every)):  # compile; follow the week, twice; decide as well
        began = time.thread_time()
        _filled(largest, timed)
        seconds.append(time.thread_time() - began)
    _, *followed_s, decided_s = seconds
    each_s = max(decided_s - min(followed_s), 0.0) / len(at[::every])
    return min(followed_s) * len(parts) + each_s * len(weeks.table.decision_s)
