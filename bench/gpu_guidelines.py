"""The Philly study's guidelines, each on and off, on jobs of the Philly log (Jeon et al., ATC 2019, section 5).

    .venv/bin/python -m bench.gpu_guidelines [--weeks 3] [--gpus 800] [--begin 2017-10-02] [--seed 0] [--plain]
        [--workers 2]

Submissions, sizes and run times are recorded. The derived log has neither attempts nor models, so both are drawn
(generated): models from the published profiles in equal shares, failed attempts by table 7 of the study (`FAILURES`).
The table gives how often each class of error fails jobs of each size, how often such a job is tried, and after how
long an attempt fails. A failing job takes the recorded job of its size class whose run time is nearest to that of all
its attempts, which are equally long. The base has no guideline on, and neighbours slow each other in every replay.
Intervals are 95 % over resampled weeks of the jobs' differences to the base, as in `baton whatif`.
"""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import numpy as np

from bench.bench_gpu import TRACE, philly
from bench.gpu_rows import FIGURES
from bench.results import Benchmark, BenchmarkRun
from features.failures.savings import SHOWS_ON_ONE_GPU
from features.failures.signatures import signatures
from models.what_if.changes import GpuScene
from models.what_if.differences import rows
from models.what_if.schedulers import PlannedGpuReplay, SchedulerOutcome, replays, without_unplaceable
from models.what_if.trust import mean_interval
from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import GpuJobs
from simulator.gpu.policies.guided import INTERFERENCE
from simulator.gpu.profiles import draw
from simulator.gpu.profiles.table import published
from simulator.gpu.scheduler import Setting
from traces.units import WEEK_S

ABOUT = Benchmark(
    "gpu_guidelines",
    "The Philly study's guidelines on Philly's jobs",
    "gpu",
    "Each guideline of the Philly study on jobs of the Philly log, compared with none. Models and failed attempts are "
    "drawn (generated), the latter by the study's table of failures. Intervals are of the differences to the base.",
)
STUDY_JOBS = 96_260  # jobs of the study, in whose counts the table is
SHOWN = ("mean_jct_s", "p50_jct_s", "mean_queueing_s", "fragmentation", "preemptions", "lost_gpu_h")
LEAST_S = 1.0  # shortest drawn attempt


class FailureClass(NamedTuple):
    """A class of errors in table 7 of the study, as recalled."""

    reason: str  # as in features/rules/log_signatures.toml, which says whether a retry is hopeless
    jobs: int
    trials: tuple[int, int, int]  # failed attempts of jobs of 1, 2 to 4, and over 4 GPUs
    median_min: float  # run time to failure
    p90_min: float


FAILURES = (
    FailureClass("CPU out of memory", 2803, (11_465, 235, 376), 13.45, 17.73),
    FailureClass("incorrect inputs", 4936, (5844, 2638, 1208), 1.87, 404.83),
    FailureClass("semantic error", 2049, (1603, 494, 846), 2.72, 376.0),
    FailureClass("core dump", 1784, (1936, 496, 480), 0.85, 72.75),
    FailureClass("invalid memory access", 1235, (712, 774, 1116), 1.03, 403.5),
    FailureClass("model checkpoint error", 948, (743, 384, 868), 181.67, 3728.93),
    FailureClass("CUDA failure", 571, (133, 1153, 198), 1.32, 19.87),
    FailureClass("syntax error", 883, (780, 184, 168), 0.58, 5.02),
    FailureClass("traceback from crash", 271, (356, 277, 144), 1.02, 894.33),
    FailureClass("MPI error", 166, (456, 54, 124), 1.62, 3015.27),
    FailureClass("GPU out of memory", 261, (237, 70, 180), 18.53, 353.62),
    FailureClass("MPI runtime failure", 420, (240, 141, 97), 1389.48, 13_778.6),
)
SIZES = ((1, 1), (2, 4), (5, 1 << 62))  # least and most GPUs of the table's columns
GUIDELINES: dict[str, dict[str, Setting]] = {
    "none": {},
    "wait for locality": {"hold_s": 1800.0},
    "isolate gangs": {"isolate": 1.0},
    "dedicate nodes to small jobs": {"small_share": 0.25},
    "migrate against fragmentation": {"defragment": 1.0},
    "pre-run on any GPU": {"prerun_s": 300.0},
    "pre-run on a pool of one node": {"prerun_s": 300.0, "pool_nodes": 1.0},
    "no retry of hopeless errors": {"no_retry": 1.0},
    "isolate, migrate, pool and no retry": {
        "isolate": 1.0, "defragment": 1.0, "prerun_s": 300.0, "pool_nodes": 1.0, "no_retry": 1.0,
    },
}  # fmt: skip


