"""Worst finish-time fairness of Themis on apps like its paper's: hyper-parameter searches of several trials.

    .venv/bin/python -m bench.gpu_themis [--apps 60] [--minutes 20] [--filters 0.8,0] [--leases 1200] [--seeds 0,1,2]

The paper (Mahajan et al., NSDI 2020) reports a worst rho of about 1.2 at f = 0.8, and 2.25 times the fairness of other
schedulers. Its trace is not public. The generated workload follows its description as we recall it: 256 GPUs in nodes
of 4; an app every 20 minutes (Poisson) with 1 to 98 trials, half of them with at most 23; trials of 4 GPUs, one in five
of 2; median run times of 59 minutes, and of 123 minutes for one app in five. Models are drawn (generated).

rho of an app is its completion time over the time of its trials alone on a 1/N share, with N the mean number of apps
present while it is. An app ends with its last trial. `--single` makes each trial an app of its own, and `--least`
leaves out shorter trials, which shows what the distance to the paper's figure is due to.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bench.results import Benchmark, BenchmarkRun
from simulator.gpu.algorithms.fairness import GangTrial, ideal_s
from simulator.gpu.policies.guided import Guided
from simulator.gpu.policies.lyra import Lyra
from simulator.gpu.policies.themis import Themis
from simulator.gpu.profiles import draw
from simulator.gpu.profiles.table import published
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import GpuJob, GpuMachine, RoundPolicy
from simulator.gpu.rounds import simulate_rounds
from traces.arrays import Float64s

ABOUT = Benchmark(
    "gpu_themis",
    "Themis on searches of several trials",
    "gpu",
    "Worst rho of apps generated like those of Themis' paper; the paper's figure is about 1.2 at f = 0.8.",
)
MACHINE = GpuMachine(np.full(64, 4, dtype=np.int64), ["T4"] * 64, "T4")


class SearchSettings(NamedTuple):
    """Settings of the generated apps."""

    apps: int
    minutes: float  # mean time between two apps
    least_s: float  # least run time of a trial
    seed: int


def searches(settings: SearchSettings) -> list[GpuJob]:
    """Generate the trials of all apps, in order of arrival."""
    rng = np.random.default_rng(settings.seed)
    submit_s = np.cumsum(rng.exponential(60.0 * settings.minutes, settings.apps)).round()
    trials = np.clip(np.rint(rng.lognormal(np.log(23.0), 1.0, settings.apps)), 1, 98).astype(np.int64)
    median_s = np.where(rng.random(settings.apps) < 0.2, 123.0, 59.0) * 60.0
    models = draw.equal_mix(list(published().values()), ["T4"])
    names = draw.models(np.arange(settings.apps), settings.seed, models)  # the trials of a search train one model
    jobs: list[GpuJob] = []
    for app in range(settings.apps):
        run_s = np.maximum(settings.least_s, rng.lognormal(np.log(median_s[app]), 0.5, trials[app])).round()
        gpus = np.where(rng.random(trials[app]) < 0.2, 2, 4)
        jobs += [
            GpuJob(len(jobs) + at, submit_s[app], int(gpus[at]), run_s[at], model=published()[names[app]], app=app)
            for at in range(trials[app])
        ]
    return jobs


def app_rho(jobs: Sequence[GpuJob], result: GpuResult, machine: GpuMachine) -> Float64s:
    """Return rho of each app, (apps,), in order of arrival."""
    apps: dict[int, list[int]] = {}
    for at, job in enumerate(jobs):
        apps.setdefault(job.number if job.app is None else -1 - job.app, []).append(at)
    came_s = np.array([min(jobs[at].submit_s for at in own) for own in apps.values()])
    end_s = np.array([result.end_s[own].max() for own in apps.values()])
    instants = np.unique(np.concatenate([came_s, end_s]))
    there = np.searchsorted(np.sort(came_s), instants, "right") - np.searchsorted(np.sort(end_s), instants, "right")
    integral = np.concatenate([[0.0], np.cumsum(there[:-1] * np.diff(instants))])
    app_s = np.interp(end_s, instants, integral) - np.interp(came_s, instants, integral)
    share = np.maximum(1.0, machine.total / np.maximum(1.0, app_s / (end_s - came_s)))
    alone_s = [
        ideal_s([GangTrial(jobs[at].gpus, jobs[at].run_s) for at in own], float(of_app))
        for own, of_app in zip(apps.values(), share, strict=True)
    ]
    return np.asarray((end_s - came_s) / np.array(alone_s), dtype=np.float64)


def jain(rho: Float64s) -> float:
    """Return Jain's index of fairness: 1 if all are equal, 1/n if one has everything."""
    return float(rho.sum() ** 2 / (len(rho) * (rho**2).sum()))


def run_and_record(run: BenchmarkRun, name: str, jobs: Sequence[GpuJob], policy: RoundPolicy) -> None:
    """Run fresh copies of `jobs` under a scheduler; print and record its rho."""
    fresh = [replace(job) for job in jobs]
    result = simulate_rounds(fresh, MACHINE, policy)
    rho = app_rho(fresh, result, MACHINE)
    jct_h = float((result.end_s - np.array([job.submit_s for job in jobs])).mean()) / 3600.0
    gpu_h = float(result.gpu_s.sum()) / 3600.0
    for what, value, unit in (
        ("worst rho", float(rho.max()), ""),
        ("median rho", float(np.median(rho)), ""),
        ("Jain's index of rho", jain(rho), ""),
        ("mean JCT of a trial", jct_h, "h"),
        ("GPU time", gpu_h, "GPU h"),
    ):
        run.add(name, what, value, unit, n=len(rho))
    print(
        f"  {name:34s} rho worst {rho.max():6.2f} p95 {np.percentile(rho, 95):5.2f} p50 {np.median(rho):5.2f}, "
        f"Jain {jain(rho):.3f}, JCT {jct_h:6.2f} h, GPU time {gpu_h:,.0f} h, preempted {result.preemptions.sum()}",
        flush=True,
    )


def main() -> None:
    """Run each scheduler on the generated apps; print and record its rho."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apps", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=20.0, help="mean time between two apps")
    parser.add_argument("--least", type=float, default=60.0, help="least run time of a trial, s")
    parser.add_argument("--filters", default="0.8")
    parser.add_argument("--leases", default="1200")
    parser.add_argument("--round", type=float, default=360.0)
    parser.add_argument("--seeds", default="0", help="of generated workloads, separated by commas")
    parser.add_argument("--single", action="store_true", help="each trial is an app of its own")
    parser.add_argument("--plain", action="store_true", help="no job has a profile")
    given = parser.parse_args()
    policies: dict[str, Callable[[], RoundPolicy]] = {
        f"themis f {share} lease {lease} s": partial(Themis, given.round, float(lease), float(share))
        for share in given.filters.split(",")
        for lease in given.leases.split(",")
    }
    policies |= {"sjf": lambda: Lyra(0.0, grows=False), "fifo": lambda: Guided(round_s=given.round)}
    run = BenchmarkRun(ABOUT)
    for seed in map(int, given.seeds.split(",")):
        jobs = searches(SearchSettings(given.apps, given.minutes, given.least, seed))
        jobs = [
            replace(job, app=None if given.single else job.app, model=None if given.plain else job.model)
            for job in jobs
        ]
        apps = len(jobs) if given.single else given.apps
        print(f"{apps:,} apps of {len(jobs):,} trials on {MACHINE.total} GPUs (generated, seed {seed})")
        for name, make in policies.items():
            run_and_record(run, f"{name}, seed {seed}", jobs, make())
    run.write()


if __name__ == "__main__":
    main()
