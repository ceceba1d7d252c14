"""Place, start and stop a gang: the compiled steps that every policy uses.

A gang runs on GPUs of one type, placed by best fit. If one node can hold it, it goes on the node with the fewest free
GPUs. Else it takes all free GPUs of the nodes with the most, and for the rest the node that fits it best. If it needs
several nodes and one rack can hold it on as few, it goes there. Ties by the node's number.
"""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.gpu.events.state import (
    ATTAINED,
    BEGUN,
    CHOSEN,
    END,
    FIRST,
    GPUS,
    GROUP,
    IN_CHOSEN,
    KIND,
    LEFT,
    LOST,
    NEVER,
    NODE,
    NODE_TYPE,
    ON_TYPE,
    OPEN,
    OPEN_SLOTS,
    PENDED,
    PENDING,
    PIECES,
    POD_GPUS,
    PREEMPTIONS,
    RACK,
    RACKS,
    RAN,
    RATE,
    RESTART,
    RESTARTS,
    RESUME,
    RUNNING,
    SERVICE,
    SINCE,
    SLOT,
    STATUS,
    STOPS,
    TAKEN,
    TYPE_FREE,
    WAITED,
    GpuState,
)


@kernel
def free_gpus(state: GpuState) -> int:
    """Return the number of free GPUs."""
    free = 0
    for kind in range(state.of_type.shape[1]):
        free += state.of_type[TYPE_FREE, kind]
    return int(free)


