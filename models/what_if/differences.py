"""Compare replays under GPU schedulers with the first one, in which nothing is changed, job by job and draw by draw.

The draws replace what the trace does not say: models of jobs, which jobs are elastic, the load of inference. A figure
is the mean over the draws, with the least and the most of them. Intervals are over resampled weeks of the jobs'
differences, averaged over the draws (decision 9). Weeks show the effect of chance arrivals, draws the effect of
assumptions. Stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from models.tables import WHAT_IF_GROUPS, WHAT_IF_SCHEDULERS, frame
from models.what_if.schedulers import PlannedGpuReplay, SchedulerOutcome
from models.what_if.trust import mean_interval, trust, waits
from simulator.gpu.jobs import GpuJobs
from simulator.metrics import spearman
from traces.arrays import Float64s

SIZES = ((1, "1"), (4, "2-4"), (8, "5-8"), (1 << 62, "9-up"))  # largest number of GPUs of a class, and its name
SHOWN_GROUPS = 20  # users shown, those with most jobs
JCT, QUEUEING = "mean_jct_s", "mean_queueing_s"


class Replayed(NamedTuple):
    """One scheduler with one change: its outcomes, one per draw, and the base's outcomes of the same draws."""

    scheduler: str
    change: str
    outcomes: list[SchedulerOutcome]
    base: list[SchedulerOutcome]

    @property
    def is_base(self) -> bool:
        """Whether it is the base itself."""
        return self.outcomes is self.base

    def values(self, figure: str) -> Float64s:
        """Return the figure in each draw, (draws,)."""
        return np.array([outcome.figures[figure] for outcome in self.outcomes])

    def of_jobs(self, figure: str) -> Float64s:
        """Return the figure of each job, the mean over the draws, (jobs,)."""
        mean: Float64s = np.array([outcome.of_jobs[figure] for outcome in self.outcomes]).mean(axis=0)
        return mean

    def changes(self, figure: str) -> Float64s:
        """Return the figure of each job less the base's in the same draw, (draws, jobs)."""
        pairs = zip(self.outcomes, self.base, strict=True)
        return np.array([one.of_jobs[figure] - before.of_jobs[figure] for one, before in pairs])


def replayed(outcomes: Sequence[SchedulerOutcome]) -> list[Replayed]:
    """Group the outcomes of `models.what_if.schedulers.replays` by scheduler and change, in the order planned."""
    together: dict[tuple[str, str], list[SchedulerOutcome]] = {}
    for outcome in outcomes:
        together.setdefault((outcome.scheduler, outcome.change), []).append(outcome)
    base = next(iter(together.values()))
    return [Replayed(*named, of_both, base) for named, of_both in together.items()]


def rows(jobs: GpuJobs, outcomes: Sequence[SchedulerOutcome]) -> Iterator[dict[str, Any]]:
    """Yield a row per scheduler, change and figure: value, interval, range over the draws, difference to the base.

    Figures that are means over jobs have intervals. Others have None, and so have all if the trace is under two weeks.
    """
    submit = jobs.submit_s.astype(np.int64)
    for one in replayed(outcomes):
        for figure in one.base[0].figures:
            values, base = one.values(figure), Replayed("", "", one.base, one.base).values(figure)
            is_mean = figure in one.base[0].of_jobs
            yield {
                "scheduler": one.scheduler,
                "change": one.change,
                "figure": figure,
                "value": float(values.mean()),
                "ci95": mean_interval(one.of_jobs(figure), submit) if is_mean else None,
                "draws": [float(values.min()), float(values.max())],
                "difference": float((values - base).mean()),
                "difference_ci95": (
                    mean_interval(one.changes(figure).mean(axis=0), submit) if is_mean and not one.is_base else None
                ),
                "difference_draws": [float((values - base).min()), float((values - base).max())],
            }


def base_beside_record(jobs: GpuJobs, outcomes: Sequence[SchedulerOutcome]) -> dict[str, Any]:
    """Compare the waits of the base with the recorded ones: `models.what_if.trust.waits`, Spearman's rho, and trust.

    `jobs` counts those whose wait is recorded. Without any, figures are None, as is the correlation of equal waits.
    The base's waits are the means over its draws.
    """
    base = replayed(outcomes)[0]
    wait_s = np.mean([one.times["start_s"] - jobs.submit_s for one in base.outcomes], axis=0)
    recorded_s = np.full(len(jobs), np.nan) if jobs.recorded_wait_s is None else jobs.recorded_wait_s
    known = ~np.isnan(recorded_s)
    rho: float | None = spearman(wait_s[known], recorded_s[known])
    rho = None if rho is None or np.isnan(rho) else rho
    recorded, found = waits(recorded_s[known]), waits(wait_s[known])
    return {
        "scheduler": base.scheduler,
        "jobs": int(known.sum()),
        "recorded": recorded,
        "replayed": found,
        "spearman": rho,
        "trust": trust(recorded["mean_wait_s"], found["mean_wait_s"], rho),
    }


