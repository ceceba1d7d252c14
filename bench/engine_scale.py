"""A year of a 1,000-node cluster on up to 64 workers, by simulation: `python bench/engine_scale.py --raw DIR`.

DIR holds the A100 log of TACC Lonestar6 (80 nodes). It goes through Baton's commands on this machine. An engine that
only measures takes the place of the local one: it runs every task that a command gives to an engine, one after the
other, and keeps its processor time. The processor time of a command outside its tasks is that of the driver, which no
worker shares.

The cluster of 1,000 nodes is taken as partitions like this log, for a year: a command's tasks are more or longer by as
much, each policy is fitted with five seeds every week, each scheduler is replayed with twenty draws. The driver's time
grows alike, although part of it would not. The Slurm engine's own rule puts the tasks into chunks, and the workers take
these in turn, longest first; a job starts as late as `engine_slurm.py` measured for a task that costs nothing. The fits
of that benchmark are simulated as well, and held against their measured time. Not simulated: other users' jobs, the
file system, and memory.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import FOLDER, Benchmark, BenchmarkRun
from models.engine import engines
from models.engine.scratch import chunks
from models.engine.slurm import chunk_s
from models.engine.work import Engine, Work
from models.provisioning.registry import LOOKING_AHEAD, POLICIES
from pipelines.cli import main as baton
from simulator.gpu.registry import IN_RECORDED_MACHINE
from simulator.names import RECORDED, gpu_schedulers
from traces.counted import counted
from traces.units import HOUR_S

ABOUT = Benchmark(
    "engine_scale",
    "A year of a 1,000-node cluster on many workers, simulated",
    "speed",
    "Simulated wall time of a year's work on 1,000 nodes, as 12.5 partitions like the A100 log, from processor times "
    "of tasks and drivers measured on that log, with the Slurm engine's chunks and its measured start-up. Commands run "
    "one after the other, or all side by side.",
)
MEASURED = "engine_slurm.json"
CLUSTER, NODES, YEAR_WEEKS = "ls6", 1000, 52
LOG_NODES, LOG_WEEKS, FIT_WEEKS = 80, 16, 8  # from November to February; its fit window is November and December
WORKERS = (1, 2, 8, 16, 64)
SEEDS, DRAWS, FITS = 5, 20, 8
CHANGES = ("nodes=+5%", "nodes=-5%", "limit=24h", "backfill=off", "backfill.depth=100")


@dataclass
class Step:
    """A command, how often a year has it, and the processor times, s, of its driver and of the tasks of each work."""

    name: str
    arguments: Sequence[object]
    commands: float = 1
    """How often it is run in a year."""
    copies: int = 1
    """How often it then has each of its tasks: the draws or seeds."""
    stretch: float = 1
    """How many times as long as on the measured weeks a task and the driver take."""
    driver_s: float = 0.0
    prepared_s: float = 0.0
    """Compiling, which is once for a type of processor, and in neither of the others."""
    works: list[list[float]] = field(default_factory=list)

    @property
    def tasks_s(self) -> list[float]:
        """The times of all measured tasks, s."""
        return [task for work in self.works for task in work]

    def in_turn_s(self, workers: int, start_s: float) -> float:
        """Return the wall time of the commands of the year, one after the other, s."""
        works = [[self.stretch * task for task in work] * self.copies for work in self.works]
        return self.commands * (self.stretch * self.driver_s + sum(simulate(one, workers, start_s) for one in works))

    def side_by_side_s(self, workers: int, start_s: float) -> float:
        """Return the wall time of the commands of the year, all at the same time with a driver each, s."""
        tasks_s = [self.stretch * task for task in self.tasks_s] * round(self.copies * self.commands)
        return self.stretch * self.driver_s + simulate(tasks_s, workers, start_s)


def measuring(step: Step) -> Engine:
    """Return the engine that runs the tasks one after the other in this process and keeps their times."""

    def each(work: Work, _most: int) -> Iterator[tuple[int, Any]]:
        began = time.process_time()
        if work.prepare is not None:
            work.prepare(work.shared)
        step.prepared_s += time.process_time() - began
        times: list[float] = []
        step.works.append(times)
        for at, task in enumerate(work.tasks):
            began = time.process_time()
            result = work.function(work.shared, task.argument)
            times.append(time.process_time() - began)
            yield at, result

    return each


def measure(step: Step, data: Path) -> None:
    """Run the command in this process, with an engine that measures."""
    engines.engine_on = lambda options: measuring(step)
    began = time.process_time()
    try:
        baton(["--data", str(data), *map(str, step.arguments)])
    except SystemExit as end:
        if end.code:
            raise
    step.driver_s = time.process_time() - began - step.prepared_s - sum(map(sum, step.works))


def simulate(tasks: Sequence[float], workers: int, start_s: float) -> float:
    """Return when the last of the tasks has ended, s, in the engine's chunks; each of its jobs starts after start_s."""
    if not tasks:
        return 0.0
    free = [0.0] * workers
    for chunk in chunks(dict(enumerate(tasks)), chunk_s(sum(tasks), workers)):
        heapq.heapreplace(free, free[0] + start_s + sum(tasks[at] for at in chunk))
    return max(free)


