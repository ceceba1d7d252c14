"""Time of two weeks of Philly in rounds of six minutes under Sia and Themis, on its 2,490 GPUs.

    .venv/bin/python -m bench.bench_gpu_rounds [--trace FILE] [--days 14] [--policies sia,themis] [--share 0.2]
        [--rate 4.5] [--begin 2017-10-09]

The whole cluster is hardly ever full in this trace, so few programmes have to be solved. `--share` takes a share of
the nodes. `--rate` raises the arrival rate (generated): the jobs of `days` times `rate` days of the log are submitted
within `days`, each with its own size and run time. Both fill the cluster.

For comparison: published simulators process 121 to 286 jobs a second (Tiresias' and blox, on other machines). The
trace names no models, so each job draws one (generated); a fifth of the gangs is taken to be elastic.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.results import Benchmark, BenchmarkRun
from simulator.gpu.policies.sia import Sia
from simulator.gpu.policies.themis import Themis
from simulator.gpu.profiles import draw
from simulator.gpu.profiles.table import published
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import GpuJob, GpuMachine, Placed, View
from simulator.gpu.rounds import simulate_rounds
from traces.arrays import Float64s

TRACE = Path(__file__).resolve().parents[2] / "shared" / "traces" / "philly" / "philly.csv"
FROM = datetime(2017, 10, 9, tzinfo=UTC)
ABOUT = Benchmark(
    "gpu_rounds",
    "GPU schedulers in rounds",
    "speed",
    "Two weeks of Philly in rounds of 6 minutes on 2,490 GPUs, at the log's arrival rate; target 600 s.",
)
ABOUT_BUSY = Benchmark(
    "gpu_rounds_busy",
    "GPU schedulers in rounds where GPUs queue",
    "speed",
    "The same at a raised arrival rate (generated) or on a share of the nodes; target 600 s.",
)
POLICIES = {"sia": Sia, "themis": Themis}


def machine(share: float) -> GpuMachine:
    """Philly's 321 nodes of 2 GPUs and 231 of 8: 2,490 GPUs, of one type in the profile; or a share of each."""
    gpus = np.array([8] * round(share * 231) + [2] * round(share * 321), dtype=np.int64)
    return GpuMachine(gpus, ["T4"] * len(gpus), "T4")


def philly(trace: Path, days: int, begin: datetime = FROM, rate: float = 1.0) -> list[GpuJob]:
    """Jobs submitted in `days` days from `begin`, at `rate` times the log's arrival rate."""
    rows = pl.read_csv(trace, try_parse_dates=True).filter(pl.col("duration") > 0)
    rows = rows.sort("timestamp", maintain_order=True)
    submit = ((rows["timestamp"].dt.epoch("s").to_numpy() - int(begin.timestamp())) / rate).round()
    inside = (submit >= 0) & (submit < days * 86_400)
    submit, gpus, run = submit[inside], rows["num_gpus"].to_numpy()[inside], rows["duration"].to_numpy()[inside]
    group = rows["cluster"].to_numpy()[inside]
    models = published()
    names = draw.models(np.arange(len(submit)), 0, draw.equal_mix(list(models.values()), ["T4"]))
    elastic = draw.elastic(np.arange(len(submit)), gpus)
    return [
        GpuJob(n, float(submit[n]), int(gpus[n]), float(run[n]), str(group[n]), models[names[n]], bool(elastic[n]))
        for n in range(len(submit))
    ]


def waiting(submit_s: Float64s, result: GpuResult, until_s: float) -> float:
    """Mean number of submitted jobs that have not begun, over the time until `until_s`."""
    begun_s = np.minimum(result.start_s, until_s)
    return float(np.maximum(0.0, begun_s - submit_s).sum() / until_s)


class Timed:
    """A policy whose decisions are timed."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.took_s = policy, list[float]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def decide(self, view: View) -> dict[int, Placed]:
        """As the policy, with the time that it took kept."""
        began = time.perf_counter()
        placed: dict[int, Placed] = self.policy.decide(view)
        self.took_s.append(time.perf_counter() - began)
        return placed


def main() -> None:
    """Simulate each policy; print and record its time and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--policies", default="sia,themis")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--begin", type=lambda day: datetime.fromisoformat(day).replace(tzinfo=UTC), default=FROM)
    arguments = parser.parse_args()
    if not arguments.trace.exists():
        print(f"skipped: the Philly trace is not at {arguments.trace}")
        return
    cluster = machine(arguments.share)
    record = BenchmarkRun(ABOUT if arguments.rate == arguments.share == 1 else ABOUT_BUSY)
    for name in arguments.policies.split(","):
        jobs = philly(arguments.trace, arguments.days, arguments.begin, arguments.rate)
        policy = Timed(POLICIES[name]())
        began = time.perf_counter()
        result = simulate_rounds(jobs, cluster, policy)
        wall_s = time.perf_counter() - began
        submit_s = np.array([job.submit_s for job in jobs])
        jct_h, wait_h = (result.end_s - submit_s) / 3600.0, (result.end_s - submit_s - result.ran_s) / 3600.0
        until_s = arguments.days * 86_400.0
        work = sum(job.gpus * job.run_s for job in jobs) / (cluster.gpus.sum() * until_s)
        print(
            f"{name}: {len(jobs)} jobs of {arguments.days} days at {arguments.rate:g} times the log's rate, "
            f"{work:.2f} of what {cluster.gpus.sum()} GPUs can do in them; "
            f"{result.decisions} rounds to the last one's end, {wall_s:.0f} s, "
            f"{1000 * wall_s / result.decisions:.1f} ms a round, p95 of a decision "
            f"{1000 * np.quantile(policy.took_s, 0.95):.1f} ms, {len(jobs) / wall_s:.0f} jobs/s; "
            f"mean JCT {jct_h.mean():.2f} h, queueing {wait_h.mean():.2f} h, "
            f"{waiting(submit_s, result, until_s):.0f} jobs not begun in the mean of the {arguments.days} days, "
            f"{result.restarts.sum()} restarts, "
            f"{getattr(policy.policy, 'timed_out', 0)} rounds cut short",
            flush=True,
        )
        row = name if record.about is ABOUT else f"{name}, {arguments.rate:g} times the rate"
        for what, value, unit in (
            ("wall time", wall_s, "s"),
            ("speed", len(jobs) / wall_s, "jobs/s"),
            ("a round", 1000 * wall_s / result.decisions, "ms"),
            ("p95 of a decision", 1000 * np.quantile(policy.took_s, 0.95), "ms"),
            ("mean JCT", jct_h.mean(), "h"),
            ("mean queueing", wait_h.mean(), "h"),
            ("restarts", result.restarts.sum(), ""),
            ("work / what the GPUs can do", work, ""),
        ):
            record.add(row, what, value, unit, n=len(jobs))
    record.write()


if __name__ == "__main__":
    main()
