"""Published GPU schedulers in place of the A100 log's own, in the machine that the log shows.

    .venv/bin/python -m bench.recorded_schedulers --data FOLDER --cluster ls6

The window is January and February 2023. docs/gpu-schedulers.md describes the machine.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.results import Benchmark, BenchmarkRun
from models.what_if.recorded.answer import read_recorded_scene
from models.what_if.recorded.published import answer_published
from simulator.gpu.registry import IN_RECORDED_MACHINE
from traces import clusters, instants
from traces.store.folder import DataFolder

ABOUT = Benchmark(
    "what_if_schedulers_a100",
    "Published schedulers in the recorded machine, A100 log",
    "waits",
    "Mean wait of the A100 log's jobs under published GPU schedulers, less that under the cluster's own: January and "
    "February 2023 in one piece, with the recorded outages, holds and limits of users. The wall time includes reading "
    "and following the log.",
)
FIRST, LAST = "2023-01-01", "2023-03-01"


def main() -> None:
    """Replay, print and record the differences and the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    asked = parser.parse_args()
    data, run = DataFolder(asked.data), BenchmarkRun(ABOUT)
    settings = clusters.resolve(data, cluster=asked.cluster)
    window = instants.epoch_s(instants.parse(FIRST)), instants.epoch_s(instants.parse(LAST))
    began = time.monotonic()
    result = answer_published(read_recorded_scene(data, settings, window), settings, IN_RECORDED_MACHINE).result
    run.add("all schedulers", "wall time", time.monotonic() - began, "s", n=len(IN_RECORDED_MACHINE))
    base, jobs = result["base"], result["jobs"]
    for name, waits in (("as recorded", base["recorded"]), ("the cluster's own", base["replayed"])):
        run.add(name, "mean wait", waits["mean_wait_s"] / 60, "min", n=jobs)
        run.add(name, "median", waits["median_wait_s"] / 60, "min", n=jobs)
    verdicts = {row["scheduler"]: row["verdict"] for row in result["results"] if row["figure"] == "mean_wait_s"}
    for row in result["results"]:
        name = f"{row['scheduler']}: {verdicts[row['scheduler']]}"
        if row["scheduler"] not in IN_RECORDED_MACHINE or row["figure"] not in ("mean_wait_s", "median_wait_s"):
            continue
        run.add(name, "mean wait" if row["figure"] == "mean_wait_s" else "median", row["value"] / 60, "min", n=jobs)
        if row["figure"] == "mean_wait_s":
            low, high = (end / 60 for end in row["difference_ci95"])
            run.add(name, "difference", row["difference"] / 60, "min", n=jobs, interval=(low, high))
            print(name, round(row["difference"] / 60, 1), [round(low, 1), round(high, 1)], flush=True)
    run.write()


if __name__ == "__main__":
    main()
