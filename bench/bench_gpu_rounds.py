"""Two weeks of Philly in rounds of six minutes under Sia and Themis, on its 2,490 GPUs: the time it takes.

    .venv/bin/python -m bench.bench_gpu_rounds [--trace FILE] [--days 14] [--policies sia,themis] [--share 0.2]

The whole cluster is hardly ever full in this trace, so few programmes have to be solved; with `--share` of its nodes
it is.

Published beside it: the simulators of the literature process 121 to 286 jobs a second (Tiresias' and blox, on other
machines). The trace names no models, so each job draws one (generated); a fifth of the gangs is taken to be elastic.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from simulator.gpu.policies.sia import Sia
from simulator.gpu.policies.themis import Themis
from simulator.gpu.profiles import draw
from simulator.gpu.profiles.table import MODELS
from simulator.gpu.rounds import Job, Machine, RoundPolicy, simulate_rounds

TRACE = Path(__file__).resolve().parents[2] / "shared" / "traces" / "philly" / "philly.csv"
FROM = datetime(2017, 10, 9, tzinfo=UTC)
POLICIES = {"sia": Sia, "themis": Themis}


def machine(share: float) -> Machine:
    """Philly's 321 nodes of 2 GPUs and 231 of 8: 2,490 GPUs, of one type in the profile; or a share of each."""
    gpus = np.array([8] * round(share * 231) + [2] * round(share * 321), dtype=np.int64)
    return Machine(gpus, ["P100"] * len(gpus), "P100")


def philly(trace: Path, days: int, begin: datetime = FROM) -> list[Job]:
    """Jobs submitted in `days` days from `begin`."""
    rows = pl.read_csv(trace, try_parse_dates=True).filter(pl.col("duration") > 0)
    rows = rows.sort("timestamp", maintain_order=True)
    submit = rows["timestamp"].dt.epoch("s").to_numpy() - int(begin.timestamp())
    inside = (submit >= 0) & (submit < days * 86_400)
    submit, gpus, run = submit[inside], rows["num_gpus"].to_numpy()[inside], rows["duration"].to_numpy()[inside]
    group = rows["cluster"].to_numpy()[inside]
    names, elastic = draw.models(np.arange(len(submit))), draw.elastic(np.arange(len(submit)), gpus)
    return [
        Job(n, float(submit[n]), int(gpus[n]), float(run[n]), str(group[n]), MODELS[names[n]], bool(elastic[n]))
        for n in range(len(submit))
    ]


def main() -> None:
    """Runs what was asked for and prints a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--policies", default="sia,themis")
    parser.add_argument("--share", type=float, default=1.0)
    arguments = parser.parse_args()
    if not arguments.trace.exists():
        print(f"skipped: the Philly trace is not at {arguments.trace}")
        return
    cluster = machine(arguments.share)
    for name in arguments.policies.split(","):
        jobs = philly(arguments.trace, arguments.days)
        policy: RoundPolicy = POLICIES[name]()
        began = time.perf_counter()
        result = simulate_rounds(jobs, cluster, policy)
        wall_s = time.perf_counter() - began
        jct_h = (result.end_s - np.array([job.submit_s for job in jobs])) / 3600.0
        print(
            f"{name}: {len(jobs)} jobs of {arguments.days} days, {cluster.gpus.sum()} GPUs; "
            f"{result.decisions} rounds to the last one's end, {wall_s:.0f} s, "
            f"{1000 * wall_s / result.decisions:.1f} ms a round, {len(jobs) / wall_s:.0f} jobs/s; "
            f"mean JCT {jct_h.mean():.2f} h, {result.restarts.sum()} restarts"
        )


if __name__ == "__main__":
    main()
