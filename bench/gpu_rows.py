"""The rows that benchmarks of GPU schedulers print and record: the figures of `baton whatif`.

The first scheduler is the base: intervals are 95 % over resampled weeks of the jobs' differences to it, and ranges are
over the draws of the models.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from bench.results import BenchmarkRun
from models.what_if.changes import AS_IT_IS, GpuScene
from models.what_if.differences import rows
from models.what_if.schedulers import combinations, replays

FIGURES = {
    "mean_jct_s": ("mean JCT", "s"),
    "p50_jct_s": ("median JCT", "s"),
    "p99_jct_s": ("p99 JCT", "s"),
    "mean_queueing_s": ("mean queueing", "s"),
    "makespan_s": ("makespan", "s"),
    "utilization": ("utilization", ""),
    "fragmentation": ("fragmentation", ""),
    "worst_rho": ("worst rho", ""),
    "mean_rho": ("mean rho", ""),
    "preemptions": ("preemptions", ""),
    "lost_gpu_h": ("lost to restarts", "GPU h"),
}  # of `baton whatif`: the quantity and its unit


def tell(run: BenchmarkRun, base: GpuScene, schedulers: list[str], draws: int, changes: Sequence[str] = ()) -> None:
    """Replay the scene under each scheduler in turn, as it is and changed; print, record and write every figure."""
    for line in base.assumptions:
        print(line)
    began = time.process_time()

    def done(name: str) -> None:
        print(f"{name}: {time.process_time() - began:.0f} s of processor so far", flush=True)

    outcomes = replays(combinations(base, schedulers, changes, draws), done, workers=1)
    for line in dict.fromkeys(line for outcome in outcomes for line in outcome.assumptions):
        print(line)
    for row in rows(base.jobs, outcomes):
        print(_line(row))
        name = row["scheduler"] if row["change"] == AS_IT_IS else f"{row['scheduler']} {row['change']}"
        what, unit = FIGURES[row["figure"]]
        run.add(name, what, row["value"], unit, n=len(base.jobs))
        if row["difference_ci95"] is not None:
            ends = row["difference_ci95"]
            run.add(name, f"{what} less the first's", row["difference"], unit, n=len(base.jobs), interval=ends)
    run.write()


def _line(row: dict[str, Any]) -> str:
    low, high = row["draws"]
    name = f"{row['scheduler']}, {row['change']}"
    line = f"{name}: {row['figure']} {row['value']:,.4g} [{low:,.4g} to {high:,.4g} over draws]"
    if row["difference_ci95"] is None:
        return line
    least, most = row["difference_ci95"]
    return f"{line}; {row['difference']:+,.4g} [{least:+,.4g}, {most:+,.4g}] to the first"