@kernel
def holds(state: GpuState, node: int, job: int) -> int:
    """Return how many GPUs of the job the node could take now, in whole pods."""
    most = state.free[node, 0]
    for resource in range(1, state.free.shape[1]):
        need = state.need[job, resource]
        if need > 0:
            most = min(most, state.free[node, resource] // need)
    if state.whole[POD_GPUS, job] > 1:
        most -= most % state.whole[POD_GPUS, job]
    return int(most)


@kernel
def _search(state: GpuState, job: int, kind: int, rack: int, most_nodes: int) -> int:
    """Fill `chosen` with a place on the type; return its number of nodes, or 0 if there is none."""
    state.node[IN_CHOSEN, :] = 0
    left, found = state.whole[GPUS, job], 0
    while left > 0:
        best, best_room, wide, wide_room = -1, 0, -1, 0
        for node in range(state.node.shape[1]):
            if state.node[NODE_TYPE, node] != kind or (rack >= 0 and state.node[RACK, node] != rack):
                continue
            room = holds(state, node, job)
            if room == 0 or (room <= wide_room and (room < left or (best >= 0 and room >= best_room))):
                continue
            if state.node[IN_CHOSEN, node]:
                continue
            if room >= left and (best < 0 or room < best_room):
                best, best_room = node, room
            if room > wide_room:
                wide, wide_room = node, room
        if best < 0 and wide < 0:
            return 0
        node, taken = (best, left) if best >= 0 else (wide, wide_room)
        if found >= most_nodes or found >= state.chosen.shape[1]:
            return 0
        state.chosen[NODE, found], state.chosen[TAKEN, found], state.node[IN_CHOSEN, node] = node, taken, 1
        found += 1
        left -= taken
    return found


@kernel
def find(state: GpuState, job: int, kind: int, is_local: bool) -> bool:
    """Whether the job fits on GPUs of the type now, with `is_local` on the fewest nodes; `chosen` holds the place."""
    if state.of_type[TYPE_FREE, kind] < state.whole[GPUS, job]:
        return False
    nodes = _search(state, job, kind, -1, state.fewest[job, kind] if is_local else state.node.shape[1])
    if nodes == 0:
        return False
    if nodes > 1 and state.counts[RACKS] > 1:
        is_together = False
        for rack in range(state.counts[RACKS]):
            is_together = is_together or _search(state, job, kind, rack, nodes) > 0
        if not is_together:
            _search(state, job, kind, -1, nodes)
    state.counts[CHOSEN] = nodes
    return True


@kernel
def find_any(state: GpuState, job: int, is_local: bool) -> int:
    """Return the fastest type that the job fits on now, -1 for none; `chosen` holds the place."""
    for at in range(state.preference.shape[1]):
        kind = state.preference[state.whole[KIND, job], at]
        if find(state, job, kind, is_local):
            return int(kind)
    return -1


@kernel
def move_gpus(state: GpuState, job: int, sign: int) -> None:
    """Take (1) or free (-1) the resources in the job's slot."""
    slot = state.whole[SLOT, job]
    for at in range(state.slots[PIECES, slot]):
        node, gpus = state.places[NODE, slot, at], state.places[TAKEN, slot, at]
        for resource in range(state.free.shape[1]):
            state.free[node, resource] -= sign * gpus * state.need[job, resource]
    state.of_type[TYPE_FREE, state.whole[ON_TYPE, job]] -= sign * state.whole[GPUS, job]
    for resource in range(state.free.shape[1]):
        state.used[state.whole[GROUP, job], resource] += sign * state.whole[GPUS, job] * state.need[job, resource]


@kernel
def settle(state: GpuState, job: int, now: float) -> None:
    """Update a running job's progress and GPU seconds to `now`."""
    passed = now - state.real[SINCE, job]
    if passed > 0.0:
        working = max(0.0, now - max(state.real[SINCE, job], state.real[RESUME, job]))
        gpus = state.whole[GPUS, job]
        state.real[LEFT, job] = max(0.0, state.real[LEFT, job] - working * state.real[RATE, job])
        state.real[ATTAINED, job] += passed * gpus
        state.by_type[state.whole[ON_TYPE, job], job] += passed * gpus
        state.real[SERVICE, job] += passed * gpus
        state.real[LOST, job] += (passed - working) * gpus
        state.real[RAN, job] += passed
        state.real[SINCE, job] = now


@kernel
def start(state: GpuState, job: int, kind: int, now: float) -> None:
    """Start the job on the chosen place, with the charge of a restart, or of a first start.

    The wait that ends here counts in WAITED if the job has service.
    """
    state.counts[OPEN_SLOTS] -= 1
    slot = state.slots[OPEN, state.counts[OPEN_SLOTS]]
    nodes = state.counts[CHOSEN]
    state.whole[SLOT, job], state.whole[ON_TYPE, job], state.slots[PIECES, slot] = slot, kind, nodes
    for at in range(nodes):
        state.places[NODE, slot, at], state.places[TAKEN, slot, at] = state.chosen[NODE, at], state.chosen[TAKEN, at]
    move_gpus(state, job, 1)
    state.whole[STATUS, job], state.real[SINCE, job] = RUNNING, now
    if state.real[SERVICE, job] > 0.0:
        state.real[WAITED, job] += now - state.real[PENDED, job]
    if state.real[BEGUN, job] < 0.0:
        state.real[BEGUN, job] = now
        state.real[RESUME, job] = now + state.real[FIRST, job]
    else:
        state.whole[RESTARTS, job] += 1
        state.real[RESUME, job] = now + state.real[RESTART, job]
    state.real[RATE, job] = state.speed[state.whole[KIND, job], kind, nodes]
    state.real[END, job] = state.real[RESUME, job] + state.real[LEFT, job] / state.real[RATE, job]


@kernel
def give_up(state: GpuState, job: int, now: float) -> None:
    """Put a running job, whose GPUs have been freed already, back to waiting."""
    settle(state, job, now)
    state.slots[OPEN, state.counts[OPEN_SLOTS]] = state.whole[SLOT, job]
    state.counts[OPEN_SLOTS] += 1
    state.whole[SLOT, job], state.whole[STATUS, job], state.real[END, job] = -1, PENDING, NEVER
    state.real[PENDED, job] = now
    state.whole[PREEMPTIONS, job] += 1
    state.counts[STOPS] += 1


@kernel
def is_free_still(state: GpuState, job: int) -> bool:
    """Whether all resources in the job's slot are free now."""
    slot = state.whole[SLOT, job]
    for at in range(state.slots[PIECES, slot]):
        node, gpus = state.places[NODE, slot, at], state.places[TAKEN, slot, at]
        for resource in range(state.free.shape[1]):
            if state.free[node, resource] < gpus * state.need[job, resource]:
                return False
    return True
