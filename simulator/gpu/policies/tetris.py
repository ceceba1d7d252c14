"""Tetris: place jobs where their demand aligns best with the free resources, and favour jobs with little work left.

Grandl et al., "Multi-resource packing for cluster schedulers" (SIGCOMM 2014). A job's alignment with a node (section
3.2) is the dot product of its demand and the node's free resources, both over the node's capacity. A job goes to the
node with which it aligns best, among those that can hold it. Its work (section 3.3.1) is its run time times its demand,
summed over resources as shares of the cluster. The job with the largest alignment minus `work_weight` x epsilon x work
starts, then all are scored again. Epsilon makes both terms equally large in the mean over the candidates (section
3.3.2). Candidates belong to the groups furthest below their fair share (section 3.4). These are the first (1 -
`fairness`) of the waiting groups by dominant share. No job is stopped.

Our reading: among the candidates the first `LOOKED_AT` by arrival are scored. A gang that no single node holds is
scored by its part on one node, and placed by best fit. A job goes to the fastest GPU type that holds it. Run times are
known. The penalty for remote input and the knob for barriers have no counterpart in a trace of gangs.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_part
from simulator.gpu.events.groups import share_of
from simulator.gpu.events.placing import find_any, free_gpus, holds, start
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    CHOICE,
    CHOSEN,
    GPUS,
    GROUP,
    KEY,
    KIND,
    NODE,
    NODE_TYPE,
    ORDER,
    PENDING,
    SHARE,
    STATUS,
    TAKEN,
    WORK,
    GpuState,
)
from simulator.gpu.scheduler import EventScheduler

LOOKED_AT = 50


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    fairness, work_weight = state.knobs[0], state.knobs[1]
    while free_gpus(state) > 0:
        candidates = _candidates(state, fairness)
        if candidates == 0 or not _starts_one(state, candidates, work_weight, now):
            return


@kernel
def _starts_one(state: GpuState, candidates: int, work_weight: float, now: float) -> bool:
    """Start the candidate with the best score that fits; return whether there is one."""
    aligned, work = 0.0, 0.0
    for at in range(candidates):
        job = state.whole[ORDER, at]
        _align(state, job)
        aligned += state.real[KEY, job]
        work += _work(state, job)
    unit = work_weight * aligned / work
    for _ in range(candidates):
        best, best_score = -1, 0.0
        for at in range(candidates):
            job = state.whole[ORDER, at]
            score = state.real[KEY, job] - unit * _work(state, job)
            if state.whole[CHOICE, job] == 0 and state.real[KEY, job] > 0.0 and (best < 0 or score > best_score):
                best, best_score = job, score
        if best < 0:
            return False
        state.whole[CHOICE, best] = 1
        node = _align(state, best)
        if node >= 0:
            state.chosen[NODE, 0], state.chosen[TAKEN, 0], state.counts[CHOSEN] = node, state.whole[GPUS, best], 1
            start(state, best, state.node[NODE_TYPE, node], now)
            return True
        kind = find_any(state, best, False)
        if kind >= 0:
            start(state, best, kind, now)
            return True
    return False


@kernel
def _candidates(state: GpuState, fairness: float) -> int:
    """Fill `order` with the candidates; return how many there are."""
    groups = len(state.asked)
    waiting = 0
    for group in range(groups):
        state.asked[group] = 0
        state.of_group[SHARE, group] = share_of(state, group)
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if state.whole[STATUS, job] == PENDING and state.asked[state.whole[GROUP, job]] == 0:
            state.asked[state.whole[GROUP, job]] = 1
            waiting += 1
    allowed = max(1, int((1.0 - fairness) * waiting + 0.999999))
    for _ in range(allowed):
        least = -1
        for group in range(groups):
            if state.asked[group] == 1 and (least < 0 or state.of_group[SHARE, group] < state.of_group[SHARE, least]):
                least = group
        if least >= 0:
            state.asked[least] = 2
    found = 0
    free = free_gpus(state)
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        if (
            state.whole[STATUS, job] == PENDING
            and state.asked[state.whole[GROUP, job]] == 2
            and state.whole[GPUS, job] <= free
        ):
            state.whole[ORDER, found] = job
            state.whole[CHOICE, job] = 0
            found += 1
            if found == LOOKED_AT:
                break
    return found


@kernel
def _work(state: GpuState, job: int) -> float:
    """Return the job's run time times its demand, summed over resources as shares of the cluster. Seconds."""
    share = 0.0
    for resource in range(len(state.total)):
        if state.total[resource] > 0:
            share += state.whole[GPUS, job] * state.need[job, resource] / state.total[resource]
    return float(state.real[WORK, job] * share)


@kernel
def _align(state: GpuState, job: int) -> int:
    """Set the job's KEY to its best alignment with a node; return the node if it holds the whole job, else -1.

    Nodes that hold the whole job come first, those of the fastest type among them. KEY is 0 if no node has room.
    """
    part_most = 0.0
    for rank in range(state.preference.shape[1]):
        kind = state.preference[state.whole[KIND, job], rank]
        best, most = -1, 0.0
        for node in range(state.node.shape[1]):
            part = min(state.whole[GPUS, job], holds(state, node, job))
            if part == 0 or state.node[NODE_TYPE, node] != kind:
                continue
            dot = 0.0
            for resource in range(len(state.total)):
                room = state.room[node, resource]
                if room > 0:
                    dot += (part * state.need[job, resource] / room) * (state.free[node, resource] / room)
            part_most = max(part_most, dot)
            if part == state.whole[GPUS, job] and dot > most:
                best, most = node, dot
        if best >= 0:
            state.real[KEY, job] = most
            return best
    state.real[KEY, job] = part_most
    return -1


SCHEDULER = EventScheduler(decide, {"fairness": 0.25, "work_weight": 1.0}, most={"fairness": 1.0}, shares="resources")
