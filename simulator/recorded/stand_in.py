"""Jobs that the record does not hold, put beside it or in the place of some that it holds. Compiled.

A branch that follows the log shows what was recorded. Before something is observed or submitted in a copy of it, jobs
that the record knows nothing of can be made to run there, and jobs of the record can be taken out: they neither pend
nor run any more, and are not told of again. What started and ended last stays what it was.

An example: user 7's job A runs in the record from 8:00 to 20:00 on 4 nodes. In a copy made at 10:00, A is taken out and
X, also user 7's and of 4 nodes, runs since 8:00 with a limit of 6 h. A job submitted into that copy finds X's nodes
free at 14:00.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.recent import copy_recent
from simulator.recorded.branch import Branch, Cluster, pass_over
from simulator.recorded.record import NONE, Int64s
from simulator.recorded.state import PENDING, RUNNING, begin, finish, leave


@kernel
def stand_in(
    cluster: Cluster, branch: Branch, followed: Branch, now: int, first: int, start_s: Int64s, out: Int64s
) -> None:
    """Rows first, first + 1, ... (beyond the record) run since `start_s`, those that have not ended before `now`.

    `branch` is a copy of `followed` that has not left the log; it has advanced to `now` or the second before. start_s:
    rising. out: rows of the record that are taken out, NONE for nobody. Only the last of them that is still to be
    submitted is passed over.
    """
    for row in out:
        if row != NONE:
            _take_out(cluster, branch, row, now)
    for k in range(len(start_s)):
        if start_s[k] + cluster.jobs.limit_s[first + k] >= now:
            begin(cluster.jobs, branch.state, first + k, start_s[k], start_s[k] + cluster.jobs.limit_s[first + k])
    copy_recent(branch.state.recent, followed.state.recent)


@kernel
def _take_out(cluster: Cluster, branch: Branch, row: int, now: int) -> None:
    """That row of the record neither pends nor runs, and will not be submitted."""
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
