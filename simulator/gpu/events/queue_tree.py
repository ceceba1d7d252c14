"""A tree of queues, as YARN has it: what queues and users hold, whose turn it is, and which limits stop a job.

`GpuState.table` has a column for each queue and a column for each user of a leaf queue. Queue 0 is the root. Parents
come before their children, the children of a queue are neighbours, and columns are counted from 0 in both parts.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.gpu.events.placing import find_any, free_gpus, move_gpus, start
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    GPUS,
    LEAF,
    ORDER,
    PENDING,
    QUEUE,
    STATUS,
    SUBMIT,
    USER,
    USER_LIMITS,
    GpuState,
)

# Rows of `table` that never change. GPUs, but for the first three: queues, and a part of 1.
PARENT, FIRST_CHILD, END_CHILDREN = range(3)  # a leaf has no child: END_CHILDREN is FIRST_CHILD
GUARANTEED, MOST, LEAST, USER_PART, USER_MOST = range(3, 8)  # the last two limit the users of a leaf
# Rows that change. GPUs, but for jobs in USER_WAITING and NEXT (-1: none), leaf queues with such a job in UNTRIED, and
# users with waiting jobs in USERS.
HELD, DEMAND, UNTRIED, NEXT, USERS, RANK, ENTITLED = range(8, 15)
USER_HELD, USER_WAITING = range(15, 17)  # by user
MARK, HOPELESS, HOPELESS_LOCAL = range(17, 20)  # working memory of what takes GPUs back
TABLE_ROWS = 20
NEAR = 1e-6  # tolerance of GPUs


@kernel
def count_queues(state: GpuState) -> None:
    """Count what queues and users hold and wait for; queue up the waiting jobs of each leaf by arrival."""
    has_users = state.counts[USER_LIMITS] > 0
    for column in range(state.table.shape[1]):
        for row in range(HELD, RANK):
            state.table[row, column] = 0.0
        state.table[NEXT, column] = -1.0
        state.table[USER_HELD, column], state.table[USER_WAITING, column] = 0.0, 0.0
    for group in range(state.used.shape[0]):
        leaf = int(state.of_group[LEAF, group])
        if leaf >= 0:
            state.table[HELD, leaf] += state.used[group, 0]
    for at in range(state.counts[ACTIVE] - 1, -1, -1):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] == PENDING:
            queue, user = state.whole[QUEUE, job], state.whole[USER, job]
            state.table[DEMAND, queue] += state.whole[GPUS, job]
            state.whole[ORDER, job], state.table[NEXT, queue] = int(state.table[NEXT, queue]), job
            if user >= 0:
                state.table[USERS, queue] += state.table[USER_WAITING, user] == 0.0
                state.table[USER_WAITING, user] += 1.0
        elif has_users and state.whole[USER, job] >= 0:
            state.table[USER_HELD, state.whole[USER, job]] += state.whole[GPUS, job]
    for queue in range(state.table.shape[1] - 1, -1, -1):
        state.table[DEMAND, queue] += state.table[HELD, queue]
        if state.table[NEXT, queue] >= 0.0:
            state.table[UNTRIED, queue] = 1.0
        parent = int(state.table[PARENT, queue])
        if parent >= 0:
            state.table[HELD, parent] += state.table[HELD, queue]
            state.table[DEMAND, parent] += state.table[DEMAND, queue] - state.table[HELD, queue]
            state.table[UNTRIED, parent] += state.table[UNTRIED, queue]


@kernel
def _rank(state: GpuState, queue: int, is_fair: bool) -> None:
    """Rank a queue among its siblings, the lowest first: by what it holds over its guaranteed capacity.

    With `is_fair`, queues below their least GPUs (or their demand) come first, by what they hold over these.
    """
    held = state.table[HELD, queue]
    state.table[RANK, queue] = held / max(state.table[GUARANTEED, queue], 1e-9)
    if is_fair:
        least = min(state.table[LEAST, queue], state.table[DEMAND, queue])
        if held < least:
            state.table[RANK, queue] = held / least - 2.0


@kernel
def shift(state: GpuState, job: int, sign: int) -> None:
    """Take (1) or free (-1) the resources in the job's slot, in the counts of its queues and its user as well."""
    move_gpus(state, job, sign)
    hold(state, job, sign)


