"""What-if for GPU schedulers: schedule GPU jobs by another of the published schedulers, or on another cluster.

Every scheduler replays the same jobs on the same machine with the same profiles and prices (`simulator.gpu`). It
replays them unchanged and with each change alone, once for each draw of what the trace does not say.
`models.what_if.differences` compares the replays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
from models.what_if.changes import AS_IT_IS, GpuScene, changed, is_drawn, parameters_of, redrawn
from simulator.gpu.figures import figures, jct_s, queueing_s, rho
from simulator.gpu.jobs import origin_s
from simulator.gpu.registry import check, parameters, scheduler
from simulator.gpu.run import fits, simulate
from simulator.gpu.scheduler import EventScheduler
from traces.arrays import Float64s
from traces.counted import counted
from traces.errors import InputError


@dataclass(frozen=True)
class SchedulerOutcome:
    """One replay: its figures, the values of each job behind those that are means, and the assumptions made."""

    scheduler: str
    change: str
    seed: int  # of the draws
    figures: dict[str, float]
    of_jobs: dict[str, Float64s]  # figure -> (jobs,)
    assumptions: tuple[str, ...]
    times: dict[str, Float64s] = field(default_factory=dict)
    """(jobs,) each: submit_s, start_s and end_s in the trace's own seconds, preemptions, gpu_s and that by GPU type."""


class PlannedGpuReplay(NamedTuple):
    """One planned replay."""

    scene: GpuScene
    scheduler: str
    change: str


def combinations(
    scene: GpuScene, schedulers: Sequence[str], changes: Sequence[str], draws: int = 1
) -> list[PlannedGpuReplay]:
    """Plan every scheduler with nothing changed and with each change that concerns it; checks names and values.

    Each is planned once per draw: of `draws` scenes the first is `scene`, and the others draw with the following seeds.
    A scene whose jobs have no profile has nothing to draw and is replayed once. Raises InputError for unknown names and
    impossible changes.
    """
    if draws > 1 and is_drawn(scene):
        line = f"drawn again with the seeds up to {scene.seed + draws - 1}: figures are means over {draws} draws"
        scene = replace(scene, assumptions=(*scene.assumptions, line))
    scenes = [scene, *(redrawn(scene, scene.seed + more) for more in range(1, draws if is_drawn(scene) else 1))]
    planned = []
    for name in dict.fromkeys(schedulers):
        check(name, {})
        planned += [PlannedGpuReplay(one, name, AS_IT_IS) for one in scenes]
        for change in dict.fromkeys(changes):
            concerned = [changed(one, change, schedulers) for one in scenes]
            if concerned[0].only in (None, name):
                planned += [PlannedGpuReplay(one, name, change) for one in concerned]
    return planned


def replays(
    planned: Sequence[PlannedGpuReplay],
    report: Callable[[str], None],
    workers: int | None = None,
    engine: Engine = each_here,
) -> list[SchedulerOutcome]:
    """Make the replays, by default one process per processor; outcomes are in the order planned.

    `report` is called with the name of each replay when it is done. Draws of a scene with nothing drawn are one replay.
    """
    first: dict[tuple[str, str, int], int] = {}
    first_at = [first.setdefault((one.scheduler, one.change, _drawn_with(one)), at) for at, one in enumerate(planned)]
    different = [planned[at] for at in first.values()]
    found = dict(zip(first.values(), _each(different, report, workers, engine), strict=True))
    for at, one in enumerate(planned):
        if at not in found:
            report(_name(one))
    return [replace(found[at], seed=one.scene.seed) for at, one in zip(first_at, planned, strict=True)]


def _drawn_with(one: PlannedGpuReplay) -> int:
    """Return the seed of the replay's draws; -1 if it draws nothing."""
    return one.scene.seed if is_drawn(one.scene) or "seed" in parameters(one.scheduler) else -1


def _each(
    planned: Sequence[PlannedGpuReplay], report: Callable[[str], None], workers: int | None, engine: Engine
) -> list[SchedulerOutcome]:
    most = min(len(planned), workers or os.cpu_count() or 1)
    outcomes: dict[int, SchedulerOutcome] = {}
    if most <= 1 and engine is each_here:
        each: Iterable[tuple[int, SchedulerOutcome]] = ((at, replayed(None, one)) for at, one in enumerate(planned))
    else:
        few = planned[0]._replace(scene=replace(planned[0].scene, jobs=planned[0].scene.jobs.take(np.arange(1))))
        shared = [few._replace(scheduler=name) for name in dict.fromkeys(one.scheduler for one in planned)]
        tasks = [Task(_name(one), one, one.scheduler) for one in planned]
        each = engine(Work(replayed, tasks, shared, prepare=compile_schedulers), most)
    for at, outcome in each:
        outcomes[at] = outcome
        report(_name(planned[at]))
    return [outcomes[at] for at in range(len(planned))]


def compile_schedulers(of_one_job: Sequence[PlannedGpuReplay]) -> None:
    """Compile the schedulers of replays of a single job; every process then loads the result."""
    for one in of_one_job:
        if isinstance(scheduler(one.scheduler), EventScheduler):
            simulate(one.scene.cluster, one.scene.jobs, one.scheduler)


def _name(one: PlannedGpuReplay) -> str:
    return f"{one.scheduler}, {one.change}" + (f", seed {one.scene.seed}" if is_drawn(one.scene) else "")


def replayed(_shared: object, one: PlannedGpuReplay) -> SchedulerOutcome:
    """Make one replay and compute its figures."""
    cluster, jobs = one.scene.cluster, one.scene.jobs
    run = simulate(
        cluster, jobs, one.scheduler, parameters_of(one.scene, one.scheduler), one.scene.quotas, one.scene.queues
    )
    of_jobs = {
        "mean_jct_s": jct_s(jobs, run.result),
        "mean_queueing_s": queueing_s(jobs, run.result),
        "mean_rho": rho(cluster, jobs, run.result),
    }
    summed = figures(cluster, jobs, run.result)
    assumptions = (*one.scene.assumptions, *run.said)
    times = {
        "submit_s": jobs.submit_s,
        "start_s": run.result.start_s + origin_s(jobs),
        "end_s": run.result.end_s + origin_s(jobs),
        "preemptions": run.result.preemptions.astype(np.float64),
        "gpu_s": run.result.gpu_s,
        **{f"gpu_s_{kind}": gpu_s for kind, gpu_s in run.result.gpu_s_by_type.items()},
    }
    return SchedulerOutcome(one.scheduler, one.change, one.scene.seed, summed, of_jobs, assumptions, times)


def without_unplaceable(scene: GpuScene) -> GpuScene:
    """Leave out the jobs that the cluster or the queues can never start; an assumption states their number."""
    able = fits(scene.cluster, scene.jobs)
    if not able.any():
        raise InputError(
            f"none of the {counted(len(able), 'job')} fits the cluster of {counted(scene.cluster.gpus, 'GPU')}"
        )
    lines = list(scene.assumptions)
    if not able.all():
        lines.append(f"{counted(int((~able).sum()), 'job', 'fits')} no configuration of the cluster: left out")
    if scene.queues:
        from simulator.gpu.yarn_queues import above_most

        above = above_most(scene.cluster, scene.jobs, scene.queues) & able
        able &= ~above
        if above.any():
            lines.append(
                f"{counted(int(above.sum()), 'job', 'asks')} for more than the most capacity of a queue: left out"
            )
        if not able.any():
            raise InputError("no job is left within the most capacity of a queue: raise the most capacities")
    return scene if able.all() else replace(scene, jobs=scene.jobs.take(able), assumptions=tuple(lines))
