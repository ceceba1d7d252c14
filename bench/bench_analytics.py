"""Time of all analytics tables on Philly's schema at 1/100, 1/10 and (with --full) full size, against a bare scan.

Full size is that of the public trace: 75 days of 539 machines (264 with 8 GPUs, 271 with 4, one with 3, three with 2:
346 million GPU samples, 58 million CPU and memory samples each) and some 110,000 attempts. Smaller sizes have fewer
machines and as many days. The trace is generated straight into the lake (the readers have their own measurements), the
warehouse is built from it, and then all tables are computed in a process of its own, whose wall time and peak resident
memory are printed. The peer is DuckDB reading the same columns of the same tables once, in the same process.

    python bench/bench_analytics.py [--full] [--out DIR] [--by-minute]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import Benchmark, BenchmarkRun
from features.catalog import FEATURES
from traces import schema
from traces.clusters import ClusterSettings
from traces.store import raw_files, warehouse
from traces.store.folder import DataFolder
from traces.store.frames import conform, write_parquet

ABOUT = Benchmark(
    "analytics",
    "Analytics at Philly's full size",
    "speed",
    "The join and all tables on generated samples of Philly's schema, against DuckDB's bare scan of the same columns; "
    "target 12 times the scan by wall time.",
)
CLUSTER, SEED = "philly", 1
DAYS = 75
MINUTES = DAYS * 1440
FIRST = datetime(2017, 10, 3, 7)  # UTC: the hour of the clock change lies within
MACHINES = [8] * 264 + [4] * 271 + [3] + [2] * 3
# Utilization (%) at 0, 5, ..., 100 % of the samples of GPUs in use: as `traces.generate.philly_samples`.
QUANTILES = np.array(
    [0, 0, 0, 0, 0, 0, 0, 6.2, 22.2, 37.2, 48.6, 58.6, 69.4, 79.5, 87.4, 92, 96.5, 98.3, 99.3, 100, 100]
)
SCANS = (
    "SELECT min(node), max(sample_utc), max(gpu), sum(utilization_percent) FROM gpu_utilization WHERE cluster = ?",
    "SELECT min(node), max(sample_utc), sum(utilization_percent) FROM cpu_utilization WHERE cluster = ?",
    "SELECT min(node), max(sample_utc), sum(total_kib), sum(free_kib) FROM memory_utilization WHERE cluster = ?",
)


def generate(data: DataFolder, share: float, by_minute: bool) -> dict[str, int]:
    """Write the lake; returns rows by table. Every machine is filled lane by lane: see `_attempts`."""
    rng = np.random.default_rng(SEED)
    step = max(1, round(1 / share))
    gpus = MACHINES[::step]
    names = [f"m{number:04d}" for number in range(len(gpus))]
    folder = data.lake / CLUSTER / "generated"
    folder.mkdir(parents=True)
    runs = _attempts(rng, gpus)
    frames = _job_tables(rng, runs, names)
    frames["nodes"] = pl.DataFrame({"node": names, "gpus": gpus, "gpu_mem_gb": 24.0, "line": range(1, len(gpus) + 1)})
    rows = {name: frame.height for name, frame in frames.items()}
    for name, frame in frames.items():
        frame = frame.with_columns(pl.lit(CLUSTER).alias("cluster"), pl.lit("0" * 64).alias("trace_sha256"))
        write_parquet(folder / f"{name}.parquet", conform(schema.TABLES[name], frame))
    rows |= _samples(rng, folder, runs, names, gpus)
    if by_minute:
        for name in ("gpu_utilization", "cpu_utilization", "memory_utilization"):
            path, part = folder / f"{name}.parquet", folder / "part"
            duckdb.execute(
                f"COPY (SELECT * FROM read_parquet('{path}') ORDER BY sample_utc, node) TO '{part}' "
                "(FORMAT parquet, COMPRESSION zstd)"
            )
            part.replace(path)
    described = {
        "schema_version": schema.SCHEMA_VERSION,
        "fingerprint": "bench",
        "sha256": "0" * 64,
        "path": "generated",
    }
    raw_files.write(folder, {**described, "result": {"rows": sum(rows.values()), "rejects": 0, "jobs": rows["jobs"]}})
    return rows


def _attempts(rng: np.random.Generator, gpus: list[int]) -> pl.DataFrame:
    """Attempts as machine, lanes, start and end (minutes, with odd seconds), and the machine beside for gangs of 16.

    Every eighth pair of 8-GPU machines runs gangs of 16; of the others the upper four lanes run jobs of 4 GPUs, and
    each other lane jobs of one. Run times are log-normal with a median of 90 minutes and a tail of days.
    """
    rows = []
    for machine, count in enumerate(gpus):
        in_pair = count == 8 and machine % 16 < 2 and machine + 1 - machine % 16 < len(gpus)
        if in_pair and machine % 16 == 1:
            continue
        if in_pair:
            groups = [tuple(range(8))]
        elif count == 8:
            groups = [(0,), (1,), (2,), (3,), (4, 5, 6, 7)]
        else:
            groups = [(lane,) for lane in range(count)]
        for lanes in groups:
            draws = 400
            run = np.minimum(rng.lognormal(np.log(5400), 2.4, draws), 20 * 86_400).astype(np.int64) + 5
            idle = rng.exponential(40_000, draws).astype(np.int64)
            start = np.cumsum(idle + np.concatenate([[0], run[:-1]]))
            end = start + run
            for a, b in zip(start[start < MINUTES * 60].tolist(), end.tolist(), strict=False):
                rows.append((machine, machine + 1 if in_pair else None, list(lanes), a, b))
    frame = pl.DataFrame(rows, schema=["machine", "second", "lanes", "start", "end"], orient="row")
    return frame.sort("start")


def _job_tables(rng: np.random.Generator, runs: pl.DataFrame, names: list[str]) -> dict[str, pl.DataFrame]:
    n = runs.height
    wait = rng.lognormal(4, 2, n).astype(np.int64)
    user = np.minimum(rng.zipf(1.5, n), 300)
    state = rng.choice(["COMPLETED", "CANCELLED", "FAILED"], n, p=[0.693, 0.135, 0.172])
    base = runs.with_row_index("number").select(
        pl.format("application_{}", "number").alias("job_key"),
        pl.lit(0).alias("attempt"),
        (pl.lit(FIRST) + pl.duration(seconds="start")).alias("start_utc"),
        (pl.lit(FIRST) + pl.duration(seconds="end")).alias("end_utc"),
        (pl.col("end") - pl.col("start")).alias("run_s"),
        (pl.col("lanes").list.len().cast(pl.Int64) * (1 + pl.col("second").is_not_null())).alias("gpus"),
        (1 + pl.col("second").is_not_null().cast(pl.Int64)).alias("nodes"),
        pl.col("lanes").cast(pl.List(pl.String)).list.join(",").alias("gpu_numbers"),
        pl.col("lanes").list.len().cast(pl.Int64).alias("there"),
        "machine", "second",
        pl.Series("wait_s", wait),
        pl.Series("state", state),
        pl.Series("user_name", user).cast(pl.String),
        (pl.lit("vc") + (pl.Series("vc", user) % 14).cast(pl.String)).alias("partition"),
        (pl.col("number").cast(pl.Int64) + 1).alias("line"),
    )  # fmt: skip
    base = base.with_columns(
        (pl.col("start_utc") - pl.duration(seconds="wait_s")).alias("submit_utc"),
        (pl.col("gpus") * pl.col("run_s")).alias("gpu_time_s"),
    )
    jobs = base.select(
        "job_key", pl.col("job_key").alias("job_id"), "user_name", "partition", "state", "submit_utc", "start_utc",
        "end_utc", "run_s", "wait_s", "gpu_time_s", "line", pl.col("gpus").alias("requested_gpus"),
        pl.col("gpus").alias("allocated_gpus"), pl.col("nodes").alias("allocated_nodes"),
        pl.lit(1).alias("attempts"), pl.lit(False).alias("state_is_inferred"),
        pl.lit(False).alias("is_time_ambiguous"),
    )  # fmt: skip
    placed = [
        base.drop_nulls(where).select(
            "job_key", "attempt", pl.lit(pl.Series(names)).gather(pl.col(where)).alias("node"),
            pl.col("there").alias("gpus"), "gpu_numbers",
        )
        for where in ("machine", "second")
    ]  # fmt: skip
    attempts = base.select(name for name in schema.ATTEMPTS.names if name in base.columns)
    return {"jobs": jobs, "attempts": attempts, "placements": pl.concat(placed)}


def _by_machine(runs: pl.DataFrame) -> dict[int, list[tuple[list[int], int, int]]]:
    """What runs on each machine: its lanes, from and to when, s."""
    found: dict[int, list[tuple[list[int], int, int]]] = {}
    for machine, second, lanes, a, b in runs.iter_rows():
        for where in (machine, second):
            if where is not None:
                found.setdefault(where, []).append((lanes, a, b))
    return found


def _samples(
    rng: np.random.Generator, folder: Path, runs: pl.DataFrame, names: list[str], gpus: list[int]
) -> dict[str, int]:
    """The three files of samples, a row group a machine."""
    writers: dict[str, pq.ParquetWriter] = {}
    rows = dict.fromkeys(("gpu_utilization", "cpu_utilization", "memory_utilization"), 0)
    times = np.datetime64(FIRST, "us") + np.arange(MINUTES) * np.timedelta64(60, "s")
    of_machine = _by_machine(runs)
    for machine, count in enumerate(gpus):
        values = np.zeros((count, MINUTES))
        for lanes, a, b in of_machine.get(machine, []):
            low, high = -(-a // 60), min(-(-b // 60), MINUTES)
            if low < high:
                values[lanes, low:high] = _busy(rng, len(lanes), high - low)
        busy = values.mean(axis=0)
        offline = rng.random(values.shape) < 0.001
        tables: dict[str, dict[str, Any]] = {
            "gpu_utilization": {
                "gpu": np.repeat(np.arange(count), MINUTES),
                "utilization_percent": pa.array(values.ravel(), mask=offline.ravel()),
            },
            "cpu_utilization": {"utilization_percent": np.round(1.5 + 0.45 * busy + rng.random(MINUTES), 1)},
            "memory_utilization": {
                "total_kib": np.full(MINUTES, 528_272_672),
                "free_kib": (528_272_672 * (0.9 - 0.7 * busy / 100)).astype(np.int64),
            },
        }
        for name, columns in tables.items():
            n = MINUTES * (count if name == "gpu_utilization" else 1)
            constants = {"cluster": CLUSTER, "node": names[machine], "trace_sha256": "0" * 64}
            whole = {
                **{
                    key: pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), [text])
                    for key, text in constants.items()
                },
                "sample_utc": np.tile(times, n // MINUTES),
                **columns,
            }
            arrow = pa.table({key: whole[key] for key in schema.TABLES[name].names})
            writer = writers.setdefault(name, None) or pq.ParquetWriter(
                folder / f"{name}.parquet", arrow.schema, compression="zstd"
            )
            writers[name] = writer
            writer.write_table(arrow)
            rows[name] += n
    for writer in writers.values():
        writer.close()
    return rows


def _busy(rng: np.random.Generator, lanes: int, minutes: int) -> np.ndarray[Any, Any]:
    """Readings of a job: a level of its own that moves every 15 minutes, multiples of 1/30 as in the original."""
    blocks = np.repeat(rng.normal(0, 0.2, minutes // 15 + 1), 15)[:minutes]
    rank = np.clip(rng.random() + blocks + rng.normal(0, 0.03, (lanes, minutes)), 0, 1)
    readings: np.ndarray[Any, Any] = np.round(np.interp(rank, np.linspace(0, 1, 21), QUANTILES) * 30) / 30
    return readings


def measure(data: DataFolder) -> dict[str, Any]:
    """Compute all tables once and scan three times; return seconds, rows and peak bytes."""
    settings = ClusterSettings(CLUSTER, timezone="America/Los_Angeles")
    scans = [_timed(lambda: _scan(data))]
    seconds: dict[str, tuple[float, float]] = {}
    rows: dict[str, int] = {}
    for name, module in FEATURES.items():
        found: dict[str, pl.DataFrame] = {}
        seconds[name] = _timed(partial(_compute, module, data, settings, found))
        rows |= {table: frame.height for table, frame in found.items()}
        del found
    scans += [_timed(lambda: _scan(data)) for _ in range(2)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"scan": [min(figures) for figures in zip(*scans, strict=True)], "seconds": seconds, "rows": rows,
            "peak_bytes": peak}  # fmt: skip


def _compute(module: Any, data: DataFolder, settings: ClusterSettings, found: dict[str, pl.DataFrame]) -> None:
    """Puts a topic's tables into `found`, for the caller to drop when it has seen them."""
    found.update(module.compute(data, settings))


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds, all threads of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _scan(data: DataFolder) -> None:
    """DuckDB reads the columns of the join once."""
    for sql in SCANS:
        warehouse.read(data, sql, (CLUSTER,), memory="700MB")


