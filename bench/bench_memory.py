"""Peak memory of every step of `baton analyze` on a generated log: the warehouse, each analysis, the report.

A log of 40,000 jobs on 400 nodes is generated and read once. The lake then holds as many copies of its rows as `--jobs`
asks for, each later than the one before and with job ids of its own. Every step runs in a process of its own and does
what its asset does: an analysis computes its tables, writes them to the lake and reads them back. `bench_ingest.py`
measures the reading of text. There is no peer; compare sizes and commits.

    python bench/bench_memory.py [--jobs 4000000] [--step queueing] [--out DIR]

With `--out`, DIR keeps the lake and the warehouse, and a second run measures the same data.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import ROOT, Benchmark, BenchmarkRun
from features.catalog import FEATURES
from pipelines import ALLOCATOR
from traces import schema
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.generate.logs import generate_slurm
from traces.ingest import ingest
from traces.store import derived, raw_files, warehouse
from traces.store.folder import DataFolder

ABOUT = Benchmark(
    "memory",
    "Memory of the analytics",
    "speed",
    "Peak resident memory and wall time of every step after the reading of text, each in a process of its own, on "
    "generated Slurm jobs on 400 nodes; target 3 GB for 4,000,000 jobs.",
)
CLUSTER, NODES, BASE_JOBS = "gen", 400, 40_000
IDS_A_COPY = 10_000_000
STEPS = ("warehouse", *FEATURES, "warehouse with analytics", "report")
COPIED = ("jobs", "attempts", "steps", "placements")


def generate(data: DataFolder, jobs: int, nodes: int = NODES, base_jobs: int = BASE_JOBS) -> int:
    """Write the lake; returns its number of jobs. The jobs that run at the end of a copy are in the last copy only."""
    with tempfile.TemporaryDirectory() as temporary:
        dump = generate_slurm(
            Path(temporary), jobs=base_jobs, weeks=1, nodes=nodes, gpus_per_node=4, seed=3, steps=True, compress=False
        )
        base = DataFolder(Path(temporary) / "data")
        ingest([dump], cluster=ClusterSettings(CLUSTER), data=base)
        (read,) = (base.lake / CLUSTER).iterdir()
        rows = pl.read_parquet(read / "jobs.parquet", columns=["job_key", "submit_utc", "end_utc"])
        copies = -(-jobs // rows.height)
        week_s = 7 * 86_400
        lasts = (pl.col("end_utc").max() - pl.col("submit_utc").min()).dt.total_seconds()
        span_s = -(-int(rows.select(lasts).item()) // week_s) * week_s
        open_keys = rows.filter(pl.col("end_utc").is_null()).lazy().select("job_key")
        folder = data.lake / CLUSTER / "generated"
        folder.mkdir(parents=True)
        for name in COPIED:
            table = pl.scan_parquet(read / f"{name}.parquet")
            ended = table.join(open_keys, on="job_key", how="anti", maintain_order="left")
            parts = [_shifted(table if n == copies - 1 else ended, n, span_s) for n in range(copies)]
            pl.concat(parts).sink_parquet(folder / f"{name}.parquet", compression="zstd", row_group_size=100_000)
        (read / "trace_files.parquet").rename(folder / "trace_files.parquet")
    total = int(pl.scan_parquet(folder / "jobs.parquet").select(pl.len()).collect().item())
    raw_files.write(
        folder,
        {"schema_version": schema.SCHEMA_VERSION, "fingerprint": "bench", "sha256": "0" * 64, "path": "generated",
         "result": {"rows": total, "rejects": 0, "jobs": total}},
    )  # fmt: skip
    return total


def _shifted(table: pl.LazyFrame, copy: int, span_s: int) -> pl.LazyFrame:
    """Return the rows with times `copy` spans later, and other job ids."""
    columns = table.collect_schema()
    numbers = [
        (pl.col(name).str.extract(r"^(\d+)").cast(pl.Int64) + copy * IDS_A_COPY).cast(pl.String)
        + pl.col(name).str.replace(r"^\d+", "")
        for name in ("job_key", "job_id") if name in columns
    ]  # fmt: skip
    ids = [pl.col(name) + copy * IDS_A_COPY for name in ("job_id_raw", "array_job_id") if name in columns]
    times = [pl.col(name) + pl.duration(seconds=copy * span_s) for name in columns if name.endswith("_utc")]
    return table.with_columns(*numbers, *ids, *times)


def run_step(data: DataFolder, step: str) -> None:
    """Do the work of one step, as its asset does."""
    if step.startswith("warehouse"):
        warehouse.build(data)
    elif step == "report":
        from reports.build import build_report

        build_report(data)
    else:
        settings, analysis = ClusterSettings(CLUSTER), FEATURES[step]

        def compute() -> list[pl.DataFrame]:
            made = analysis.compute(data, settings)
            return [made[declared.name] for declared in analysis.TABLES]

        derived.read_or_compute(data, analysis.TABLES, CLUSTER, f"bench {time.time()}", compute)


def measured(data: DataFolder, step: str) -> dict[str, Any]:
    """Run one step in a process of its own; returns its peak resident memory (bytes) and wall time (s)."""
    command = [sys.executable, __file__, "--child", step, "--out", str(data.root)]
    env = {**os.environ, **ALLOCATOR}  # polars is imported here, and has set its own
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env=env).stdout
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def _child(data: DataFolder, step: str) -> None:
    began = time.perf_counter()
    run_step(data, step)
    status = Path("/proc/self/status").read_text(encoding="utf-8")  # getrusage would add the parent's peak
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    print(json.dumps({"peak": peak, "s": time.perf_counter() - began}))


def main() -> None:
    """Generate the lake unless DIR holds one, measure every step, print and record the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=400_000)
    parser.add_argument("--step", action="append", choices=STEPS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(DataFolder(options.out), options.child)
        return
    record = BenchmarkRun(ABOUT)
    with tempfile.TemporaryDirectory() as temporary:
        data = DataFolder(options.out or Path(temporary))
        lake = data.lake / CLUSTER / "generated" / "jobs.parquet"
        jobs = (
            pl.scan_parquet(lake).select(pl.len()).collect().item() if lake.is_file() else generate(data, options.jobs)
        )
        print(counted(jobs, "job"), flush=True)
        for step in options.step or STEPS:
            found = measured(data, step)
            record.add(step, "peak memory", found["peak"] / 1e9, "GB", n=jobs)
            record.add(step, "wall time", found["s"], "s", n=jobs)
            print(f"  {step:<26}{found['peak'] / 1e9:6.2f} GB{found['s']:8.1f} s", flush=True)
    record.write()


if __name__ == "__main__":
    main()