@kernel
def hold(state: GpuState, job: int, sign: int) -> None:
    """Add (1) or take off (-1) the job's GPUs in the counts of its queues and its user."""
    gpus, queue, user = sign * state.whole[GPUS, job], state.whole[QUEUE, job], state.whole[USER, job]
    if user >= 0:
        state.table[USER_HELD, user] += gpus
    while queue >= 0:
        state.table[HELD, queue] += gpus
        queue = int(state.table[PARENT, queue])


@kernel
def _note_start(state: GpuState, job: int, is_fair: bool) -> None:
    """Count a job that started, and rank its queues anew."""
    hold(state, job, 1)
    queue, user = state.whole[QUEUE, job], state.whole[USER, job]
    if user >= 0:
        state.table[USER_WAITING, user] -= 1.0
        state.table[USERS, queue] -= state.table[USER_WAITING, user] == 0.0
    while queue >= 0:
        _rank(state, queue, is_fair)
        queue = int(state.table[PARENT, queue])


@kernel
def is_below_most(state: GpuState, job: int) -> bool:
    """Whether each queue of the job stays within its most capacity if the job starts."""
    queue = state.whole[QUEUE, job]
    while queue >= 0:
        if state.table[HELD, queue] + state.whole[GPUS, job] > state.table[MOST, queue] + NEAR:
            return False
        queue = int(state.table[PARENT, queue])
    return True


@kernel
def is_within_user_limit(state: GpuState, job: int) -> bool:
    """Whether the job's user may start it: the user holds nothing in the queue, or stays within the user limit."""
    queue, user, gpus = state.whole[QUEUE, job], state.whole[USER, job], state.whole[GPUS, job]
    if user < 0 or state.table[USER_HELD, user] == 0.0:
        return True
    capacity = max(state.table[GUARANTEED, queue], state.table[HELD, queue] + gpus)
    limit = max(capacity / max(1.0, state.table[USERS, queue]), capacity * state.table[USER_PART, queue])
    return bool(state.table[USER_HELD, user] + gpus <= min(limit, state.table[USER_MOST, queue]) + NEAR)


@kernel
def _leaf_in_turn(state: GpuState) -> int:
    """Return the leaf queue whose jobs are tried next, -1 for none: at each level the child with the lowest rank."""
    if state.table[UNTRIED, 0] == 0.0:
        return -1
    queue = 0
    while state.table[FIRST_CHILD, queue] < state.table[END_CHILDREN, queue]:
        least = -1
        for child in range(int(state.table[FIRST_CHILD, queue]), int(state.table[END_CHILDREN, queue])):
            if state.table[UNTRIED, child] > 0.0 and (least < 0 or state.table[RANK, child] < state.table[RANK, least]):
                least = child
        queue = least
    return queue


@kernel
def _start_one(state: GpuState, leaf: int, now: float, hold_s: float) -> int:
    """Start the first job of the leaf queue that can start; return it, or -1. Jobs before it count as tried."""
    free, job = free_gpus(state), int(state.table[NEXT, leaf])
    while job >= 0:
        if state.whole[GPUS, job] <= free and is_below_most(state, job) and is_within_user_limit(state, job):
            kind = find_any(state, job, now - state.real[SUBMIT, job] < hold_s)
            if kind >= 0:
                start(state, job, kind, now)
                break
        job = state.whole[ORDER, job]
    state.table[NEXT, leaf] = -1.0 if job < 0 else state.whole[ORDER, job]
    if state.table[NEXT, leaf] < 0.0:
        queue = leaf
        while queue >= 0:
            state.table[UNTRIED, queue] -= 1.0
            queue = int(state.table[PARENT, queue])
    return job


@kernel
def serve(state: GpuState, now: float, hold_s: float, is_fair: bool) -> None:
    """Start jobs of the queue in turn, in order of arrival; skip jobs that do not fit or that a limit stops.

    A gang that arrived less than `hold_s` ago starts only on the fewest nodes. A start may raise the limit of another
    user. So if users have limits, all jobs are tried again after a pass in which jobs started.
    """
    while True:
        count_queues(state)
        for queue in range(state.table.shape[1]):
            _rank(state, queue, is_fair)
        started = 0
        while free_gpus(state) > 0:
            leaf = _leaf_in_turn(state)
            if leaf < 0:
                break
            job = _start_one(state, leaf, now, hold_s)
            if job >= 0:
                _note_start(state, job, is_fair)
                started += state.whole[USER, job] >= 0
        if started == 0:
            return
