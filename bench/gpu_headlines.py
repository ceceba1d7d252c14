"""Headlines of Themis, Lyra, Sia and Gandiva against their papers', and the guidelines of the Philly study.

    .venv/bin/python -m bench.gpu_headlines [--headlines sia,gandiva] [--weeks 8] [--mix bert] [--seed 0]

Two workloads. `generated`: Poisson arrivals, lognormal run times, gangs of 1 to 16 on 64 GPUs. `philly`: jobs of the
Philly trace from 2017-10-02 on, on `--share` of its nodes. The model that a job trains, and whether it is elastic,
are drawn (generated) in both; `--mix` gives every job one model, `--seed` draws others. Only the direction of a
headline is comparable: neither the jobs nor the speeds are the paper's. Intervals are 95 % over resampled weeks,
paired by job.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from bench.bench_gpu_rounds import TRACE, philly
from bench.results import Benchmark, BenchmarkRun
from features.bootstrap import interval, start_weights
from simulator.gpu.algorithms.fairness import GangTrial, ideal_s
from simulator.gpu.policies.gandiva import Gandiva
from simulator.gpu.policies.guided import INTERFERENCE, Guided
from simulator.gpu.policies.lyra import Lyra
from simulator.gpu.policies.sia import Sia
from simulator.gpu.policies.themis import Themis
from simulator.gpu.profiles import draw
from simulator.gpu.profiles.table import published
from simulator.gpu.result import GpuResult
from simulator.gpu.rounds import GpuJob, GpuMachine, RoundPolicy, simulate_rounds
from traces.arrays import Float64s
from traces.units import WEEK_S

ABOUT = Benchmark(
    "gpu_headlines",
    "GPU schedulers that decide in rounds",
    "gpu",
    "Headlines of Themis, Lyra, Sia and the Philly guidelines; a ratio is to the last scheduler of its group on the "
    "same jobs. Models and elastic gangs are drawn (generated). Only the direction is comparable with the papers.",
)
ABOUT_GANDIVA = Benchmark(
    "gpu_gandiva",
    "Gandiva's mechanisms",
    "gpu",
    "Gandiva with each mechanism taken away, on generated jobs, 64 GPUs, a fifth of the gangs elastic.",
)
FROM = datetime(2017, 10, 2, tzinfo=UTC)  # of the Philly workload
DRAWS = 300
ALIKE = GpuMachine(np.full(8, 8, dtype=np.int64), ["T4"] * 8, "T4")
# As Sia's: three types, the newest the fewest.
TYPES = ["T4"] * 6 + ["RTX2080Ti"] * 3 + ["A100"] * 2
MODELS = draw.equal_mix(list(published().values()), TYPES)  # those measured on all of them
MIXED = GpuMachine(np.array([4] * 6 + [8] * 5, dtype=np.int64), TYPES, "T4")


class HeadlineSettings(NamedTuple):
    """Settings of a run."""

    weeks: int
    mix: dict[str, float] | None
    seed: int
    run: BenchmarkRun | None = None
    """Takes the figures."""


def drawn(jobs: Sequence[GpuJob], settings: HeadlineSettings, elastic: float) -> list[GpuJob]:
    """`jobs`, fresh, with models and elasticity of the settings."""
    numbers, gpus = np.array([job.number for job in jobs]), np.array([job.gpus for job in jobs])
    names = draw.models(numbers, settings.seed, settings.mix or MODELS)
    grows = draw.elastic(numbers, gpus, elastic, settings.seed)
    return [
        GpuJob(job.number, job.submit_s, job.gpus, job.run_s, job.group, published()[name], bool(grow))
        for job, name, grow in zip(jobs, names, grows, strict=True)
    ]


def generated(settings: HeadlineSettings, gpus: int, load: float) -> list[GpuJob]:
    """`weeks` weeks of jobs that ask for `load` times what `gpus` GPUs of the reference type can do."""
    rng = np.random.default_rng(settings.seed + 1)
    mean_s = np.exp(8.0 + 1.4**2 / 2)
    sizes, shares = np.array([1, 2, 4, 8, 16]), np.array([0.55, 0.15, 0.15, 0.1, 0.05])
    count = int(load * gpus * settings.weeks * WEEK_S / (mean_s * (sizes * shares).sum()))
    chosen = rng.choice(sizes, p=shares, size=count)
    run_s = np.maximum(60.0, rng.lognormal(8.0, 1.4, count)).round()
    submit_s = np.sort(rng.uniform(0.0, settings.weeks * WEEK_S, count)).round()
    return [GpuJob(n, float(submit_s[n]), int(chosen[n]), float(run_s[n])) for n in range(count)]


def rho(jobs: Sequence[GpuJob], result: GpuResult, machine: GpuMachine) -> Float64s:
    """Finish-time fairness of each job; N is the mean number of jobs in the system during its time."""
    submit_s = np.array([job.submit_s for job in jobs])
    instants = np.unique(np.concatenate([submit_s, result.end_s]))
    there = np.searchsorted(np.sort(submit_s), instants, "right") - np.searchsorted(
        np.sort(result.end_s), instants, "right"
    )
    integral = np.concatenate([[0.0], np.cumsum(there[:-1] * np.diff(instants))])
    job_s = np.interp(result.end_s, instants, integral) - np.interp(submit_s, instants, integral)
    contention = np.maximum(1.0, job_s / (result.end_s - submit_s))
    shares = np.maximum(1.0, machine.gpus.sum() / contention)
    alone = [ideal_s([GangTrial(job.gpus, job.run_s)], float(share)) for job, share in zip(jobs, shares, strict=True)]
    return np.asarray((result.end_s - submit_s) / np.array(alone), dtype=np.float64)


def ratio(
    submit_s: Float64s, mine: Float64s, others: Float64s, seed: int = 0
) -> tuple[float, tuple[float, float] | None]:
    """Mean of `mine` over mean of `others`, with its interval; no interval of one week."""
    weights = start_weights(submit_s.astype(np.int64), draws=DRAWS, seed=seed)
    ends = None if weights is None else interval((weights @ mine) / (weights @ others))
    return float(mine.mean() / others.mean()), None if ends is None else (float(ends[0]), float(ends[1]))


def as_text(value: float, ends: tuple[float, float] | None) -> str:
    """A ratio as it is printed."""
    return f"{value:.2f}" + (" (no interval)" if ends is None else f" [{ends[0]:.2f}, {ends[1]:.2f}]")


def shown(
    settings: HeadlineSettings,
    title: str,
    jobs: list[GpuJob],
    machine: GpuMachine,
    policies: dict[str, Callable[[], RoundPolicy]],
) -> None:
    """Runs every policy on fresh copies of `jobs`; prints and records a line each, ratios against the last one."""
    results, submit_s = {}, np.array([job.submit_s for job in jobs])
    for name, make in policies.items():
        fresh = [GpuJob(j.number, j.submit_s, j.gpus, j.run_s, j.group, j.model, j.elastic) for j in jobs]
        results[name] = simulate_rounds(fresh, machine, make())
    base = list(policies)[-1]
    print(f"{title}: {len(jobs)} jobs, {machine.gpus.sum()} GPUs; ratios are to {base}")
    base_jct = results[base].end_s - submit_s
    base_wait = base_jct - results[base].ran_s
    for name, result in results.items():
        jct = result.end_s - submit_s
        wait, fair = jct - result.ran_s, rho(jobs, result, machine)
        span = float(result.end_s.max() - submit_s.min())
        jct_ratio, wait_ratio = ratio(submit_s, jct, base_jct), ratio(submit_s, wait, base_wait)
        lost_gpu_h, loaned_gpu_s = result.lost_gpu_s.sum() / 3600, result.loaned_gpu_s
        used = result.gpu_s.sum() / (span * machine.total + loaned_gpu_s)
        if settings.run is not None:
            row = f"{name} ({title.partition(' (paper')[0]})"
            for what, value, unit, ends in (
                ("mean JCT", jct.mean() / 3600, "h", None),
                ("JCT / the base's", jct_ratio[0], "", jct_ratio[1]),
                ("mean queueing", wait.mean() / 3600, "h", None),
                ("queueing / the base's", wait_ratio[0], "", wait_ratio[1]),
                ("worst rho", fair.max(), "", None),
                ("preemptions", result.preemptions.sum(), "", None),
                ("lost to restarts", lost_gpu_h, "GPU h", None),
                ("GPU time on loan", loaned_gpu_s / 3600, "GPU h", None),
            ):
                settings.run.add(row, what, value, unit, n=len(jobs), interval=ends)
        print(
            f"  {name:9s} JCT mean {jct.mean() / 3600:6.2f} p50 {np.median(jct) / 3600:5.2f} p99 "
            f"{np.percentile(jct, 99) / 3600:6.1f} h, queueing {wait.mean() / 3600:6.2f} h, makespan "
            f"{result.end_s.max() / 86_400:5.1f} d, used {used:.3f}, "
            f"rho worst {fair.max():7.1f} p99 {np.percentile(fair, 99):5.2f} mean {fair.mean():.2f}, "
            f"preempted {result.preemptions.sum()}, lost {lost_gpu_h:.0f} GPU h; "
            f"JCT x{as_text(*jct_ratio)}, queueing x{as_text(*wait_ratio)}",
            flush=True,
        )


def themis(settings: HeadlineSettings, jobs: list[GpuJob], machine: GpuMachine, where: str) -> None:
    """Compare the worst rho with first come first served and shortest job first."""
    shown(
        settings,
        f"themis, {where} (paper: worst rho about 1.2, fairness over 2.25 times better)",
        drawn(jobs, settings, 0.0),
        machine,
        {"themis": Themis, "sjf": lambda: Lyra(0.0, grows=False), "fifo": lambda: Guided(round_s=360.0)},
    )


def lyra(settings: HeadlineSettings, jobs: list[GpuJob], machine: GpuMachine, where: str) -> None:
    """Compare loans and growth, each alone and both, also with free restarts, with neither."""
    shown(
        settings,
        f"lyra, {where} (paper, Aryl: queueing 1.53 times, JCT 1.50 times shorter, usage +26.9 %)",
        drawn(jobs, settings, 0.3),
        machine,
        {
            "both": lambda: Lyra(seed=settings.seed),
            "both free": lambda: Lyra(seed=settings.seed, pause_s=0.0),
            "loans": lambda: Lyra(seed=settings.seed, grows=False),
            "grows": lambda: Lyra(seed=settings.seed, loans=False),
            "neither": lambda: Lyra(seed=settings.seed, loans=False, grows=False),
        },
    )


def sia(settings: HeadlineSettings, jobs: list[GpuJob], machine: GpuMachine, where: str) -> None:
    """Compare Sia, with every gang elastic and with none, with schedulers that ignore types."""
    for elastic in (1.0, 0.0):
        shown(
            settings,
            f"sia, {where}, {elastic:.0%} of the gangs elastic (paper: JCT 30 to 93 % shorter)",
            drawn(jobs, settings, elastic),
            machine,
            {"sia": lambda: Sia(round_s=360.0), "themis": Themis, "fifo": lambda: Guided(round_s=360.0)},
        )


def gandiva(settings: HeadlineSettings, jobs: list[GpuJob], machine: GpuMachine, where: str) -> None:
    """Compare Gandiva, whole and without each mechanism, with jobs that run to their end in order of arrival."""
    shown(
        settings,
        f"gandiva, {where}, a fifth of the gangs elastic (the baseline runs jobs to completion)",
        drawn(jobs, settings, 0.2),
        machine,
        {
            "all": Gandiva,
            "no slices": lambda: Gandiva(slices=False),
            "no packs": lambda: Gandiva(least_together=2.0),
            "no moves": lambda: Gandiva(migrates=False),
            "no growth": lambda: Gandiva(grows=False),
            "fifo": lambda: Guided(round_s=360.0),
        },
    )


def guidelines(settings: HeadlineSettings, jobs: list[GpuJob], machine: GpuMachine, where: str) -> None:
    """Compare each guideline of the Philly study with none, where neighbours slow a gang as the study measured."""
    shown(
        settings,
        f"guidelines, {where}",
        drawn(jobs, settings, 0.0),
        machine,
        {
            "hold out": lambda: Guided(hold_s=1800.0, interference=INTERFERENCE),
            "dedicate": lambda: Guided(small_share=0.25, interference=INTERFERENCE),
            "migrate": lambda: Guided(defragment=True, interference=INTERFERENCE),
            "pre-run": lambda: Guided(prerun_s=300.0, interference=INTERFERENCE),
            "isolate": lambda: Guided(isolate=True, interference=INTERFERENCE),
            "none": lambda: Guided(interference=INTERFERENCE),
        },
    )


def main() -> None:
    """Run the headlines on the workloads; print and record each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headlines", default="themis,lyra,sia,gandiva,guidelines")
    parser.add_argument("--workloads", default="generated,philly")
    parser.add_argument("--weeks", type=int, default=8)
    parser.add_argument("--mix", choices=MODELS, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=float, default=0.7)
    parser.add_argument("--share", type=float, default=0.35)
    arguments = parser.parse_args()
    mix = None if arguments.mix is None else {arguments.mix: 1.0}
    run = BenchmarkRun(ABOUT_GANDIVA if arguments.headlines == "gandiva" else ABOUT)
    settings = HeadlineSettings(arguments.weeks, mix, arguments.seed, run)
    print(f"weeks {settings.weeks}, mix {arguments.mix or 'equal shares'}, seed {settings.seed} (generated)")
    headlines = {"themis": themis, "lyra": lyra, "sia": sia, "gandiva": gandiva, "guidelines": guidelines}
    for name in arguments.headlines.split(","):
        for workload in arguments.workloads.split(","):
            if workload == "philly":
                if not TRACE.exists():
                    print(f"philly: skipped, the trace is not at {TRACE}")
                    continue
                gpus = np.array([8] * round(arguments.share * 231) + [2] * round(arguments.share * 321), dtype=np.int64)
                jobs, where = philly(TRACE, 7 * settings.weeks, FROM), f"philly, {arguments.share:.0%} of its nodes"
                jobs = [job for job in jobs if job.gpus <= gpus.sum()]
                headlines[name](settings, jobs, GpuMachine(gpus, ["T4"] * len(gpus), "T4"), where)
            else:
                machine = MIXED if name == "sia" else ALIKE
                jobs = generated(settings, int(machine.gpus.sum()), arguments.load)
                headlines[name](settings, jobs, machine, "generated")
    run.write()


if __name__ == "__main__":
    main()