def steps(raw: Path, longer: float, wider: float) -> list[Step]:
    """Return the commands. A year is `longer` than the log, and the cluster has `wider` times its nodes."""
    of = ("--cluster", CLUSTER)
    train = ["train", *of, "--world", "calibrated", "--until", "2023-01-01", "--seeds", 1, "--policies"]
    changes = [part for change in CHANGES for part in ("--change", change)]
    window = ("--from", "2023-01-01", "--to", "2023-02-01")
    of_gpus, recorded = ",".join(gpu_schedulers()), ",".join((RECORDED, *IN_RECORDED_MACHINE))
    every = ",".join((*POLICIES, *LOOKING_AHEAD))
    return [
        Step("ingest", ["ingest", raw, *of], stretch=longer * wider),
        Step("analytics", ["analyze"], stretch=longer * wider),
        Step("pairs and futures", [*train, "simulate-ahead"], commands=wider * YEAR_WEEKS / FIT_WEEKS),
        Step("weekly training, all policies", [*train, every], YEAR_WEEKS * wider, SEEDS),
        Step("queue-time methods", ["wait", *of, *window, "--refit", "7d"], 12, stretch=wider),
        Step("GPU schedulers", ["whatif", *of, "--schedulers", of_gpus], copies=DRAWS, stretch=longer * wider),
        Step("recorded cluster", ["whatif", *of, *changes], stretch=longer * wider),
        Step("recorded schedulers", ["whatif", *of, "--schedulers", recorded], stretch=longer * wider),
    ]


def main() -> None:
    """Measure, simulate, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=Path, required=True, help="folder of the A100 log")
    options = parser.parse_args()
    measured = {(row["name"], row["what"]): row["value"] for row in json.loads((FOLDER / MEASURED).read_text())["rows"]}
    start_s, record = measured["slurm", "1 trivial task"], BenchmarkRun(ABOUT)
    every = steps(options.raw, YEAR_WEEKS / LOG_WEEKS, NODES / LOG_NODES)
    with tempfile.TemporaryDirectory() as folder:
        for step in every:
            measure(step, Path(folder))
            tasks_s = step.tasks_s
            about = f"{counted(len(tasks_s), 'task')} of {sum(tasks_s):.1f} s, longest {max(tasks_s, default=0):.1f} s"
            print(f"{step.name}: driver {step.driver_s:.1f} s, {about}", flush=True)
    each_s = measured["local", "1 worker"] / FITS
    for workers in (1, 2):
        ratio = simulate([each_s] * FITS, workers, start_s) / measured["slurm", counted(workers, "worker")]
        record.add("fits of engine_slurm.py", f"simulated / measured, {counted(workers, 'worker')}", ratio, "")
    for step in every:
        record.add(step.name, "driver", step.commands * step.stretch * step.driver_s / HOUR_S, "h")
        if tasks_s := step.tasks_s:
            count = round(step.commands * step.copies * len(tasks_s))
            seconds = step.commands * step.copies * step.stretch * sum(tasks_s)
            record.add(step.name, "tasks", seconds / HOUR_S, "h", n=count)
            record.add(step.name, "longest task", step.stretch * max(tasks_s) / HOUR_S, "h")
        for workers in WORKERS:
            record.add(step.name, counted(workers, "worker"), step.in_turn_s(workers, start_s) / HOUR_S, "h")
        together_s = step.side_by_side_s(WORKERS[-1], start_s)
        record.add(step.name, f"{WORKERS[-1]} workers, side by side", together_s / HOUR_S, "h")
    for workers in WORKERS:
        total_s = sum(step.in_turn_s(workers, start_s) for step in every)
        record.add("all", counted(workers, "worker"), total_s / HOUR_S, "h")
    together_s = sum(step.side_by_side_s(WORKERS[-1], start_s) for step in every)
    record.add("all", f"{WORKERS[-1]} workers, side by side", together_s / HOUR_S, "h")
    record.write()


if __name__ == "__main__":
    main()
