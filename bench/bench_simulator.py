"""Jobs a second of the EASY kernel on a flat pool, beside its plain twin and a C++ -O2 program of the same algorithm.

Generated jobs: Poisson arrivals at load 0.93 on 256 units, sizes 1 to 64 (powers of two), log-normal run times (median
half an hour), limits 1 to 5 times the run time; per-job starts, which all three must agree on. Wall time of the kernel
alone, compiled, best of `--repeat` runs; the mean queue depth beside it, since congestion and not job count sets the
cost. The last lines give the growth with the number of jobs and the cost of a branch.

    python bench/bench_simulator.py [--repeat 3] [--largest 1000000]
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulator import reference
from simulator.kernel import advance, submit
from simulator.replay import as_jobs, checked_knobs, replay
from simulator.state import NEVER, NONE, Jobs, copy_state, new_state
from simulator.workload import Int64s, Workload

CAPACITY, LOAD, SEED = 256, 0.93, 1
JOBS = (1_000, 10_000, 100_000, 1_000_000)
TWIN_UP_TO = 10_000


def generate(jobs: int) -> Workload:
    rng = np.random.default_rng(SEED)
    size = 2 ** rng.integers(0, 7, jobs)
    run = np.maximum(rng.lognormal(np.log(1800), 1.0, jobs), 1).astype(np.int64)
    limit = (run * rng.uniform(1, 5, jobs)).astype(np.int64) + 1
    gap = float((size * run).mean()) / (CAPACITY * LOAD)
    submit_s = np.cumsum(rng.exponential(gap, jobs)).astype(np.int64)
    return Workload(np.arange(1, jobs + 1), submit_s, size, run, limit, np.full(jobs, -1))


def build_peer(folder: Path) -> Path | None:
    """The C++ program, or None where there is no compiler."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    program = folder / "easy"
    source = Path(__file__).with_name("easy.cpp")
    subprocess.run([compiler, "-O2", "-std=c++17", "-o", str(program), str(source)], check=True)
    return program


def run_peer(program: Path, workload: Workload) -> tuple[Int64s, float]:
    arrays = as_jobs(workload)
    given = np.concatenate([[len(workload), CAPACITY], *arrays]).astype(np.int64).tobytes()
    done = subprocess.run([str(program)], input=given, capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.int64), float(done.stderr)


def run_twin(workload: Workload) -> tuple[Int64s, float]:
    before = time.perf_counter()
    starts = reference.simulate(workload, scheduler="easy", capacity=CAPACITY)
    return np.array(starts), time.perf_counter() - before


def branch_seconds(workload: Workload, branches: int = 2000) -> float:
    """Mean time to copy the state in the middle of the trace, submit one more job and run until it starts."""
    knobs = checked_knobs(scheduler="easy", capacity=CAPACITY)
    count = len(workload)
    jobs = Jobs(
        *(np.append(column, value) for column, value in zip(as_jobs(workload), (0, 8, 3600, 3600), strict=True))
    )
    trunk, branch = (new_state(knobs, count, 4096, CAPACITY) for _ in range(2))
    starts = np.full(count + 1, NONE)
    now = int(workload.submit_s[count // 2])
    advance(jobs, knobs, trunk, starts, now, NONE)
    before = 0.0
    for repetition in range(branches + 1):
        if repetition == 1:  # the first may have compiled
            before = time.perf_counter()
        copy_state(branch, trunk)
        submit(jobs, knobs, branch, count, now)
        advance(jobs, knobs, branch, starts, NEVER, count)
    return (time.perf_counter() - before) / branches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--largest", type=int, default=JOBS[-1])
    options = parser.parse_args()
    print(f"EASY, flat pool of {CAPACITY}, load {LOAD}, seed {SEED}; best of {options.repeat}")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
          f"{date.today()}")  # fmt: skip
    print(f"{'jobs':>9} {'mean queue':>10} {'kernel jobs/s':>14} {'twin jobs/s':>12} {'x twin':>8} "
          f"{'C++ jobs/s':>12} {'kernel/C++':>10}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        peer = build_peer(Path(folder))
        rates = {}
        for count in (count for count in JOBS if count <= options.largest):
            rates[count] = report(generate(count), peer, options.repeat)
    smallest, largest = min(rates), max(rates)
    print(f"time a job at {largest:,} jobs / at {smallest:,} jobs: {rates[smallest] / rates[largest]:.2f}")
    for count in (min(rates), min(100_000, max(rates))):
        microseconds = branch_seconds(generate(count)) * 1e6
        print(f"branch (copy, submit, run to its start) of a trace of {count:,} jobs: {microseconds:.0f} us")


def report(workload: Workload, peer: Path | None, repeat: int) -> float:
    """Print one row; the kernel's jobs/s."""
    count = len(workload)
    fastest = min(
        (replay(workload, scheduler="easy", capacity=CAPACITY) for _ in range(repeat)), key=lambda run: run.wall_s
    )
    starts, seconds = fastest.starts, fastest.wall_s
    span = int((starts + workload.run_s).max() - workload.submit_s[0])
    depth = float((starts - workload.submit_s).sum()) / span  # Little's law
    row = f"{count:>9,} {depth:>10.1f} {count / seconds:>14,.0f}"
    if count <= TWIN_UP_TO:
        twin_starts, twin_seconds = run_twin(workload)
        assert (twin_starts == starts).all(), "the twin disagrees"
        row += f" {count / twin_seconds:>12,.0f} {twin_seconds / seconds:>8,.0f}"
    else:
        row += f" {'-':>12} {'-':>8}"
    if peer is None:
        row += "   no C++ compiler here"
    else:
        peer_starts, peer_seconds = min((run_peer(peer, workload) for _ in range(repeat)), key=lambda run: run[1])
        assert (peer_starts == starts).all(), "the C++ program disagrees"
        row += f" {count / peer_seconds:>12,.0f} {peer_seconds / seconds:>10.2f}"
    print(row, flush=True)
    return count / seconds


if __name__ == "__main__":
    main()
