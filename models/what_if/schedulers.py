"""What would change if GPU jobs were scheduled by another of the published schedulers, or on another cluster.

Every scheduler replays the same jobs on the same machine with the same profiles and prices (`simulator.gpu`), as it is
and with each change alone. Differences are to the first scheduler with nothing changed, job by job, with intervals over
resampled weeks (decision 9). Stores nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.what_if.changes import AS_IT_IS, Scene, changed, parameters_of
from models.what_if.cluster import mean_interval
from simulator.gpu.figures import FIGURES, figures, jct_s, queueing_s, rho
from simulator.gpu.jobs import GpuJobs
from simulator.gpu.registry import Event, check, scheduler
from simulator.gpu.run import simulate

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]

SIZES = ((1, "1"), (4, "2-4"), (8, "5-8"), (1 << 62, "9-up"))  # GPUs up to which a class goes, and its name
SHOWN_GROUPS = 20  # of users: those of most jobs


@dataclass(frozen=True)
class Outcome:
    """One replay: its figures, those that are means of a figure a job, and what was assumed."""

    scheduler: str
    change: str
    figures: dict[str, float]
    of_jobs: dict[str, Floats]  # figure -> (jobs,)
    said: tuple[str, ...]


class Asked(NamedTuple):
    """One replay to be made."""

    scene: Scene
    scheduler: str
    change: str


def combinations(scene: Scene, schedulers: Sequence[str], changes: Sequence[str]) -> list[Asked]:
    """Every scheduler with nothing changed and with each change that concerns it; names and values are checked here.

    Raises InputError for what is not known or not possible.
    """
    asked = []
    for name in schedulers:
        check(name, {})
        asked.append(Asked(scene, name, AS_IT_IS))
        for change in changes:
            concerned = changed(scene, change, schedulers)
            if concerned.only in (None, name):
                asked.append(Asked(concerned, name, change))
    return asked


def replays(asked: Sequence[Asked], tell: Callable[[str], None], workers: int | None = None) -> list[Outcome]:
    """The outcomes in the order asked, in as many processes as there are processors; `tell` hears which is done."""
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
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(replayed, one): at for at, one in enumerate(asked)}
        for future in as_completed(running):
            at = running[future]
            outcomes[at] = future.result()
            tell(_name(asked[at]))
    return [outcomes[at] for at in range(len(asked))]


def _name(one: Asked) -> str:
    return f"{one.scheduler}, {one.change}"


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
    return Outcome(one.scheduler, one.change, summed, of_jobs, (*one.scene.said, *run.said))


def rows(jobs: GpuJobs, outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    """A row a scheduler, change and figure: value, its interval, and the difference to the first outcome.

    Intervals are of figures that are means over jobs; None for others and where the trace is shorter than two weeks.
    """
    base = outcomes[0]
    submit = jobs.submit_s.astype(np.int64)
    for outcome in outcomes:
        for figure in FIGURES:
            of_jobs = outcome.of_jobs.get(figure)
            difference = None if of_jobs is None else of_jobs - base.of_jobs[figure]
            yield {
                "scheduler": outcome.scheduler,
                "change": outcome.change,
                "figure": figure,
                "value": outcome.figures[figure],
                "ci95": None if of_jobs is None else mean_interval(of_jobs, submit),
                "difference": outcome.figures[figure] - base.figures[figure],
                "difference_ci95": (
                    None if difference is None or outcome is base else mean_interval(difference, submit)
                ),
            }


def group_rows(jobs: GpuJobs, outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    """Who gains and who loses: mean difference of completion times to the first outcome, by size, group and user."""
    base = outcomes[0]
    for outcome in outcomes[1:]:
        difference = outcome.of_jobs["mean_jct_s"] - base.of_jobs["mean_jct_s"]
        for dimension, name, mask in parts(jobs):
            submit = jobs.submit_s[mask].astype(np.int64)
            yield {
                "scheduler": outcome.scheduler,
                "change": outcome.change,
                "dimension": dimension,
                "name": name,
                "jobs": int(mask.sum()),
                "mean_jct_s": float(outcome.of_jobs["mean_jct_s"][mask].mean()),
                "difference_s": float(difference[mask].mean()),
                "difference_ci95": mean_interval(difference[mask], submit),
            }


def parts(jobs: GpuJobs) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """(dimension, name, jobs of it) of each class of size, each group, and the users of most jobs."""
    low = 0
    for high, name in SIZES:
        mask = (jobs.gpus > low) & (jobs.gpus <= high)
        low = high
        if mask.any():
            yield "size", name, mask
    if len(jobs.groups) > 1:
        for index, name in enumerate(jobs.groups):
            if (mask := jobs.group == index).any():
                yield "group", name, mask
    counts = np.bincount(jobs.user[jobs.user >= 0], minlength=len(jobs.users))
    for index in np.argsort(-counts, kind="stable")[:SHOWN_GROUPS]:
        if counts[index]:
            yield "user", jobs.users[index], jobs.user == index


def without_unplaceable(scene: Scene) -> Scene:
    """The scene without the jobs that no configuration of its cluster holds; it says how many they are."""
    from simulator.gpu.run import fits
    from traces.errors import InputError

    able = fits(scene.cluster, scene.jobs)
    if able.all():
        return scene
    if not able.any():
        raise InputError(f"none of the {len(able):,} jobs fits the cluster of {scene.cluster.gpus} GPUs")
    line = f"{int((~able).sum()):,} jobs fit no configuration of the cluster and are left out"
    return replace(scene, jobs=scene.jobs.take(able), said=(*scene.said, line))
