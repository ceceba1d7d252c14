"""Published GPU schedulers in place of the cluster's own, in the machine that the record shows.

Each replays the window in one piece on whole nodes, as the base does (`RecordedScene.whole`). Outages, holds and limits
of users are the same for those that decide at events and in rounds (`simulator.gpu.events.recorded_machine`):

  - Jobs that run when the window begins hold their nodes until their recorded end. Pending jobs are in the queue.
  - Held jobs start when they did, as in the base, and take their nodes from the scheduler.
  - A job that was cancelled in the queue has no run time and is left out.

The wait of a job is its completion time less its run time, so it includes the time for which it was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
from models.what_if.changes import AS_IT_IS, GpuScene, parameters_of, with_settings
from models.what_if.recorded.answer import about_window, job_times
from models.what_if.recorded.outcomes import RecordedOutcome, base_beside, group_rows, outcome_of, rows
from models.what_if.recorded.replays import usable_nodes_of
from models.what_if.recorded.scene import RecordedScene
from models.what_if.schedulers import SchedulerOutcome
from simulator.gpu.cluster import GpuCluster, of_nodes
from simulator.gpu.events.recorded_machine import (
    JOBS,
    NO_LIMIT,
    NOBODY,
    NODES,
    MachineChanges,
    RecordedMachine,
    machine_of,
)
from simulator.gpu.jobs import of_arrays, origin_s
from simulator.gpu.registry import GIVEN_RUN_TIMES, KNOW_RUN_TIMES, ON_NODES
from simulator.gpu.result import GpuResult
from simulator.gpu.run import GpuReplay, simulate
from simulator.names import RECORDED
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.free import given_by
from simulator.recorded.record import RecordedTrace
from traces.arrays import Bools, Int64s
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.errors import InputError
from traces.files.queue_tree import check_groups
from traces.units import HOUR_S

NOT_SHOWN = (
    "cut_node_h",
    "utilization",
    "gpu_h",
)  # a scheduler cuts no job, and a job that is stopped runs in several pieces


class PublishedScene(NamedTuple):
    """The jobs that a published scheduler starts, and the machine around them."""

    gpu_scene: GpuScene  # its jobs are ready when they were submitted, or when the window begins
    machine: RecordedMachine
    row: Int64s  # (jobs of `gpu_scene`,) rows of the scene's record
    is_held: Bools  # (jobs of the record,) held jobs, which start when they did
    gpus_per_node: int

    def cluster(self, name: str) -> GpuCluster:
        """Return the cluster for a scheduler: all nodes as one, unless it chooses nodes."""
        pool = self.gpu_scene.cluster
        return of_nodes(np.full(pool.gpus // self.gpus_per_node, self.gpus_per_node)) if name in ON_NODES else pool


class PublishedAnswer(NamedTuple):
    """The output of `baton whatif --json`, and the replays in the form of `job_files.write_times`."""

    result: dict[str, Any]
    ids: list[str]
    outcomes: list[SchedulerOutcome]


def published_scene(scene: RecordedScene, settings: ClusterSettings) -> PublishedScene:
    """Divide the jobs of the window into those that a scheduler starts and those that take nodes from it.

    Raises InputError if all jobs were held, and for declared queues that do not fit the groups.
    """
    assert scene.whole is not None
    stretch, record = scene.whole, scene.record
    anchor, shown = stretch.shown.anchors[0], np.zeros(len(record), np.bool_)
    comes, is_held = shown.copy(), shown.copy()
    comes[stretch.rows[anchor.pending]] = True
    comes |= record.submit_s >= stretch.from_s
    shown[stretch.rows] = True
    is_held[stretch.rows] = stretch.shown.held == 1
    comes &= shown & record.ran
    row = np.flatnonzero(comes & ~is_held)
    if not len(row):
        raise InputError("all jobs of the window were held, which leaves a scheduler no job to start")
    ready_s = np.maximum(record.submit_s, stretch.from_s)
    row = row[np.lexsort((record.submit_s[row], ready_s[row]))]
    size, user, gpus = record.size[row], record.user[row], settings.gpus_per_node or 1
    usable = usable_nodes_of(scene, stretch)
    nodes = max(int(usable[1].max()), int(size.max()))
    taken = np.concatenate([stretch.rows[anchor.running], np.flatnonzero(comes & is_held)])
    changes = _changes(record, usable, nodes, gpus, taken)
    fits = [(float(fit.from_s), fit.rules._replace(**scene.rules)) for fit in stretch.fits]
    limits = [(from_s, (rules.max_jobs, rules.max_nodes)) for from_s, rules in fits]
    machine = machine_of(changes, user, size, limits[0][1], limits[1:])
    group, groups = _groups(scene, row)
    check_groups(settings.queues, set(groups))
    jobs = of_arrays(ready_s[row].astype(np.float64), size * gpus, scene.run_s[row].astype(np.float64), group, groups)
    jobs = replace(jobs, user=user, users=tuple(str(number) for number in range(record.users)))
    quotas = {name: quota for name, quota in settings.quotas.items() if name in groups}
    pool = of_nodes(np.array([nodes * gpus]))  # whole nodes are counted, so where they are does not matter
    gpu_scene = GpuScene(pool, jobs, quotas, settings.queues, seed=scene.seed)
    return PublishedScene(gpu_scene, machine, row, comes & is_held, gpus)


def _changes(
    record: RecordedTrace, usable: tuple[Int64s, Int64s], nodes: int, gpus: int, taken: Int64s
) -> MachineChanges:
    """The changes of a cluster of `nodes`, of `gpus` each: the usable ones by time, and the jobs `taken` (rows)."""
    more = np.diff(usable[1], prepend=nodes)
    turns = np.flatnonzero(more)
    size, user = record.size[taken], record.user[taken]
    end_s = given_by(record, np.zeros(len(record), np.int64), usable[1]).end_s[taken]
    return MachineChanges(
        at_s=np.concatenate([usable[0][turns], record.start_s[taken], end_s]).astype(np.float64),
        gpus=gpus * np.concatenate([more[turns], -size, size]),
        user=np.concatenate([np.full(len(turns), NOBODY), user, user]),
        nodes=np.concatenate([0 * turns, size, size]),
    )


def _groups(scene: RecordedScene, row: Int64s) -> tuple[Int64s, tuple[str, ...]]:
    """The group of each job for quotas and shares: its partition if there are several, else its user."""
    about = scene.about[row]
    names = about["partition"] if about["partition"].n_unique() > 1 else about["user"]
    known, group = np.unique(names.fill_null("(none)").to_numpy().astype(str), return_inverse=True)
    return group.astype(np.int64), tuple(known.tolist())


def outcome_under(scene: RecordedScene, published: PublishedScene, result: GpuResult) -> RecordedOutcome:
    """The waits of the window's jobs in a replay; one that never started has the wait HORIZON_S."""
    record, row = scene.record, published.row
    end_s = result.end_s + origin_s(published.gpu_scene.jobs)
    wait_s = np.full(len(record), np.nan)
    wait_s[row] = np.maximum(end_s - record.submit_s[row] - scene.run_s[row], 0.0)
    wait_s[published.is_held] = (record.start_s - record.submit_s)[published.is_held]
    unstarted = int((scene.judged & np.isposinf(wait_s)).sum())
    wait_s = np.where(scene.judged, np.minimum(wait_s, HORIZON_S), np.nan)
    return RecordedOutcome(scene, wait_s, np.zeros(0, np.int64), unstarted, is_whole=True)


