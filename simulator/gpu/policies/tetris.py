"""Tetris: place jobs where their demand aligns best with the free resources, and favour jobs with little work left.

Grandl et al., "Multi-resource packing for cluster schedulers" (SIGCOMM 2014). The score is the dot product of the job's
demand and the free resources of its best node, both over that node's capacity, minus `work_weight` times the job's
work. Units are chosen so that both terms are equally large in the mean over the candidates (the paper's epsilon).
Candidates are the first `LOOKED_AT` waiting jobs of the groups furthest below their fair share: all but the share
`fairness` of the groups. The job with the best score starts, then all are scored again. No job is stopped. A gang on
several nodes is scored by its part on one node. Our reading: penalties for remote input and barriers have no
counterpart in a trace of gangs.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_part
from simulator.gpu.events.placing import find_any, free_gpus, holds, start
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    CHOICE,
    GPUS,
    GROUP,
    KEY,
    ORDER,
    PENDING,
    SHARE,
    STATUS,
    WORK,
    GpuState,
)
from simulator.gpu.policies.offers import share_of
from simulator.gpu.scheduler import EventScheduler

LOOKED_AT = 50


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    fairness, work_weight = state.knobs[0], state.knobs[1]
    while free_gpus(state) > 0:
        candidates = _candidates(state, fairness)
        if candidates == 0:
            return
        for at in range(candidates):
            state.real[KEY, state.whole[ORDER, at]] = _alignment(state, state.whole[ORDER, at])
        aligned, work = 0.0, 0.0
        for at in range(candidates):
            aligned += state.real[KEY, state.whole[ORDER, at]]
            work += state.real[WORK, state.whole[ORDER, at]] * state.whole[GPUS, state.whole[ORDER, at]]
        unit = work_weight * aligned / work
        is_started = False
        for _ in range(candidates):
            best, best_score = -1, 0.0
            for at in range(candidates):
                job = state.whole[ORDER, at]
                score = state.real[KEY, job] - unit * state.real[WORK, job] * state.whole[GPUS, job]
                if state.whole[CHOICE, job] == 0 and state.real[KEY, job] > 0.0 and (best < 0 or score > best_score):
                    best, best_score = job, score
            if best < 0:
                return
            state.whole[CHOICE, best] = 1
            kind = find_any(state, best, False)
            if kind >= 0:
                start(state, best, kind, now)
                is_started = True
                break
        if not is_started:
            return


@kernel
def _candidates(state: GpuState, fairness: float) -> int:
    """Fill `order` with the candidates; return how many there are."""
    groups = len(state.asked)
    waiting = 0
    for group in range(groups):
        state.asked[group] = 0
        state.of_group[SHARE, group] = share_of(state, group, False)
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
def _alignment(state: GpuState, job: int) -> float:
    """Return the best alignment of a node's free resources with the job's demand on it; 0 if no node has room."""
    most = 0.0
    for node in range(state.node.shape[1]):
        part = min(state.whole[GPUS, job], holds(state, node, job))
        if part == 0:
            continue
        dot = 0.0
        for resource in range(len(state.total)):
            room = state.room[node, resource]
            if room > 0:
                dot += (part * state.need[job, resource] / room) * (state.free[node, resource] / room)
        most = max(most, dot)
    return most


SCHEDULER = EventScheduler(decide, {"fairness": 0.25, "work_weight": 1.0}, most={"fairness": 1.0}, shares="resources")
