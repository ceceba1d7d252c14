"""Jobs a second of the EASY kernel on a flat pool.

Peers: its plain twin, a C++ -O2 program of the same algorithm, and AccaSim where it is installed.

Generated jobs: Poisson arrivals at load 0.93 on 256 units, sizes 1 to 64 (powers of two), log-normal run times (median
half an hour), limits 1 to 5 times the run time; per-job starts, which all must agree on. Wall time of the kernel alone,
compiled, best of `--repeat` runs; the mean queue depth beside it, since congestion and not job count sets the cost; and
the memory of a replay, the trace's own arrays included. Then the growth with the number of jobs.

    python bench/bench_simulator.py [--repeat 3] [--largest 10000000] [--accasim PYTHON]

AccaSim wants an environment of its own: `python -m venv E && E/bin/pip install accasim`, then `--accasim E/bin/python`
or ACCASIM_PYTHON=E/bin/python.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from datetime import date
from pathlib import Path

import numpy as np

from traces.arrays import Int64s

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import Benchmark, BenchmarkRun
from simulator.flat.replay import as_jobs, replay
from simulator.workload import Workload
from tests.twins import flat as reference

ABOUT = Benchmark(
    "simulator",
    "The EASY kernel",
    "speed",
    "Jobs a second on a flat pool of 256 units at load 0.93; all programs compute the same starts.",
)
CAPACITY, LOAD, SEED = 256, 0.93, 1
JOBS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
TWIN_UP_TO = 10_000
ONCE_FROM = 10_000_000  # so long that one run is enough
ACCASIM_JOBS = 1_000
SETTLED = 100_000  # jobs from which on the mean queue no longer grows with the trace


def generate(jobs: int) -> Workload:
    """Poisson arrivals at the load LOAD, sizes 1 to 64, log-normal run times near half an hour."""
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
    """Starts and seconds of the C++ program."""
    arrays = as_jobs(workload)
    given = np.concatenate([[len(workload), CAPACITY], *arrays]).astype(np.int64).tobytes()
    done = subprocess.run([str(program)], input=given, capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.int64), float(done.stderr)


def run_twin(workload: Workload) -> tuple[Int64s, float]:
    """Starts and seconds of the plain Python twin."""
    before = time.perf_counter()
    starts = reference.simulate(workload, scheduler="easy", capacity=CAPACITY)
    return np.array(starts), time.perf_counter() - before


def bytes_a_job(workload: Workload) -> float:
    """The most memory in use during a replay, the workload's own arrays included, over its jobs."""
    own: int = sum(getattr(workload, name).nbytes for name in workload.__dataclass_fields__)
    tracemalloc.start()
    replay(workload, scheduler="easy", capacity=CAPACITY)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (own + peak) / len(workload)


