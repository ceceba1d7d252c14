"""Schedulers on a generated cluster of several GPU types, compared as `baton whatif` does.

    .venv/bin/python -m bench.gpu_mixed [--schedulers fifo,tiresias,themis,sia] [--weeks 2] [--draws 3] [--load 0.8]
    .venv/bin/python -m bench.gpu_mixed --schedulers sia --draws 1 --change elastic=0 --change elastic=0.5

64 GPUs: 6 nodes of 4 T4, 3 of 8 RTX 6000, 2 of 8 A100. Jobs and models are those of `bench.gpu_headlines` (generated);
recorded run times count as those on a T4. The first scheduler is the base: intervals are 95 % over resampled weeks of
the jobs' differences to it, and ranges are over the draws of the models.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.gpu_headlines import MIXED, MODELS, HeadlineSettings, generated
from bench.results import Benchmark, BenchmarkRun
from models.what_if.changes import AS_IT_IS, GpuScene
from models.what_if.differences import rows
from models.what_if.schedulers import combinations, replays, without_unplaceable
from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import of_arrays
from simulator.gpu.profiles.table import published

ABOUT = Benchmark(
    "gpu_mixed",
    "GPU schedulers on nodes of several types",
    "gpu",
    "Generated jobs on 64 generated GPUs (24 T4, 24 RTX 6000, 16 A100), means over draws of models.",
)
ABOUT_CHANGED = Benchmark(
    "gpu_mixed_elastic",
    "Sia and the share of elastic gangs",
    "gpu",
    "Sia on the same jobs with other shares of elastic gangs.",
)
FIGURES = {
    "mean_jct_s": ("mean JCT", "s"),
    "p50_jct_s": ("median JCT", "s"),
    "p99_jct_s": ("p99 JCT", "s"),
    "mean_queueing_s": ("mean queueing", "s"),
    "makespan_s": ("makespan", "s"),
    "utilization": ("utilization", ""),
    "fragmentation": ("fragmentation", ""),
    "worst_rho": ("worst rho", ""),
    "mean_rho": ("mean rho", ""),
    "preemptions": ("preemptions", ""),
    "lost_gpu_h": ("lost to restarts", "GPU h"),
}  # of `baton whatif`: the quantity and its unit


def scene(weeks: int, load: float) -> GpuScene:
    """The cluster, and `weeks` weeks of jobs that ask for `load` of what its GPUs could do if all were T4."""
    cluster = of_nodes(MIXED.gpus, tuple(MIXED.types), MIXED.reference)
    jobs = generated(HeadlineSettings(weeks, None, 0), cluster.gpus, load)
    submit_s = np.array([job.submit_s for job in jobs])
    gpus, run_s = np.array([job.gpus for job in jobs]), np.array([job.run_s for job in jobs])
    alike = replace(of_arrays(submit_s, gpus, run_s), profiles=tuple(published().values()))
    return without_unplaceable(GpuScene(cluster, alike.drawn(0, MODELS)))


def tell(run: BenchmarkRun, base: GpuScene, schedulers: list[str], draws: int, changes: Sequence[str] = ()) -> None:
    """Replays the scene under each scheduler in turn, as it is and changed; prints and records every figure."""
    for line in base.assumptions:
        print(line)
    began = time.process_time()

    def done(name: str) -> None:
        print(f"{name}: {time.process_time() - began:.0f} s of processor so far", flush=True)

    outcomes = replays(combinations(base, schedulers, changes, draws), done, workers=1)
    for line in dict.fromkeys(line for outcome in outcomes for line in outcome.assumptions):
        print(line)
    for row in rows(base.jobs, outcomes):
        low, high = row["draws"]
        name = row["scheduler"] if row["change"] == AS_IT_IS else f"{row['scheduler']} {row['change']}"
        line = f"{name} {row['figure']} {row['value']:,.4g} [{low:,.4g} to {high:,.4g} over draws]"
        if row["difference_ci95"] is not None:
            least, most = row["difference_ci95"]
            line += f"; {row['difference']:+,.4g} [{least:+,.4g}, {most:+,.4g}] to the first"
        print(line)
        record_figure(run, name, row, len(base.jobs))
    run.write()


def record_figure(run: BenchmarkRun, name: str, row: Mapping[str, Any], jobs: int) -> None:
    """Add a figure of `baton whatif`, and its difference to the first scheduler where it has an interval."""
    what, unit = FIGURES[row["figure"]]
    run.add(name, what, row["value"], unit, n=jobs)
    if row["difference_ci95"] is not None:
        run.add(name, f"{what} less the first's", row["difference"], unit, n=jobs, interval=row["difference_ci95"])


def main() -> None:
    """Replay the jobs under each scheduler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedulers", default="fifo,tiresias,themis,sia")
    parser.add_argument("--weeks", type=int, default=2)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--change", action="append", default=[])
    given = parser.parse_args()
    base = scene(given.weeks, given.load)
    print(f"{len(base.jobs):,} jobs of {given.weeks} weeks, {base.cluster.gpus} GPUs, {given.draws} draws (generated)")
    run = BenchmarkRun(ABOUT_CHANGED if given.change else ABOUT)
    tell(run, base, given.schedulers.split(","), given.draws, given.change)


if __name__ == "__main__":
    main()
