"""Write generated raw logs: the bundled sample, and dumps of any size for benchmarks.

The same seed gives the same bytes. A list in the folder of the logs marks them as generated (`traces.generated`). No
row records a real cluster. `traces.generate.workload` and `traces.generate.philly` name the published figures to which
the distributions are calibrated.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces import generated
from traces.errors import InputError
from traces.generate import philly
from traces.generate.philly_samples import write_samples
from traces.generate.slurm import generated_history, write_dump
from traces.generate.workload import EPOCH_S
from traces.units import WEEK_S

SLURM_SAMPLE_SEED, PHILLY_SAMPLE_SEED = 20261125, 20261128
SAMPLE_WEEKS, SAMPLE_NODES, SAMPLE_GPUS_PER_NODE = 12, 40, 4
PHILLY_WEEKS, PHILLY_DAYS, PHILLY_MACHINES = 8, 2, 36


def generate_slurm(
    out: Path, *, jobs: int | None, weeks: int, nodes: int, gpus_per_node: int, seed: int, steps: bool, compress: bool
) -> Path:
    """Write one generated sacct dump into the folder `out` and return its path.

    The log covers `weeks` weeks. With `jobs`, `weeks` is ignored, and the log covers as many weeks as that number of
    records takes on `nodes` nodes (a little under 20 jobs per node and week). Times are UTC, from 2026-06-01.
    """
    _check(jobs=jobs, weeks=weeks, nodes=nodes, gpus_per_node=gpus_per_node)
    warm = 1 if jobs is None else 0  # a log begins on a busy cluster, but a benchmark needs every row
    past = generated_history(
        jobs=jobs, weeks=weeks, nodes=nodes, gpus_per_node=gpus_per_node, seed=seed, warm_weeks=warm
    )
    name = f"{generated.SLURM_DUMP}{seed}.psv" + (".gz" if compress else "")
    dump = write_dump(out / name, past, from_s=EPOCH_S, at_s=past.last_s, steps=steps, compress=compress)
    generated.write_list([dump])
    return dump


def generate_philly(
    out: Path, *, jobs: int | None, weeks: int, utilization_days: int, machines: int, seed: int, compress: bool
) -> list[Path]:
    """Write the five Philly files into the folder `out` and return their paths; the machine list is never compressed.

    They hold `weeks` weeks of jobs around the clock change of 2017-11-05, and `utilization_days` days (0: none) of
    minute samples from 2017-11-04. With `jobs` there are that many jobs, shortened if the machines could not run them
    in that time.
    """
    _check(jobs=jobs, weeks=weeks, machines=machines)
    rng = np.random.default_rng(seed)
    cluster = philly.machines(machines)
    drawn = philly.draw_jobs(rng, jobs=jobs, weeks=weeks, cluster=cluster)
    at_s = philly.first_submit_s(weeks) + weeks * WEEK_S
    philly.GangScheduler(cluster, rng).run(drawn, at_s)
    paths = [philly.write_job_log(out, drawn, cluster, seed, at_s, compress=compress)]
    if utilization_days > 0:
        paths += write_samples(out, drawn, cluster, days=utilization_days, seed=seed, compress=compress)
    paths.append(philly.write_machine_list(out, cluster))
    generated.write_list(paths)
    return paths


def generate_sample(out: Path) -> list[Path]:
    """Write the bundled sample under `out` (slurm/ and philly/) and return the paths of its files.

    The Slurm log consists of two dumps of six weeks, as a site would take them. A job that was queued or running at
    the time of the first dump is in both.
    """
    past = generated_history(
        jobs=None, weeks=SAMPLE_WEEKS, nodes=SAMPLE_NODES, gpus_per_node=SAMPLE_GPUS_PER_NODE, seed=SLURM_SAMPLE_SEED
    )
    middle_s = EPOCH_S + SAMPLE_WEEKS // 2 * WEEK_S
    paths = [
        write_dump(
            out / "slurm" / f"{generated.SLURM_DUMP}{number}.psv.gz",
            past,
            from_s=begin,
            at_s=end,
            steps=True,
            compress=True,
        )
        for number, begin, end in ((1, EPOCH_S, middle_s), (2, middle_s, past.last_s))
    ]
    generated.write_list(paths)
    return paths + generate_philly(
        out / "philly",
        jobs=None,
        weeks=PHILLY_WEEKS,
        utilization_days=PHILLY_DAYS,
        machines=PHILLY_MACHINES,
        seed=PHILLY_SAMPLE_SEED,
        compress=True,
    )


def _check(**counts: int | None) -> None:
    """Raise InputError, with the name, for a count below 1."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise InputError(f"generate: {name} is {value}; it must be at least 1")
