"""Waits of a recorded scene as it was and with changes: figures, paired differences, and how far to trust the base.

Differences are the changed replay less the base, job by job, over the jobs that both hold. Intervals draw blocks of
seven days (decision 9). A difference smaller than the base's own distance from the record in that figure, or with an
interval that includes 0, is one that the replay cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from models.what_if.recorded.changes import DIMENSIONS
from models.what_if.recorded.replays import starts_of, usable_nodes_of
from models.what_if.recorded.scene import RecordedScene
from models.what_if.trust import QUANTILES, mean_interval, quantile_intervals, trust, verdict, waits
from simulator.metrics import bounded_slowdown, spearman
from simulator.names import RECORDED
from simulator.recorded.follow import HORIZON_S, TICK_S
from simulator.recorded.record import NEVER
from traces.arrays import Bools, Float64s, Int64s
from traces.units import DAY_S, HOUR_S

REPLAY_S = 5e-6  # rough time of a replay for each job of the record: 1e-6 in a quiet cluster, 2e-5 in a busy one
PARTS = 3  # the window is divided into so many, to show whether they agree
SHOWN_NAMES = 20  # of a dimension, those with most jobs
SIZES = ((1, "1"), (4, "2-4"), (16, "5-16"), (NEVER, "17-up"))  # most nodes of a class, and its name


class RecordedOutcome(NamedTuple):
    """One replay of a scene."""

    scene: RecordedScene
    wait_s: Float64s  # (jobs,) at most HORIZON_S; NaN for jobs that were not submitted in it
    copied_s: Int64s  # (copies,) starts of `RecordedScene.copied`, epoch s; NEVER
    unstarted: int  # jobs that had not started ten days after their stretch
    is_whole: bool  # replayed in one piece

    @property
    def start_s(self) -> Float64s:
        """Starts, epoch s, shape (jobs,)."""
        return self.scene.record.submit_s + self.wait_s


class _Held(NamedTuple):
    """Jobs that hold nodes in a replay, copies included, (held,) each."""

    job: Int64s  # rows of the record
    start_s: Float64s  # epoch s
    run_s: Int64s


class NodeTime(NamedTuple):
    """Node seconds of a window, (days,) each."""

    days: Int64s  # days since 1970; the first and the last may be cut by the window
    busy_s: Float64s  # held by jobs
    usable_s: Float64s


def outcome_of(scene: RecordedScene, *, is_whole: bool = False) -> RecordedOutcome:
    """Replay the scene anew every day, or in one piece."""
    starts, counted = starts_of(scene, is_whole=is_whole), scene.judged & scene.present
    wait_s = np.where(counted, np.minimum(starts.jobs - scene.record.submit_s, HORIZON_S), np.nan)
    return RecordedOutcome(scene, wait_s, starts.copies, int((counted & (starts.jobs == NEVER)).sum()), is_whole)


def compile_replays(scene: RecordedScene) -> None:
    """Replay the first second of the scene, because numba's compiler is not safe in threads."""
    first = scene.daily[0]
    shown = replace(first.shown, anchors=first.shown.anchors[:1])
    outcome_of(replace(scene, daily=(first._replace(until_s=first.from_s + 1, shown=shown),)))


def recorded_wait_s(scene: RecordedScene) -> Float64s:
    """Recorded waits, s, shape (jobs,); NaN for jobs that do not count."""
    wait_s: Float64s = np.where(scene.judged, scene.record.start_s - scene.record.submit_s, np.nan)
    return wait_s


def bounded_slowdowns(outcome: RecordedOutcome) -> Float64s:
    """Bounded slowdown of each job (tau 10 s), shape (jobs,); NaN for jobs that do not count."""
    return bounded_slowdown(outcome.wait_s, np.maximum(outcome.scene.run_s, 0))


