"""What would change if GPU jobs were scheduled by another of the published schedulers, or on another cluster.

Every scheduler replays the same jobs on the same machine with the same profiles and prices (`simulator.gpu`), as it is
and with each change alone, once a draw of what the trace does not say. How they differ: `models.what_if.differences`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.child import end_with_parent
from models.what_if.changes import AS_IT_IS, Scene, changed, is_drawn, parameters_of, redrawn
from simulator.gpu.figures import figures, jct_s, queueing_s, rho
from simulator.gpu.registry import Event, check, parameters, scheduler
from simulator.gpu.run import simulate
from traces.counted import counted

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """One replay: its figures, those that are means of a figure a job, and what was assumed."""

    scheduler: str
    change: str
    seed: int  # of what is drawn
    figures: dict[str, float]
    of_jobs: dict[str, Floats]  # figure -> (jobs,)
    said: tuple[str, ...]


class Asked(NamedTuple):
    """One replay to be made."""

    scene: Scene
    scheduler: str
    change: str


def combinations(scene: Scene, schedulers: Sequence[str], changes: Sequence[str], draws: int = 1) -> list[Asked]:
    """Every scheduler with nothing changed and with each change that concerns it; names and values are checked here.

    Each once a draw: of `draws` scenes the first is `scene`, the others draw with the seeds that follow. A scene whose
    jobs have no profile has nothing to draw, and is replayed once. Raises InputError for what is not known or possible.
    """
    if draws > 1 and is_drawn(scene):
        line = f"drawn again with the seeds up to {scene.seed + draws - 1}: figures are means over {draws} draws"
        scene = replace(scene, said=(*scene.said, line))
    scenes = [scene, *(redrawn(scene, scene.seed + more) for more in range(1, draws if is_drawn(scene) else 1))]
    asked = []
    for name in dict.fromkeys(schedulers):
        check(name, {})
        asked += [Asked(one, name, AS_IT_IS) for one in scenes]
        for change in dict.fromkeys(changes):
            concerned = [changed(one, change, schedulers) for one in scenes]
            if concerned[0].only in (None, name):
                asked += [Asked(one, name, change) for one in concerned]
    return asked


def replays(asked: Sequence[Asked], tell: Callable[[str], None], workers: int | None = None) -> list[Outcome]:
    """The outcomes in the order asked, in as many processes as there are processors; `tell` hears which is done.

    Draws of a scene in which nothing is drawn are one replay.
    """
    first: dict[tuple[str, str, int], int] = {}
    of = [first.setdefault((one.scheduler, one.change, _drawn_with(one)), at) for at, one in enumerate(asked)]
    found = dict(zip(first.values(), _each([asked[at] for at in first.values()], tell, workers), strict=True))
    for at, one in enumerate(asked):
        if at not in found:
            tell(_name(one))
    return [replace(found[at], seed=one.scene.seed) for at, one in zip(of, asked, strict=True)]


def _drawn_with(one: Asked) -> int:
    """The seed of what the replay draws; -1 where it draws nothing."""
    return one.scene.seed if is_drawn(one.scene) or "seed" in parameters(one.scheduler) else -1


def _each(asked: Sequence[Asked], tell: Callable[[str], None], workers: int | None) -> list[Outcome]:
    count = min(len(asked), workers or os.cpu_count() or 1)
    if count <= 1:
        found = []
        for one in asked:
            found.append(replayed(one))
            tell(_name(one))
        return found
    for one in asked:
        if isinstance(scheduler(one.scheduler), Event):  # compiled once here, read by every process
            simulate(one.scene.cluster, one.scene.jobs.take(np.arange(1)), one.scheduler)
            break
    outcomes: dict[int, Outcome] = {}
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        running = {pool.submit(replayed, one): at for at, one in enumerate(asked)}
        for future in as_completed(running):
            at = running[future]
            outcomes[at] = future.result()
            tell(_name(asked[at]))
    return [outcomes[at] for at in range(len(asked))]


def _name(one: Asked) -> str:
    return f"{one.scheduler}, {one.change}" + (f", seed {one.scene.seed}" if is_drawn(one.scene) else "")


def replayed(one: Asked) -> Outcome:
    """One replay and its figures."""
    cluster, jobs = one.scene.cluster, one.scene.jobs
    told = parameters_of(one.scene, one.scheduler)
    run = simulate(cluster, jobs, one.scheduler, told, one.scene.quotas)
    of_jobs = {
        "mean_jct_s": jct_s(jobs, run.result),
        "mean_queueing_s": queueing_s(jobs, run.result),
        "mean_rho": rho(cluster, jobs, run.result),
    }
    summed = figures(cluster, jobs, run.result)
    return Outcome(one.scheduler, one.change, one.scene.seed, summed, of_jobs, (*one.scene.said, *run.said))


def without_unplaceable(scene: Scene) -> Scene:
    """The scene without the jobs that no configuration of its cluster holds; it says how many they are."""
    from simulator.gpu.run import fits
    from traces.errors import InputError

    able = fits(scene.cluster, scene.jobs)
    if able.all():
        return scene
    if not able.any():
        raise InputError(
            f"none of the {counted(len(able), 'job')} fits the cluster of {counted(scene.cluster.gpus, 'GPU')}"
        )
    line = f"{counted(int((~able).sum()), 'job', 'fits')} no configuration of the cluster: left out"
    return replace(scene, jobs=scene.jobs.take(able), said=(*scene.said, line))
