"""Alibaba's openb trace on a container cluster, in batch queues, and on single nodes: the same jobs in one engine.

    .venv/bin/python -m bench.gpu_openb [--every 120] [--openb ../shared/traces/openb]

The trace's 6,212 GPUs are nearly idle, so the jobs are replayed on every 120th node of its list, which keeps the mix of
nodes. Jobs and nodes have their recorded GPUs, CPUs and memory. The base is `fifo`, a batch queue. Intervals are 95 %
over resampled weeks of the jobs' differences to it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.gpu_rows import tell
from bench.results import Benchmark, BenchmarkRun
from models.what_if.changes import GpuScene
from models.what_if.gpu_scene import read_scene
from models.what_if.schedulers import without_unplaceable
from traces import clusters
from traces.store.folder import DataFolder

ABOUT = Benchmark(
    "gpu_openb",
    "Container cluster, batch queues and single nodes",
    "gpu",
    "The jobs of Alibaba's openb trace on a sample of its nodes, without profiles.",
)
SCHEDULERS = ["fifo", "yarn", "drf", "mesos", "tetris", "single", "kubernetes"]
CHANGES = [
    f"kubernetes.{setting}" for setting in ("gang=1", "queue=1", "share=0", "pack=1", "gpu_weight=1", "preempt=0")
]


def sampled(scene: GpuScene, every: int) -> GpuScene:
    """Keep every so manieth node of the cluster, from the first on."""
    cluster, at = scene.cluster, np.arange(0, scene.cluster.nodes, every)
    smaller = cluster._replace(
        capacity=cluster.capacity[at],
        types=tuple(cluster.types[node] for node in at),
        racks=np.zeros(len(at), dtype=np.int64),
        labels=tuple(cluster.labels[node] for node in at),
    )
    line = f"of {cluster.nodes:,} nodes every {every}th is kept: {len(at)} nodes with {smaller.gpus} GPUs"
    return without_unplaceable(replace(scene, cluster=smaller, assumptions=(*scene.assumptions, line)))


def main() -> None:
    """Ingest the trace, replay it, print and record each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=120)
    parser.add_argument("--openb", type=Path, default=Path("../shared/traces/openb"))
    given = parser.parse_args()
    files = sorted(given.openb.glob("*.csv.gz"))
    if not files:
        sys.exit(f"no trace in {given.openb}: give its folder as --openb")
    with tempfile.TemporaryDirectory() as folder:
        data = DataFolder(Path(folder))
        for path in files:
            ingest = ["ingest", str(path), "--cluster", "openb", "--data", folder]
            subprocess.run([sys.executable, "-m", "pipelines.cli", *ingest], check=True)
        scene = read_scene(data, clusters.resolve(data, cluster="openb"))
    run = BenchmarkRun(ABOUT)
    tell(run, sampled(scene, given.every), SCHEDULERS, 1, CHANGES)
    run.write()


if __name__ == "__main__":
    main()
