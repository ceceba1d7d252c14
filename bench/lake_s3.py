"""The bundled sample with its lake on S3 against a local lake: `python bench/lake_s3.py [--runs 3]`.

Needs the extra `lake` and SeaweedFS (`tests/seaweed.py`), which it starts on the loopback. Each run uses new data
folders, in turn: `baton ingest` of the sample with the build of the warehouse and `baton analyze` of what was ingested,
with a local lake and with a push to S3; then both steps on a second machine, which pulls from S3 in place of ingesting.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import ROOT, Benchmark, BenchmarkRun
from models.deployment import FILE
from tests.seaweed import BUCKET, KEYS, running_seaweed

ABOUT = Benchmark(
    "lake_s3",
    "The lake on S3 against a local one",
    "speed",
    "Wall time of build and analysis of the bundled sample, process starts included, with a local lake, with a push to "
    "an S3 server on the loopback, and with a pull from it elsewhere; target: at most 1.3 times the local time.",
)
SAMPLE = ROOT / "data" / "sample"
CLUSTERS = {"sample": SAMPLE / "slurm", "philly-sample": SAMPLE / "philly"}


def baton(data: Path, *arguments: object) -> None:
    """Run one command, which must succeed."""
    command = [sys.executable, "-m", "pipelines.entry", "--data", str(data), *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env={**os.environ, **KEYS})


def once(data: Path, url: str, endpoint: str, *, pulls: bool = False) -> float:
    """Build and analyze in a new data folder; return the wall time, s."""
    data.mkdir()
    if url:
        (data / FILE).write_text(f'[lake]\nurl = "{url}"\nendpoint = "{endpoint}"\n')
    began = time.perf_counter()
    if not pulls:
        for cluster, raw in CLUSTERS.items():
            baton(data, "ingest", raw, "--cluster", cluster)
    baton(data, "analyze")
    return time.perf_counter() - began


def main() -> None:
    """Run every form in turn; print and record the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs, record = parser.parse_args().runs, BenchmarkRun(ABOUT)
    seconds: dict[str, list[float]] = {"local lake": [], "push to S3": [], "pull from S3": []}
    with tempfile.TemporaryDirectory() as folder, running_seaweed(Path(tempfile.mkdtemp(dir=folder))) as endpoint:
        for run in range(runs):
            url, place = f"s3://{BUCKET}/run{run}", Path(folder) / f"run{run}"
            place.mkdir()
            seconds["local lake"].append(once(place / "local", "", ""))
            seconds["push to S3"].append(once(place / "one", url, endpoint))
            seconds["pull from S3"].append(once(place / "two", url, endpoint, pulls=True))
            print({name: round(times[-1], 1) for name, times in seconds.items()}, flush=True)
    local = statistics.median(seconds["local lake"])
    for name, times in seconds.items():
        record.add(name, "median", statistics.median(times), "s", n=runs)
        record.add(name, "against local", statistics.median(times) / local, "times", n=runs)
    record.write()


if __name__ == "__main__":
    main()
