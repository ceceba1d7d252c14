"""Jobs a second of the `slurm` scheduler where nodes are taken whole and there are thousands, on a real trace.

The jobs of a log in the Standard Workload Format run on its own number of units, under Slurm's defaults: ALCF Theta
2022 (23,911 jobs on 4,360 units) where it lies beside the checkout, else generated jobs of its sizes. Peers in the
same run:

- the same jobs on nodes that may be shared. Each job takes all cores of its nodes, so starts and nodes must be equal;
- the C++ -O2 program of `bench_slurm.py` on shared nodes;
- the plain twin on the first jobs.

It also measures the cost of reporting progress. Times are processor time of the compiled part on one thread, the best
of `--repeat` runs; peers run once.

    python bench/bench_slurm_nodes.py [--trace FILE.swf.gz] [--repeat 3] [--twin-jobs 40]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bench_slurm import build_peer, dump, run_peer
from bench.results import Benchmark, BenchmarkRun
from simulator.slurm import world as w
from simulator.slurm.compiled import kernel
from simulator.slurm.inputs.jobs import flat
from simulator.slurm.inputs.prepare import prepared
from simulator.slurm.run import ProgressCallback, advanced, result
from simulator.workload import from_swf
from tests.twins.slurm import clock as reference
from traces.readers.published.swf import read_swf

THETA = Path(__file__).resolve().parents[2] / "shared" / "traces" / "swf" / "theta_2022.swf.gz"
ABOUT = Benchmark(
    "slurm_nodes",
    "The slurm scheduler on thousands of nodes",
    "speed",
    "Jobs a second of processor time: ALCF Theta 2022 on 4,360 units taken whole, mean queue 43.5; starts and nodes of "
    "all programs are equal; target 5,000.",
)
UNITS, JOBS, SEED = 4360, 20_000, 1


def read(path: Path) -> tuple[str, w.SlurmWorld, int]:
    """The name of the trace, its jobs on its own number of units, and that number."""
    trace = read_swf(path)
    workload, _left_out = from_swf(trace)
    units = int(trace.max_procs or workload.size.max())
    return path.name, flat(workload.take(workload.size <= units), units), units


def generate() -> tuple[str, w.SlurmWorld, int]:
    """Jobs of 128 to 2,048 units with log-normal run times that ask for 80 % of the machine."""
    rng = np.random.default_rng(SEED)
    size = rng.choice([128, 256, 512, 1024, 2048], JOBS, p=[0.56, 0.25, 0.1, 0.06, 0.03])
    run = np.clip(rng.lognormal(np.log(3600), 1.3, JOBS), 60, 86_400).astype(np.int64)
    limit = np.minimum((run * rng.uniform(1, 4, JOBS)).astype(np.int64) // 1800 * 1800 + 1800, 86_400)
    submit = np.cumsum(rng.exponential(float((size * run).mean()) / (UNITS * 0.8), JOBS)).astype(np.int64)
    return (
        f"generated, seed {SEED}",
        w.flat_world(w.plain_jobs(submit, run, limit, size), UNITS, w.SlurmSettings()),
        UNITS,
    )


def shared(world: w.SlurmWorld) -> w.SlurmWorld:
    """The same world on nodes that may be shared; its jobs take whole nodes all the same."""
    return replace(world, partitions=replace(world.partitions, exclusive=np.zeros(1, bool)))


def first(world: w.SlurmWorld, jobs: int) -> w.SlurmWorld:
    """Keep only the first jobs of a flat world."""
    columns = {name: values[:jobs] for name, values in vars(world.jobs).items()}
    return replace(world, jobs=w.SlurmJobs(**columns), pinned_first=world.pinned_first[: jobs + 1])


def timed(world: w.SlurmWorld, repeat: int, on_progress: ProgressCallback | None = None) -> tuple[w.SlurmResult, float]:
    """Simulate the world `repeat` times; return the result and the least processor seconds of the compiled part."""
    best = np.inf
    for _ in range(repeat):
        ready = prepared(world)
        kernel.advance(ready.run, ready.state, -1, w.NONE)  # compiles, or loads what was compiled
        kernel.next_instant(ready.run, ready.state)
        before = time.process_time()
        ready = advanced(ready, w.NEVER, on_progress)
        best = min(best, time.process_time() - before)
    return result(ready), best


def assert_equal(one: w.SlurmResult, other: w.SlurmResult, who: str) -> None:
    """Raise AssertionError where two programs disagree."""
    assert (one.start_s == other.start_s).all(), f"{who}: a start differs"
    assert (one.placement == other.placement).all(), f"{who}: a node differs"


def main() -> None:
    """Measure whole nodes and the peers; print and record each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=THETA if THETA.is_file() else None)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--twin-jobs", type=int, default=40)
    options = parser.parse_args()
    name, world, units = read(options.trace) if options.trace else generate()
    jobs = len(world.jobs)
    print(f"slurm, {name}: {jobs:,} jobs on {units:,} units; best of {options.repeat}; "
          f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {date.today()}, "
          f"load average {os.getloadavg()[0]:.1f}")  # fmt: skip
    run = BenchmarkRun(ABOUT)
    whole, seconds = timed(world, options.repeat)
    waits = whole.start_s - world.jobs.submit_s
    depth = float(waits.sum()) / float(whole.start_s.max() - world.jobs.submit_s[0])  # Little's law
    print(f"mean queue {depth:.1f}, mean wait {waits.mean():,.0f} s; {jobs / seconds:,.0f} jobs/s ({seconds:.2f} s)")
    run.add("kernel, nodes taken whole", "speed", jobs / seconds, "jobs/s", n=jobs)
    other, other_seconds = timed(shared(world), 1)
    assert_equal(whole, other, "nodes that may be shared")
    print(f"on nodes that may be shared: {jobs / other_seconds:,.0f} jobs/s, "
          f"whole nodes are x {other_seconds / seconds:.1f}; starts and nodes equal")  # fmt: skip
    _add(run, "kernel, the same jobs on shared nodes", jobs, other_seconds, seconds)
    with tempfile.TemporaryDirectory() as folder:
        if peer := build_peer(Path(folder)):
            (start_s, node, _), peer_seconds = run_peer(peer, dump(shared(world)))
            assert (start_s == whole.start_s).all(), "a start of the C++ program differs"
            assert (node == whole.placement[whole.placement_first[:-1]]).all(), "a node of the C++ program differs"
            print(f"C++: {jobs / peer_seconds:,.0f} jobs/s, kernel/C++ {peer_seconds / seconds:.1f}; starts and first "
                  "nodes equal")  # fmt: skip
            _add(run, "C++ -O2", jobs, peer_seconds, seconds)
        else:
            print("C++: no compiler")
    words: list[int] = []
    reported, reported_seconds = timed(world, options.repeat, words.append)
    assert_equal(whole, reported, "with progress")
    print(
        f"progress reported {len(words) // options.repeat} times a run: {reported_seconds / seconds - 1:+.1%} of time"
    )
    few = first(world, options.twin_jobs)
    before = time.process_time()
    twin = reference.simulate(few)
    twin_seconds = time.process_time() - before
    kernels, few_seconds = timed(few, options.repeat)
    assert_equal(kernels, twin, "the twin")
    print(f"the first {options.twin_jobs} jobs: {options.twin_jobs / twin_seconds:,.1f} jobs/s by the plain twin, "
          f"x {twin_seconds / few_seconds:,.0f}; starts and nodes equal")  # fmt: skip
    _add(run, "plain twin", options.twin_jobs, twin_seconds, few_seconds)
    run.write()


def _add(run: BenchmarkRun, name: str, jobs: int, its_seconds: float, seconds: float) -> None:
    """Record a peer's speed, and how much faster the kernel is."""
    run.add(name, "speed", jobs / its_seconds, "jobs/s", n=jobs)
    run.add(name, "kernel / it", its_seconds / seconds, n=jobs)


if __name__ == "__main__":
    main()
