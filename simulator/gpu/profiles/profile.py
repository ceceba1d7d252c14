"""The measured profile of one model: step times by GPU type, placement and batch, alone and packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from simulator.gpu.profiles.statistics import Statistics
from traces.arrays import Float64s

Placement = tuple[int, ...]  # GPUs on each node

RESTART_S = 30.0  # seconds of a restart without a measurement: our choice, the second smallest of Sia's values


def rotated(placement: Placement) -> Placement:
    """Return the least rotation of `placement`, which represents all: a ring of GPUs has no first node."""
    return min(placement[at:] + placement[:at] for at in range(len(placement)))


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Measured steps of one model on one GPU type.

    `points` (rows, 3) holds nodes, GPUs and samples per GPU. `seconds` (rows, 2) holds the time of a step, s, and the
    part of it that synchronises gradients, s.
    """

    points: Float64s
    seconds: Float64s
    placements: tuple[Placement, ...] = ()  # of each row as `rotated`; empty: unknown
    stages: int = 1  # GPUs of a replica: above 1, the layers of the model are divided between them

    def on(self, placement: Placement, local_batch: float) -> tuple[float, float]:
        """Return the step time and its synchronisation, s, on `placement`, `local_batch` samples a GPU.

        For a measured placement they are linear in the batch; outside, those of the nearest batch. Other placements
        follow `at`.
        """
        rows = self._of_placement.get(rotated(placement))
        if rows is None:
            return self.at(len(placement), sum(placement), local_batch)
        batches, seconds = rows
        step_s, sync_s = (np.interp(local_batch, batches, column) for column in seconds.T)
        return float(step_s), float(sync_s)

    def most_local(self, placement: Placement) -> float:
        """Return the largest measured samples a GPU on `placement`; if there are none, on at least as many nodes."""
        rows = self._of_placement.get(rotated(placement))
        if rows is not None:
            return float(rows[0][-1])
        larger = (self.points[:, :2] >= (len(placement), sum(placement))).all(axis=1)
        return float(self.points[larger if larger.any() else slice(None), 2].max())

    def at(self, nodes: int, gpus: int, local_batch: float) -> tuple[float, float]:
        """Return the step time and its synchronisation, s, on `gpus` GPUs of `nodes` nodes, `local_batch` a GPU.

        A measured point returns the mean of its rows. Between the points, times are linear in nodes, GPUs and batch, as
        in the simulator that Sia's authors released. Outside, they are those of the nearest point.
        """
        point = np.array([nodes, gpus, local_batch], dtype=np.float64)
        same = (self.points == point).all(axis=1)
        step_s, sync_s = self.seconds[same].mean(axis=0) if same.any() else self._interpolated(point)
        return float(step_s), float(sync_s)

    def __getstate__(self) -> dict[str, object]:  # no process can send an interpolation to another
        return {name: getattr(self, name) for name in ("points", "seconds", "placements", "stages")}

    @cached_property
    def _of_placement(self) -> dict[Placement, tuple[Float64s, Float64s]]:
        """Measured placement -> its batches (rows,), rising, and their times (rows, 2)."""
        rows: dict[Placement, list[int]] = {}
        for row, placement in enumerate(self.placements):
            rows.setdefault(placement, []).append(row)
        found = {}
        for placement, own in rows.items():
            batches, of_batch = np.unique(self.points[own, 2], return_inverse=True)
            means = [self.seconds[np.array(own)[of_batch == each]].mean(axis=0) for each in range(len(batches))]
            found[placement] = (batches, np.array(means))
        return found

    @cached_property
    def _interpolated(self) -> Callable[[Float64s], Float64s]:
        """The times at a point that was not measured, (3,) -> (2,)."""
        from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
        from scipy.spatial import QhullError

        every, row = np.unique(self.points, axis=0, return_inverse=True)
        means = np.array([self.seconds[row.reshape(-1) == at].mean(axis=0) for at in range(len(every))])
        varies = np.ptp(every, axis=0) > 0.0
        points = every[:, varies]
        if not varies.any():
            return lambda _point: means[0]
        if varies.sum() == 1:  # `np.unique` sorts
            return lambda point: np.array([np.interp(point[varies][0], points[:, 0], column) for column in means.T])
        nearest = NearestNDInterpolator(points, means, rescale=True)
        try:
            linear = LinearNDInterpolator(points, means)
        except QhullError:  # the points lie on a line or a plane
            return lambda point: np.asarray(nearest(point[varies])).reshape(-1)

        def times(point: Float64s) -> Float64s:
            found = np.asarray(linear(point[varies])).reshape(-1)
            return np.asarray(nearest(point[varies])).reshape(-1) if np.isnan(found).any() else found

        return times


@dataclass(frozen=True, eq=False)
class Profile:
    """The profile of one model. Compared and hashed by identity."""

    model: str
    steps: Mapping[str, StepTimes]  # GPU type -> steps, at least one type
    local_batch: float  # samples per GPU of a job that does not declare its batch
    restart_s: float = RESTART_S  # of a checkpoint and a start from it
    noise_scale: float | None = None  # Pollux's gradient variance over squared gradient at the job's own batch
    packed: Mapping[tuple[str, str, int], float] = field(default_factory=dict)
    """(GPU type, other model, GPUs) -> step time, s, while a job of the other model shares all GPUs."""
    statistics: Statistics | None = None  # of its gradients; without them a job's `work` is not used
    batch: float | None = None  # the model's own batch over all GPUs; None: the smallest of `statistics`
    most_batch: float | None = None  # largest batch over all GPUs; None: the largest of `statistics`
    slowdown: float = 1.0  # seconds of a real job per second of its measured steps

    def nearest_type(self, gpu_type: str) -> str:
        """Return `gpu_type` if the model was measured on it, else the first type on which it was."""
        return gpu_type if gpu_type in self.steps else next(iter(self.steps))

    @lru_cache(maxsize=10_000)  # noqa: B019 - profiles live as long as the process
    def with_batch(self, local_batch: float) -> Profile:
        """Return the profile for jobs of `local_batch` samples per GPU; such jobs were not measured in pairs."""
        return replace(self, local_batch=local_batch, packed={})

    def stages(self, gpu_type: str) -> int:
        """Return the GPUs of a replica; 0 on a type where a model with stages was not measured, so does not run."""
        if gpu_type not in self.steps and any(steps.stages > 1 for steps in self.steps.values()):
            return 0
        return self.steps[self.nearest_type(gpu_type)].stages