def main() -> None:
    """Measure each size; print and record the kernel, its peers, and the growth of the time a job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--largest", type=int, default=JOBS[-1])
    parser.add_argument("--accasim", default=os.environ.get("ACCASIM_PYTHON"), help="a Python that has AccaSim")
    options = parser.parse_args()
    print(f"EASY, flat pool of {CAPACITY}, load {LOAD}, seed {SEED}; best of {options.repeat}, {ONCE_FROM:,} jobs once")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
          f"{date.today()}, load average {os.getloadavg()[0]:.1f}")  # fmt: skip
    print(f"{'jobs':>10} {'mean queue':>10} {'kernel jobs/s':>14} {'bytes/job':>10} {'twin jobs/s':>12} {'x twin':>8} "
          f"{'C++ jobs/s':>12} {'kernel/C++':>10}")  # fmt: skip
    run = BenchmarkRun(ABOUT)
    with tempfile.TemporaryDirectory() as folder:
        peer = build_peer(Path(folder))
        rates = {}
        for count in (count for count in JOBS if count <= options.largest):
            rates[count] = report(run, generate(count), peer, options.repeat if count < ONCE_FROM else 1)
    first, last = min(max(rates), SETTLED), max(rates)
    print(f"time a job at {last:,} jobs / at {first:,} jobs: {rates[first] / rates[last]:.2f} "
          f"(n log n: {math.log(last) / math.log(first):.2f})")  # fmt: skip
    run.add(f"{last:,} jobs", f"time a job / that at {first:,} jobs", rates[first] / rates[last], n=last)
    against_accasim(run, options.accasim)
    run.write()


def against_accasim(run: BenchmarkRun, python: str | None) -> None:
    """FIFO, where both must agree, and EASY, where each follows its own rules."""
    if python is None:
        print("AccaSim: not installed (see --help)")
        return
    workload = generate(ACCASIM_JOBS)
    for scheduler in ("fifo", "easy"):
        ours = min(
            (replay(workload, scheduler=scheduler, capacity=CAPACITY) for _ in range(3)), key=lambda made: made.wall_s
        )
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "jobs.swf"
            columns = (workload.job_id, workload.submit_s, workload.run_s, workload.size, workload.limit_s)
            lines = zip(*(column.tolist() for column in columns), strict=True)
            trace.write_text("".join(
                f"{job} {submit} -1 {run} {size} -1 -1 {size} {limit} -1 1 1 1 1 1 -1 -1 -1\n"
                for job, submit, run, size, limit in lines
            ))  # fmt: skip
            done = subprocess.run(
                [python, Path(__file__).with_name("accasim_peer.py"), trace, str(CAPACITY), scheduler, folder],
                capture_output=True, text=True, env={**os.environ, "TZ": "UTC"}, check=False,
            )  # fmt: skip
        if done.returncode:
            print(f"AccaSim: cannot run ({(done.stderr.strip().splitlines() or ['no word'])[-1]})")
            return
        peer = json.loads(done.stdout)
        starts = np.array([peer["starts"][str(job)] for job in workload.job_id])
        same = float((starts == ours.starts).mean())
        if scheduler == "fifo":
            assert same == 1.0, "AccaSim's FIFO disagrees"
        rate, theirs = ACCASIM_JOBS / ours.wall_s, ACCASIM_JOBS / peer["seconds"]
        print(f"{scheduler}, {ACCASIM_JOBS:,} jobs: kernel {rate:,.0f} jobs/s, AccaSim {theirs:,.0f} jobs/s, "
              f"{rate / theirs:,.0f} times; the same start for {100 * same:.1f} % of the jobs")  # fmt: skip
        row = f"{ACCASIM_JOBS:,} jobs, {scheduler.upper()}"
        run.add(row, "kernel", round(rate), "jobs/s", n=ACCASIM_JOBS)
        run.add(row, "AccaSim", round(theirs), "jobs/s", n=ACCASIM_JOBS)
        run.add(row, "same start as AccaSim", 100 * same, "%", n=ACCASIM_JOBS)


def report(run: BenchmarkRun, workload: Workload, peer: Path | None, repeat: int) -> float:
    """Print and record one row; returns the kernel's jobs/s."""
    count = len(workload)
    fastest = min(
        (replay(workload, scheduler="easy", capacity=CAPACITY) for _ in range(repeat)), key=lambda made: made.wall_s
    )
    starts, seconds = fastest.starts, fastest.wall_s
    span = int((starts + workload.run_s).max() - workload.submit_s[0])
    depth = float((starts - workload.submit_s).sum()) / span  # Little's law
    memory = bytes_a_job(workload)
    row = f"{count:>10,} {depth:>10.1f} {count / seconds:>14,.0f} {memory:>10.0f}"
    figures: list[tuple[str, float, str]] = [("mean queue", depth, ""), ("kernel", round(count / seconds), "jobs/s")]
    figures.append(("memory", memory, "bytes/job"))
    if count <= TWIN_UP_TO:
        twin_starts, twin_seconds = run_twin(workload)
        assert (twin_starts == starts).all(), "the twin disagrees"
        row += f" {count / twin_seconds:>12,.0f} {twin_seconds / seconds:>8,.0f}"
        figures.append(("plain twin", round(count / twin_seconds), "jobs/s"))
    else:
        row += f" {'-':>12} {'-':>8}"
    if peer is None:
        row += "   no C++ compiler here"
    else:
        peer_starts, peer_seconds = min((run_peer(peer, workload) for _ in range(repeat)), key=lambda made: made[1])
        assert (peer_starts == starts).all(), "the C++ program disagrees"
        row += f" {count / peer_seconds:>12,.0f} {peer_seconds / seconds:>10.2f}"
        figures.append(("C++ -O2", round(count / peer_seconds), "jobs/s"))
        figures.append(("kernel / C++", peer_seconds / seconds, ""))
    print(row, flush=True)
    for what, value, unit in figures:
        run.add(f"{count:,} jobs", what, value, unit, n=count)
    return count / seconds


if __name__ == "__main__":
    main()
