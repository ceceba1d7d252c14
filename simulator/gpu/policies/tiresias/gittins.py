"""Tiresias with the Gittins index: it knows how GPU times are distributed, but not that of a job.

Gu et al., "Tiresias: A GPU cluster manager for distributed deep learning" (NSDI 2019), section 3.2, 2D-Gittins in its
discretized form. Queues, promotion, starts and placement are those of `tiresias`. Within a queue, the job with the
highest index comes first: G(a) = P(S - a <= D | S > a) / E[min(S - a, D) | S > a], where a is the job's service in GPU
seconds and S a GPU time of the distribution. G is 0 beyond the last sample. `released` 1 follows the authors' simulator
(`run_sim.py`, schedule `dlas-gpu-gittins`) where it differs.

| rule | paper | released program | here |
|---|---|---|---|
| quantum D | the queue's upper threshold, without bound in the last queue | 3,250 GPU s | `delta` |
| expectation | of min(S - a, D) | of S if S - a <= D, else of D; the last sample never completes | `released` |
| distribution | of earlier jobs | a table of 1,001 quantiles of its trace | `samples`, else learned |
| index between two samples | not stated | that of 1 GPU s below the next sample | that of the last; `released` |
| ties | not stated | arrival | arrival |
| promotion | as 2D-LAS | off, or a factor | `promote` |

Without `samples`, the scheduler learns the distribution from the jobs that have ended so far, in 1,000 bins of 2 %. It
computes the index anew whenever their number has grown by a tenth. Until the first job ends, all indices are 0. A job
counts with its GPUs times its recorded run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan

import numpy as np

from simulator.compiled import kernel, kernel_part
from simulator.gpu.events.passes import follow, sort
from simulator.gpu.events.queues import LOCAL, RELEASED, change_queues, wake_at_changes
from simulator.gpu.events.state import (
    ACTIVE,
    ACTIVE_JOB,
    BIN,
    COUNT,
    DONE,
    EDGE,
    GPUS,
    INDEX,
    KEY,
    LEARNED,
    LEVEL,
    NEVER,
    ORDER,
    RENEWED,
    SERVICE,
    SORTED,
    STATUS,
    SUM,
    WORK,
    GpuState,
)
from simulator.gpu.scheduler import EventScheduler, Setting
from traces.arrays import Float64s

_DELTA, _SAMPLES, _THRESHOLDS = 3, 4, 5  # in `knobs`; _SAMPLES: their number
_RELEASED_DELTA = 3250.0  # GPU s
_BINS, _BIN_RATIO = 1000, 1.021  # of a learned distribution: from 1 GPU s to 1.05e9 GPU s


@kernel_part
def decide(state: GpuState, now: float) -> None:
    """Make one decision."""
    change_queues(state, now, _THRESHOLDS)
    if state.knobs[_SAMPLES] == 0.0:
        for at in range(state.counts[SORTED]):
            if state.whole[STATUS, state.whole[ORDER, at]] == DONE:
                _learn(state, state.whole[ORDER, at])
    if state.counts[LEARNED] > state.counts[RENEWED] + state.counts[RENEWED] // 10:
        for level in range(state.table.shape[0] - INDEX):
            _index(state, level)
        state.counts[RENEWED] = state.counts[LEARNED]
    for at in range(state.counts[ACTIVE]):
        job = state.whole[ACTIVE_JOB, at]
        column = state.whole[BIN, job] if state.real[SERVICE, job] > 0.0 else 0
        while state.table[EDGE, column] <= state.real[SERVICE, job]:
            column += 1
        state.whole[BIN, job] = column
        state.real[KEY, job] = -state.table[INDEX + state.whole[LEVEL, job], column]
    follow(state, sort(state), now, int(state.knobs[LOCAL]))
    wake_at_changes(state, now, _THRESHOLDS)


@kernel
def _learn(state: GpuState, job: int) -> None:
    """Add the GPU time of a job that has ended to its bin."""
    gpu_s = state.real[WORK, job] * state.whole[GPUS, job]
    low, high = 0, state.table.shape[1] - 1
    while low < high:
        middle = (low + high) // 2
        if state.table[EDGE, middle] < gpu_s:
            low = middle + 1
        else:
            high = middle
    state.table[COUNT, low] += 1.0
    state.table[SUM, low] += gpu_s
    state.counts[LEARNED] += 1


@kernel
def _quantum(state: GpuState, level: int) -> float:
    """Return the quantum of a queue, GPU s."""
    if not isnan(state.knobs[_DELTA]):
        return float(state.knobs[_DELTA])
    if state.knobs[RELEASED] > 0.0:
        return _RELEASED_DELTA
    return float(state.knobs[_THRESHOLDS + level]) if _THRESHOLDS + level < len(state.knobs) else float(NEVER)


@kernel
def _index(state: GpuState, level: int) -> None:
    """Compute the row of indices of one queue: for each column, that of a job whose service is in the column."""
    is_released, delta = state.knobs[RELEASED] > 0.0, _quantum(state, level)
    columns = state.table.shape[1]
    left, last = 0.0, 0
    for column in range(columns):
        left += state.table[COUNT, column]
        if state.table[COUNT, column] > 0.0:
            last = column
    end, inside, inside_s = 0, 0.0, 0.0  # samples of the columns from `column` to before `end`
    for column in range(columns):
        state.table[INDEX + level, column] = 0.0
        if left <= 0.0:
            continue
        age = state.table[EDGE, column - 1] if column > 0 else 0.0
        if is_released:
            age = state.table[EDGE, column] - 1.0
        while end < columns and state.table[EDGE, end] <= age + delta:
            inside += state.table[COUNT, end]
            inside_s += state.table[SUM, end]
            end += 1
        if is_released:
            done, done_s = inside, inside_s
            if end > last:  # the last sample never completes
                done, done_s = inside - 1.0, inside_s - state.table[SUM, last] / state.table[COUNT, last]
            chance = round(done / left, 5)
            expected = round((done_s + delta * (left - done)) / left, 5)
            state.table[INDEX + level, column] = round(chance * 1e6 / expected, 4)
        else:
            beyond_s = delta * (left - inside) if left > inside else 0.0
            expected = inside_s - age * inside + beyond_s
            state.table[INDEX + level, column] = inside / expected if expected > 0.0 else 0.0
        left -= state.table[COUNT, column]
        if column < end:
            inside -= state.table[COUNT, column]
            inside_s -= state.table[SUM, column]
        else:
            end = column + 1


def _table(settings: Mapping[str, Setting]) -> Float64s:
    """Return the distribution before the first job: that of the samples, or empty bins; no index yet."""
    samples, thresholds = settings.get("samples"), settings.get("thresholds", _OWN["thresholds"])
    given = np.sort(np.atleast_1d(np.array(samples or [], dtype=np.float64)))
    edges, counts = np.unique(given, return_counts=True)
    if not len(edges):
        edges = np.power(_BIN_RATIO, np.arange(_BINS), dtype=np.float64)
        counts = np.zeros(len(edges), dtype=np.int64)
    rows = np.zeros((INDEX + 1 + np.size(np.array(thresholds)), len(edges) + 1))
    rows[EDGE] = np.append(edges, NEVER)
    rows[COUNT, :-1], rows[SUM, :-1] = counts, counts * edges
    return rows


_OWN: dict[str, Setting] = {
    "promote": 8.0,
    "local": True,
    "released": False,
    "delta": None,
    "samples": (),
    "thresholds": (3250.0, 7200.0),
}
SCHEDULER = EventScheduler(
    decide,
    _OWN,
    increasing=("thresholds",),
    unset={
        "delta": "the queue's upper threshold, or 3250 with `released`",
        "samples": "learned from the jobs that have ended",
    },
    table=_table,
)