def one_size(out: Path, share: float, by_minute: bool, record: BenchmarkRun) -> tuple[int, float]:
    """Generate, build, measure in a process of its own, print, record; returns (GPU samples, seconds of all tables)."""
    data = DataFolder(out / f"share-{share:g}")
    shutil.rmtree(data.root, ignore_errors=True)
    began = time.perf_counter()
    rows = generate(data, share, by_minute)
    generated_s, began = time.perf_counter() - began, time.perf_counter()
    warehouse.build(data)
    built_s = time.perf_counter() - began
    size = data.warehouse.stat().st_size
    child = [sys.executable, __file__, "--measure", str(data.root)]
    found = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
    shutil.rmtree(data.root)
    total, total_cpu = (sum(figures) for figures in zip(*found["seconds"].values(), strict=True))
    scan, scan_cpu = found["scan"]
    print(
        f"\nshare {share:g}{' in order of time' if by_minute else ''}: {rows['gpu_utilization']:,} GPU samples, "
        f"{rows['cpu_utilization']:,} machine minutes, {rows['attempts']:,} attempts; "
        f"generated in {generated_s:.0f} s, warehouse of {size / 1e9:.2f} GB built in {built_s:.0f} s"
    )
    for name, (wall, cpu) in found["seconds"].items():
        print(f"  {name:<16}{wall:8.1f} s {cpu:8.1f} s of processor")
    print(
        f"  {'all tables':<16}{total:8.1f} s {total_cpu:8.1f} s of processor, "
        f"{found['peak_bytes'] / 1e9:.2f} GB at the most\n"
        f"  {'bare scan':<16}{scan:8.1f} s {scan_cpu:8.1f} s of processor: ratio {total / scan:.1f}, "
        f"of processor time {total_cpu / scan_cpu:.1f}",
        flush=True,
    )
    _recorded(record, f"share {share:g}", rows["gpu_utilization"], found)
    return rows["gpu_utilization"], total


