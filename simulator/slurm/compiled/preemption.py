"""Preemption by QOS (preempt/qos): end running jobs for a waiting job that does not fit. Compiled."""

from __future__ import annotations

from simulator.compiled import kernel
from simulator.slurm.compiled.bits import lowest_bit
from simulator.slurm.compiled.moves import preempt_slot
from simulator.slurm.compiled.placement import choose, copy_nodes, vacate
from simulator.slurm.compiled.state import (
    CHOSEN,
    NOW,
    RUN_JOB,
    RUN_RELEASE,
    RUN_START,
    RUNNING_ROWS,
    SlurmRun,
    SlurmState,
)
from simulator.slurm.world import NONE, PREEMPT_OFF, PREEMPT_REQUEUE


@kernel
def _next_victim(run: SlurmRun, state: SlurmState, available: int, job: int, taken: int) -> int:
    """Return the next slot to preempt after the `taken` ones in column 0 of `SlurmScratch.runs`; NONE for none."""
    tables, scratch, now = run.tables, run.scratch, state.scalars[NOW]
    best = NONE
    for slot in range(state.scalars[RUNNING_ROWS]):
        other = state.running[slot, RUN_JOB]
        qos = run.jobs.qos[other]
        if (
            not tables.qos_preempts[run.jobs.qos[job], qos]
            or tables.qos_mode[qos] == PREEMPT_OFF
            or now - state.running[slot, RUN_START] < tables.qos_exempt[qos]
            or state.running[slot, RUN_RELEASE] - run.knobs.completing_s <= now
        ):
            continue
        touches = False
        for w in range(scratch.words.shape[1]):
            touches = touches or (state.held[slot, w] & scratch.words[available, w]) != 0
        marked = False
        for i in range(taken):
            marked = marked or scratch.victims[i] == slot
        if not touches or marked:
            continue
        if best == NONE or _gives_way_before(run, state, slot, best):
            best = slot
    return int(best)


@kernel
def _gives_way_before(run: SlurmRun, state: SlurmState, slot: int, other: int) -> bool:
    """Whether slot `slot` is preempted before slot `other`: by lower QOS priority, later start, lower row."""
    job, rival = state.running[slot, RUN_JOB], state.running[other, RUN_JOB]
    priority, rival_priority = run.tables.qos_priority[run.jobs.qos[job]], run.tables.qos_priority[run.jobs.qos[rival]]
    if priority != rival_priority:
        return bool(priority < rival_priority)
    if state.running[slot, RUN_START] != state.running[other, RUN_START]:
        return bool(state.running[slot, RUN_START] > state.running[other, RUN_START])
    return bool(job < rival)


@kernel
def choose_by_preemption(run: SlurmRun, state: SlurmState, available: int, job: int) -> bool:
    """Choose nodes for row `job` by ending jobs that its QOS may preempt, if that makes enough room.

    Jobs are removed one by one from a copy of the nodes until the job fits. Those of them that hold a chosen node end
    now.
    """
    scratch, shape = run.scratch, run.jobs.shape[job]
    taken = 0
    while True:
        slot = _next_victim(run, state, available, job, taken)
        if slot == NONE:
            return False
        if taken == 0:
            copy_nodes(run, state)
        scratch.victims[taken] = slot
        taken += 1
        for w in range(scratch.words.shape[1]):
            bits = state.held[slot, w]
            while bits != 0:
                vacate(run, scratch.node, (w << 6) + lowest_bit(bits), run.jobs.shape[state.running[slot, RUN_JOB]])
                bits &= bits - 1
        if choose(run, scratch.node, available, CHOSEN, shape, run.jobs.nodes[job]):
            break
    for i in range(taken):  # slots are renumbered when one empties, so identify jobs by row
        scratch.victims[i] = state.running[scratch.victims[i], RUN_JOB]
    for i in range(taken):
        slot = 0
        while state.running[slot, RUN_JOB] != scratch.victims[i]:
            slot += 1
        touches = False
        for w in range(scratch.words.shape[1]):
            touches = touches or (state.held[slot, w] & scratch.words[CHOSEN, w]) != 0
        if touches:
            preempt_slot(run, state, slot, run.tables.qos_mode[run.jobs.qos[scratch.victims[i]]] == PREEMPT_REQUEUE)
    return True
