"""Schedulers on Philly's jobs and nodes of 8 GPUs, compared as `baton whatif` does.

    .venv/bin/python -m bench.gpu_philly [--schedulers fifo,yarn,drf,tetris,sjf,tiresias,srtf] [--gpus 600]

The derived file, real jobs without profiles. The first scheduler is the base: intervals are 95 % over resampled weeks
of the jobs' differences to it.
"""

from __future__ import annotations

import argparse

import numpy as np

from bench.bench_gpu import TRACE, philly
from bench.gpu_rows import tell
from bench.results import Benchmark, BenchmarkRun
from models.what_if.changes import GpuScene
from models.what_if.schedulers import without_unplaceable
from simulator.gpu.cluster import of_nodes

ABOUT = Benchmark(
    "gpu_philly",
    "GPU schedulers on Philly",
    "gpu",
    "Job completion time (JCT) of the Philly log's jobs on 600 GPUs in nodes of 8, no profiles, a restart costs 30 s; "
    "600 GPUs were chosen because they queue.",
)


def main() -> None:
    """Replay the jobs under each scheduler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedulers", default="fifo,yarn,drf,tetris,sjf,tiresias,srtf")
    parser.add_argument("--gpus", type=int, default=600, help="in nodes of 8")
    given = parser.parse_args()
    jobs = philly(TRACE)
    cluster = of_nodes(np.full(given.gpus // 8, 8, dtype=np.int64))
    print(f"{len(jobs):,} jobs of Philly, {cluster.gpus} GPUs")
    tell(BenchmarkRun(ABOUT), without_unplaceable(GpuScene(cluster, jobs)), given.schedulers.split(","), 1)


if __name__ == "__main__":
    main()
