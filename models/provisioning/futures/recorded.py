"""Simulate when a job submitted at t would start, in K futures of the recorded cluster visible at t.

At t the cluster is the recorded one, as a branch that follows the log shows it: the running jobs and their starts, the
pending and held jobs, the nodes out of service. It obeys the rules inferred from what was recorded before the week.
What is not visible is drawn: the run time of each job (`features.futures.run_times`, from the jobs that had ended
before t), the release of held jobs (`features.futures.holds`), and the arrivals (`features.futures.arrivals`, from the
weeks before t). `simulator.recorded.future` then plays each future until the job starts.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from features.futures import run_times
from features.futures.arrivals import cycles_s
from features.futures.draws import RELEASE, RUN, spread, uniform
from features.futures.holds import held_longer_s
from features.futures.run_times import ROOM, RunTimeHistory, draw_run_s, history, like_runs
from features.futures.summary import FUTURES
from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
from models.provisioning.futures.revealed import NOTHING, RevealedTruth
from models.provisioning.pairs.recorded import about_count, week_of, week_world
from simulator.cluster import Built, advance
from simulator.compiled import njit
from simulator.recorded.branch import (
    ARRIVED,
    OWN,
    TAKEN,
    RecordedBranch,
    RecordedCluster,
    until_submission,
    usable_nodes,
)
from simulator.recorded.future import (
    CYCLE_S,
    ENTERS_S,
    FIRST_ROW,
    LAST_S,
    MOMENT,
    NOW_S,
    OWN_NAME,
    OWN_USER,
    ROWS,
    USABLE,
    USABLE_YET,
    WATCHED,
    Ageing,
    RecordedFutureBuffers,
    RecordedHistory,
    clear,
    key_at,
    new_room,
    past_of,
    start_in_future,
)
from simulator.recorded.log import most_in_use
from simulator.recorded.record import NEVER, NONE, RecordedTrace
from simulator.recorded.search import first_not_before
from simulator.recorded.state import BUSY, PENDING, RUNNING, begin, enter
from simulator.recorded.world import Extra
from traces import instants
from traces.arrays import Int64s
from traces.counted import counted
from traces.progress import Progress
from traces.units import HOUR_S

for _function in (uniform, spread, held_longer_s, run_times.group_of, like_runs, draw_run_s):
    register_jitable(_function)


@dataclass(frozen=True)
class HypotheticalJobs:
    """n jobs, each submitted at its own instant into the recorded cluster; int64, shape (n,)."""

    at_s: Int64s  # epoch s
    nodes: Int64s
    limit_s: Int64s
    user: Int64s  # number of the user in the record
    name: Int64s  # number of its name in the record: jobs of that user and name do not arrive in its futures; NONE
    priority: Int64s  # as Slurm would record it at the submission; NONE: the usual one
    horizon_s: Int64s  # a job that has not started in a future after so long counts as started then
    own_row: Int64s  # row in the record of a job known to run until `own_end_s`: a predecessor; NONE
    own_end_s: Int64s
    row: Int64s  # the job's own row in the record: everything before it is seen, and it does not come again; NONE

    def __len__(self) -> int:
        return len(self.at_s)


def start_in_futures(
    record: RecordedTrace,
    submissions: HypotheticalJobs,
    *,
    futures: int = FUTURES,
    fit_span_s: int | None = None,
    revealed: RevealedTruth = NOTHING,
    engine: Engine = each_here,
) -> Int64s:
    """Simulate when each of the jobs would start, epoch s, in each of its futures: int64, (n, futures).

    The result does not depend on the engine, and uses nothing that was recorded at or after each instant.
    The rules are those inferred from what was recorded before the week (in the last `fit_span_s` before it, if given).
    """
    starts = np.zeros((len(submissions), futures), np.int64)
    if not len(submissions):
        return starts
    order = np.argsort(submissions.at_s, kind="stable")
    week = week_of(submissions.at_s[order])
    cycles = cycles_s(futures)
    most = most_arrivals(record.submit_s, cycles, int(submissions.horizon_s.max()))
    shared = FutureWeeks(record, history_of(record), submissions, cycles, most, fit_span_s, revealed)
    parts = [(int(from_s), order[week == from_s]) for from_s in np.unique(week)]
    tasks = [
        Task(f"the futures of the week from {instants.text(from_s)}", (from_s, rows), about_count(len(rows)))
        for from_s, rows in parts
    ]
    about = f"{counted(futures, 'future')} of {len(submissions):,} submissions"
    with Progress(about, len(submissions), stays=False, each=True) as progress:
        progress.reach(0)
        done = 0
        for at, found in engine(Work(play_week, tasks, shared, prepare=compile_week, is_compiled=True), sys.maxsize):
            rows = parts[at][1]
            starts[rows] = found
            done += len(rows)
            progress.reach(done)
    return starts


class FutureWeeks(NamedTuple):
    """What the tasks share: one task plays the futures of the submissions of a week."""

    record: RecordedTrace
    known: RunTimeHistory
    submissions: HypotheticalJobs
    cycles: Int64s
    most: int  # jobs that may arrive in a future
    fit_span_s: int | None
    revealed: RevealedTruth


def compile_week(weeks: FutureWeeks) -> None:
    """Play the futures of one submission, because numba's compiler is not safe in threads."""
    play_week(weeks, (int(week_of(weeks.submissions.at_s[:1])[0]), np.zeros(1, np.int64)))


