"""How far the `slurm` scheduler is from the recorded runs: python -m tests.live.figures [FOLDER ...]

Prints the tables of docs/fidelity.md. Without folders it takes the recordings of the repository; no Slurm needed.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from simulator.slurm.compiled.state import QUEUE_JOB, QUEUE_KEY, QUEUE_ROWS
from simulator.slurm.inputs.prepare import prepared
from simulator.slurm.run import advanced, run
from simulator.slurm.world import NEVER, SlurmResult, SlurmWorld
from tests.live import recording
from tests.simulator.slurm.compare import OneStep, free_run, one_step, relative
from traces.arrays import Int64s

LOW_WORD = (1 << 32) - 1  # of a queue's key: the priority
RECORDINGS = Path(__file__).parents[1] / "fixtures/fidelity"  # VERSION/RUN
REPETITIONS = 20  # runs of the simulator with every run time a second longer, shorter or as it is


def steps(world: SlurmWorld, every: int = 1) -> OneStep:
    """The step-by-step comparison, within one backfill interval."""
    return one_step(world, _step, world.settings.bf_interval_s, every)


def _step(world: SlurmWorld, begin: int, end: int) -> SlurmResult:
    return run(world, free_from=begin, until=end)


def at_begin_of_pass(folder: Path, world: SlurmWorld) -> SlurmWorld:
    """The world with each start of a backfill pass moved to the second at which that pass began, ends as they are.

    A pass takes time (0.1 s of work are 6 s here), and what it starts late it starts from a plan made early.
    """
    jobs = recording.read(folder)
    begins = [at - recording.zero(jobs) for at in recording.passes(folder, "backfill")]
    pinned, run_s = world.jobs.pinned_s.copy(), world.jobs.run_s.copy()
    for row, job in enumerate(jobs):
        if job.flags.startswith("SchedBackfill") and pinned[row] != NEVER:
            late = pinned[row] - begins[bisect_right(begins, pinned[row]) - 1]
            if late < 60:
                pinned[row] -= late
                run_s[row] += late
    return replace(world, jobs=replace(world.jobs, pinned_s=pinned, run_s=run_s))


def period_of_passes(folder: Path) -> int:
    """Median seconds from the begin of a backfill pass to the begin of the next: bf_interval and what a pass takes."""
    return int(np.median(np.diff(recording.passes(folder, "backfill"))))


def repeated(world: SlurmWorld) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Free runs whose run times differ by a second at most: (each against the record, each pair against each other)."""
    figures, waits = [], []
    since = np.maximum(world.jobs.submit_s, world.jobs.eligible_s)
    for seed in range(REPETITIONS):
        result = run(nudged(world, seed))
        figures.append(free_run(world, result))
        waits.append(np.where(result.start_s >= 0, result.start_s - since, -1))
    pairs: list[dict[str, float]] = []
    for first, second in combinations(waits, 2):
        both = (first >= 0) & (second >= 0)
        pairs.append(relative(first[both], second[both]))
    return figures, pairs


def nudged(world: SlurmWorld, seed: int) -> SlurmWorld:
    """The world with each run time a second longer, shorter or as it is, at random."""
    noise = np.random.default_rng(seed).integers(-1, 2, len(world.jobs))
    return replace(world, jobs=replace(world.jobs, run_s=np.maximum(world.jobs.run_s + noise, 0)))


def priorities(folder: Path, world: SlurmWorld) -> Int64s:
    """The simulator's priority minus the one that sprio told, for each job that both had in their queues at a look."""
    jobs = recording.read(folder)
    rows = {job.job_id: row for row, job in enumerate(jobs)}
    differences: list[int] = []
    for at, found in recording.priorities(folder).items():
        second = at - recording.zero(jobs)
        ready = advanced(prepared(world, free_from=second), second)
        queue = ready.state.queue[: ready.state.scalars[QUEUE_ROWS]]
        simulated = {
            int(job): int(key) & LOW_WORD for job, key in zip(queue[:, QUEUE_JOB], queue[:, QUEUE_KEY], strict=True)
        }
        differences += [simulated[rows[job]] - value for job, value in found.items() if rows.get(job) in simulated]
    return np.array(differences, np.int64)


