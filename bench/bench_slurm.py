"""Jobs a second of the `slurm` scheduler with GPU placement, at several loads and sizes.

Peers: a C++ -O2 program of the same rules, and the plain twin. The program plans each backfill pass in full. Where many
jobs wait, the ratio shows what the kernel saves by planning only what the starts depend on.

Generated jobs on 64 nodes of 4 GPUs and 64 cores in one shared partition: Poisson arrivals, 1, 2, 4 or 8 GPUs a job (8
on two nodes), log-normal run times (median half an hour), limits 1 to 3 times the run time, 40 users with fair share
and age in their priority, Slurm's default parameters. Congestion sets the cost, so every figure states the mean queue
that came of its load. Starts and nodes must equal the C++ program's and the twin's. Processor time of the
compiled part on one thread, best of `--repeat` runs; memory of a replay at its peak, the world's jobs included.

    python bench/bench_slurm.py [--repeat 3] [--jobs 20000] [--largest 1000000]
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

from traces.arrays import Int64s

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import Benchmark, BenchmarkRun
from simulator.slurm import world as w
from simulator.slurm.compiled import kernel
from simulator.slurm.inputs.prepare import prepared
from simulator.slurm.run import advanced
from simulator.slurm.run import result as outcome
from tests.twins.slurm import clock as reference

ABOUT = Benchmark(
    "slurm",
    "The slurm scheduler",
    "speed",
    "Jobs a second of processor time with GPU placement on 64 nodes of 4 GPUs; targets 100,000 at a queue of 20 and "
    "20,000 at 200; starts and nodes equal to the C++ program's.",
)
NODES, GPUS, CPUS, USERS, SEED = 64, 4, 64, 40, 1
TWIN_JOBS = 300
LOADS = (0.80, 0.90, 0.93, 0.97, 1.008, 1.01)  # mean queues from 1 to 20, 100, 200
GROWTH_LOAD = 0.90
ONCE_FROM = 1_000_000  # so long that one run is enough


def generate(jobs: int, load: float) -> w.SlurmWorld:
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
    settings = w.SlurmSettings(weight_age=1000, weight_fairshare=10000, weight_job_size=500)
    parts = replace(parts, exclusive=np.zeros(1, bool))
    return w.flat_world(queue, NODES, settings, users=USERS, nodes=machine, partitions=parts)


def build_peer(folder: Path) -> Path | None:
    """The C++ program, or None where there is no compiler."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    program = folder / "slurm"
    source = Path(__file__).with_name("slurm.cpp")
    subprocess.run([compiler, "-O2", "-std=c++17", "-o", str(program), str(source)], check=True)
    return program


def dump(world: w.SlurmWorld) -> bytes:
    """The prepared world as the C++ program reads it."""
    run = prepared(world).run
    knobs, tables, jobs = run.knobs, run.tables, run.jobs
    size = [len(world.jobs), len(world.nodes), len(tables.shape_partition), len(tables.parent)]
    whole = [
        knobs.calc_period_s, knobs.default_queue_depth, knobs.sched_interval_s, knobs.batch_sched_delay_s,
        knobs.bf_interval_s, knobs.bf_window_s, knobs.bf_resolution_s, knobs.bf_max_job_test, knobs.end_grace_s,
        knobs.origin_s,
    ]  # fmt: skip
    weights = [knobs.weight_age, knobs.weight_fairshare, knobs.max_age_s, knobs.decay]
    columns = (jobs.submit_s, jobs.run_s, jobs.limit_s, jobs.nodes, jobs.shape, jobs.association, jobs.charge)
    parts = (
        np.array(size + whole), np.array(weights), np.column_stack([tables.node_size, tables.node_weight]),
        tables.shape_share, np.column_stack(columns), jobs.static, tables.shares,
    )  # fmt: skip
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def run_kernel(world: w.SlurmWorld) -> tuple[w.SlurmResult, float]:
    """Simulate the world; return the result and the processor seconds of the compiled part, on one thread."""
    ready = prepared(world)
    kernel.advance(ready.run, ready.state, -1, w.NONE)  # compiles, or loads what was compiled
    before = time.process_time()
    ready = advanced(ready, w.NEVER)
    return outcome(ready), time.process_time() - before


def run_peer(program: Path, given: bytes) -> tuple[Int64s, float]:
    """Start, first node and by-backfill of each job, shape (3, jobs), and the processor time that it took."""
    done = subprocess.run([str(program)], input=given, capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.int64).reshape(3, -1), float(done.stderr)


