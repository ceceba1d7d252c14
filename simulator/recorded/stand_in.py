"""Insert jobs that are not in the record into a branch, and remove jobs of the record from it. Compiled.

A branch that follows the log shows the record. In a copy of it, before an observation or a submission, jobs beyond the
record can be made to run or to wait in the queue since any second, and jobs of the record can be removed: they no
longer pend or run, and their later events are ignored. The latest starts and ends stay as they were.

An example: in the record, user 7's job A runs from 8:00 to 20:00 on 4 nodes. In a copy made at 10:00, A is removed and
job X, also of user 7 and of 4 nodes, has run since 8:00 with a limit of 6 h. A job submitted into that copy finds X's
nodes free at 14:00.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.recent import copy_recent
from simulator.recorded.branch import (
    GIVE_UP_S,
    LEFT_S,
    NEXT_PASS_S,
    RecordedBranch,
    RecordedCluster,
    key_beyond,
    pass_due,
    pass_over,
)
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.record import NEVER, NONE
from simulator.recorded.state import PENDING, RUNNING, begin, enter, finish, leave
from traces.arrays import Int64s


@kernel
def stand_in(
    cluster: RecordedCluster,
    branch: RecordedBranch,
    followed: RecordedBranch,
    now: int,
    first: int,
    start_s: Int64s,
    out: Int64s,
) -> None:
    """Let rows first, first + 1, ... (beyond the record) run since `start_s` if they have not ended before `now`.

    `branch` is a copy of `followed` that has not left the log and has advanced to `now` or to the second before.
    `start_s` rises. `out` lists the rows of the record to remove, NONE for no row. Of these rows, only the last one
    that is still to be submitted is passed over.
    """
    for row in out:
        if row != NONE:
            _take_out(cluster, branch, row, now)
    for k in range(len(start_s)):
        if start_s[k] + cluster.jobs.limit_s[first + k] >= now:
            begin(cluster.jobs, branch.state, first + k, start_s[k], start_s[k] + cluster.jobs.limit_s[first + k])
    copy_recent(branch.state.recent, followed.state.recent)


@kernel
def _take_out(cluster: RecordedCluster, branch: RecordedBranch, row: int, now: int) -> None:
    """Remove a row of the record: it neither pends nor runs, and will not be submitted."""
    state = branch.state
    for i in range(state.scalars[RUNNING]):
        if state.running[i] == row:
            finish(cluster.jobs, state, row, now)
            return
    for i in range(state.scalars[PENDING]):
        if state.pending[i] == row:
            leave(state, row)
            return
    pass_over(branch, row)


@kernel
def first_start_of_queued(
    cluster: RecordedCluster, branch: RecordedBranch, now: int, first: int, submit_s: Int64s, started: Int64s
) -> int:
    """Queue rows first, first + 1, ... (beyond the record) at `now`; return when the first of them starts.

    `submit_s` holds their submissions, rising and no later than `now`; there is at least one. `branch` has not left
    the log and has advanced to the second before `now`; it leaves the log at `now`, as at a submission
    (`simulator.recorded.branch.submit`). `started`, of the same length, is set to 1 for the rows that start in that
    second and to 0 for the others. If none starts within HORIZON_S of the first submission, the first row starts then.
    """
    state, scalars = branch.state, branch.scalars
    if scalars[NEXT_PASS_S] == now:
        pass_due(cluster, branch, NONE)
    last_s = submit_s[0] + HORIZON_S
    scalars[LEFT_S], scalars[GIVE_UP_S] = now, last_s
    scalars[NEXT_PASS_S] = min(scalars[NEXT_PASS_S], now + 1)
    for k in range(len(submit_s)):
        row = first + k
        state.submit_s[row], state.key[row] = submit_s[k], key_beyond(cluster, branch, row, submit_s[k])
        state.start_s[row] = NEVER
        enter(state, row)
    while scalars[NEXT_PASS_S] <= last_s:
        at = scalars[NEXT_PASS_S]
        pass_due(cluster, branch, NONE)
        begun = 0
        for k in range(len(submit_s)):
            started[k] = state.start_s[first + k] == at
            begun += started[k]
        if begun > 0:
            return int(at)
    started[0] = 1
    return int(last_s)