def _times(scene: RecordedScene, published: PublishedScene, result: GpuResult, name: str) -> SchedulerOutcome:
    """The replay in the form of `job_files.write_times`: a row per job of the window, NaN for a job never started."""
    record, row, held, begin_s = scene.record, published.row, published.is_held, origin_s(published.gpu_scene.jobs)
    columns = {key: np.zeros(len(record)) for key in ("submit_s", "start_s", "end_s", "preemptions", "gpu_s")}
    columns["submit_s"] += record.submit_s
    columns["start_s"][held], columns["end_s"][held] = record.start_s[held], record.end_s[held]
    columns["start_s"][row] = np.where(result.start_s < 0.0, np.nan, result.start_s + begin_s)
    columns["end_s"][row] = np.where(np.isinf(result.end_s), np.nan, result.end_s + begin_s)
    columns["preemptions"][row], columns["gpu_s"][row] = result.preemptions, result.gpu_s
    columns["gpu_s"][held] = (scene.run_s * record.size)[held] * published.gpus_per_node
    times = {key: column[scene.judged] for key, column in columns.items()}
    return SchedulerOutcome(name, AS_IT_IS, scene.seed, {}, {}, (), times)


def answer_published(
    scene: RecordedScene,
    settings: ClusterSettings,
    schedulers: Sequence[str],
    parameters: Sequence[str] = (),
    report: Callable[[str], None] = lambda _name: None,
    engine: Engine = each_here,
) -> PublishedAnswer:
    """Replay the window under the cluster's own rules, which are the base, and under each published scheduler.

    `parameters` are as in `--set`. `report` is called for each replay. Raises InputError as `published_scene` does, and
    for a parameter that is not understood.
    """
    published = published_scene(scene, settings)
    published = published._replace(gpu_scene=with_settings(published.gpu_scene, parameters, schedulers))
    base = outcome_of(scene, is_whole=True)
    report(RECORDED)
    results, groups, runs = list(rows(base, base, AS_IT_IS, "whole")), [], []
    ids, outcomes = job_times(scene, [(AS_IT_IS, base)])
    said = [*scene.assumptions, *_said(scene, settings, published.machine, schedulers)]
    work = Work(replayed_in_record, [Task(name, name, name) for name in schedulers], published)
    found_at = {}
    for at, run in engine(work, len(schedulers)):
        found_at[at] = run
        report(schedulers[at])
    for at, name in enumerate(schedulers):
        run = found_at[at]
        outcome = outcome_under(scene, published, run.result)
        outcomes.append(_times(scene, published, run.result, name))
        said += run.said
        if outcome.unstarted:
            said.append(f"{name}: {counted(outcome.unstarted, 'job')} never started and count with a wait of ten days")
        found = (row | {"scheduler": name} for row in rows(base, outcome, AS_IT_IS, "whole"))
        results += [row for row in found if row["figure"] not in NOT_SHOWN]
        groups += [row | {"scheduler": name} for row in group_rows(base, outcome, AS_IT_IS)]
        stops, lost_gpu_h = int(run.result.preemptions.sum()), float(run.result.lost_gpu_s.sum()) / HOUR_S
        runs.append({"scheduler": name, "preemptions": stops, "lost_gpu_h": lost_gpu_h})
    result = about_window(scene, settings.name, said) | {
        "base": base_beside(base),
        "base_whole": None,
        "results": results,
        "groups": groups,
        "runs": runs,
        "declared": [],
    }
    return PublishedAnswer(result, ids, outcomes)


