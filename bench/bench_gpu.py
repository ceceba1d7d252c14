"""Processor time of Philly's 82,247 jobs under each scheduler of the compiled clock, and the schedulers' figures.

    .venv/bin/python -m bench.bench_gpu [--trace FILE] [--schedulers tiresias] [--gpus 2488]

For comparison: published simulators process 121 to 286 jobs a second (Tiresias' and blox, on other machines). The trace
names no quotas, so quotas are in proportion to GPU time. There are no profiles: a job runs at speed 1 on any node.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import polars as pl

from bench.results import Benchmark, BenchmarkRun
from simulator.gpu.cluster import of_nodes
from simulator.gpu.figures import figures
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.gpu.run import simulate

TRACE = Path(__file__).resolve().parents[2] / "shared" / "traces" / "philly" / "philly.csv"
PUBLISHED = (121, 286)  # jobs a second
ABOUT = Benchmark(
    "gpu",
    "GPU schedulers of the compiled clock",
    "speed",
    "82,247 Philly jobs with placement; published simulators process 121 to 286 jobs/s on other machines; target 10 s.",
)


def philly(trace: Path) -> GpuJobs:
    """Every job of the derived Philly log that ran."""
    rows = pl.read_csv(trace, try_parse_dates=True).filter((pl.col("duration") > 0) & (pl.col("num_gpus") > 0))
    groups, group = np.unique(rows["cluster"].to_numpy().astype(str), return_inverse=True)
    submit = rows["timestamp"].dt.epoch("s").to_numpy().astype(np.float64)
    return of_arrays(submit, rows["num_gpus"].to_numpy(), rows["duration"].to_numpy(), group, tuple(groups.tolist()))


def main() -> None:
    """Replay the jobs under each scheduler; print and record its speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--schedulers", default="tiresias")
    parser.add_argument("--gpus", type=int, default=2488, help="in nodes of 8")
    given = parser.parse_args()
    jobs, cluster = philly(given.trace), of_nodes(np.full(given.gpus // 8, 8, dtype=np.int64))
    print(f"{len(jobs):,} jobs, {cluster.gpus:,} GPUs; published simulators: {PUBLISHED[0]} to {PUBLISHED[1]} jobs/s")
    record = BenchmarkRun(ABOUT)
    for name in given.schedulers.split(","):
        simulate(cluster, jobs.take(np.arange(50)), name)  # compiles, or reads what was compiled
        began = time.process_time()
        result = simulate(cluster, jobs, name).result
        took = time.process_time() - began
        figures_text = ", ".join(f"{figure} {value:,.4g}" for figure, value in figures(cluster, jobs, result).items())
        print(f"{name}: {took:.2f} s of processor, {len(jobs) / took:,.0f} jobs/s; {figures_text}")
        row = f"{name}, {cluster.gpus:,} GPUs"
        record.add(row, "processor time", took, "s", n=len(jobs))
        record.add(row, "speed", round(len(jobs) / took), "jobs/s", n=len(jobs))
    record.write()


if __name__ == "__main__":
    main()
