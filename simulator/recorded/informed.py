"""Predict a job's start while the other jobs follow the record up to each instant. Compiled.

The pass of `simulator.recorded.passes` tests whether the job would start: one second after its submission, one second
after every event of another job, and at every tenth minute. The first success is the predicted start. Nothing that
happened at or after that instant is read: no end or start of any job, and no run time of a running job.

This form has a bias. Once the job has started in the record, the others' records leave its nodes idle, so a prediction
that is still missing follows soon after. Late errors are therefore small, early errors are not. The forked form
(`simulator.recorded.forked`) does not have this bias.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.recorded.branch import TAKEN, RecordedBranch, RecordedCluster
from simulator.recorded.follow import HORIZON_S, TICK_S, look, take
from simulator.recorded.log import most_in_use, next_of_others
from simulator.recorded.record import SUBMITTED
from simulator.recorded.state import PENDING, goes_ahead


@kernel
def informed_start(cluster: RecordedCluster, branch: RecordedBranch, job: int) -> int:
    """Return the first instant after its submission at which row `job` may start in the record of the others, s.

    `branch` follows the log and has advanced to the second before the submission; its content is consumed. Its queue
    keeps only jobs ahead of `job`, because jobs behind it cannot delay it.
    """
    jobs, rules, log, state, scratch = cluster.jobs, cluster.rules, cluster.log, branch.state, cluster.scratch
    count, taken = len(log.time_s), branch.scalars[TAKEN]
    now, last = jobs.submit_s[job] + 1, jobs.submit_s[job] + HORIZON_S
    i = state.scalars[PENDING] - 1
    while i >= 0 and goes_ahead(state, job, state.pending[i]):
        state.scalars[PENDING] = i
        i -= 1
    while True:
        while taken < count and log.time_s[taken] < now:
            other = log.job[taken]
            if other != job and (log.kind[taken] != SUBMITTED or goes_ahead(state, other, job)):
                take(jobs, rules, log, state, taken)
            taken += 1
        if look(jobs, rules, state, scratch, now, most_in_use(jobs, rules, log, now, taken, job), job):
            return int(now)
        following = next_of_others(log, taken, job)
        if following == count or now >= last:
            return int(now)
        now = min(log.time_s[following] + 1, (now // TICK_S + 1) * TICK_S, last)