def replayed_in_record(published: PublishedScene, name: str) -> GpuReplay:
    """Replay the window under the scheduler `name`."""
    own, scene = parameters_of(published.gpu_scene, name), published.gpu_scene
    return simulate(
        published.cluster(name), scene.jobs, name, own, scene.quotas, scene.queues, in_machine=published.machine
    )


def _said(
    scene: RecordedScene, settings: ClusterSettings, machine: RecordedMachine, schedulers: Sequence[str]
) -> Iterator[str]:
    """Yield what a reader must know about the comparison."""
    if not settings.gpus_per_node:
        yield f"gpus_per_node of cluster {settings.name!r} is not declared: a node counts as one GPU"
    inside = (scene.record.submit_s >= scene.from_s) & (scene.record.submit_s < scene.until_s)
    cancelled = int((inside & ~scene.record.ran).sum())
    if cancelled:
        yield (
            f"{counted(cancelled, 'job')} cancelled in the queue {'is' if cancelled == 1 else 'are'} left out under "
            "published schedulers, because their run times are unknown; in the base they wait until they leave"
        )
    for column, noun in ((JOBS, "jobs"), (NODES, "nodes")):
        most = np.unique(machine.most[:, column])
        if most[0] < NO_LIMIT:
            words = ", or ".join("any number of" if one == NO_LIMIT else f"{one:,}" for one in most)
            yield (
                f"under published schedulers a user has at most {words} {noun} in the queue (by week), pending and "
                "running together; other jobs of the user wait outside it in order of arrival"
            )
    for name in schedulers:
        if name in KNOW_RUN_TIMES:
            yield f"{name} knows every run time in advance, so no cluster can run it"
        if name in GIVEN_RUN_TIMES:
            yield f"{name} knows the recorded run times, which its paper estimates"