def drawn_attempts(jobs: GpuJobs, seed: int) -> tuple[GpuJobs, dict[str, int]]:
    """Draw the failed attempts of jobs; returns the jobs with them, and how many jobs each class of error fails."""
    rng = np.random.default_rng(seed)
    known = {signature.reason: signature for signature in signatures(None)}
    fails_s, hopeless_s = np.full(len(jobs), np.nan), np.full(len(jobs), np.nan)
    failed = dict.fromkeys((one.reason for one in FAILURES), 0)
    for column, (least, most) in enumerate(SIZES):
        able = np.flatnonzero((jobs.gpus >= least) & (jobs.gpus <= most))
        able = able[np.argsort(jobs.run_s[able], kind="stable")]
        left, left_s = able.tolist(), jobs.run_s[able].tolist()
        wanted = [
            (at, int(rng.geometric(FAILURES[at].jobs / sum(FAILURES[at].trials))))
            for at in range(len(FAILURES))
            for _ in range(_jobs_of(FAILURES[at], column, len(jobs)))
        ]
        for at, tries in (wanted[index] for index in rng.permutation(len(wanted))):
            if not left:
                break
            one = FAILURES[at]
            sigma = np.log(one.p90_min / one.median_min) / 1.2816  # lognormal; 1.2816: 90th percentile of a normal
            attempt_s = max(LEAST_S, 60.0 * one.median_min * float(np.exp(sigma * rng.standard_normal())))
            place = _nearest(left_s, tries * attempt_s)
            job, run_s = left.pop(place), left_s.pop(place)
            failed[one.reason] += 1
            if known[one.reason].category in SHOWS_ON_ONE_GPU:
                fails_s[job] = run_s / tries
            if known[one.reason].is_hopeless and tries > 1:
                hopeless_s[job] = run_s / tries
    return replace(jobs, fails_s=fails_s, hopeless_s=hopeless_s), failed


def _jobs_of(one: FailureClass, column: int, jobs: int) -> int:
    """Jobs of a size class that such errors fail among `jobs` jobs; each is tried equally often in every class."""
    return round(one.jobs * one.trials[column] / sum(one.trials) * jobs / STUDY_JOBS)


def _nearest(values: list[float], wanted: float) -> int:
    """Index of the value of an ordered list that is nearest to `wanted` in ratio."""
    after = bisect_left(values, wanted)
    if after == len(values) or (after and wanted / values[after - 1] < values[after] / wanted):
        return after - 1
    return after