def most_arrivals(submit_s: Int64s, cycles: Int64s, horizon_s: int) -> int:
    """Upper bound on the jobs that arrive in a future.

    submit_s: submissions of all jobs that may arrive again, rising.
    """
    most = 0
    for cycle in np.unique(cycles):
        within = np.searchsorted(submit_s, submit_s + cycle) - np.arange(len(submit_s))
        most = max(most, int(within.max(initial=0)) * (horizon_s // int(cycle) + 2))
    return most


def play_week(weeks: FutureWeeks, part: tuple[int, Int64s]) -> Int64s:
    """The starts of those submissions whose rules are fitted at an instant: (the instant, rows in order of time)."""
    record, known, submissions, cycles, most, fit_span_s, revealed = weeks
    from_s, rows = part
    no_jobs = np.zeros(0, np.int64)
    world, place = week_world(record, from_s, Extra(no_jobs, no_jobs, no_jobs, no_jobs), fit_span_s)
    workspace = futures_workspace(record, known, world, place, most)
    followed = world.branch(0, 0)
    names = ("at_s", "nodes", "limit_s", "user", "name", "priority", "horizon_s", "own_row", "own_end_s", "row")
    columns = [getattr(submissions, name) for name in names]
    submission = np.stack([column[rows] for column in columns], axis=1).astype(np.int64)
    found = np.zeros((len(rows), len(cycles)), np.int64)
    for d in range(len(rows)):
        row = int(submissions.row[rows[d]])
        if row == NONE:
            advance(workspace.cluster, followed, int(submission[d, 0]) - 1)
        else:
            until_submission(workspace.cluster, followed, int(place[row]))
        play_futures(workspace, followed, submission[d], cycles, found[d], revealed, d)
    return found


class FuturesWorkspace(NamedTuple):
    """Everything that one thread needs to play the futures of a week's decisions."""

    cluster: Any  # `simulator.recorded.branch.RecordedCluster`
    past: RecordedHistory
    known: RunTimeHistory
    ageing: Ageing
    room: RecordedFutureBuffers
    past_row: Int64s  # row in the past of each row of the cluster's record
    has_priority: bool


def history_of(record: RecordedTrace) -> RunTimeHistory:
    """The run times of a record's ended jobs."""
    ended = record.ran & (record.end_s < NEVER)
    return history(
        record.end_s[ended],
        (record.end_s - record.start_s)[ended],
        record.limit_s[ended],
        record.user[ended],
        _names(record)[ended],
    )


def _names(record: RecordedTrace) -> Int64s:
    return record.name if len(record.name) else np.zeros_like(record.user)


def futures_workspace(
    record: RecordedTrace, known: RunTimeHistory, world: Built, place: Int64s, most: int
) -> FuturesWorkspace:
    """Make the workspace of a week from `week_world`'s world and place. most: jobs that may arrive in a future."""
    cluster: Any = world.clusters[0]
    has_priority = bool(cluster.beyond.usual.any())
    past = past_of(record, has_priority=has_priority)
    room = new_room(len(cluster.jobs.user) + most + 1, record.users + 1, past)
    ageing = Ageing(cluster.beyond.key_per_s, cluster.beyond.origin_s)
    return FuturesWorkspace(cluster, past, known, ageing, room, np.flatnonzero(place != NONE), has_priority)


def play_futures(
    workspace: FuturesWorkspace,
    branch: RecordedBranch,
    submission: Int64s,
    cycles: Int64s,
    starts: Int64s,
    revealed: RevealedTruth = NOTHING,
    number: int = 0,
    delay_s: int = 0,
) -> None:
    """Fill `starts` (futures,) of one decision, to which `branch` has advanced; the branch is not changed.

    submission: (10,) int64, the columns of `HypotheticalJobs`. Running rows beyond the record are links of a chain and
    run to their limits. number: of the decision; it seeds the draws if arrivals are revealed. delay_s: from the
    decision to the submission.
    """
    one = submission.copy()
    one[5] = NONE if submission[5] == NONE or not workspace.has_priority else HOUR_S * submission[5]
    cluster, past, known, ageing, room, past_row, _ = workspace
    _play(cluster, branch, past, known, ageing, room, past_row, one, cycles, revealed, number, delay_s, starts)


@njit
def _play(
    cluster: RecordedCluster,
    followed: RecordedBranch,
    past: RecordedHistory,
    known: RunTimeHistory,
    ageing: Ageing,
    room: RecordedFutureBuffers,
    at: Int64s,
    submission: Int64s,
    cycles: Int64s,
    revealed: RevealedTruth,
    number: int,
    delay_s: int,
    starts: Int64s,
) -> None:
    """Fill `starts` (futures,) of one decision, `submission` (10,): columns as in `HypotheticalJobs`.

    at: row in the past of each row of the cluster's record.

    Over 50 lines: the ingredients of one decision, then of each future, in order.
    """
    futures = len(cycles)
    jobs, state = room.jobs, room.state
    share, weight = np.empty(ROOM), np.empty(ROOM)
    quantile, drawn_s, moment = np.empty(futures), np.empty(futures, np.int64), np.zeros(MOMENT, np.int64)
    now = submission[0]
    there = followed.state
    pending, running = there.scalars[PENDING], there.scalars[RUNNING]
    count = pending + running
    run_s, release_s = np.empty((count, futures), np.int64), np.full((count, futures), NEVER)
    for i in range(count):
        row = there.pending[i] if i < pending else there.running[i - pending]
        user, limit_s = cluster.jobs.user[row], cluster.jobs.limit_s[row]
        jobs.submit_s[i] = state.submit_s[i] = there.submit_s[row]
        jobs.size[i], jobs.limit_s[i], jobs.user[i] = cluster.jobs.size[row], limit_s, user
        state.key[i] = there.key[row]
        if row >= len(at):
            run_s[i] = limit_s
            continue
        elapsed_s = 0 if i < pending else now - there.start_s[row]
        found = like_runs(known, user, past.name[at[row]], limit_s, elapsed_s, now, share, weight)
        spread(at[row], RUN, quantile)
        draw_run_s(share, weight, found, limit_s, elapsed_s, quantile, drawn_s)
        if at[row] == submission[7]:
            drawn_s[:] = submission[8] - there.start_s[row]
        if revealed.run_times:
            begun_s = past.start_s[at[row]] if past.start_s[at[row]] < NEVER else now
            drawn_s[:] = max(past.end_s[at[row]] - begun_s, 1)
        run_s[i] = drawn_s
        if i < pending and there.held[row] == 1:
            spread(at[row], RELEASE, quantile)
            for k in range(futures):
                release_s[i, k] = now + held_longer_s(now - there.submit_s[row], quantile[k])
                if revealed.holds:
                    release_s[i, k] = min(past.start_s[at[row]], past.end_s[at[row]]) - 60
    own_key = cluster.beyond.usual[followed.scalars[ARRIVED]] if submission[5] == NONE else submission[5]
    jobs.submit_s[count] = state.submit_s[count] = now + delay_s
    jobs.size[count], jobs.limit_s[count], jobs.user[count] = submission[1], submission[2], submission[3]
    state.key[count] = key_at(ageing, own_key, now + delay_s)
    room.run_s[count] = submission[2]
    usable_yet = usable_nodes(cluster, followed, now)
    usable = most_in_use(cluster.jobs, cluster.rules, cluster.log, now, followed.scalars[TAKEN], followed.scalars[OWN])
    coming = first_not_before(past.submit_s, 0, len(past.submit_s), now) if submission[9] == NONE else submission[9] + 1
    moment[FIRST_ROW] = coming
    while revealed.arrivals and coming < len(past.submit_s) and past.submit_s[coming] < now + submission[6]:
        if revealed.run_times:
            room.drawn_s[coming] = max(past.end_s[coming] - past.start_s[coming], 1)
            coming += 1
            continue
        limit_s = past.limit_s[coming]
        found = like_runs(known, past.user[coming], past.name[coming], limit_s, 0, now, share, weight)
        draw_run_s(share, weight, found, limit_s, 0, np.array([uniform(coming, number, RUN)]), drawn_s)
        room.drawn_s[coming] = drawn_s[0]
        coming += 1
    for k in range(futures):
        clear(state)
        for i in range(count):
            row = there.pending[i] if i < pending else there.running[i - pending]
            if row < len(at):
                room.drawn_s[at[row]] = run_s[i, k]
            if i < pending:
                state.pending[i], state.held[i] = i, there.held[row]
                room.run_s[i], room.release_s[i] = run_s[i, k], release_s[i, k]
        state.scalars[PENDING] = pending
        for i in range(pending, count):
            start_s = there.start_s[there.running[i - pending]]
            begin(jobs, state, i, start_s, start_s + run_s[i, k])
        if delay_s == 0:
            enter(state, count)
        cycle_s = 0 if revealed.arrivals else cycles[k]
        moment[NOW_S], moment[CYCLE_S], moment[LAST_S] = now, cycle_s, now + submission[6]
        moment[USABLE], moment[USABLE_YET] = max(usable, usable_yet), max(usable_yet, state.scalars[BUSY])
        moment[OWN_USER], moment[OWN_NAME] = submission[3], submission[4]
        moment[WATCHED], moment[ROWS], moment[ENTERS_S] = count, count + 1, now + delay_s
        starts[k] = start_in_future(past, ageing, cluster.rules, room, moment)