def group_rows(jobs: GpuJobs, outcomes: Sequence[SchedulerOutcome]) -> Iterator[dict[str, Any]]:
    """Yield the mean difference of completion times to the base by size, group and user: the gains and losses."""
    for one in replayed(outcomes):
        if one.is_base:
            continue
        of_jobs, changes = one.of_jobs(JCT), one.changes(JCT)
        difference = changes.mean(axis=0)
        for dimension, name, mask in parts(jobs):
            of_draws = changes[:, mask].mean(axis=1)
            yield {
                "scheduler": one.scheduler,
                "change": one.change,
                "dimension": dimension,
                "name": name,
                "jobs": int(mask.sum()),
                "mean_jct_s": float(of_jobs[mask].mean()),
                "difference_s": float(difference[mask].mean()),
                "difference_ci95": mean_interval(difference[mask], jobs.submit_s[mask].astype(np.int64)),
                "difference_draws": [float(of_draws.min()), float(of_draws.max())],
            }


def parts(jobs: GpuJobs) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Yield (dimension, name, mask of jobs) of each size class, each group, and the users with most jobs."""
    low = 0
    for high, name in SIZES:
        mask = (jobs.gpus > low) & (jobs.gpus <= high)
        low = high
        if mask.any():
            yield "size", name, mask
    if len(jobs.groups) > 1 and jobs.groups != jobs.users:  # if users are the groups, list them once
        for index, name in enumerate(jobs.groups):
            if (mask := jobs.group == index).any():
                yield "group", name, mask
    counts = np.bincount(jobs.user[jobs.user >= 0], minlength=len(jobs.users))
    for index in np.argsort(-counts, kind="stable")[:SHOWN_GROUPS]:
        if counts[index]:
            yield "user", jobs.users[index], jobs.user == index


def frames(
    cluster: str, planned: Sequence[PlannedGpuReplay], outcomes: Sequence[SchedulerOutcome]
) -> list[pl.DataFrame]:
    """Make `what_if_schedulers` and `what_if_groups` of one cluster; `outcomes` are of `planned`, in order."""
    jobs = planned[0].scene.jobs
    scenes = {(one.scheduler, one.change): one.scene for one in reversed(planned)}
    every = list(rows(jobs, outcomes))
    schedulers = []
    for place, one in enumerate(replayed(outcomes), 1):
        scene = scenes[one.scheduler, one.change]
        by_figure = {r["figure"]: r for r in every if (r["scheduler"], r["change"]) == (one.scheduler, one.change)}
        jct, queueing = by_figure[JCT], by_figure[QUEUEING]
        schedulers.append(
            {
                **{figure: row["value"] for figure, row in by_figure.items()},
                "cluster": cluster,
                "place": place,
                "scheduler": one.scheduler,
                "change": one.change,
                "jobs": len(jobs),
                "from_utc": _utc(jobs.submit_s.min()),
                "until_utc": _utc(jobs.submit_s.max()),
                "capacity_gpus": scene.cluster.gpus,
                "seed": one.outcomes[0].seed,
                "draws": len(one.outcomes),
                **_ends("mean_jct", jct["ci95"], jct["draws"]),
                "jct_change_s": jct["difference"],
                **_ends("jct_change", jct["difference_ci95"], jct["difference_draws"]),
                "queueing_change_s": queueing["difference"],
                **_ends("queueing_change", queueing["difference_ci95"], queueing["difference_draws"]),
                **(_record_columns(jobs, outcomes) if one.is_base else {}),
                "assumptions": "\n".join(
                    dict.fromkeys(line for outcome in one.outcomes for line in outcome.assumptions)
                ),
            }
        )
    groups = [
        {
            **row,
            "cluster": cluster,
            "jct_change_s": row["difference_s"],
            **_ends("jct_change", row["difference_ci95"], row["difference_draws"]),
        }
        for row in group_rows(jobs, outcomes)
    ]
    return [frame(WHAT_IF_SCHEDULERS, schedulers), frame(WHAT_IF_GROUPS, groups)]


def _record_columns(jobs: GpuJobs, outcomes: Sequence[SchedulerOutcome]) -> dict[str, Any]:
    """Return `base_beside_record` under the column names of the table."""
    base = base_beside_record(jobs, outcomes)
    return {
        "recorded_jobs": base["jobs"],
        **{f"recorded_{name}": value for name, value in base["recorded"].items()},
        **{f"base_{name}": value for name, value in base["replayed"].items()},
        "base_spearman": base["spearman"],
    }


def _ends(name: str, ci95: list[float] | None, draws: list[float]) -> dict[str, float | None]:
    """Return the interval over weeks and the range over draws, under the column names of a figure."""
    low, high = ci95 or (None, None)
    return {f"{name}_low_s": low, f"{name}_high_s": high, f"{name}_least_s": draws[0], f"{name}_most_s": draws[1]}


def _utc(second: float) -> datetime:
    return datetime.fromtimestamp(float(second), UTC).replace(tzinfo=None)