def scene(begin: datetime, weeks: int, gpus: int, seed: int, is_plain: bool) -> GpuScene:
    """The jobs of the stretch with drawn attempts and models, on nodes of 8 GPUs."""
    jobs = philly(TRACE)
    passed_s = jobs.submit_s - begin.replace(tzinfo=UTC).timestamp()
    jobs = jobs.take((passed_s >= 0) & (passed_s < weeks * WEEK_S))
    jobs, failed = drawn_attempts(jobs, seed)
    lines = [f"{sum(failed.values()):,} of {len(jobs):,} jobs fail (generated): {failed}"]
    if not is_plain:
        models = published()
        jobs = replace(jobs, profiles=tuple(models.values()))
        jobs = jobs.drawn(seed, draw.equal_mix(list(models.values()), ["T4"]), elastic_share=0.0)
    cluster = of_nodes(np.full(gpus // 8, 8, dtype=np.int64), ("T4",) * (gpus // 8))
    return without_unplaceable(GpuScene(cluster, jobs, assumptions=tuple(lines), seed=seed))


def plans(base: GpuScene, guidelines: Mapping[str, Mapping[str, Setting]]) -> list[PlannedGpuReplay]:
    """One replay for each guideline; neighbours slow each other in all of them."""
    return [
        PlannedGpuReplay(
            replace(base, parameters={"guided": {"interference": INTERFERENCE, **settings}}), "guided", name
        )
        for name, settings in guidelines.items()
    ]


def gpu_hours(
    jobs: GpuJobs, outcomes: list[SchedulerOutcome]
) -> Iterator[tuple[str, float, float, list[float] | None]]:
    """Yield for each replay: name, GPU hours held, their difference to the first, and its 95 % interval."""
    submit_s = jobs.submit_s.astype(np.int64)
    for one in outcomes:
        less = (one.times["gpu_s"] - outcomes[0].times["gpu_s"]) / 3600.0
        ends = mean_interval(less, submit_s)
        yield (
            one.change,
            float(one.times["gpu_s"].sum()) / 3600.0,
            float(less.sum()),
            None if ends is None else [end * len(jobs) for end in ends],
        )


def record(run: BenchmarkRun, jobs: GpuJobs, outcomes: list[SchedulerOutcome]) -> None:
    """Print and record the figures of each replay and their differences to the first."""
    first = outcomes[0].change
    for row in rows(jobs, outcomes):
        if row["figure"] not in SHOWN:
            continue
        what, unit = FIGURES[row["figure"]]
        run.add(row["change"], what, row["value"], unit, n=len(jobs))
        ends = row["difference_ci95"]
        if ends is not None:
            run.add(row["change"], f"{what} less that of none", row["difference"], unit, n=len(jobs), interval=ends)
        to_first = "" if ends is None else f"; {row['difference']:+,.4g} [{ends[0]:+,.4g}, {ends[1]:+,.4g}] to {first}"
        print(f"{row['change']}: {what} {row['value']:,.4g} {unit}{to_first}")
    for name, hours, less, ends in gpu_hours(jobs, outcomes):
        run.add(name, "GPU time held", hours, "GPU h", n=len(jobs))
        print(f"{name}: GPU time held {hours:,.0f} GPU h; {less:+,.0f} {ends} to {first}")
        if name != first and ends is not None:
            run.add(name, "GPU time held less that of none", less, "GPU h", n=len(jobs), interval=ends)


def main() -> None:
    """Replay the jobs under each guideline; print and record the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--begin", type=datetime.fromisoformat, default=datetime(2017, 10, 2))
    parser.add_argument("--weeks", type=int, default=3)
    parser.add_argument("--gpus", type=int, default=800, help="in nodes of 8")
    parser.add_argument("--seed", type=int, default=0, help="of the drawn models and attempts")
    parser.add_argument("--plain", action="store_true", help="no job has a profile: spreading costs nothing")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    base = scene(given.begin, given.weeks, given.gpus, given.seed, given.plain)
    print(f"{len(base.jobs):,} jobs of {given.weeks} weeks of Philly, {base.cluster.gpus} GPUs", flush=True)
    done = partial(print, "done:", flush=True)
    outcomes = replays(plans(base, GUIDELINES), done, workers=given.workers)
    for line in dict.fromkeys(line for outcome in outcomes for line in outcome.assumptions):
        print(line)
    run = BenchmarkRun(ABOUT)
    record(run, base.jobs, outcomes)
    run.write()


if __name__ == "__main__":
    main()
