"""What the advisor minimises, with intervals, and the groups that must not lose by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from features.bootstrap import interval, start_weights
from models.what_if.recorded.outcomes import (
    RecordedOutcome,
    bounded_slowdowns,
    node_time_by_day,
    recorded_wait_s,
    utilization,
)
from models.what_if.recorded.scene import RecordedScene
from models.what_if.trust import mean_interval, quantile_intervals
from simulator.metrics import NOTICED_WAIT_S
from traces.arrays import Bools, Float64s
from traces.errors import InputError
from traces.units import DAY_S

LEAST_JOBS, LEAST_SHARE = 20, 0.01  # of a group, and of all jobs, before its mean wait counts
SMALL_NODES = 1  # most nodes of a small job


class Objective(NamedTuple):
    """A figure of a replay; less is better."""

    name: str
    words: str
    unit: str  # "s", "" or "%": a share in 0..1
    figure: Callable[[RecordedOutcome], float]
    ci95: Callable[[RecordedOutcome, RecordedOutcome], list[float] | None]  # of the second less the first

    def text(self, value: float) -> str:
        """A value with its unit."""
        return f"{100 * value:.1f} %" if self.unit == "%" else f"{value:,.1f} {self.unit}".rstrip()


class _OfJobs(NamedTuple):
    """A figure of values of some jobs, (jobs,) in order of submission."""

    jobs: Callable[[RecordedScene], Bools]
    values: Callable[[RecordedOutcome], Float64s]
    of: Callable[[RecordedScene, Bools, Float64s], float]
    between: Callable[[RecordedScene, Bools, Float64s, Float64s], list[float] | None]

    def figure(self, outcome: RecordedOutcome) -> float:
        return self.of(outcome.scene, self.jobs(outcome.scene), self.values(outcome))

    def ci95(self, before: RecordedOutcome, after: RecordedOutcome) -> list[float] | None:
        return self.between(before.scene, self.jobs(before.scene), self.values(before), self.values(after))


def _all(scene: RecordedScene) -> Bools:
    return scene.judged


def _small(scene: RecordedScene) -> Bools:
    small: Bools = scene.judged & (scene.record.size <= SMALL_NODES)
    return small


def _waits(outcome: RecordedOutcome) -> Float64s:
    return outcome.wait_s


def _mean(_scene: RecordedScene, jobs: Bools, values: Float64s) -> float:
    return float(values[jobs].mean())


def _mean_ci(scene: RecordedScene, jobs: Bools, before: Float64s, after: Float64s) -> list[float] | None:
    return mean_interval((after - before)[jobs], scene.record.submit_s[jobs])


def _p90(_scene: RecordedScene, jobs: Bools, values: Float64s) -> float:
    return float(np.quantile(values[jobs], 0.9))


def _p90_ci(scene: RecordedScene, jobs: Bools, before: Float64s, after: Float64s) -> list[float] | None:
    return quantile_intervals(before[jobs], after[jobs], scene.record.submit_s[jobs], [90.0])[0]


def _worst(scene: RecordedScene, jobs: Bools, values: Float64s) -> float:
    return max(float(values[jobs & mask].mean()) for _name, mask in fair_groups(scene))


def _worst_ci(scene: RecordedScene, jobs: Bools, before: Float64s, after: Float64s) -> list[float] | None:
    days, where = np.unique(scene.record.submit_s[jobs] // DAY_S, return_inverse=True)
    weights = start_weights(days * DAY_S)
    if weights is None:
        return None

    def worst(values: Float64s) -> Float64s:
        means = []
        for _name, mask in fair_groups(scene):
            ours = mask[jobs]
            sums = np.bincount(where[ours], weights=values[jobs][ours], minlength=len(days))
            counts = np.bincount(where[ours], minlength=len(days))
            with np.errstate(invalid="ignore", divide="ignore"):
                means.append((weights @ sums) / (weights @ counts))
        found: Float64s = np.nanmax(np.array(means), axis=0)
        return found

    return interval(worst(after) - worst(before))


def _idle(outcome: RecordedOutcome) -> float:
    return 1.0 - utilization(outcome)


def _idle_ci(before: RecordedOutcome, after: RecordedOutcome) -> list[float] | None:
    was, is_now = node_time_by_day(before), node_time_by_day(after)
    weights = start_weights(was.days * DAY_S)
    if weights is None:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        was_busy, is_busy = ((weights @ one.busy_s) / (weights @ one.usable_s) for one in (was, is_now))
    return interval(was_busy - is_busy)


_MEAN, _P90 = _OfJobs(_all, _waits, _mean, _mean_ci), _OfJobs(_all, _waits, _p90, _p90_ci)
_P90_SMALL = _OfJobs(_small, _waits, _p90, _p90_ci)
_SLOWDOWN, _WORST = _OfJobs(_all, bounded_slowdowns, _mean, _mean_ci), _OfJobs(_all, _waits, _worst, _worst_ci)
OBJECTIVES = {
    one.name: one
    for one in (
        Objective("mean-wait", "mean wait", "s", _MEAN.figure, _MEAN.ci95),
        Objective("p90-wait", "90th percentile of the waits", "s", _P90.figure, _P90.ci95),
        Objective(
            "p90-wait-small", "90th percentile of the waits of 1-node jobs", "s", _P90_SMALL.figure, _P90_SMALL.ci95
        ),
        Objective("slowdown", "mean bounded slowdown", "", _SLOWDOWN.figure, _SLOWDOWN.ci95),
        Objective("worst-group", "largest mean wait of an account (else user)", "s", _WORST.figure, _WORST.ci95),
        Objective("utilization", "share of usable nodes idle", "%", _idle, _idle_ci),
    )
}


def objective(name: str) -> Objective:
    """Return an objective. Raises InputError for an unknown name."""
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective {name[:60]!r}: known are {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def value_of(of: Objective, outcome: RecordedOutcome) -> float:
    """The objective of a replay; less is better."""
    return of.figure(outcome)


def difference_ci95(of: Objective, before: RecordedOutcome, after: RecordedOutcome) -> list[float] | None:
    """95 % interval of the objective after less before; blocks of seven days. None within one block."""
    return of.ci95(before, after)


def recorded_error(of: Objective, base: RecordedOutcome) -> float:
    """The distance of the base from the record in the objective."""
    recorded = base._replace(wait_s=recorded_wait_s(base.scene))
    return abs(value_of(of, base) - value_of(of, recorded))


def fair_groups(scene: RecordedScene, dimension: str | None = None) -> list[tuple[str, Bools]]:
    """Return the groups with enough jobs: of the dimension, else accounts, else users; else all jobs as one."""
    least = max(LEAST_JOBS, LEAST_SHARE * scene.judged.sum())
    for name in (dimension,) if dimension else ("account", "user"):
        column = scene.about[name]
        counts = column.filter(scene.judged).drop_nulls().value_counts().sort(name)
        groups = counts.filter(counts["count"] >= least)[name].to_list()
        if len(groups) > 1:
            return [(group, scene.judged & (column == group).fill_null(value=False).to_numpy()) for group in groups]
    return [("all jobs", scene.judged)]


def losers(
    before: RecordedOutcome, after: RecordedOutcome, dimension: str | None, share: float
) -> list[tuple[str, int, float, float]]:
    """Return (group, jobs, mean wait before, after; s) of the groups that wait more than `share` longer, worst first.

    A group that waits at most NOTICED_WAIT_S longer has not lost.
    """
    found = []
    for name, mask in fair_groups(before.scene, dimension):
        was, is_now = float(before.wait_s[mask].mean()), float(after.wait_s[mask].mean())
        if is_now - was > max(share * was, NOTICED_WAIT_S):
            found.append((name, int(mask.sum()), was, is_now))
    return sorted(found, key=lambda one: one[2] - one[3])
