"""Distance of the anchored replay from the record: months that nobody fitted, anew every day or every week.

    .venv/bin/python -m bench.anchored_base --data FOLDER --cluster ls6,theta [--spans 24,168,744]

The rules are inferred every week on the record before it (`baton calibrate`). The replay begins anew at each span, or
is in one piece (744 h), with the recorded nodes in and out of service, run times and held jobs (docs/what-if.md).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

from bench.results import Benchmark, BenchmarkRun
from models.study.calibrations import months_to_judge
from models.what_if.recorded.replays import starts_of
from models.what_if.recorded.scene import follow_window
from simulator.metrics import wait_distance
from simulator.recorded.calibration.judge import Month
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.record import RecordedTrace
from traces import clusters
from traces.arrays import Bools, Int64s
from traces.store.folder import DataFolder
from traces.units import HOUR_S

ABOUT = Benchmark(
    "anchored_base",
    "The recorded cluster, anew every day",
    "replay",
    "Waits of all jobs of months that nobody fitted, replayed anew from the recorded state of each span.",
)


WHOLE_H = 744  # a month or longer: one piece


def anchored_waits(record: RecordedTrace, month: Month, span_s: int) -> tuple[Int64s, Bools]:
    """Return the simulated wait of each job of the month, s, and whether the record holds it, (jobs,)."""
    scene = follow_window(record, pl.DataFrame(), month.from_s, month.until_s, span_s)
    is_whole = span_s >= WHOLE_H * HOUR_S
    starts, judged = starts_of(scene, is_whole=is_whole).jobs, month.of(record)
    late = np.minimum(starts, record.submit_s + HORIZON_S)
    return (late - record.submit_s)[judged], scene.held[judged]


def _measure(run: BenchmarkRun, cluster: str, record: RecordedTrace, month: Month, hours: int) -> None:
    """Replay one month with one span, print and add the distances."""
    judged = month.of(record)
    recorded_s = (record.start_s - record.submit_s)[judged]
    wait_s, held = anchored_waits(record, month, hours * HOUR_S)
    span = f"every {hours} h" if hours < WHOLE_H else "in one piece"
    name = f"{cluster}, {np.datetime64(month.from_s, 's').astype('datetime64[M]')}, {span}"
    distance = wait_distance(wait_s, recorded_s)
    for what, value, unit in (
        ("mean, recorded", recorded_s.mean() / HOUR_S, "h"),
        ("mean", wait_s.mean() / HOUR_S, "h"),
        ("p90, recorded", np.quantile(recorded_s, 0.9) / HOUR_S, "h"),
        ("p90", np.quantile(wait_s, 0.9) / HOUR_S, "h"),
        ("Spearman", distance["spearman"], ""),
        ("mean absolute error of the mean wait", distance["mean_absolute_error_s"] / recorded_s.mean(), ""),
        ("held jobs", held.mean(), ""),
    ):
        print(f"{name}: {what} {value:.3f} {unit}", flush=True)
        run.add(name, what, value, unit, n=len(wait_s))


def main() -> None:
    """Replay each month, print and record the distances."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--spans", default="24,168,744", help="hours")
    asked = parser.parse_args()
    data, run = DataFolder(asked.data), BenchmarkRun(ABOUT)
    for cluster in asked.cluster.split(","):
        record, months = months_to_judge(data, clusters.resolve(data, cluster=cluster))
        for month in months:
            for hours in asked.spans.split(","):
                _measure(run, cluster, record, month, int(hours))
    run.write()


if __name__ == "__main__":
    main()
