"""Peak memory and time of every step of `baton analyze` on generated logs, from raw text to the report.

One `sacct` dump is generated and read as the log of each of `--clusters` clusters. Every step runs in a process of its
own for each cluster and does what its asset does: an analysis computes its tables, writes them to the lake and reads
them back. The largest peak and the sum of the times count. Processor time covers all threads of a process; other work
on the machine lengthens it less than wall time. There is no peer; compare sizes and commits.

    python bench/bench_memory.py [--jobs 4000000] [--clusters 1 --at-once 1] [--step queueing] [--out DIR]

With `--out`, DIR keeps the dump, the lake and the warehouse, and a second run measures the same data.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import ROOT, Benchmark, BenchmarkRun
from features.catalog import FEATURES
from pipelines import ALLOCATOR
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.ingest import ingest
from traces.store import derived, warehouse
from traces.store.folder import DataFolder

ABOUT = Benchmark(
    "memory",
    "Memory of the analytics",
    "speed",
    "Peak resident memory and wall time of every step, each in a process of its own, on generated Slurm jobs on 400 "
    "nodes; target 3 GB for 4,000,000 jobs.",
)
OF_CLUSTERS = Benchmark(
    "memory-of-clusters",
    "Memory of the analytics, several clusters",
    "speed",
    "The same for several clusters in one data folder: the largest peak of a process and the sum of the times; target "
    "1.3 times the time per job of one cluster.",
)
NODES = 400
WHOLE = ("warehouse", "warehouse with analytics", "report")  # steps for all clusters at once
STEPS = ("ingest", "warehouse", *FEATURES, "warehouse with analytics", "report")


def dump_of(data: DataFolder, jobs: int) -> Path:
    """Return the dump in the data folder; generate it, in a process of its own, if there is none."""
    folder = data.root / "dump"
    if not list(folder.glob("*.psv")):
        script = (
            "import sys; from pathlib import Path; from traces.generate.logs import generate_slurm\n"
            f"generate_slurm(Path(sys.argv[1]), jobs={jobs}, weeks=1, nodes={NODES}, gpus_per_node=4, seed=3, "
            "steps=True, compress=False)"
        )
        subprocess.run([sys.executable, "-c", script, str(folder)], cwd=ROOT, check=True)
    (dump,) = folder.glob("*.psv")
    return dump


def run_step(data: DataFolder, step: str, cluster: str) -> None:
    """Do the work of one step, as its asset does."""
    if step == "ingest":
        ingest(list((data.root / "dump").glob("*.psv")), cluster=ClusterSettings(cluster), data=data)
    elif step.startswith("warehouse"):
        warehouse.build(data)
    elif step == "report":
        from reports.build import build_report

        build_report(data)
    else:
        settings, analysis = ClusterSettings(cluster), FEATURES[step]

        def compute() -> list[pl.DataFrame]:
            made = analysis.compute(data, settings)
            return [made[declared.name] for declared in analysis.TABLES]

        derived.read_or_compute(data, analysis.TABLES, cluster, f"bench {time.time()}", compute)


def measured(data: DataFolder, step: str, cluster: str) -> dict[str, Any]:
    """Run one step in a process of its own: its peak resident memory (bytes), wall time and processor time (s)."""
    command = [sys.executable, __file__, "--child", step, "--cluster", cluster, "--out", str(data.root)]
    env = {**os.environ, **ALLOCATOR}  # polars is imported here, and has set its own
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env=env).stdout
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def _child(data: DataFolder, step: str, cluster: str) -> None:
    began, worked = time.perf_counter(), time.process_time()
    run_step(data, step, cluster)
    status = Path("/proc/self/status").read_text(encoding="utf-8")  # getrusage would add the parent's peak
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    print(json.dumps({"peak": peak, "s": time.perf_counter() - began, "cpu_s": time.process_time() - worked}))


def main() -> None:
    """Generate the dump unless DIR holds one, measure every step, print and record the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=400_000, help="of a cluster")
    parser.add_argument("--clusters", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1, help="processes")
    parser.add_argument("--step", action="append", choices=STEPS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--cluster", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(DataFolder(options.out), options.child, options.cluster)
        return
    record = BenchmarkRun(ABOUT if options.clusters == 1 else OF_CLUSTERS)
    clusters = [f"gen{number}" for number in range(options.clusters)]
    with tempfile.TemporaryDirectory() as temporary:
        data = DataFolder(options.out or Path(temporary))
        dump_of(data, options.jobs)
        for step in options.step or STEPS:
            with ThreadPoolExecutor(options.at_once) as pool:
                found = list(pool.map(partial(measured, data, step), clusters[:1] if step in WHOLE else clusters))
            peak = max(one["peak"] for one in found) / 1e9
            seconds, worked = (sum(one[name] for one in found) for name in ("s", "cpu_s"))
            jobs = pl.scan_parquet(data.lake / "gen*" / "*" / "jobs.parquet").select(pl.len()).collect().item()
            record.add(step, "peak memory", peak, "GB", n=jobs)
            record.add(step, "wall time", seconds, "s", n=jobs)
            record.add(step, "processor time", worked, "s", n=jobs)
            print(f"  {step:<26}{peak:6.2f} GB{seconds:8.1f} s{worked:8.1f} s  {counted(jobs, 'job')}", flush=True)
    record.write()


if __name__ == "__main__":
    main()
