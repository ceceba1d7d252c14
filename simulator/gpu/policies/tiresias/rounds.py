"""Tiresias in rounds with two queues, as the program of Pollux's authors compares with it.

Qiao et al., "Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning" (OSDI 2021), section 5, and
their program (`tiresias.py` of petuum/adaptdl, branch osdi21-artifact). The paper of Tiresias is the source of
`tiresias`.

| rule | paper of Tiresias | program of Pollux's authors | here |
|---|---|---|---|
| decisions | at each event | every 60 s | `round_s` |
| queues | free to choose | two, with one threshold of 16 GPU h | `threshold`, GPU s |
| order in a queue | by first start, then by arrival | by joining the queue | as the program |
| promotion | after a long wait | none | as the program |
| starts | free | each takes 30 s, the first too | `pause_s`, -1: the model's restart; `first_start` |
| placement | few nodes if the tensors are skewed | the nodes with most free GPUs | `spread` 1; 0: the fewest nodes |
| epochs | | end on whole seconds | `whole_seconds` |

Queues are served in order, by the number of free GPUs in the cluster. A job that does not fit lets others pass, and a
running job that no longer fits is stopped. A job that keeps running keeps its GPUs.

Our reading: the GPUs of all types count as one pool, because the program has one type. A gang on several types is as
fast as its slowest GPU.

Test: `tests/simulator/gpu/test_pollux_references.py` compares the completion time of every job with the program's.
"""

from __future__ import annotations

import numpy as np

from simulator.gpu.algorithms.placement import packed, take
from simulator.gpu.round_policy import NOBODY, GpuJob, Placed, View, first_that_fit
from simulator.gpu.scheduler import RoundScheduler, check_seconds
from traces.arrays import Int64s

_NEAR = 1e-6  # tolerance for reaching the threshold, GPU s


class TiresiasRounds:
    """Serves a queue of jobs below `threshold` GPU seconds, then one of the other jobs, each in order of joining.

    `pause_s` is the charge of a start, s; below 0 it is the restart of each job's model.
    """

    guests = NOBODY
    settled = True

    def __init__(
        self,
        round_s: float = 60.0,
        threshold: float = 57_600.0,
        spread: bool = True,
        pause_s: float = -1.0,
        first_start: bool = False,
        whole_seconds: bool = False,
    ) -> None:
        check_seconds("tiresias-rounds", round_s=round_s, threshold=threshold)
        self.round_s, self.threshold, self.spread = round_s, threshold, spread
        self.pause_s: float | None = None if pause_s < 0.0 else pause_s
        self.first_start, self.whole_seconds = first_start, whole_seconds
        self.wake_s = np.inf
        self._queues: tuple[list[int], list[int]] = ([], [])

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.round_policy.RoundPolicy`."""
        there = {job.number: job for job in view.jobs}
        self._join(there)
        order = [there[number] for queue in self._queues for number in queue]
        running = first_that_fit(order, view.machine.total)
        self.wake_s = min(
            (view.now_s + (self.threshold - job.gpu_s) / job.gpus for job in running if job.gpu_s < self.threshold),
            default=np.inf,
        )
        free = view.machine.gpus.copy()
        for job in running:
            take(free, job.placed)
        wanted: dict[int, Placed] = {}
        for job in running:
            placed = job.placed or self._place(free, job.gpus)
            if not job.placed:
                take(free, placed)
            wanted[job.number] = placed
        return wanted

    def _join(self, there: dict[int, GpuJob]) -> None:
        """Let jobs leave and join the queues."""
        is_below = {number: job.gpu_s < self.threshold - _NEAR for number, job in there.items()}
        first = [number for number in self._queues[0] if is_below.get(number, False)]
        second = [number for number in self._queues[1] if number in there]
        known = {*first, *second}
        first.extend(number for number in there if number not in known and is_below[number])
        second.extend(number for number in there if number not in known and not is_below[number])
        self._queues = first, second

    def _place(self, free: Int64s, gpus: int) -> Placed:
        """Return a place for a gang of at most the free GPUs."""
        if self.spread:
            return emptiest_first(free, gpus)
        placed = packed(free, gpus)
        assert placed is not None
        return placed


def emptiest_first(free: Int64s, gpus: int) -> Placed:
    """Take all free GPUs of the nodes with the most, (nodes,), until `gpus` are taken; at most as many as are free."""
    placed: Placed = {}
    for node in np.argsort(-free, kind="stable").tolist():
        if sum(placed.values()) == gpus:
            break
        placed[node] = min(int(free[node]), gpus - sum(placed.values()))
    return placed


SCHEDULER = RoundScheduler(TiresiasRounds)
