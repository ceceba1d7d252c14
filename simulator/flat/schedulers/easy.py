"""EASY backfill: first come, first served, but a job may pass others if it does not delay the head of the queue.

Lifka, JSSPP 1995; Mu'alem and Feitelson, TPDS 2001.

**A pass.**

1. While the first job in the queue fits into the idle units, it starts.
2. The first job that does not fit, the head, gets the only reservation. Its **shadow time** is the earliest instant at
   which enough running jobs are expected to have ended. The **spare** is the number of units idle at the shadow time
   beyond the head's need. Every job that is expected to end by then (`<=`) counts as ended.
3. The other jobs, in queue order, are candidates. A candidate starts if it fits into the idle units now and either
   - is expected to end by the shadow time: now + estimate `<=` shadow; or
   - fits into the remaining spare, which shrinks by its size.

| knob | |
|---|---|
| queue order | (submit, job id) |
| estimate of the reservation, of the candidate | both `--estimate`: `limit` (default) or `exact` |
| a job past its estimate | is expected to end now, so the shadow time may be now although the head still cannot start |
| spare | counted once per pass at the shadow time, shrinks as it is used; a candidate that ends in time uses none |
| comparison with the shadow time | `<=` |
| reservation | rebuilt at each pass; nothing is remembered, so an early end brings it forward |
| within a pass | jobs that start do not move the shadow time |
| pass | `event` (default) or `instant`; they differ where several events share a second |
| end of a job | its run time; with `--kill-at-limit` its limit, if that is earlier |

**Guarantees.** If no job outlives its estimate, the head starts no later than the shadow time of the pass that first
made it head. A job behind the head has no guarantee: other jobs may pass it until it is the head itself.
"""

from __future__ import annotations

from simulator.compiled import kernel_part
from simulator.flat.scheduler import Scheduler
from simulator.flat.schedulers.fifo import in_order
from simulator.flat.state import (
    FREE,
    NOW,
    QUEUE_ESTIMATE,
    QUEUE_HEAD,
    QUEUE_SIZE,
    QUEUE_TAIL,
    RELEASE_SIZE,
    RELEASE_TIME,
    RUNNING,
    FlatJobs,
    FlatKnobs,
    FlatState,
    start_pending,
)
from traces.arrays import Int64s


@kernel_part
def easy(jobs: FlatJobs, knobs: FlatKnobs, state: FlatState, starts: Int64s) -> None:
    """Make one pass as defined above. `available` counts idle units at `shadow` beyond the head's need, < 0 before."""
    in_order(jobs, knobs, state, starts)
    scalars, queue, releases = state.scalars, state.queue, state.releases
    head, tail, now = scalars[QUEUE_HEAD], scalars[QUEUE_TAIL], scalars[NOW]
    if tail - head < 2 or scalars[FREE] == 0:
        return
    available = scalars[FREE] - queue[head, QUEUE_SIZE]
    shadow = now
    i = scalars[RUNNING] - 1
    while i >= 0 and (available < 0 or releases[i, RELEASE_TIME] <= shadow):
        shadow = max(shadow, releases[i, RELEASE_TIME])
        available += releases[i, RELEASE_SIZE]
        i -= 1
    spare = available
    for position in range(head + 1, tail):
        size = queue[position, QUEUE_SIZE]
        if size > scalars[FREE]:
            continue
        if now + queue[position, QUEUE_ESTIMATE] > shadow:
            if size > spare:
                continue
            spare -= size
        start_pending(jobs, knobs, state, starts, position)
        if scalars[FREE] == 0:
            return


SCHEDULER = Scheduler(schedule=easy)
