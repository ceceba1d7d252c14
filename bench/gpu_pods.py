"""Gangs against pods one by one, on a generated log in the format of Alibaba's openb trace, by `baton whatif`.

    .venv/bin/python -m bench.gpu_pods [--weeks 8] [--nodes 16] [--load 0.8] [--seed 0] [--profiles none]

The log is generated and ingested into a temporary folder. The base is `kubernetes` as it is, pods one by one; changes
are the gang, and other time-outs. Intervals are 95 % over resampled weeks of the jobs' differences.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.gpu_mixed import record_figure
from bench.results import Benchmark, BenchmarkRun
from traces.generate.openb import generate_openb

ABOUT = Benchmark(
    "gpu_pods",
    "Gangs against pods one by one",
    "gpu",
    "A generated log of pods in openb's format; only directions mean something.",
)
CHANGES = ("kubernetes.gang=1", "kubernetes.timeout_s=120", "kubernetes.timeout_s=3600")


def main() -> None:
    """Generate and ingest the log, replay it, print and record each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profiles", default="none")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        baton = [sys.executable, "-m", "pipelines.cli"]
        here = ["--cluster", "pods", "--data", f"{folder}/data"]
        shape = {"weeks": given.weeks, "nodes": given.nodes, "load": given.load, "seed": given.seed}
        for path in generate_openb(Path(folder), **shape):
            subprocess.run([*baton, "ingest", str(path), *here], check=True)
        asked = ["--schedulers", "kubernetes", "--profiles", given.profiles, "--workers", "1"]
        changes = [part for change in CHANGES for part in ("--change", change)]
        command = [*baton, "whatif", *here, *asked, *changes]
        printed = subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    found, run = json.loads(printed), BenchmarkRun(ABOUT)
    for row in found["results"]:
        name = f"load {given.load:g}, seed {given.seed}, {row['change']}"
        print(f"{name}: {row['figure']} {row['value']:,.4g}, difference {row['difference']}, {row['difference_ci95']}")
        record_figure(run, name, row, found["jobs"])
    run.write()


if __name__ == "__main__":
    main()
