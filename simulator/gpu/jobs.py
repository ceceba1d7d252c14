"""The jobs of the GPU schedulers as arrays, with draws for properties that a trace does not hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.gpu.profiles import draw
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.round_policy import GpuJob
from traces.arrays import Bools, Float64s, Int64s

OPTIONAL_COLUMNS = (
    "ids",
    "recorded_wait_s",
    "named",
    "batch",
    "counted_batch",
    "work",
    "least",
    "most",
    "restart_s",
    "app",
    "fails_s",
    "hopeless_s",
)  # may be None


@dataclass(frozen=True)
class GpuJobs:
    """The gangs in order of (submit_s, number); each array has shape (jobs,).

    `need` (jobs, resources) holds the resources that a job takes per GPU; the first column is GPUs (1). Units are those
    of `simulator.gpu.cluster.RESOURCES`, and 0: the job does not declare it. Needs are rounded down, so that a job that
    fits a node also fits it in these units.
    """

    number: Int64s
    submit_s: Float64s  # epoch s, or the trace's own
    gpus: Int64s  # GPUs requested, >= 1
    run_s: Float64s  # run time on those GPUs, packed, > 0
    need: Int64s
    group: Int64s  # index into `groups`: virtual cluster, partition or user
    groups: tuple[str, ...]
    user: Int64s  # index into `users`; -1 if the log names none
    users: tuple[str, ...]
    model: Int64s  # index into `profiles`; -1 for a job without profile
    elastic: Bools
    pod_gpus: Int64s  # GPUs of one pod, all on one node; divides `gpus`; 1 if the log has no pods
    gpu_milli: Int64s  # thousandths that it takes of each of its GPUs; 1,000 is the whole GPU
    priority: Int64s  # a pod of higher priority goes first and may displace others; 0 if the log has none
    accepts: Int64s  # index into `models_asked`; -1 for a job that runs on any GPU model
    models_asked: tuple[tuple[str, ...], ...]  # sets of GPU models that jobs ask for, named as in a machine list
    profiles: tuple[Profile, ...] = ()
    ids: NDArray[np.str_] | None = None  # (jobs,) the log's names of the jobs
    recorded_wait_s: Float64s | None = None  # (jobs,) wait in the log, s; NaN where it is unknown
    # Facts that a user may give, (jobs,) each. None: not given for any job; NaN: not given for this job.
    named: Int64s | None = None  # index into `profiles` of the model that the user names; -1: not named
    batch: Float64s | None = None  # samples of a step over all GPUs
    counted_batch: Float64s | None = None  # largest batch that a scheduler counts on, of a job that chooses its own
    work: Float64s | None = None  # total work, in steps of the model's own batch
    least: Float64s | None = None  # least GPUs of an elastic job
    most: Float64s | None = None  # most GPUs of an elastic job
    restart_s: Float64s | None = None  # seconds of a checkpoint and a start from it
    app: Int64s | None = None  # index of the application whose trials share it; -1: none
    fails_s: Float64s | None = None  # run time of its first attempt, if that fails by an error that shows on one GPU
    hopeless_s: Float64s | None = None  # run time until its first failure that no retry cures

    def __len__(self) -> int:
        return len(self.number)

    def take(self, index: Int64s | Bools) -> GpuJobs:
        """Return the jobs at `index` (positions or mask)."""
        fixed = ("number", "submit_s", "gpus", "run_s", "need", "group", "user", "model", "elastic", "pod_gpus")
        pods = ("gpu_milli", "priority", "accepts")
        present = tuple(name for name in OPTIONAL_COLUMNS if getattr(self, name) is not None)
        return replace(self, **{name: getattr(self, name)[index] for name in (*fixed, *pods, *present)})

    def needs(self, resources: int) -> Int64s:
        """Return `need` in the first `resources` columns, (jobs, resources); 0 where jobs do not declare it."""
        known = self.need[:, :resources]
        return np.pad(known, ((0, 0), (0, resources - known.shape[1])))

    def drawn(self, seed: int, mix: dict[str, float], elastic_share: float = 0.2) -> GpuJobs:
        """Return the same jobs with generated models (drawn from `mix`) and elastic flags, by `profiles.draw`.

        Jobs whose model is named keep it and their elasticity. A drawn job is elastic only if its model has a noise
        scale: else the effect of a larger batch is unknown. Raises InputError for a model that `profiles` lacks.
        """
        order = {profile.model: index for index, profile in enumerate(self.profiles)}
        draw.check_mix(mix, order)
        model = np.array([order[name] for name in draw.models(self.number, seed, mix)], dtype=np.int64)
        scales = np.array([profile.noise_scale is not None for profile in self.profiles], dtype=np.bool_)
        elastic = draw.elastic(self.number, self.gpus, elastic_share, seed) & scales[model]
        if self.named is not None:
            is_named = self.named >= 0
            model, elastic = np.where(is_named, self.named, model), np.where(is_named, self.elastic, elastic)
        return replace(self, model=model, elastic=elastic)

    def at_their_batch(self, *, trains: bool) -> GpuJobs:
        """Return the jobs whose profile is that of the batch that the user gives, where one is given.

        With `trains`, jobs that declare their work keep their profile, because their training counts the batch.
        """
        if self.batch is None:
            return self
        fixed = (self.model >= 0) & ~np.isnan(self.batch)
        if trains and self.work is not None:
            trained = np.array([profile.statistics is not None for profile in self.profiles], dtype=np.bool_)
            fixed &= ~(trained[self.model] & ~np.isnan(self.work))
        profiles, model = list(self.profiles), self.model.copy()
        pairs = np.column_stack([self.model, self.batch / self.gpus])[fixed]
        if not len(pairs):
            return self
        every, own = np.unique(pairs, axis=0, return_inverse=True)
        model[fixed] = len(profiles) + own.reshape(-1)
        profiles += [self.profiles[int(index)].with_batch(float(samples)) for index, samples in every]
        return replace(self, profiles=tuple(profiles), model=model)

    @property
    def drawn_models(self) -> Bools:
        """Whether the model of each job is drawn, (jobs,)."""
        has_model = self.model >= 0
        return has_model if self.named is None else has_model & (self.named < 0)

    def objects(self) -> list[GpuJob]:
        """Return new jobs for the clock of rounds, whose times start at the second of the first submission."""
        origin = origin_s(self)

        def given(name: str, at: int) -> float | None:
            values = getattr(self, name)
            return None if values is None or np.isnan(values[at]) else float(values[at])

        return [
            GpuJob(
                number=at,
                submit_s=float(self.submit_s[at]) - origin,
                gpus=int(self.gpus[at]),
                run_s=float(self.run_s[at]),
                group=self.groups[self.group[at]] if self.groups else "",
                model=self.profiles[self.model[at]] if self.model[at] >= 0 else None,
                elastic=bool(self.elastic[at]),
                pod_gpus=int(self.pod_gpus[at]),
                batch=given("batch", at),
                counted_batch=given("counted_batch", at),
                work=given("work", at),
                least=int(given("least", at) or 1),
                most=None if (most := given("most", at)) is None else int(most),
                restart_s=given("restart_s", at),
                fails_s=given("fails_s", at),
                hopeless_s=given("hopeless_s", at),
                app=None if self.app is None or self.app[at] < 0 else int(self.app[at]),
                need=tuple(self.need[at, 1:].tolist()),
                gpu_milli=int(self.gpu_milli[at]),
                priority=int(self.priority[at]),
                accepts=self.models_asked[self.accepts[at]] if self.accepts[at] >= 0 else (),
            )
            for at in range(len(self))
        ]


def origin_s(jobs: GpuJobs) -> float:
    """Return the second at which both clocks start."""
    return float(np.floor(jobs.submit_s.min())) if len(jobs) else 0.0


def of_arrays(
    submit_s: Float64s,
    gpus: Int64s,
    run_s: Float64s,
    group: Int64s | None = None,
    groups: tuple[str, ...] = (),
    need: Int64s | None = None,
) -> GpuJobs:
    """Build jobs from plain arrays (jobs,), sorted by submission, without profiles, users or elastic jobs."""
    order = np.argsort(np.asarray(submit_s), kind="stable")
    count = len(order)
    none = np.full(count, -1, dtype=np.int64)
    of_group = np.zeros(count, dtype=np.int64) if group is None else np.asarray(group, dtype=np.int64)
    return GpuJobs(
        number=np.arange(count, dtype=np.int64),
        submit_s=np.asarray(submit_s, dtype=np.float64)[order],
        gpus=np.asarray(gpus, dtype=np.int64)[order],
        run_s=np.asarray(run_s, dtype=np.float64)[order],
        need=np.ones((count, 1), dtype=np.int64) if need is None else np.asarray(need, dtype=np.int64)[order],
        group=of_group[order],
        groups=groups or tuple(f"group {index}" for index in range(int(of_group.max()) + 1 if count else 1)),
        user=none,
        users=(),
        model=none.copy(),
        elastic=np.zeros(count, dtype=np.bool_),
        pod_gpus=np.ones(count, dtype=np.int64),
        gpu_milli=np.full(count, 1000, dtype=np.int64),
        priority=np.zeros(count, dtype=np.int64),
        accepts=none.copy(),
        models_asked=(),
    )
