"""Speed and memory of a generated `sacct -P` dump to Parquet, against polars on the same bytes as plain strings.

    .venv/bin/python bench/bench_ingest.py [--rows 1000000 --rows 10000000] [--repeat 3]

Each side runs in a process of its own, in turn, so that its peak memory is its own; the best of the repeats counts.
Processor time covers all threads and leaves out imports; other work on the machine lengthens it less than wall time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import ROOT, Benchmark, BenchmarkRun

ABOUT = Benchmark(
    "ingest",
    "The sacct reader",
    "speed",
    "`sacct -P` text to Parquet against polars on the same bytes as plain strings; target ratio 0.7.",
)
_PEER = """
import json, resource, sys, time
import polars as pl
began, worked = time.perf_counter(), time.process_time()
scan = pl.scan_csv(sys.argv[1], separator="|", quote_char=None, infer_schema=False, truncate_ragged_lines=True,
                   encoding="utf8-lossy")
scan.sink_parquet(sys.argv[2] + "/strings.parquet", compression="zstd")
measured = {"s": time.perf_counter() - began, "cpu_s": time.process_time() - worked}
measured |= {"rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
print(json.dumps(measured))
"""
_OURS = """
import json, resource, sys, time
from pathlib import Path
import traces.readers.sacct.kernel
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store.folder import DataFolder
began, worked = time.perf_counter(), time.process_time()
(result,) = ingest([Path(sys.argv[1])], cluster=ClusterSettings("bench"), data=DataFolder(Path(sys.argv[2])))
measured = {"s": time.perf_counter() - began, "cpu_s": time.process_time() - worked}
measured |= {"rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
measured |= {"rows": result.rows, "slow": result.slow}
print(json.dumps(measured))
"""
_GENERATE = """
import sys
from pathlib import Path
from traces.generate.logs import generate_slurm
print(generate_slurm(Path(sys.argv[1]), jobs=int(sys.argv[2]), weeks=1, nodes=400, gpus_per_node=4, seed=3, steps=True,
                     compress=False))
"""  # in a process of its own: Linux hands the peak memory of a process on to what it starts
RECORDS_A_JOB = 3.475  # rows with steps that the generator prints for a job on 400 nodes


def once(program: str, dump: Path) -> dict[str, float]:
    """Run a program in a process of its own that reads the dump into an empty folder; return what it prints."""
    with tempfile.TemporaryDirectory(dir=dump.parent) as folder:
        measured: dict[str, float] = json.loads(_run(program, str(dump), folder))
    return measured


def _run(program: str, *arguments: str) -> str:
    """Run a Python program and return what it prints."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Measure each size; print and record the speed and memory of the reader and of polars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, action="append")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    peaks, record = [], BenchmarkRun(ABOUT)
    for rows in options.rows or [1_000_000]:
        with tempfile.TemporaryDirectory() as folder:
            jobs = str(round(rows / RECORDS_A_JOB))
            dump = Path(_run(_GENERATE, folder, jobs).strip())
            peer, ours = [], []
            for _ in range(options.repeat):
                peer.append(once(_PEER, dump))
                ours.append(once(_OURS, dump))
            best_peer, best = min(p["s"] for p in peer), min(o["s"] for o in ours)
            cpu_peer, cpu = min(p["cpu_s"] for p in peer), min(o["cpu_s"] for o in ours)
            peaks.append(max(o["rss_mb"] for o in ours))
            measured = ours[0]
            row = f"{measured['rows']:,.0f} rows"
            for what, value, unit in (
                ("processor time", cpu, "s"),
                ("polars, processor time", cpu_peer, "s"),
                ("polars / Baton, processor time", cpu_peer / cpu, ""),
                ("wall time", best, "s"),
                ("polars / Baton, wall time", best_peer / best, ""),
                ("slow lines", 100 * measured["slow"] / measured["rows"], "%"),
                ("peak memory", peaks[-1], "MB"),
            ):
                record.add(row, what, value, unit, n=int(measured["rows"]))
            print(
                f"sacct -P, {measured['rows']:,.0f} rows, {dump.stat().st_size / 1e6:,.0f} MB: {best:.2f} s, "
                f"polars to strings {best_peer:.2f} s: ratio {best_peer / best:.2f}; processor time {cpu:.2f} s, "
                f"polars {cpu_peer:.2f} s: ratio {cpu_peer / cpu:.2f}; peak {peaks[-1]:,.0f} MB "
                f"(polars {max(p['rss_mb'] for p in peer):,.0f} MB); "
                f"the slow way went {measured['slow'] / measured['rows']:.3%} of the lines"
            )
    if len(peaks) > 1:
        print(f"peak memory of the largest against the smallest dump: {peaks[-1] / peaks[0]:.2f}")
    record.write()


if __name__ == "__main__":
    main()
