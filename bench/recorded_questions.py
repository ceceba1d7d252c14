"""An operator's questions about the A100 log, answered in the cluster as recorded.

    .venv/bin/python -m bench.recorded_questions --data FOLDER --cluster ls6

The questions are those of `--changes`, over the window that `baton whatif` takes by default (docs/what-if.md).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.results import Benchmark, BenchmarkRun
from models.what_if.recorded.answer import answer_recorded, read_recorded_scene
from traces import clusters
from traces.store.folder import DataFolder

ABOUT = Benchmark(
    "what_if_a100",
    "A changed cluster, A100 log",
    "waits",
    "Mean wait of the A100 log's jobs in the changed cluster, less that in the cluster as recorded: anew every day, "
    "and in one piece.",
)
CHANGES = (
    "nodes=+8", "nodes=-8", "ask=1.2", "backfill=off", "backfill.window=1-0", "max_jobs=10", "priority.nodes.1=+12h",
    "priority.age=2", "arrivals=+10%",
)  # fmt: skip


def main() -> None:
    """Ask, print and record the differences and the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--changes", default=";".join(CHANGES), help="separated by semicolons")
    asked = parser.parse_args()
    data, run = DataFolder(asked.data), BenchmarkRun(ABOUT)
    began = time.monotonic()
    scene = read_recorded_scene(data, clusters.resolve(data, cluster=asked.cluster))
    changes = asked.changes.split(";")
    result = answer_recorded(scene, asked.cluster, changes).result
    run.add("all questions", "wall time", time.monotonic() - began, "s", n=len(changes))
    for horizon, beside in (("daily", result["base"]), ("in one piece", result["base_whole"])):
        name = f"as it is, {horizon}"
        run.add(name, "mean wait", beside["replayed"]["mean_wait_s"] / 60, "min", n=beside["jobs"])
        run.add(name, "mean wait, recorded", beside["recorded"]["mean_wait_s"] / 60, "min", n=beside["jobs"])
        run.add(name, "Spearman", beside["spearman"], "", n=beside["jobs"])
    for row in result["results"]:
        if row["figure"] == "mean_wait_s" and row["change"] in changes:
            low, high = (end / 60 for end in row["difference_ci95"])
            name = f"{row['change']}, {'daily' if row['horizon'] == 'daily' else 'in one piece'}: {row['verdict']}"
            run.add(name, "difference", row["difference"] / 60, "min", n=row["jobs"], interval=(low, high))
            print(name, round(row["difference"] / 60, 1), [round(low, 1), round(high, 1)], flush=True)
    run.write()


if __name__ == "__main__":
    main()
