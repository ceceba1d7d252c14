"""A job's start against the recorded state of the others, told of them up to each instant. Compiled.

From the second after its submission, a second after every record of another job and at every tenth minute, the pass
of `simulator.recorded.passes` is asked whether the job would start; the first yes is its predicted start. What has
happened at or after that instant is not read: not the end or start of any job, nor the run time of one that runs.

One thing must be said of this form: once the job has started in truth, the others' records leave its nodes idle, so
a prediction that has not come by then comes soon after. Being late is cheap here; being early is not. The forked form
(`simulator.recorded.forked`) is free of that.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.recorded.branch import TAKEN, Branch, Cluster
from simulator.recorded.follow import HORIZON_S, TICK_S, look, take
from simulator.recorded.log import most_in_use, next_of_others
from simulator.recorded.record import SUBMITTED
from simulator.recorded.state import PENDING, goes_ahead


@kernel
def informed_start(cluster: Cluster, branch: Branch, job: int) -> int:
    """First instant after its submission at which row `job` may start in the record of the others, s.

    `branch` follows the log, has advanced to the second before the submission, and is used up. Only jobs ahead of
    `job` stay in its queue: what is behind it cannot keep it.
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
