"""Speed of Philly's job log and GPU utilization to Parquet, against DuckDB's explicit-schema read of the same file.

    python bench/bench_philly.py [--mb 1000] [--repeat 2]

The files are generated: the bundled sample's records over and over with new ids (the log) or new machines (the
samples). Both sides write Parquet (zstd). The reader also takes the digest, checks every record, converts times and
makes three tables of the log; DuckDB copies texts. Prints the ratio of the times and the peak memory of each reading,
which runs in a process of its own.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import Benchmark, BenchmarkRun

ABOUT = Benchmark(
    "philly",
    "The Philly readers",
    "speed",
    "Job log and GPU utilization of 1 GB each to Parquet against DuckDB's explicit-schema read of the same file; "
    "target ratio 0.6.",
)
SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample" / "philly"
LOG = "{" + ", ".join((
    "status: 'VARCHAR'", "vc: 'VARCHAR'", "jobid: 'VARCHAR'", "submitted_time: 'VARCHAR'", "\"user\": 'VARCHAR'",
    "attempts: 'STRUCT(start_time VARCHAR, end_time VARCHAR, detail STRUCT(ip VARCHAR, gpus VARCHAR[])[])[]'",
)) + "}"  # fmt: skip


def write_log(path: Path, size: int) -> int:
    """A job log of about that many bytes; returns its jobs."""
    with gzip.open(SAMPLE / "cluster_job_log.gz", "rt") as sample:
        lines = [line.rstrip(",") for line in sample.read().strip().split("\n")[1:-1]]
    jobs = 0
    with path.open("w") as stream:
        stream.write("[\n")
        while stream.tell() < size:
            prefix = f"application_{1506000000 + jobs}_"
            renamed = [line.replace("application_1506638472019_", prefix) for line in lines]
            stream.write((",\n" if jobs else "") + ",\n".join(renamed))
            jobs += len(lines)
        stream.write("\n]\n")
    return jobs


def write_samples(path: Path, size: int) -> int:
    """GPU utilization of about that many bytes; returns its lines."""
    with gzip.open(SAMPLE / "cluster_gpu_util.gz", "rt") as sample:
        header, *lines = sample.read().strip().split("\n")
    rows = block = 0
    with path.open("w") as stream:
        stream.write(header + "\n")
        while stream.tell() < size:
            block += 1
            stream.write("\n".join(line.replace(",m", f",b{block}m", 1) for line in lines) + "\n")
            rows += len(lines)
    return rows


def by_baton(kind: str, path: Path, out: Path) -> dict[str, float]:
    """Read by the project's reader."""
    from traces.clusters import ClusterSettings
    from traces.ingest import ingest
    from traces.store.folder import DataFolder

    cluster = ClusterSettings("philly", timezone="America/Los_Angeles")
    (result,) = ingest([path], cluster=cluster, data=DataFolder(out), format=kind)
    return {"records": result.rows, "kept": result.rows - result.rejects}


def by_duckdb(kind: str, path: Path, out: Path) -> dict[str, float]:
    """Read by DuckDB with the schema given, as texts."""
    import duckdb

    out.mkdir()
    json_list = f"read_json('{path}', format = 'array', columns = {LOG})"
    csv = f"read_csv('{path}', header = true, all_varchar = true, null_padding = true, parallel = true)"
    source = json_list if kind == "philly-jobs" else csv
    duckdb.execute(f"COPY (SELECT * FROM {source}) TO '{out}/t.parquet' (COMPRESSION zstd)")
    (count,) = duckdb.execute(f"SELECT count(*) FROM '{out}/t.parquet'").fetchone() or (0,)
    return {"records": count, "kept": count}


def timed(read: Callable[[str, Path, Path], dict[str, float]], kind: str, path: Path) -> dict[str, float]:
    """One reading in a process of its own: wall seconds, CPU seconds, peak memory (MiB)."""

    def child(pipe: Any) -> None:
        import duckdb  # noqa: F401 - the imports are not what is measured
        import polars  # noqa: F401

        import traces.ingest  # noqa: F401

        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            before, cpu = time.perf_counter(), time.process_time()
            found = read(kind, path, Path(folder) / "out")
            found["wall_s"], found["cpu_s"] = time.perf_counter() - before, time.process_time() - cpu
        found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        pipe.send(found)

    context = multiprocessing.get_context("fork")  # the parent has imported nothing that starts threads
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(send,))
    process.start()
    send.close()
    result: dict[str, float] = receive.recv()
    process.join()
    return result


def main() -> None:
    """Read each file by both programs; print and record speed and memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=1_000, help="size of each file")
    parser.add_argument("--repeat", type=int, default=2, help="the best of so many")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("| file | MB | records | Baton s (CPU) | DuckDB s (CPU) | DuckDB / Baton | by CPU | peak MiB |")
    print("|---|---|---|---|---|---|---|---|")
    record = BenchmarkRun(ABOUT)
    with tempfile.TemporaryDirectory() as folder:
        for kind, write in (("philly-jobs", write_log), ("philly-gpu-util", write_samples)):
            path = Path(folder) / kind
            write(path, options.mb * 1_000_000)
            best: dict[str, dict[str, float]] = {}
            for _ in range(options.repeat):
                for name, read in (("baton", by_baton), ("duckdb", by_duckdb)):
                    found = timed(read, kind, path)
                    if name not in best or found["wall_s"] < best[name]["wall_s"]:
                        best[name] = found
            ours, theirs = best["baton"], best["duckdb"]
            assert ours["records"] == theirs["records"], (ours, theirs)
            print(
                f"| {kind} | {path.stat().st_size / 1e6:,.0f} | {ours['records']:,.0f} "
                f"| {ours['wall_s']:.1f} ({ours['cpu_s']:.1f}) | {theirs['wall_s']:.1f} ({theirs['cpu_s']:.1f}) "
                f"| {theirs['wall_s'] / ours['wall_s']:.2f} | {theirs['cpu_s'] / ours['cpu_s']:.2f} "
                f"| {ours['peak_mib']:,.0f} |",
                flush=True,
            )
            path.unlink()
            for what, value, unit in (
                ("wall time", ours["wall_s"], "s"),
                ("DuckDB, wall time", theirs["wall_s"], "s"),
                ("DuckDB / Baton, wall time", theirs["wall_s"] / ours["wall_s"], ""),
                ("DuckDB / Baton, processor time", theirs["cpu_s"] / ours["cpu_s"], ""),
                ("peak memory", ours["peak_mib"], "MiB"),
            ):
                record.add(kind, what, value, unit, n=int(ours["records"]))
    record.write()


if __name__ == "__main__":
    main()