def bytes_a_job(world: w.SlurmWorld) -> float:
    """The most memory in use during a replay, the world's own jobs included, over the jobs."""
    # Columns that are alike are one array.
    arrays: dict[int, int] = {id(array): array.nbytes for array in vars(world.jobs).values()}
    tracemalloc.start()
    advanced(prepared(world), w.NEVER)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (sum(arrays.values()) + peak) / len(world.jobs)


def main() -> None:
    """Measure each load and size; print and record the kernel and its peers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of the rows at several loads")
    parser.add_argument("--largest", type=int, default=1_000_000, help="jobs of the last row of the growth")
    options = parser.parse_args()
    print(f"slurm, {NODES} nodes of {GPUS} GPUs, seed {SEED}; best of {options.repeat}, from {ONCE_FROM:,} jobs once; "
          f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {date.today()}, "
          f"load average {os.getloadavg()[0]:.1f}")  # fmt: skip
    print(f"{'load':>5} {'jobs':>9} {'mean queue':>10} {'kernel jobs/s':>14} {'C++ jobs/s':>11} {'kernel/C++':>10} "
          f"{'bytes/job':>9} {'twin jobs/s':>12} {'x twin':>7}")  # fmt: skip
    run = BenchmarkRun(ABOUT)
    with tempfile.TemporaryDirectory() as folder:
        peer = build_peer(Path(folder))
        for load in LOADS:
            for count in (TWIN_JOBS, options.jobs):
                report(run, load, count, peer, options.repeat)
        growth = [10**digits for digits in range(4, 8) if 10**digits <= options.largest]
        rates = {count: report(run, GROWTH_LOAD, count, peer, options.repeat) for count in growth}
    first, last = min(rates), max(rates)
    print(f"time a job at {last:,} jobs / at {first:,} jobs: {rates[first] / rates[last]:.2f} "
          f"(n log n: {math.log(last) / math.log(first):.2f})")  # fmt: skip
    row = f"load {GROWTH_LOAD:.3f}, {last:,} jobs"
    run.add(row, f"time a job / that at {first:,} jobs", rates[first] / rates[last], n=last)
    run.write()


def report(run: BenchmarkRun, load: float, count: int, peer: Path | None, repeat: int) -> float:
    """Print and record one row, with the twin's figures on the small ones; returns the kernel's jobs/s."""
    world = generate(count, load)
    repeat = repeat if count < ONCE_FROM else 1
    result, seconds = min((run_kernel(world) for _ in range(repeat)), key=lambda timed: timed[1])
    waits = result.start_s - world.jobs.submit_s
    depth = float(waits.sum()) / float(result.start_s.max() - world.jobs.submit_s[0])  # Little's law
    row = f"{load:>5.3f} {count:>9,} {depth:>10.1f} {count / seconds:>14,.0f}"
    memory = bytes_a_job(world)
    figures: list[tuple[str, float, str]] = [("mean queue", depth, ""), ("kernel", round(count / seconds), "jobs/s")]
    if peer is None:
        row += f" {'no compiler':>22}"
    else:
        given = dump(world)
        (start_s, node, by_backfill), peer_seconds = min(
            (run_peer(peer, given) for _ in range(repeat)), key=lambda timed: timed[1]
        )
        assert (start_s == result.start_s).all(), "a start of the C++ program differs"
        assert (node == result.placement[result.placement_first[:-1]]).all(), "a node of the C++ program differs"
        assert (by_backfill == result.by_backfill).all(), "the C++ program starts another by backfill"
        row += f" {count / peer_seconds:>11,.0f} {peer_seconds / seconds:>10.2f}"
        figures += [("C++ -O2", round(count / peer_seconds), "jobs/s"), ("kernel / C++", peer_seconds / seconds, "")]
    row += f" {memory:>9.0f}"
    figures.append(("memory", memory, "bytes/job"))
    if count <= TWIN_JOBS:
        before = time.process_time()
        twin = reference.simulate(world)
        twin_seconds = time.process_time() - before
        assert (twin.start_s == result.start_s).all() and (twin.placement == result.placement).all(), "the twin differs"
        row += f" {count / twin_seconds:>12,.0f} {twin_seconds / seconds:>7,.0f}"
        figures.append(("plain twin", round(count / twin_seconds), "jobs/s"))
    print(row, flush=True)
    _record(run, f"load {load:.3f}, {count:,} jobs", figures, count)
    return count / seconds


def _record(run: BenchmarkRun, name: str, figures: list[tuple[str, float, str]], count: int) -> None:
    """Add a row's figures: once, where the same size at the same load is measured for its load and for the growth."""
    if all(row.name != name for row in run.rows):
        for what, value, unit in figures:
            run.add(name, what, value, unit, n=count)


if __name__ == "__main__":
    main()
