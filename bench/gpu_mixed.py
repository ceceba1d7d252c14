"""Generated jobs on a generated cluster of several GPU types under the schedulers, by the arithmetic of `baton whatif`.

    .venv/bin/python -m bench.gpu_mixed [--schedulers fifo,tiresias,themis,sia] [--weeks 2] [--draws 3] [--load 0.8]
    .venv/bin/python -m bench.gpu_mixed --schedulers sia --draws 1 --change elastic=0 --change elastic=0.5

64 GPUs: 6 nodes of 4 T4, 3 of 8 RTX 6000, 2 of 8 A100. Jobs and models are those of `bench.gpu_headlines` (generated);
recorded run times count as those on a T4. The first scheduler is the base: intervals are 95 % over resampled weeks of
the jobs' differences to it, and ranges are over the draws of the models.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from bench.gpu_headlines import MIXED, Settings, generated
from models.what_if.changes import AS_IT_IS, GpuScene
from models.what_if.differences import rows
from models.what_if.schedulers import combinations, replays, without_unplaceable
from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import of_arrays


def scene(weeks: int, load: float) -> GpuScene:
    """The cluster, and `weeks` weeks of jobs that ask for `load` of what its GPUs could do if all were T4."""
    cluster = of_nodes(MIXED.gpus, tuple(MIXED.types), MIXED.reference)
    jobs = generated(Settings(weeks, None, 0), cluster.gpus, load)
    submit_s = np.array([job.submit_s for job in jobs])
    gpus, run_s = np.array([job.gpus for job in jobs]), np.array([job.run_s for job in jobs])
    return without_unplaceable(GpuScene(cluster, of_arrays(submit_s, gpus, run_s).drawn(0)))


def tell(base: GpuScene, schedulers: list[str], draws: int, changes: Sequence[str] = ()) -> None:
    """Replays the scene under each scheduler in turn, as it is and changed; prints every figure beside the first's."""
    for line in base.assumptions:
        print(line)
    began = time.process_time()

    def done(name: str) -> None:
        print(f"{name}: {time.process_time() - began:.0f} s of processor so far", flush=True)

    outcomes = replays(combinations(base, schedulers, changes, draws), done, workers=1)
    for line in dict.fromkeys(line for outcome in outcomes for line in outcome.assumptions):
        print(line)
    for row in rows(base.jobs, outcomes):
        low, high = row["draws"]
        name = row["scheduler"] if row["change"] == AS_IT_IS else f"{row['scheduler']} {row['change']}"
        line = f"{name} {row['figure']} {row['value']:,.4g} [{low:,.4g} to {high:,.4g} over draws]"
        if row["difference_ci95"] is not None:
            least, most = row["difference_ci95"]
            line += f"; {row['difference']:+,.4g} [{least:+,.4g}, {most:+,.4g}] to the first"
        print(line)


def main() -> None:
    """A line a scheduler and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedulers", default="fifo,tiresias,themis,sia")
    parser.add_argument("--weeks", type=int, default=2)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--change", action="append", default=[])
    given = parser.parse_args()
    base = scene(given.weeks, given.load)
    print(f"{len(base.jobs):,} jobs of {given.weeks} weeks, {base.cluster.gpus} GPUs, {given.draws} draws (generated)")
    tell(base, given.schedulers.split(","), given.draws, given.change)


if __name__ == "__main__":
    main()
