"""The headline of each paper on its own kind of workload: how many times shorter jobs take than under its baseline.

    .venv/bin/python -m bench.gpu_headlines [--papers tiresias,tetris,lyra,gavel,sia,pollux]

Tiresias, Tetris and Lyra replay jobs of the Philly log (`../shared/traces`), the others the jobs of their authors'
simulators (`../shared/references`); a workload that is absent is skipped. A ratio is the baseline's mean completion
time over the scheduler's. Its interval is 95 % over resampled weeks, or over resampled jobs where all are submitted
within a day.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.bench_gpu import TRACE, philly
from bench.results import Benchmark, BenchmarkRun
from features.bootstrap import DRAWS, interval, start_weights
from simulator.gpu.cluster import GpuCluster, of_nodes
from simulator.gpu.jobs import GpuJobs
from simulator.gpu.profiles import draw
from simulator.gpu.profiles.table import published
from simulator.gpu.registry import scheduler
from simulator.gpu.round_policy import GpuJob, GpuMachine
from simulator.gpu.rounds import simulate_rounds
from simulator.gpu.run import simulate
from simulator.gpu.scheduler import RoundScheduler, Setting
from tests.simulator.gpu import pollux_files, sia_files, test_gavel_references, test_sia_references
from traces.arrays import Float64s
from traces.units import WEEK_S

ABOUT = Benchmark(
    "gpu_headlines",
    "The papers' headlines",
    "gpu",
    "How many times shorter the mean completion time is than under the paper's baseline, on the paper's kind of "
    "workload. Where it is not the paper's own, only the direction is comparable.",
)
LYRA_FROM_S, LYRA_WEEKS = 1_506_902_400.0, 3  # from 2017-10-02 on


class Headline(NamedTuple):
    """A scheduler beside its paper's baseline: completion times of the same jobs, s, (jobs,) each."""

    name: str
    published: str
    submit_s: Float64s
    own_s: Float64s
    base_s: Float64s

    def ratio(self) -> tuple[float, tuple[float, float]]:
        """Return the baseline's mean over the scheduler's, and its interval."""
        weights = start_weights(self.submit_s.astype(np.int64))
        if weights is None:
            count = len(self.own_s)
            weights = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), DRAWS).astype(np.float64)
        ends = interval((weights @ self.base_s) / (weights @ self.own_s))
        assert ends is not None
        return float(self.base_s.mean() / self.own_s.mean()), (float(ends[0]), float(ends[1]))


def on_log(cluster: GpuCluster, jobs: GpuJobs, name: str, settings: dict[str, Setting] | None = None) -> Float64s:
    """Return the completion times, s, of a log's jobs under a scheduler."""
    return np.asarray(simulate(cluster, jobs, name, settings).result.end_s - (jobs.submit_s - jobs.submit_s.min()))


def in_rounds(jobs: Sequence[GpuJob], machine: GpuMachine, name: str, settings: dict[str, Setting]) -> Float64s:
    """Return the completion times, s, of fresh jobs under a scheduler in rounds."""
    found = scheduler(name)
    assert isinstance(found, RoundScheduler)
    result = simulate_rounds(jobs, machine, found.build(settings))
    return np.asarray(result.end_s - np.array([job.submit_s for job in jobs]))


def of_tiresias() -> Iterator[Headline]:
    """Compare on all of Philly's jobs, on 600 GPUs, so that they queue."""
    jobs, cluster = philly(TRACE), of_nodes(np.full(75, 8, dtype=np.int64))
    own = on_log(cluster, jobs, "tiresias")
    for base, published_ratio in (("yarn", "up to 5.5"), ("srtf", "about 1")):
        title = f"tiresias to {base}, Philly's jobs, 600 GPUs"
        yield Headline(title, published_ratio, jobs.submit_s, own, on_log(cluster, jobs, base))


def of_tetris() -> Iterator[Headline]:
    """Compare on the same jobs. The log has GPUs alone, so Tetris packs one resource."""
    jobs, cluster = philly(TRACE), of_nodes(np.full(75, 8, dtype=np.int64))
    own, base = on_log(cluster, jobs, "tetris"), on_log(cluster, jobs, "drf")
    yield Headline("tetris to drf, Philly's jobs, 600 GPUs", "about 1.4", jobs.submit_s, own, base)


