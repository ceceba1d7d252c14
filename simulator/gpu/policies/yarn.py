"""YARN's capacity queues as used by Philly: a quota per virtual cluster, lent idle GPUs, locality relaxed over time.

Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training workloads" (ATC 2019), section 2. The
authors released their trace and no program. The virtual cluster furthest below its quota is served first, in order of
arrival, and may use idle GPUs beyond its quota. A gang first insists on the fewest nodes, and accepts any nodes after
`hold_s` (Philly relaxes after a number of tries; ten minutes are our reading). A younger job passes a job that finds no
place. Quotas that are not declared follow the GPU time in the trace.

Once `reclaim_at` of the GPUs are in use, a waiting job within its virtual cluster's quota takes lent GPUs back. It
takes them from one GPU type, its fastest type on which this works. A running job may be stopped if its virtual cluster
keeps its quota without it. Jobs are stopped only if the waiting job then starts at once, and only as many as it needs,
the youngest first, after those that would start on lent GPUs at the same instant. If they free too little, because
small jobs use up what their virtual cluster has lent, it tries jobs of at least 2, 4, 8, ... GPUs. What is freed and
not used is offered at once. Our reading: the gang insists on the fewest nodes here too, for its first `hold_s`.

Not here: hierarchical queues, a largest share of a queue, and limits of a queue's users.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_part
from simulator.gpu.events.placing import find, free_gpus, give_up, move_gpus, start
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    BEGUN,
    CHOICE,
    GPUS,
    GROUP,
    KIND,
    NEVER,
    ON_TYPE,
    PENDING,
    PREEMPTIONS,
    QUOTA,
    RESTARTS,
    RUNNING,
    SINCE,
    STATUS,
    SUBMIT,
    TYPE_FREE,
    WAKE,
    GpuState,
)
from simulator.gpu.policies.offers import offer
from simulator.gpu.scheduler import EventScheduler

_BITS = 62  # of an integer that can be used as flags


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    hold_s, reclaim_at = state.knobs[0], state.knobs[1]
    offer(state, now, True, hold_s)
    if state.total[0] - free_gpus(state) >= reclaim_at * state.total[0]:
        _reclaim_all(state, now, hold_s)
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        relaxed = state.real[SUBMIT, job] + hold_s
        state.real[WAKE, job] = relaxed if state.whole[STATUS, job] == PENDING and relaxed > now else NEVER


@kernel
def _reclaim_all(state: GpuState, now: float, hold_s: float) -> None:
    """Take GPUs back for the waiting jobs within their quota, in order of arrival, then offer what is left of them."""
    stopped, lent = 0, _lent(state)
    hopeless, hopeless_local = 0, 0  # bit n: a job of n GPUs has found nothing to take back since the last change
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        group, gpus = state.whole[GROUP, job], state.whole[GPUS, job]
        if state.whole[STATUS, job] != PENDING or state.used[group, 0] + gpus > state.of_group[QUOTA, group]:
            continue
        is_local = now - state.real[SUBMIT, job] < hold_s
        bit = 1 << gpus if gpus < _BITS and state.free.shape[1] == 1 else 0
        if gpus > lent or (hopeless_local if is_local else hopeless) & bit:
            continue
        own = _reclaim(state, job, now, is_local)
        if own >= 0:
            stopped += own
            lent, hopeless, hopeless_local = _lent(state), 0, 0
        elif is_local:
            hopeless_local |= bit
        else:
            hopeless |= bit
    if stopped:
        offer(state, now, True, hold_s)


@kernel
def _lent(state: GpuState) -> float:
    """Return the free GPUs and those that groups use over their quotas."""
    lent = float(free_gpus(state))
    for group in range(len(state.asked)):
        lent += max(0.0, state.used[group, 0] - state.of_group[QUOTA, group])
    return lent


@kernel
def _reclaim(state: GpuState, job: int, now: float, is_local: bool) -> int:
    """Start the job by stopping jobs of groups over their quota; return how many it stopped, -1 if it cannot start."""
    for rank in range(state.preference.shape[1]):
        kind = state.preference[state.whole[KIND, job], rank]
        least = 1
        while least <= state.whole[GPUS, job]:
            if _free_lent(state, kind, least, state.whole[GPUS, job], now) and find(state, job, kind, is_local):
                return _replace(state, job, kind, now, is_local)
            _take_back(state, kind)
            least *= 2
    return -1


@kernel
def _free_lent(state: GpuState, kind: int, least: int, gpus: int, now: float) -> bool:
    """Free the lent GPUs of a type, of jobs of `least` GPUs or more: those that start at `now`, then the youngest.

    CHOICE is 1 for the jobs of the type whose GPUs are freed, and 0 for its others. Return whether `gpus` are free.
    """
    for is_old in range(2):
        for at in range(state.counts[ACTIVE] - 1, -1, -1):
            other = state.whole[ACTIVE_JOB, at]
            if state.whole[STATUS, other] != RUNNING or state.whole[ON_TYPE, other] != kind:
                continue
            if (state.real[SINCE, other] < now) != (is_old == 1):
                continue
            group, own = state.whole[GROUP, other], state.whole[GPUS, other]
            state.whole[CHOICE, other] = 0
            if own >= least and state.used[group, 0] - own >= state.of_group[QUOTA, group]:
                move_gpus(state, other, -1)
                state.whole[CHOICE, other] = 1
    return bool(state.of_type[TYPE_FREE, kind] >= gpus)


@kernel
def _take_back(state: GpuState, kind: int) -> None:
    """Undo `_free_lent`."""
    for at in range(state.counts[ACTIVE]):
        other = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, other] == RUNNING and state.whole[ON_TYPE, other] == kind and state.whole[CHOICE, other]:
            move_gpus(state, other, 1)


@kernel
def _replace(state: GpuState, job: int, kind: int, now: float, is_local: bool) -> int:
    """Let the freed jobs run on that the waiting job does not need, the oldest first; stop the others and start it."""
    for is_new in range(2):
        for at in range(state.counts[ACTIVE]):
            other = state.whole[ACTIVE_JOB, at]
            if state.whole[STATUS, other] != RUNNING or state.whole[ON_TYPE, other] != kind:
                continue
            if state.whole[CHOICE, other] == 1 and (state.real[SINCE, other] == now) == (is_new == 1):
                move_gpus(state, other, 1)
                if find(state, job, kind, is_local):
                    state.whole[CHOICE, other] = 0
                else:
                    move_gpus(state, other, -1)
    stopped = 0
    for at in range(state.counts[ACTIVE]):
        other = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, other] == RUNNING and state.whole[ON_TYPE, other] == kind and state.whole[CHOICE, other]:
            _stop(state, other, now)
            stopped += 1
    find(state, job, kind, is_local)
    start(state, job, kind, now)
    return stopped


@kernel
def _stop(state: GpuState, job: int, now: float) -> None:
    """Stop a job whose GPUs are freed. One that starts at `now` has not run: it waits on as if it did not start."""
    is_new = state.real[SINCE, job] == now
    give_up(state, job, now)
    if is_new:
        state.whole[PREEMPTIONS, job] -= 1
        if state.whole[RESTARTS, job] > 0:
            state.whole[RESTARTS, job] -= 1
        else:
            state.real[BEGUN, job] = -1.0


SCHEDULER = EventScheduler(decide, {"hold_s": 600.0, "reclaim_at": 0.9}, most={"reclaim_at": 1.0}, shares="quota")
