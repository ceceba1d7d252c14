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
from simulator.recorded.follow import HORIZON_S, TICK_S, Log, look, most_in_use, next_of_others, take
from simulator.recorded.passes import PENDING, Jobs, Rules, Scratch, World, goes_ahead
from simulator.recorded.record import SUBMITTED


@kernel
def informed_start(
    jobs: Jobs, rules: Rules, log: Log, world: World, scratch: Scratch, job: int, taken: int, now: int
) -> int:
    """First instant from `now` on at which `job` may start in the record of the others, s.

    `world` is the recorded one after the first `taken` events, and is used up. Only jobs ahead of `job` stay in its
    queue: what is behind it cannot keep it.
    """
    count = len(log.time_s)
    i = world.scalars[PENDING] - 1
    while i >= 0 and goes_ahead(jobs, job, world.pending[i]):
        world.scalars[PENDING] = i
        i -= 1
    while True:
        while taken < count and log.time_s[taken] < now:
            other = log.job[taken]
            if other != job and (log.kind[taken] != SUBMITTED or goes_ahead(jobs, other, job)):
                take(jobs, rules, log, world, taken)
            taken += 1
        if look(jobs, rules, world, scratch, now, most_in_use(jobs, rules, log, now, taken, job), job):
            return now
        following = next_of_others(log, taken, job)
        last = jobs.submit_s[job] + HORIZON_S
        if following == count or now >= last:
            return now
        now = min(log.time_s[following] + 1, (now // TICK_S + 1) * TICK_S, last)
