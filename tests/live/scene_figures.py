"""How far the `slurm` scheduler is from the recorded scenes: python -m tests.live.scene_figures [FOLDER ...]

A folder holds the recordings of one scene, a folder each. Prints the tables of docs/fidelity.md; no Slurm needed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from simulator.slurm.run import run
from simulator.slurm.world import NEVER, NONE, PREEMPTED, SlurmResult, SlurmWorld, no_outages
from tests.live import recording
from tests.live.recording import RecordedJob
from tests.simulator.slurm.compare import OneStep, one_step, relative
from traces.arrays import Bools, Int64s

RECORDINGS = Path(__file__).parents[1] / "fixtures/scenes"
LONGEST_KILL_S = 90  # recorded seconds between the end of a preempted job and the start of the job it made room for


@dataclass(frozen=True)
class Scene:
    """One recording: a row for each run of a job.

    full_s: seconds that the run would have lasted. until_s: second until which it holds its nodes in the record, shape
    (runs,): a preempted run until a job starts on one of its nodes. was_preempted: whether it was.
    """

    runs: list[RecordedJob]
    world: SlurmWorld
    full_s: Int64s
    until_s: Int64s
    was_preempted: Bools


def read(folder: Path) -> Scene:
    """Read a recording of a scene."""
    runs = recording.read(folder, runs=True)
    world = recording.world(folder, runs)
    start, pinned = world.jobs.pinned_s, world.jobs.run_s
    preempted = np.array([job.state == "PREEMPTED" for job in runs])
    full = np.where(preempted, [min(job.submission.run_s, job.limit_s) for job in runs], pinned)
    until = start + pinned
    for row in np.flatnonzero(preempted):
        end = until[row]
        on_its_nodes = [
            int(start[other])
            for other, job in enumerate(runs)
            if end <= start[other] <= end + LONGEST_KILL_S and set(job.nodes) & set(runs[row].nodes)
        ]
        until[row] = min(on_its_nodes, default=end)
    return Scene(runs, world, full, until, preempted)


def steps(scene: Scene) -> tuple[OneStep, dict[str, int]]:
    """Compare step by step, within one backfill interval, and count preempted jobs: both, only recorded, simulated.

    A job that the record preempts runs on until the job that takes its nodes starts: the simulator must preempt it.
    """
    counts = {"both": 0, "only recorded": 0, "only simulated": 0}

    def simulate(world: SlurmWorld, begin: int, end: int) -> SlurmResult:
        jobs = scene.world.jobs
        length = np.where(scene.was_preempted & (scene.until_s >= begin), scene.full_s, scene.until_s - jobs.pinned_s)
        length = np.where(jobs.pinned_s == NEVER, jobs.run_s, length)
        result = run(replace(world, jobs=replace(jobs, run_s=np.maximum(length, 0))), free_from=begin, until=end)
        simulated = ((result.state == PREEMPTED) | (result.restarts > 0)) & (jobs.pinned_s < begin)
        recorded = scene.was_preempted & (scene.until_s >= begin) & (scene.until_s <= end) & (jobs.pinned_s < begin)
        now = scene.was_preempted & (scene.until_s == begin)
        counts["both"] += int((now & simulated).sum())
        counts["only recorded"] += int((now & ~simulated).sum())
        counts["only simulated"] += int((simulated & ~recorded).sum())
        return result

    return one_step(scene.world, simulate, scene.world.settings.bf_interval_s), counts


def prompt(scene: Scene, steps: OneStep) -> tuple[int, int]:
    """Count the starts for which the record preempts jobs: those simulated within 5 s, and all."""
    preempting = np.isin(steps.recorded_s, scene.until_s[scene.was_preempted])
    late_s = steps.simulated_s - steps.recorded_s
    return int((preempting & steps.hits & (late_s <= 5)).sum()), int(preempting.sum())


def without_rule(scene: Scene) -> Scene:
    """The scene for a simulator that knows no preemption, no outages and no types of GPU."""
    world = scene.world
    modes = (world.qos.preempt_mode, world.partitions.preempt_mode)
    return replace(
        scene,
        world=replace(
            world,
            qos=replace(world.qos, preempts=world.qos.preempts & False, preempt_mode=0 * modes[0]),
            partitions=replace(world.partitions, preempt_mode=0 * modes[1]),
            outages=no_outages(len(world.nodes)),
            jobs=replace(world.jobs, gpu_type=np.full(len(world.jobs), NONE)),
        ),
    )


def free(scene: Scene) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return of each job the recorded and the simulated wait until its last start, and its number of preemptions.

    Shape (jobs,): from submissions and run times alone, without requeues and starts of the record.
    """
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for row, job in enumerate(scene.runs):
        first.setdefault(job.key, row)
        last[job.key] = row
    rows = np.array(list(first.values()))
    whole = scene.world.jobs
    jobs = replace(whole, run_s=np.where(scene.was_preempted, scene.full_s, whole.run_s))
    for key, row in last.items():  # what a job takes is known from the run that ended by itself
        jobs.run_s[first[key]] = jobs.run_s[row]
    taken = type(jobs)(**{name: column[rows] for name, column in vars(jobs).items()})
    world = replace(scene.world, jobs=taken, pinned_first=np.zeros(len(rows) + 1, np.int64), pinned_nodes=rows[:0])
    result = run(world)
    index = {key: number for number, key in enumerate(first)}
    of_job = [index[job.key] for job in scene.runs]
    times = np.bincount(of_job, weights=scene.was_preempted, minlength=len(rows)).astype(np.int64)
    started = whole.pinned_s[list(last.values())]
    simulated = result.restarts + (result.state == PREEMPTED)
    both = (started != NEVER) & (result.start_s != NONE)
    since = np.maximum(taken.submit_s, taken.eligible_s)
    return (started - since)[both], (result.start_s - since)[both], times[both], simulated[both]


def spread(scenes: list[Scene]) -> list[dict[str, float]]:
    """How far the recordings of one scene are from each other: last waits and preemptions of each pair."""
    found = []
    for one, other in combinations(scenes, 2):
        waits = [_last_waits(scene) for scene in (one, other)]
        keys = sorted(waits[0].keys() & waits[1].keys())
        found.append(relative(*(np.array([wait[key] for key in keys]) for wait in reversed(waits))))
    return found


def _last_waits(scene: Scene) -> dict[tuple[int, int], int]:
    first: dict[tuple[int, int], int] = {}
    waits = {}
    for job in scene.runs:
        first.setdefault(job.key, job.submit_s)
        if job.start_s is not None:
            waits[job.key] = job.start_s - first[job.key]
    return waits


def main() -> None:
    """Print the tables."""
    for folder in [Path(name) for name in sys.argv[1:]] or sorted(RECORDINGS.iterdir()):
        scenes = {path.name: read(path) for path in sorted(folder.iterdir())}
        for name, scene in scenes.items():
            step, counts = steps(scene)
            soon, preempting = prompt(scene, step)
            recorded, simulated, times, simulated_times = free(scene)
            figures = relative(simulated, recorded)
            print(
                f"| {folder.name} {name} | {len(step.job)} | {step.share:.1%} | {step.unmatched_share:.1%} "
                f"| {soon} of {preempting} | {counts['both']} of {counts['both'] + counts['only recorded']} "
                f"| {figures['relative_mean_wait']:+.1%} | {figures['spearman']:.3f} "
                f"| {times.sum()} | {simulated_times.sum()} |"
            )
        for figures in spread(list(scenes.values())):
            print(f"| {folder.name}, itself | {figures['relative_mean_wait']:+.1%} | {figures['spearman']:.3f} |")


if __name__ == "__main__":
    main()