def _recorded(record: BenchmarkRun, name: str, samples: int, found: dict[str, Any]) -> None:
    """Add the figures of one size."""
    wall_s, cpu_s = (sum(seconds) for seconds in zip(*found["seconds"].values(), strict=True))
    scan_wall_s, scan_cpu_s = found["scan"]
    for what, value, unit in (
        ("wall time", wall_s, "s"),
        ("processor time", cpu_s, "s"),
        ("peak memory", found["peak_bytes"] / 1e9, "GB"),
        ("wall time / scan", wall_s / scan_wall_s, ""),
        ("processor time / scan", cpu_s / scan_cpu_s, ""),
    ):
        record.add(name, what, value, unit, n=samples)


def main() -> None:
    """Measure each size; print and record seconds and memory of the tables and of the scan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="full size too (some minutes, 10 GB of disk)")
    parser.add_argument("--share", type=float, help="this share of the machines alone, such as 0.1")
    parser.add_argument("--by-minute", action="store_true", help="samples in order of time, not of machine")
    parser.add_argument("--out", type=Path, help="scratch folder (default: a temporary one)")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(DataFolder(given.measure))))
        return
    print(f"{os.cpu_count()} cores, {date.today()}, seed {SEED}")
    record = BenchmarkRun(ABOUT)
    shares = [given.share] if given.share else [0.01, 0.1, *([1.0] if given.full else [])]
    with tempfile.TemporaryDirectory(dir=given.out) as scratch:
        sizes = [one_size(Path(scratch), share, given.by_minute, record) for share in shares]
    for (few, fast), (many, slow) in itertools.pairwise(sizes):
        print(f"\n{many / few:.1f} times the samples take {slow / fast:.1f} times as long")
    record.write()


if __name__ == "__main__":
    main()
