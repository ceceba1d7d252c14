"""Decide as both of YARN's schedulers do: serve the queues, then take lent GPUs back for jobs entitled to them."""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.gpu.events.placing import find, free_gpus, give_up, start
from simulator.gpu.events.queue_tree import (
    DEMAND,
    END_CHILDREN,
    ENTITLED,
    FIRST_CHILD,
    GUARANTEED,
    HELD,
    HOPELESS,
    HOPELESS_LOCAL,
    LEAST,
    MARK,
    MOST,
    NEAR,
    PARENT,
    count_queues,
    hold,
    is_below_most,
    is_within_user_limit,
    serve,
    shift,
)
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    BEGUN,
    CHOICE,
    GPUS,
    KIND,
    NEVER,
    ON_TYPE,
    PENDING,
    PREEMPTIONS,
    QUEUE,
    RESTARTS,
    RUNNING,
    SINCE,
    STATUS,
    STOPS,
    SUBMIT,
    TYPE_FREE,
    WAKE,
    GpuState,
)

_BITS = 52  # of a float that can be used as flags
_OUTSIDE, _OPEN, _CLOSED = range(3)  # MARK: not a queue of the job; it may take GPUs from its other children, or not
_HALVINGS = 60  # of an interval in the search for a fair share


@kernel
def decide_by_queues(state: GpuState, now: float, is_fair: bool) -> None:
    """Make one decision. The first knobs are `hold_s` and `reclaim_at`."""
    hold_s, reclaim_at = state.knobs[0], state.knobs[1]
    serve(state, now, hold_s, is_fair)
    if state.total[0] - free_gpus(state) >= reclaim_at * state.total[0]:
        if is_fair:
            _entitle_fairly(state)
        _reclaim_all(state, now, hold_s, is_fair)
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        relaxed = state.real[SUBMIT, job] + hold_s
        state.real[WAKE, job] = relaxed if state.whole[STATUS, job] == PENDING and relaxed > now else NEVER


@kernel
def _entitle_fairly(state: GpuState) -> None:
    """Divide the GPUs of each queue between those of its children that have jobs: the weighted fair shares.

    A child gets its capacity times one factor for all, but at least LEAST and at most MOST, so that the shares add up.
    """
    state.table[ENTITLED, 0] = state.table[MOST, 0]
    for queue in range(state.table.shape[1]):
        first, end = int(state.table[FIRST_CHILD, queue]), int(state.table[END_CHILDREN, queue])
        if first == end:
            continue
        low, high, most = 0.0, 1.0, 0.0
        for child in range(first, end):
            most += state.table[MOST, child] if state.table[DEMAND, child] > 0.0 else 0.0
        whole = min(state.table[ENTITLED, queue], most)
        while _entitle(state, first, end, high) < whole - NEAR and high < 1e18:
            high *= 2.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if _entitle(state, first, end, middle) < whole:
                low = middle
            else:
                high = middle
        _entitle(state, first, end, high)


@kernel
def _entitle(state: GpuState, first: int, end: int, factor: float) -> float:
    """Set the shares of sibling queues for one factor; return their sum."""
    total = 0.0
    for child in range(first, end):
        share = 0.0
        if state.table[DEMAND, child] > 0.0:
            share = min(
                max(factor * state.table[GUARANTEED, child], state.table[LEAST, child]), state.table[MOST, child]
            )
        state.table[ENTITLED, child] = share
        total += share
    return total


@kernel
def _reclaim_all(state: GpuState, now: float, hold_s: float, is_fair: bool) -> None:
    """Take GPUs back for the waiting jobs that are entitled to them, in order of arrival; then serve the queues.

    HOPELESS, bit n: a job of n GPUs of a child of this queue has found nothing to take back since the last change.
    """
    changes, lent = 0, _forget_and_lend(state)
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        leaf, gpus = state.whole[QUEUE, job], state.whole[GPUS, job]
        if state.whole[STATUS, job] != PENDING or not _is_entitled(state, leaf, gpus):
            continue
        row = HOPELESS_LOCAL if now - state.real[SUBMIT, job] < hold_s else HOPELESS
        parent = int(state.table[PARENT, leaf])
        bit = 1 << gpus if gpus < _BITS and state.free.shape[1] == 1 else 0
        if gpus > lent or int(state.table[row, parent]) & bit or not is_within_user_limit(state, job):
            continue
        _mark_path(state, job)
        is_started = _reclaim(state, job, now, row == HOPELESS_LOCAL)
        _clear_path(state, job)
        if is_started:
            changes += 1
            count_queues(state)
            lent = _forget_and_lend(state)
        else:
            state.table[row, parent] = int(state.table[row, parent]) | bit
    if changes:
        serve(state, now, hold_s, is_fair)


@kernel
def _is_entitled(state: GpuState, queue: int, gpus: int) -> bool:
    """Whether a queue that gets `gpus` more holds no more than it is entitled to."""
    return bool(state.table[HELD, queue] + gpus <= state.table[ENTITLED, queue] + NEAR)


