"""Run a declared world under the `slurm` scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from simulator.slurm.compiled import kernel
from simulator.slurm.compiled import state as s
from simulator.slurm.inputs.prepare import Prepared, grown, prepared
from simulator.slurm.world import NEVER, NEVER_SATISFIED, NONE, PENDING, PLACEABLE, SlurmResult, SlurmWorld

ProgressCallback = Callable[[int], None]  # receives the number of jobs that no longer wait
_LEAST_S, _MOST_S = 0.1, 0.4  # real time between two calls, s
_FIRST_SLICE_S = 3600  # simulated time, s


def run(world: SlurmWorld, *, free_from: int | None = None, until: int | None = None) -> SlurmResult:
    """Simulate every job of `world` up to and including second `until` (default: to the end).

    With `free_from`, only pinned starts happen before that second (docs/schedulers/slurm.md, "Replays ..."). Raises
    InputError for an inconsistent world. A job that can never start is UNPLACEABLE in the result.
    """
    return run_timed(world, free_from=free_from, until=until)[0]


def run_timed(
    world: SlurmWorld,
    *,
    free_from: int | None = None,
    until: int | None = None,
    on_progress: ProgressCallback | None = None,
) -> tuple[SlurmResult, float]:
    """Run as `run` does; also return the seconds of the compiled part, without preparing the tables.

    `advanced` explains `on_progress`.
    """
    ready = prepared(world, free_from=free_from or 0)
    kernel.advance(ready.run, ready.state, -1, NONE)  # compiles, or loads the compiled code
    kernel.next_instant(ready.run, ready.state)
    before = time.perf_counter()
    ready = advanced(ready, NEVER if until is None else until, on_progress)
    seconds = time.perf_counter() - before
    return result(ready), seconds


def advanced(ready: Prepared, until: int, on_progress: ProgressCallback | None = None) -> Prepared:
    """Advance to `until` and enlarge the state when needed.

    The callback `on_progress` is called several times per second. For this, the simulated time is cut into slices,
    which change no start; the process can be interrupted between them.
    """
    if on_progress is None:
        return _advanced(ready, until)
    length = _FIRST_SLICE_S
    while (instant := kernel.next_instant(ready.run, ready.state)) <= until and instant != NEVER:
        before = time.perf_counter()
        ready = _advanced(ready, min(until, instant + length))
        took = time.perf_counter() - before
        if took < _LEAST_S:
            length *= 2
        elif took > _MOST_S:
            length = max(1, length // 2)
        scalars = ready.state.scalars
        on_progress(int(scalars[s.NEXT_ARRIVAL] - scalars[s.HELD_JOBS] - scalars[s.QUEUE_ROWS]))
    return _advanced(ready, until)


def _advanced(ready: Prepared, until: int) -> Prepared:
    while kernel.advance(ready.run, ready.state, until, NONE) == kernel.NO_ROOM:
        ready = grown(ready)
    return ready


def result(ready: Prepared) -> SlurmResult:
    """Return the results of a run so far."""
    out, state = ready.run.out, ready.state
    phase = state.phase.astype(np.int64)
    phase[phase == s.QUEUED] = PENDING
    reason = ready.reason.copy()
    if len(state.waits):
        reason[(reason == PLACEABLE) & (phase == PENDING) & (state.waits >= s.NEVER_WAITS)] = NEVER_SATISFIED
    restarts = state.restarts if len(state.restarts) else np.zeros(len(phase), np.int8)
    return SlurmResult(
        start_s=out.start_s.copy(), end_s=out.end_s.copy(), state=phase, reason=reason,
        restarts=restarts.astype(np.int64), by_backfill=out.by_backfill.copy(),
        placement_first=out.placement_first, placement=out.placement.astype(np.int64),
    )  # fmt: skip
