"""Jobs a second of the `slurm` scheduler with GPU placement, beside its plain twin, at several loads.

Generated jobs on 64 nodes of 4 GPUs and 64 cores in one shared partition: Poisson arrivals, 1, 2, 4 or 8 GPUs a job (8
on two nodes), log-normal run times (median half an hour), limits 1 to 3 times the run time, 40 users with fair share
and age in their priority, Slurm's default parameters. Congestion sets the cost, so every figure states the mean queue
that came of its load. Starts and nodes must equal the twin's. Wall time of the compiled part, best of `--repeat` runs.

    python bench/bench_slurm.py [--repeat 3] [--jobs 20000]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulator.slurm import reference
from simulator.slurm import world as w
from simulator.slurm.run import run_timed

NODES, GPUS, CPUS, USERS, SEED = 64, 4, 64, 40, 1
TWIN_JOBS = 300


def generate(jobs: int, load: float) -> w.World:
    """A world of `jobs` jobs that ask for `load` of the GPUs on average."""
    rng = np.random.default_rng(SEED)
    gpus = rng.choice([1, 2, 4, 8], jobs, p=[0.5, 0.2, 0.2, 0.1])
    nodes = np.maximum(gpus // GPUS, 1)
    run = np.maximum(rng.lognormal(np.log(1800), 1.0, jobs), 1).astype(np.int64)
    limit = (run * rng.uniform(1, 3, jobs)).astype(np.int64) // 60 * 60 + 60
    gap = float((gpus * run).mean()) / (NODES * GPUS * load)
    submit = np.cumsum(rng.exponential(gap, jobs)).astype(np.int64)
    user = rng.integers(0, USERS, jobs)
    share = np.minimum(gpus, GPUS)
    queue = w.plain_jobs(
        submit, run, limit, nodes, user=user, association=user + 1, gpus_per_node=share, cpus_per_node=8 * share
    )
    machine, parts = w.whole_nodes(NODES)
    machine = replace(machine, cpus=np.full(NODES, CPUS), gpus=np.full(NODES, GPUS), gpu_type=np.zeros(NODES, np.int64))
    settings = w.Settings(weight_age=1000, weight_fairshare=10000, weight_job_size=500)
    tables = {"nodes": machine, "partitions": replace(parts, exclusive=np.zeros(1, bool))}
    return w.flat_world(queue, NODES, settings, users=USERS, **tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    options = parser.parse_args()
    print(f"slurm, {NODES} nodes of {GPUS} GPUs, seed {SEED}; best of {options.repeat}; "
          f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {date.today()}")  # fmt: skip
    print(f"{'load':>5} {'jobs':>8} {'mean queue':>10} {'kernel jobs/s':>14} {'twin jobs/s':>12} {'x twin':>8}")
    for load in (0.80, 0.90, 0.97, 1.05):
        for count in (TWIN_JOBS, options.jobs):
            report(load, count, options.repeat)


def report(load: float, count: int, repeat: int) -> None:
    """Print one row; the twin runs the small ones."""
    world = generate(count, load)
    result, seconds = min((run_timed(world) for _ in range(repeat)), key=lambda timed: timed[1])
    waits = result.start_s - world.jobs.submit_s
    depth = float(waits.sum()) / float(result.start_s.max() - world.jobs.submit_s[0])  # Little's law
    row = f"{load:>5.2f} {count:>8,} {depth:>10.1f} {count / seconds:>14,.0f}"
    if count <= TWIN_JOBS:
        before = time.perf_counter()
        twin = reference.simulate(world)
        twin_seconds = time.perf_counter() - before
        assert (twin.start_s == result.start_s).all() and (twin.placement == result.placement).all(), "the twin differs"
        row += f" {count / twin_seconds:>12,.0f} {twin_seconds / seconds:>8,.0f}"
    print(row, flush=True)


if __name__ == "__main__":
    main()