@kernel
def _mark_path(state: GpuState, job: int) -> None:
    """Mark the queues of the job: _OPEN for those whose other children it may take GPUs from, _CLOSED for the others.

    It may take them from a queue's other children if its own queues below that one are entitled to the job.
    """
    queue, is_entitled = state.whole[QUEUE, job], True
    state.table[MARK, queue] = _CLOSED
    while queue > 0:
        is_entitled = is_entitled and _is_entitled(state, queue, state.whole[GPUS, job])
        queue = int(state.table[PARENT, queue])
        state.table[MARK, queue] = _OPEN if is_entitled else _CLOSED


@kernel
def _clear_path(state: GpuState, job: int) -> None:
    """Undo `_mark_path`."""
    queue = state.whole[QUEUE, job]
    while queue >= 0:
        state.table[MARK, queue] = _OUTSIDE
        queue = int(state.table[PARENT, queue])


@kernel
def _may_lose(state: GpuState, job: int) -> bool:
    """Whether a running job may be stopped: its queues that are not marked keep what they are entitled to."""
    queue = state.whole[QUEUE, job]
    while state.table[MARK, queue] == _OUTSIDE:
        if state.table[HELD, queue] - state.whole[GPUS, job] < state.table[ENTITLED, queue] - NEAR:
            return False
        queue = int(state.table[PARENT, queue])
    return bool(state.table[MARK, queue] == _OPEN)


@kernel
def _forget_and_lend(state: GpuState) -> float:
    """Clear HOPELESS; return the free GPUs and those that leaf queues hold beyond what they are entitled to."""
    lent = float(free_gpus(state))
    for queue in range(state.table.shape[1]):
        state.table[HOPELESS, queue], state.table[HOPELESS_LOCAL, queue] = 0.0, 0.0
        if state.table[FIRST_CHILD, queue] == state.table[END_CHILDREN, queue]:
            lent += max(0.0, state.table[HELD, queue] - state.table[ENTITLED, queue])
    return lent + NEAR


@kernel
def _reclaim(state: GpuState, job: int, now: float, is_local: bool) -> bool:
    """Start the job by stopping jobs of queues that hold more than they are entitled to; return whether it starts."""
    for rank in range(state.preference.shape[1]):
        kind = state.preference[state.whole[KIND, job], rank]
        least = 1
        while least <= state.whole[GPUS, job]:
            if _free_lent(state, kind, least, state.whole[GPUS, job], now) and _fits(state, job, kind, is_local):
                _replace(state, job, kind, now, is_local)
                return True
            _take_back(state, kind)
            least *= 2
    return False


@kernel
def _fits(state: GpuState, job: int, kind: int, is_local: bool) -> bool:
    """Whether the job could start now on GPUs of the type."""
    return is_below_most(state, job) and find(state, job, kind, is_local)


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
            state.whole[CHOICE, other] = 0
            if state.whole[GPUS, other] >= least and _may_lose(state, other):
                shift(state, other, -1)
                state.whole[CHOICE, other] = 1
    return bool(state.of_type[TYPE_FREE, kind] >= gpus)


@kernel
def _take_back(state: GpuState, kind: int) -> None:
    """Undo `_free_lent`."""
    for at in range(state.counts[ACTIVE]):
        other = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, other] == RUNNING and state.whole[ON_TYPE, other] == kind and state.whole[CHOICE, other]:
            shift(state, other, 1)


@kernel
def _replace(state: GpuState, job: int, kind: int, now: float, is_local: bool) -> None:
    """Let the freed jobs run on that the waiting job does not need, the oldest first; stop the others and start it."""
    for is_new in range(2):
        for at in range(state.counts[ACTIVE]):
            other = state.whole[ACTIVE_JOB, at]
            if state.whole[STATUS, other] != RUNNING or state.whole[ON_TYPE, other] != kind:
                continue
            if state.whole[CHOICE, other] == 1 and (state.real[SINCE, other] == now) == (is_new == 1):
                shift(state, other, 1)
                if _fits(state, job, kind, is_local):
                    state.whole[CHOICE, other] = 0
                else:
                    shift(state, other, -1)
    for at in range(state.counts[ACTIVE]):
        other = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, other] == RUNNING and state.whole[ON_TYPE, other] == kind and state.whole[CHOICE, other]:
            _stop(state, other, now)
    find(state, job, kind, is_local)
    start(state, job, kind, now)
    hold(state, job, 1)


@kernel
def _stop(state: GpuState, job: int, now: float) -> None:
    """Stop a job whose GPUs are freed. One that starts at `now` has not run: it waits on as if it did not start."""
    is_new = state.real[SINCE, job] == now
    give_up(state, job, now)
    if is_new:
        state.whole[PREEMPTIONS, job] -= 1
        state.counts[STOPS] -= 1
        if state.whole[RESTARTS, job] > 0:
            state.whole[RESTARTS, job] -= 1
        else:
            state.real[BEGUN, job] = -1.0
