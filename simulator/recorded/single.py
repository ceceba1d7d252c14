"""Each job by itself, in a private copy of the recorded world in which its own record is missing.

Two forms, both reading nothing that was recorded at or after the predicted start, and never the job's own start, end
or cancellation: `simulator.recorded.informed` is told of the other jobs up to each instant,
`simulator.recorded.forked` up to the job's submission, and simulates them from then on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import kernel
from simulator.recorded.follow import HORIZON_S, TICK_S, Log, copy, log_of, look, most_in_use, take
from simulator.recorded.forked import forked_start
from simulator.recorded.informed import informed_start
from simulator.recorded.passes import NONE, Jobs, Rules, Scratch, World, new_scratch, new_world
from simulator.recorded.record import NEVER, SUBMITTED, Events, Int64s, Record

BEFORE_S = 14 * 86400  # of record played before the first job asked for; the rules look back three days at most


def is_around(record: Record, from_s: int, until_s: int) -> NDArray[np.bool_]:
    """The jobs among which those submitted in [from_s, until_s), epoch s, are played, shape (jobs,).

    They are of BEFORE_S before and HORIZON_S after. Who pended or ran when that begins is among them, whenever it
    was submitted.
    """
    inside: NDArray[np.bool_] = (record.end_s >= from_s - BEFORE_S) & (record.submit_s < until_s + HORIZON_S)
    return inside


def single_starts(
    record: Record, events: Events, jobs: Jobs, rules: Rules, wanted: NDArray[np.bool_], *, forked: bool
) -> Int64s:
    """Predicted start of each job of the mask, else NEVER; s, shape (jobs,).

    A job that no pass would start is given the last instant looked at: HORIZON_S after its submission, or the last
    record.
    """
    predicted = np.full(len(record), NEVER, np.int64)
    if not wanted.any():
        return predicted
    world, private = new_world(len(record), record.users), new_world(len(record), record.users)
    scratch = new_scratch(len(record), record.users)
    until_s = int(record.submit_s[wanted].max())
    _single(jobs, rules, log_of(record, events), world, private, scratch, wanted, until_s, forked, predicted)
    return predicted


@kernel
def _single(
    jobs: Jobs,
    rules: Rules,
    log: Log,
    world: World,
    private: World,
    scratch: Scratch,
    wanted: NDArray[np.bool_],
    until_s: int,
    forked: bool,
    predicted: Int64s,
) -> None:
    """The recorded world goes on; a second after each submission, before it is told of it, it is copied."""
    count = len(log.time_s)
    taken = 0
    now = log.time_s[0] + 1
    while True:
        before = taken
        while taken < count and log.time_s[taken] < now:
            taken += 1
        for k in range(before, taken):
            job = log.job[k]
            if log.kind[k] == SUBMITTED and wanted[job]:
                copy(private, world)
                if forked:
                    predicted[job] = forked_start(jobs, rules, log, private, scratch, job, before, now)
                else:
                    predicted[job] = informed_start(jobs, rules, log, private, scratch, job, before, now)
        for k in range(before, taken):
            take(jobs, rules, log, world, k)
        if taken == count or now > until_s:
            return
        look(jobs, rules, world, scratch, now, most_in_use(jobs, rules, log, now, taken, NONE), NONE)
        now = min(log.time_s[taken] + 1, (now // TICK_S + 1) * TICK_S)