def base_beside(base: RecordedOutcome) -> dict[str, Any]:
    """Compare the waits of the base with the recorded ones: the figures, Spearman's rho, the parts, and the trust.

    `utilization` is None for a replay anew every day.
    """
    scene, jobs = base.scene, base.scene.judged
    recorded_s = recorded_wait_s(scene)
    recorded, replayed = waits(recorded_s[jobs]), waits(base.wait_s[jobs])
    rho: float | None = spearman(base.wait_s[jobs], recorded_s[jobs])
    rho = None if rho is None or np.isnan(rho) else rho
    return {
        "jobs": int(jobs.sum()),
        "recorded": recorded,
        "replayed": replayed,
        "utilization": {
            "recorded": utilization(base._replace(wait_s=recorded_s)),
            "replayed": utilization(base),
        }
        if base.is_whole
        else None,
        "spearman": rho,
        "held_share": float(scene.held[jobs].mean()),
        "trust": trust(recorded["mean_wait_s"], replayed["mean_wait_s"], rho),
        "groups": [
            {
                "dimension": dimension,
                "name": name,
                "jobs": int(mask.sum()),
                "recorded": waits(recorded_s[mask]),
                "replayed": waits(base.wait_s[mask]),
            }
            for dimension, name, mask in groups(scene, jobs)
            if dimension in ("partition", "size")
        ],
    }


def rows(base: RecordedOutcome, changed: RecordedOutcome, change: str, horizon: str) -> Iterator[dict[str, Any]]:
    """Yield a row per figure of one change: value, difference to the base, intervals, parts, and the verdict."""
    both = base.scene.judged & changed.scene.present & base.scene.present
    submit_s = base.scene.record.submit_s[both]
    before, after = _of_jobs(base, both), _of_jobs(changed, both)
    was, is_now = figures(base, both), figures(changed, both)
    recorded = figures(base._replace(wait_s=recorded_wait_s(base.scene)), both)
    drawn = quantile_intervals(before["mean_wait_s"], after["mean_wait_s"], submit_s, list(QUANTILES.values()))
    of_quantiles = dict(zip(QUANTILES, drawn, strict=True))
    for figure, value in is_now.items():
        is_mean = figure in after
        change_of_jobs = after[figure] - before[figure] if is_mean else np.zeros(0)
        error, difference = abs(was[figure] - recorded[figure]), value - was[figure]
        ci95 = mean_interval(change_of_jobs, submit_s) if is_mean else of_quantiles.get(figure)
        yield {
            "scheduler": RECORDED,
            "change": change,
            "horizon": horizon,
            "figure": figure,
            "jobs": int(both.sum()),
            "value": value,
            "ci95": mean_interval(after[figure], submit_s) if is_mean else None,
            "difference": difference,
            "difference_ci95": ci95,
            "base_error": error,
            "parts": _parts(change_of_jobs, submit_s, base.scene) if is_mean else None,
            "verdict": verdict(difference, ci95, error, is_sampled=is_mean or figure in QUANTILES),
        }


def group_rows(base: RecordedOutcome, changed: RecordedOutcome, change: str) -> Iterator[dict[str, Any]]:
    """Yield the mean difference of waits by size, partition, QOS, account and user: who gains and who loses."""
    both = base.scene.judged & changed.scene.present & base.scene.present
    difference = changed.wait_s - base.wait_s
    for dimension, name, mask in groups(base.scene, both):
        yield {
            "scheduler": RECORDED,
            "change": change,
            "dimension": dimension,
            "name": name,
            "jobs": int(mask.sum()),
            "mean_wait_s": float(changed.wait_s[mask].mean()),
            "difference_s": float(difference[mask].mean()),
            "difference_ci95": mean_interval(difference[mask], base.scene.record.submit_s[mask]),
        }


def groups(scene: RecordedScene, jobs: Bools) -> Iterator[tuple[str, str, Bools]]:
    """Yield (dimension, name, mask of jobs) of each size class, and of the names with most jobs of each dimension."""
    low = 0
    for high, name in SIZES:
        mask = jobs & (scene.record.size > low) & (scene.record.size <= high)
        low = high
        if mask.any():
            yield "size", name, mask
    for dimension in reversed(DIMENSIONS):
        column = scene.about[dimension]
        counts = column.filter(jobs).drop_nulls().value_counts().sort(["count", dimension], descending=[True, False])
        if len(counts) < 2 and dimension != "user":
            continue
        for name in counts[dimension].head(SHOWN_NAMES):
            yield dimension, name, jobs & (column == name).fill_null(value=False).to_numpy()


