"""The training of a job that declares its work: its progress by goodput, its batch, and what it has learned.

Qiao et al., "Pollux" (OSDI 2021), sections 2 and 3, and Jayaram Subramanya et al., "Sia" (SOSP 2023), section 3. The
true progress per second is gain / (step + accumulation (step - sync)) / slowdown. It uses the measured steps of the
placement and the measured gradient of the epoch. The job knows only what it has run. From it, it fits one throughput
model per GPU type, with which it chooses its next batch and a scheduler its next GPUs. The batch is chosen at each
start, after each epoch, and whenever the clock looks at the job. Until the first measurement it is the model's own
batch.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from math import ceil

import numpy as np

from simulator.gpu.profiles.performance import (
    TINY,
    TOLERANCE,
    BatchChoice,
    BatchLimits,
    StepModel,
    best_batch,
    fitted,
    gain,
)
from simulator.gpu.profiles.profile import Placement, Profile, StepTimes
from simulator.gpu.profiles.statistics import Statistics
from traces.arrays import Float64s
from traces.counted import counted
from traces.errors import InputError


class Training:
    """Trains `profile`, which has statistics, until `work` steps of its own batch are done.

    `batch` fixes the samples of a step over all GPUs; with None the job chooses. A scheduler counts on batches of up to
    `counted_batch`; as in the released simulator, the job itself may choose more. With `whole_seconds` every epoch
    takes whole seconds, as there; this matters for epochs of a few seconds. `tolerance` is that of the fits (`fitted`).
    """

    def __init__(
        self,
        profile: Profile,
        work: float,
        batch: float | None = None,
        counted_batch: float | None = None,
        whole_seconds: bool = False,
        tolerance: float | None = TOLERANCE,
    ) -> None:
        assert profile.statistics is not None
        self.statistics: Statistics = profile.statistics
        self.profile, self.work, self.batch, self.whole_seconds = profile, work, batch, whole_seconds
        self.tolerance = tolerance
        self.own = profile.batch or float(self.statistics.batches[0])
        self.most = max(self.own, profile.most_batch or float(self.statistics.batches[-1]))
        self.counted = max(self.own, min(self.most, batch or counted_batch or self.most))
        self.done, self.epoch = 0.0, 0
        self.gpu_type = ""
        self.placement: Placement = ()
        self.local_batch, self.accumulation = 0, 0
        self.gradient: tuple[float, float] | None = None  # square and variance, as last measured
        self.seen: dict[
            str, dict[tuple[int, int, float], tuple[float, float]]
        ] = {}  # by GPU type, as `fitted` takes it
        self.models: dict[str, StepModel] = {}  # by GPU type
        self.fits = 0  # how often a model was fitted

    @property
    def share_left(self) -> float:
        """Return the share of the work that is left, in [0, 1]."""
        return max(0.0, 1.0 - self.done / self.work)

    def place(self, gpu_types: Collection[str], placement: Placement) -> None:
        """Move the job to `placement` and choose its batch. A gang on several types is as fast as its slowest.

        Raises InputError where the placement holds no whole number of the model's replicas.
        """
        for gpu_type in gpu_types:
            stages = self.profile.stages(gpu_type)
            if stages == 0 or sum(placement) % stages:
                needed = f"multiples of {counted(stages, 'GPU')}" if stages else "types on which it was measured"
                raise InputError(
                    f"a job of model {self.profile.model} cannot run on {counted(sum(placement), 'GPU')} of type "
                    f"{gpu_type}: its stages need {needed}"
                )
        kinds = [self.profile.nearest_type(gpu_type) for gpu_type in gpu_types]
        self.gpu_type = max(kinds, key=lambda kind: self.profile.steps[kind].on(placement, self.profile.local_batch))
        self.placement = placement
        self._choose()

    def run(self, seconds: float, share: float = 1.0) -> float | None:
        """Train for `seconds` at `share` of the speed; return after how many seconds the job ended, None if it did not.

        The job measures its steps in each epoch, and chooses a batch after each epoch and at the end.
        """
        left = seconds
        while left > 0.0:
            rate = self._measure() * share
            end = min(self.statistics.end(self.epoch), self.work)
            if self.done + rate * left < end:
                self.done += rate * left
                left = 0.0
            else:
                needed_s = (end - self.done) / rate
                left = max(0.0, left - (round(needed_s) if self.whole_seconds else needed_s))
                self.done = end
                if end >= self.work:
                    return seconds - left
                self.epoch += 1
            self._choose()
        return None

    def steps_per_s(self, gpu_types: Collection[str], placement: Placement) -> float:
        """Return the steps of the fixed batch, or of the model's own batch, per second on `placement`."""
        fresh = Training(self.profile, self.work, self.batch)
        fresh.place(gpu_types, placement)
        step_s, sync_s = _steps_on(self.profile.steps[fresh.gpu_type], placement, fresh.local_batch)
        return 1.0 / (step_s + fresh.accumulation * (step_s - sync_s)) / self.profile.slowdown

    def expected(self, gpu_type: str, nodes: Float64s, gpus: Float64s) -> Float64s | None:
        """Return the goodput that the job expects on each allocation, (n,), samples/s; None on a type it never ran on.

        A scheduler counts on batches of up to `counted`, and on samples per GPU that were measured on some placement.
        """
        kind = self.profile.nearest_type(gpu_type)
        if self.gradient is None or kind not in self.models:
            return None
        most_local = float(self.profile.steps[kind].points[:, 2].max())
        return self._best(kind, nodes, gpus, self.counted, most_local, self.batch is not None).goodput

    @property
    def most_gpus(self) -> int:
        """Return the most GPUs that the largest batch keeps busy."""
        return max(int(self.most // steps.points[:, 2].min()) for steps in self.profile.steps.values())

    def alone(self, gpu_type: str) -> float:
        """Return the samples per second of one replica at its largest batch, by which types are compared."""
        steps = self.profile.steps[self.profile.nearest_type(gpu_type)]
        of_one = steps.points[:, 1] == steps.stages
        rows = of_one if of_one.any() else np.ones(len(of_one), dtype=np.bool_)
        return float(steps.stages * steps.points[rows, 2].max() / steps.seconds[rows, 0].max())

    def most_replicas_seen(self, gpu_type: str) -> int:
        """Return the most replicas that the job has run on a type; 0 for none."""
        kind = self.profile.nearest_type(gpu_type)
        return max((gpus for _, gpus, _ in self.seen.get(kind, {})), default=0) // self.profile.steps[kind].stages

    def _best(
        self, kind: str, nodes: Float64s, gpus: Float64s, most: float, most_local: float, is_fixed: bool
    ) -> BatchChoice:
        assert self.gradient is not None
        least_local = float(self.profile.steps[kind].points[:, 2].min())
        limits = BatchLimits(self.own, most, least_local, most_local)
        return best_batch(self.models[kind], self.gradient, nodes, gpus, limits, is_fixed)

    def _choose(self) -> None:
        """Choose samples per GPU and accumulation on the present placement."""
        steps, gpus = self.profile.steps[self.gpu_type], sum(self.placement)
        most_local = steps.most_local(self.placement)
        if self.batch is None and self.gradient is not None and self.gpu_type in self.models:
            on = np.array([float(len(self.placement))]), np.array([float(gpus)])
            best = self._best(self.gpu_type, *on, self.most, most_local, False)
            self.local_batch, self.accumulation = int(best.local_batch[0]), int(best.accumulation[0])
        else:
            batch = self.batch or max(self.own, float(steps.points[:, 2].min()) * gpus)
            share = ceil(batch / gpus - TINY)
            self.accumulation = ceil(share / most_local - TINY) - 1
            if gpus == 1 and batch > self.own:
                self.accumulation = max(1, self.accumulation)
            self.local_batch = ceil(share / (self.accumulation + 1) - TINY)
        most = int(self.most / (gpus * (self.accumulation + 1)))
        self.local_batch = max(1, min(self.local_batch, most))

    def _measure(self) -> float:
        """Learn from a step and its gradient; return the true progress, in steps of the own batch per second."""
        step_s, sync_s = _steps_on(self.profile.steps[self.gpu_type], self.placement, self.local_batch)
        batch = sum(self.placement) * self.local_batch * (self.accumulation + 1)
        self.gradient = self.statistics.at(batch, self.epoch)
        seen = self.seen.setdefault(self.gpu_type, {})
        point = (len(self.placement), sum(self.placement), float(self.local_batch))
        if point not in seen:
            seen[point] = step_s, sync_s
            self.models[self.gpu_type] = fitted(seen, self.tolerance)
            self.fits += 1
        progress = float(gain(self.gradient, np.array(batch / self.own)))
        return progress / (step_s + self.accumulation * (step_s - sync_s)) / self.profile.slowdown


@lru_cache(maxsize=100_000)
def _steps_on(steps: StepTimes, placement: Placement, local_batch: int) -> tuple[float, float]:
    return steps.on(placement, float(local_batch))
