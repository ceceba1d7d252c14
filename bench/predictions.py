"""Predictions a second of the queue-time models in batch, features given, by wall and by processor time.

    .venv/bin/python -m bench.predictions --data FOLDER --cluster ls6 --until 2023-02-01 [--rows 20000] [--times 5]

FOLDER holds the ingested log. Each method is fitted on what was known at `--until` and converted to its released form
(`models.queue_time.artifact`). It then predicts the log's own observations, repeated up to `--rows`. The first call,
which builds the tables of the trees, is not counted. Target: 10,000 a second.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench.results import Benchmark, BenchmarkRun
from models.queue_time.artifact import describe_log, distribution
from models.queue_time.conformal import Calibrated
from models.queue_time.ground import read_log, submitted_jobs
from models.queue_time.registry import make_method
from traces.store.folder import DataFolder

WANTED = 10_000  # a second
ABOUT = Benchmark(
    "predictions",
    "Queue-time predictions in batch",
    "queue-time",
    "Predictions a second of the released models with numpy alone on one thread, features given, 20,000 observations; "
    "target 10,000.",
)


def measure(data: Path, cluster: str, until_s: int, methods: list[str], rows: int, times: int) -> None:
    """Print a line a method: the least and the most of `times` measurements, by the clock and of the processor."""
    ground = submitted_jobs(read_log(DataFolder(data), cluster), until_s, None)
    fit_on = ground.known(until_s)
    print(f"{fit_on.sum():,} jobs to fit on, {rows:,} observations, load average {os.getloadavg()[0]:.1f}")
    at = np.arange(rows) % len(ground.rows)
    observed, names = ground.rows.observed[at], describe_log(ground).partitions
    partition = [names[one] for one in ground.rows.partition[at].tolist()]
    record = BenchmarkRun(ABOUT)
    for name in methods:
        model = distribution(
            name, Calibrated(make_method(name)).fit(ground.rows.take(fit_on), 0), describe_log(ground), {}
        )
        trees = sum(len(array) for key, array in model.arrays.items() if key.endswith("root"))
        model.forecast(observed[:128], partition[:128])
        clock, processor = [], []
        for _ in range(times):
            began, used = time.perf_counter(), time.process_time()
            model.forecast(observed, partition)
            clock.append(rows / (time.perf_counter() - began))
            processor.append(rows / (time.process_time() - used))
        print(
            f"{name}, {trees:,} trees: {min(clock):,.0f} to {max(clock):,.0f} a second of the clock "
            f"(asked {WANTED:,}), {min(processor):,.0f} to {max(processor):,.0f} a second of processor, n {times}"
        )
        row = f"{name}, {trees:,} trees" if trees else name
        for clock_name, rates in (("by the clock", clock), ("by processor time", processor)):
            record.add(row, f"{clock_name}, least", round(min(rates)), "1/s", n=times)
            record.add(row, f"{clock_name}, most", round(max(rates)), "1/s", n=times)
    record.write()


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", default="ls6")
    parser.add_argument("--until", default="2023-02-01")
    parser.add_argument("--methods", default="limits,boosting,trout-boosting,combination")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    until_s = int(datetime.fromisoformat(asked.until).replace(tzinfo=UTC).timestamp())
    measure(asked.data, asked.cluster, until_s, asked.methods.split(","), asked.rows, asked.times)


if __name__ == "__main__":
    main()