def figures(outcome: RecordedOutcome, jobs: Bools) -> dict[str, float]:
    """Waits, bounded slowdown (tau 10 s), and node hours that a shorter limit cuts off.

    A replay in one piece also has the utilization and, if the log names GPUs, the GPU hours that jobs hold in the
    window; days that begin anew have no common state of the nodes.
    """
    scene = outcome.scene
    cut_s = np.maximum(scene.record.end_s - scene.record.start_s - scene.run_s, 0)[jobs]
    return {
        **{name: value or 0.0 for name, value in waits(outcome.wait_s[jobs]).items()},
        "mean_bounded_slowdown": float(_of_jobs(outcome, jobs)["mean_bounded_slowdown"].mean()),
        "cut_node_h": float((cut_s * scene.record.size[jobs]).sum() / HOUR_S),
        **(_of_window(outcome) if outcome.is_whole else {}),
    }


def _of_window(outcome: RecordedOutcome) -> dict[str, float]:
    """The utilization, and the GPU hours that jobs hold in the window if the log names GPUs."""
    scene, held = outcome.scene, _held_in_window(outcome)
    gpus = scene.about["gpus"].fill_null(0).to_numpy()[held.job]
    held_s = np.clip(scene.until_s - held.start_s, 0, held.run_s) - np.clip(scene.from_s - held.start_s, 0, held.run_s)
    found = {"utilization": utilization(outcome)}
    return found | ({"gpu_h": float((held_s * gpus).sum() / HOUR_S)} if gpus.any() else {})


def _of_jobs(outcome: RecordedOutcome, jobs: Bools) -> dict[str, Float64s]:
    """The values of the jobs behind the figures that are means over jobs."""
    return {"mean_wait_s": outcome.wait_s[jobs], "mean_bounded_slowdown": bounded_slowdowns(outcome)[jobs]}


def _held_in_window(outcome: RecordedOutcome) -> _Held:
    """The jobs that ran; those submitted before the window as recorded. A wait of HORIZON_S counts as not run."""
    scene, record = outcome.scene, outcome.scene.record
    earlier = np.flatnonzero(record.ran & (record.submit_s < scene.from_s))
    started = np.flatnonzero(outcome.wait_s < HORIZON_S)
    start_s = np.concatenate([record.start_s[earlier], outcome.start_s[started], outcome.copied_s])
    ours = np.concatenate([earlier, started, scene.copied])
    return _Held(ours, start_s, scene.run_s[ours])


def node_time_by_day(outcome: RecordedOutcome) -> NodeTime:
    """Return the node time of the window by day; jobs submitted before the window are as recorded.

    A job that waits HORIZON_S counts as not run.
    """
    scene, (ours, start_s, run_s) = outcome.scene, _held_in_window(outcome)
    size = scene.record.size[ours]
    days = np.arange(scene.from_s // DAY_S, (scene.until_s - 1) // DAY_S + 1)
    edges = np.clip(np.append(days, days[-1] + 1) * DAY_S, scene.from_s, scene.until_s)
    busy_s = np.diff([float((np.clip(edge - start_s, 0, run_s) * size).sum()) for edge in edges])
    usable_s = np.zeros(len(days))
    for stretch in scene.daily:
        tick_s, usable = usable_nodes_of(scene, stretch)
        inside = (tick_s >= stretch.from_s) & (tick_s < stretch.until_s)
        day = tick_s[inside] // DAY_S - days[0]
        usable_s += np.bincount(day, weights=usable[inside] * TICK_S, minlength=len(days))
    return NodeTime(days, busy_s, usable_s)


def utilization(outcome: RecordedOutcome) -> float:
    """The share of the usable node time of the window that jobs hold."""
    _days, busy_s, usable_s = node_time_by_day(outcome)
    return float(busy_s.sum() / max(usable_s.sum(), 1.0))


def _parts(difference: Float64s, submit_s: Int64s, scene: RecordedScene) -> list[float | None]:
    """The mean difference in each part of the window, in order; None without jobs."""
    edges = np.linspace(scene.from_s, scene.until_s, PARTS + 1)
    part = np.searchsorted(edges, submit_s, side="right") - 1
    return [float(difference[part == k].mean()) if (part == k).any() else None for k in range(PARTS)]