def named(folder: Path) -> str:
    """The name of a recording in the tables: its version and run."""
    return f"{folder.parent.name}/{folder.name}"


def spread(folders: list[Path]) -> dict[tuple[str, str], dict[str, float]]:
    """The same figures of each pair of recordings of one version of Slurm: how far it is from itself."""
    waits = {
        folder: {job.key: job.wait_s for job in recording.read(folder) if job.wait_s is not None} for folder in folders
    }
    return {
        (named(one), named(other)): _compared(waits[other], waits[one])
        for one, other in combinations(waits, 2)
        if one.parent == other.parent
    }


def _compared(wait_s: dict[tuple[int, int], int], reference_wait_s: dict[tuple[int, int], int]) -> dict[str, float]:
    keys = sorted(wait_s.keys() & reference_wait_s.keys())
    columns: list[Int64s] = [np.array([waits[key] for key in keys]) for waits in (wait_s, reference_wait_s)]
    return relative(columns[0], columns[1])


def _head(*columns: str) -> None:
    print("\n| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")


def main() -> None:
    """Print the tables."""
    folders = [Path(name) for name in sys.argv[1:]] or sorted(RECORDINGS.glob("*/*"))
    worlds = {folder: recording.world(folder, recording.read(folder)) for folder in folders}
    _head("run", "starts", "one step", "from the begin of the pass", "started too early")
    for folder, world in worlds.items():
        step, whole = steps(world), steps(at_begin_of_pass(folder, world))
        print(
            f"| {named(folder)} | {len(step.job)} | {step.share:.1%} | {whole.share:.1%} | {step.unmatched_share:.1%} |"
        )
    _head("run", "priorities looked at", "equal to sprio's", "within 1")
    for folder, world in worlds.items():
        apart = np.abs(priorities(folder, world))
        print(f"| {named(folder)} | {len(apart)} | {(apart == 0).mean():.1%} | {(apart <= 1).mean():.1%} |")
    _head("run", "jobs", "recorded mean wait", "simulated", "difference", "Spearman", "mean absolute error")
    for folder, world in worlds.items():
        print(_row(named(folder), free_run(world, run(world))))
    for (one, other), figures in spread(folders).items():
        print(_row(f"{one}, repeated as {other}", figures))
    _head("run", "20 repetitions: difference", "Spearman", "among themselves", "with the period of the passes")
    for folder, world in worlds.items():
        repetitions, pairs = repeated(world)
        period = replace(world, settings=replace(world.settings, bf_interval_s=period_of_passes(folder)))
        slower, _ = repeated(period)
        print(
            f"| {named(folder)} | {_mean(repetitions, 'relative_mean_wait'):+.1%} (sd {_sd(repetitions):.1%}) "
            f"| {_mean(repetitions, 'spearman'):.3f} | {_mean(pairs, 'spearman'):.3f} "
            f"| {_mean(slower, 'relative_mean_wait'):+.1%}, {_mean(slower, 'spearman'):.3f} |"
        )


def _row(name: str, figures: dict[str, float]) -> str:
    recorded, simulated, error = (
        figures[name] / 60 for name in ("recorded_mean_wait_s", "simulated_mean_wait_s", "mean_absolute_error_s")
    )
    return (
        f"| {name} | {figures['jobs']:.0f} | {recorded:.1f} min | {simulated:.1f} min "
        f"| {figures['relative_mean_wait']:+.1%} | {figures['spearman']:.3f} | {error:.1f} min |"
    )


def _mean(figures: list[dict[str, float]], name: str) -> float:
    return float(np.mean([figure[name] for figure in figures]))


def _sd(figures: list[dict[str, float]]) -> float:
    return float(np.std([figure["relative_mean_wait"] for figure in figures]))


if __name__ == "__main__":
    main()