def of_lyra() -> Iterator[Headline]:
    """Compare loans, growth and both with neither, on three weeks of Philly's jobs with drawn models."""
    every, cluster = philly(TRACE), of_nodes(np.full(75, 8, dtype=np.int64))
    passed_s = every.submit_s - LYRA_FROM_S
    jobs = every.take((passed_s >= 0) & (passed_s < LYRA_WEEKS * WEEK_S))
    models = tuple(published().values())
    jobs = replace(jobs, profiles=models).drawn(0, draw.equal_mix(models, cluster.types), 0.3)
    base = on_log(cluster, jobs, "lyra", {"loans": 0.0, "grows": 0.0})
    for what, ratio, settings in (
        ("loans and growth", "1.48", {}),
        ("loans", "", {"grows": 0.0}),
        ("growth", "", {"loans": 0.0}),
    ):
        title = f"lyra, {what} to neither, {LYRA_WEEKS} weeks of Philly's jobs, 600 GPUs and inference servers"
        yield Headline(title, ratio, jobs.submit_s, on_log(cluster, jobs, "lyra", dict(settings)), base)


def of_gavel() -> Iterator[Headline]:
    """Compare with and without knowledge of the GPU types, on Gavel's own jobs and machine."""
    settings = test_gavel_references.AS_RELEASED
    own, base = (
        in_rounds(test_gavel_references.jobs(), test_gavel_references.MIXED, "gavel", {**settings, "heterogeneity": to})
        for to in (1.0, 0.0)
    )
    submit_s = np.array([job.submit_s for job in test_gavel_references.jobs()])
    yield Headline("gavel to itself without GPU types, its 96 jobs", "up to 3.5", submit_s, own, base)


def of_sia() -> Iterator[Headline]:
    """Compare with Gavel on the 160 jobs of Sia's own workload; under Gavel jobs keep the GPUs and batch asked for."""
    with tempfile.TemporaryDirectory() as folder:
        known = sia_files.profiles(Path(folder))
    asked = sia_files.rows("jobs_sia_philly1.csv.gz")
    rigid = [
        replace(job, elastic=False, batch=float(row["batch_asked"]))
        for job, row in zip(sia_files.jobs("philly1", known), asked, strict=True)
    ]
    machine, starts = test_sia_references.MACHINE, {"first_start": 1.0, "free_moves": 1.0, "whole_seconds": 1.0}
    own = in_rounds(sia_files.jobs("philly1", known), machine, "sia", {"round_s": 60.0, **starts})
    base = in_rounds(rigid, machine, "gavel-throughput", {})
    submit_s = np.array([job.submit_s for job in rigid])
    yield Headline("sia to gavel-throughput, its 160 jobs", "1.4 to 14", submit_s, own, base)


def of_pollux() -> Iterator[Headline]:
    """Compare with Tiresias on the 160 jobs of two of Pollux's workloads; it keeps what users ask for."""
    with tempfile.TemporaryDirectory() as folder:
        known = pollux_files.profiles(Path(folder))
    for workload in (1, 6):
        asked = pollux_files.jobs("tiresias", workload, known)
        starts: dict[str, Setting] = {"first_start": 1.0, "whole_seconds": 1.0}
        own = in_rounds(pollux_files.jobs("pollux", workload, known), pollux_files.MACHINE, "pollux", starts)
        base = in_rounds(asked, pollux_files.MACHINE, "tiresias-rounds", starts)
        submit_s = np.array([job.submit_s for job in asked])
        yield Headline(f"pollux to tiresias-rounds, its workload {workload}", "1.6 to 2.0", submit_s, own, base)


PAPERS: dict[str, tuple[Path, Callable[[], Iterator[Headline]]]] = {
    "tiresias": (TRACE, of_tiresias),
    "tetris": (TRACE, of_tetris),
    "lyra": (TRACE, of_lyra),
    "gavel": (test_gavel_references.REFERENCES, of_gavel),
    "sia": (sia_files.FOLDER, of_sia),
    "pollux": (sia_files.FOLDER, of_pollux),
}  # the files that the headline needs, and its comparison


def main() -> None:
    """Compare all, print and record the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--papers", default=",".join(PAPERS))
    run = BenchmarkRun(ABOUT)
    for paper in parser.parse_args().papers.split(","):
        needed, headlines = PAPERS[paper]
        if not needed.exists():
            print(f"{paper}: skipped, {needed} is not there")
            continue
        for headline in headlines():
            value, ends = headline.ratio()
            said = f" (published: {headline.published})" if headline.published else ""
            print(f"{headline.name}: {value:.2f} [{ends[0]:.2f}, {ends[1]:.2f}]{said}, {len(headline.own_s)} jobs")
            run.add(headline.name + said, "times shorter", value, n=len(headline.own_s), interval=ends)
    run.write()


if __name__ == "__main__":
    main()
