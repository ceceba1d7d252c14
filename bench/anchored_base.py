"""Distance of the anchored replay from the record: months that nobody fitted, anew every day or every week.

    .venv/bin/python -m bench.anchored_base --data FOLDER --cluster ls6 [--spans 24,168]

The rules are inferred every week on the record before it (`baton calibrate`). The replay begins anew at each span, with
the recorded state, nodes in and out of service, run times and held jobs (`simulator.recorded.free`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bench.results import Benchmark, BenchmarkRun
from models.study.calibrations import months_to_judge
from simulator.metrics import wait_distance
from simulator.recorded.branch import new_cluster
from simulator.recorded.calibration.judge import ALL, Month, fits
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.free import anchored_starts, follow_to, given_by
from simulator.recorded.parameters import jobs_of, rules_of
from simulator.recorded.record import NEVER, RecordedTrace, events
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


def anchored_waits(record: RecordedTrace, month: Month, span_s: int) -> tuple[Int64s, Bools]:
    """Return the simulated wait of each job of the month, s, and whether the record holds it, (jobs,)."""
    starts, held, happened = np.full(len(record), NEVER, np.int64), np.zeros(len(record), np.bool_), events(record)
    fitted = fits(record, month)
    ends = [*(parameters.until_s for parameters in fitted[1:]), month.until_s]
    for parameters, until_s in zip(fitted, ends, strict=True):
        rules, jobs = rules_of(parameters, ALL), jobs_of(record, parameters.points_per_hour)
        shown = follow_to(
            new_cluster(record, happened, jobs, rules),
            range(parameters.until_s, until_s, span_s),
            until_s + HORIZON_S,
        )
        given = given_by(record, shown.held, shown.usable)
        week = (record.submit_s >= parameters.until_s) & (record.submit_s < until_s)
        starts = np.where(week, anchored_starts(given, shown.anchors, jobs, rules, until_s), starts)
        held |= week & (shown.held == 1)
    judged = month.of(record)
    late = np.minimum(starts, record.submit_s + HORIZON_S)
    return (late - record.submit_s)[judged], held[judged]


def main() -> None:
    """Replay each month, print and record the distances."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--spans", default="24,168", help="hours")
    asked = parser.parse_args()
    data, run = DataFolder(asked.data), BenchmarkRun(ABOUT)
    record, months = months_to_judge(data, clusters.resolve(data, cluster=asked.cluster))
    for month in months:
        judged = month.of(record)
        recorded_s = (record.start_s - record.submit_s)[judged]
        for hours in asked.spans.split(","):
            wait_s, held = anchored_waits(record, month, int(hours) * HOUR_S)
            name = f"{asked.cluster}, {np.datetime64(month.from_s, 's').astype('datetime64[M]')}, every {hours} h"
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
    run.write()


if __name__ == "__main__":
    main()
