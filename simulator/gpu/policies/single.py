"""Single nodes without a scheduler: each job is bound to one node when it arrives, and waits in that node's queue.

Our rule, as the baseline for clusters: machines that people log in to. The candidates are the nodes that can hold the
job when empty. The job is bound to the one whose unfinished jobs ask for the fewest GPUs per GPU of the node. Ties by
number. A node runs its jobs in order of arrival, and none passes another. No job moves, and none is stopped. A gang
that no node holds starts as soon as the whole cluster has room for it.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_part
from simulator.gpu.events.placing import find_any, holds, start
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    BLOCKED,
    CHOSEN,
    GPUS,
    LEVEL,
    LOAD,
    NODE,
    NODE_TYPE,
    PENDING,
    STATUS,
    TAKEN,
    GpuState,
)
from simulator.gpu.scheduler import EventScheduler

_UNBOUND, _WIDE = 0, -1  # LEVEL of a job that has just arrived, and of one that no node holds; else its node + 1


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    _bind(state)
    state.node[BLOCKED, :] = 0
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] != PENDING:
            continue
        if state.whole[LEVEL, job] == _WIDE:
            kind = find_any(state, job, False)
            if kind >= 0:
                start(state, job, kind, now)
            continue
        node = state.whole[LEVEL, job] - 1
        if state.node[BLOCKED, node] == 0 and holds(state, node, job) >= state.whole[GPUS, job]:
            state.chosen[NODE, 0], state.chosen[TAKEN, 0], state.counts[CHOSEN] = node, state.whole[GPUS, job], 1
            start(state, job, state.node[NODE_TYPE, node], now)
        else:
            state.node[BLOCKED, node] = 1


@kernel
def _bind(state: GpuState) -> None:
    """Bind the jobs that have just arrived."""
    state.node[LOAD, :] = 0
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[LEVEL, job] > 0:
            state.node[LOAD, state.whole[LEVEL, job] - 1] += state.whole[GPUS, job]
        elif state.whole[LEVEL, job] == _UNBOUND:
            best, least = _WIDE, 0.0
            for node in range(state.node.shape[1]):
                load = state.node[LOAD, node] / state.room[node, 0]
                if (best < 0 or load < least) and _holds_empty(state, node, job):
                    best, least = node, load
            if best >= 0:
                state.node[LOAD, best] += state.whole[GPUS, job]
            state.whole[LEVEL, job] = best + 1 if best >= 0 else _WIDE


@kernel
def _holds_empty(state: GpuState, node: int, job: int) -> bool:
    for resource in range(state.room.shape[1]):
        if state.whole[GPUS, job] * state.need[job, resource] > state.room[node, resource]:
            return False
    return True


SCHEDULER = EventScheduler(decide)
