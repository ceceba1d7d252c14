"""Answer an operator's question about a cluster of the warehouse in the cluster as recorded.

`read_recorded_scene` reads the log, `answer_recorded` makes the replays. Nothing is stored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from models.engine.local import each_here
from models.engine.work import Engine, Task, Work
from models.study import extent
from models.study.inputs import declared_dates, read_record
from models.what_if.changes import AS_IT_IS
from models.what_if.recorded.changes import changed_recorded
from models.what_if.recorded.outcomes import (
    REPLAY_S,
    RecordedOutcome,
    base_beside,
    compile_replays,
    group_rows,
    outcome_of,
    rows,
)
from models.what_if.recorded.scene import LEAST_WINDOW_S, RecordedScene, follow_window
from models.what_if.schedulers import SchedulerOutcome
from simulator.names import RECORDED
from simulator.recorded.follow import HORIZON_S
from simulator.recorded.parameters import LEAST_FIT_S
from simulator.recorded.record import RecordedTrace, events
from simulator.workload import Replay, Workload
from traces import instants
from traces.arrays import Float64s, Int64s
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.errors import InputError
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import DAY_S, HOUR_S

MOST_WINDOW_S = 84 * DAY_S  # of the newest log, by default


class RecordedLog(NamedTuple):
    """A cluster's log as what-ifs read it."""

    record: RecordedTrace
    about: pl.DataFrame  # as `RecordedScene.about`
    fit_from_s: int | None  # declared: the log counts from here on, epoch s
    said: tuple[str, ...] = ()  # what in the log the replay does not take into account

    def window(self, asked: tuple[int | None, int | None]) -> tuple[int, int]:
        """Return the window, epoch s; by default the newest MOST_WINDOW_S that four weeks of log precede.

        Raises InputError for one shorter than a week.
        """
        first, last = int(self.record.submit_s[0]), int(self.record.submit_s[-1]) + 1
        until_s = last if asked[1] is None else min(asked[1], last)
        from_s = asked[0]
        if from_s is None:
            learned_s = max(first, self.fit_from_s or first) + LEAST_FIT_S
            from_s = max(until_s - MOST_WINDOW_S, learned_s if until_s - learned_s >= LEAST_WINDOW_S else first)
            from_s = -(-from_s // HOUR_S) * HOUR_S
        from_s = max(from_s, first)
        if until_s - from_s < LEAST_WINDOW_S:
            raise InputError(
                f"the window from {instants.text(from_s)} to {instants.text(max(until_s, from_s))} is shorter than a "
                f"week, which is too little to compare replays; the log holds jobs from {instants.text(first)} to "
                f"{instants.text(last)}"
            )
        return from_s, until_s


def read_recorded_log(data: DataFolder, settings: ClusterSettings) -> RecordedLog:
    """Read the cluster's log. Raises InputError if it holds no job that ran."""
    record = read_record(data, settings.name, extent.first_calibrated_s(data, settings.name))
    if not record.ran.any():
        raise InputError(f"the log of cluster {settings.name!r} holds no job with a submission and a start")
    about = _about(data, settings.name, record)
    said = []
    if not about["has_eligible"].any():
        said.append("the log holds no eligible times: waits include dependencies and begin times")
    at_once = int(events(record).peak[0].max())
    if settings.nodes is not None and at_once > settings.nodes:
        said.append(
            f"jobs share nodes: at one moment they would take {counted(at_once, 'node')} of {settings.nodes:,}; the "
            "replay gives every job whole nodes"
        )
    return RecordedLog(record, about, declared_dates(settings).fit_from_s, tuple(said))


def read_recorded_scene(
    data: DataFolder,
    settings: ClusterSettings,
    window: tuple[int | None, int | None] = (None, None),
    span_s: int = DAY_S,
    seed: int = 0,
) -> RecordedScene:
    """Read the cluster's log and follow it through the window (`RecordedLog.window`).

    Raises InputError for a log or a window that is too short, and for a window without jobs that ran.
    """
    log = read_recorded_log(data, settings)
    from_s, until_s = log.window(window)
    scene = follow_window(log.record, log.about, from_s, until_s, span_s)
    return replace(scene, seed=seed, assumptions=(*log.said, *scene.assumptions))


class RecordedAnswer(NamedTuple):
    """The output of `baton whatif --json`, and the replays by the name of their change, the base first."""

    result: dict[str, Any]
    daily: list[tuple[str, RecordedOutcome]]
    whole: list[tuple[str, RecordedOutcome]]


def answer_recorded(
    scene: RecordedScene,
    cluster: str,
    changes: Sequence[str],
    report: Callable[[str], None] = lambda _name: None,
    engine: Engine = each_here,
) -> RecordedAnswer:
    """Replay the scene as it is and with each change, anew every day and in one piece; `report` is called for each.

    Raises InputError for a change that is not understood.
    """
    scenes = {change: changed_recorded(scene, change) for change in dict.fromkeys(changes)}
    horizons = ("daily", "whole") if scene.whole is not None else ("daily",)
    outcomes = _outcomes({AS_IT_IS: scene, **scenes}, horizons, report, engine)
    bases = {horizon: outcomes[AS_IT_IS, horizon] for horizon in horizons}
    results, groups, said = [], [], list(scene.assumptions)
    made = {horizon: [(AS_IT_IS, bases[horizon])] for horizon in horizons}
    for horizon in horizons:
        results += list(rows(bases[horizon], bases[horizon], AS_IT_IS, horizon))
    for change, other in scenes.items():
        said += other.assumptions
        for horizon in horizons:
            outcome = outcomes[change, horizon]
            results += list(rows(bases[horizon], outcome, change, horizon))
            if outcome.unstarted != bases[horizon].unstarted:
                said.append(
                    f"{change}: {counted(outcome.unstarted, 'job')} had not started ten days after the end of "
                    f"{'the window' if horizon == 'whole' else 'their week'} and count with that wait"
                )
            made[horizon].append((change, outcome))
            if horizon == "daily":
                groups += list(group_rows(bases[horizon], outcome, change))
    result = about_window(scene, cluster, said) | {
        "base": base_beside(bases["daily"]),
        "base_whole": base_beside(bases["whole"]) if "whole" in bases else None,
        "results": results,
        "groups": groups,
    }
    return RecordedAnswer(result, made["daily"], made.get("whole", []))


def _outcomes(
    scenes: dict[str, RecordedScene], horizons: Sequence[str], report: Callable[[str], None], engine: Engine
) -> dict[tuple[str, str], RecordedOutcome]:
    """Replay the scenes, by change, on each horizon; `report` is called for a change when all its replays are done."""
    base = scenes[AS_IT_IS]
    asked = [(change, horizon) for change in scenes for horizon in horizons]
    tasks = [
        Task(f"the replay of {change}, {horizon}", (change, horizon == "whole"), horizon) for change, horizon in asked
    ]
    about_s = REPLAY_S * len(base.record) * len(asked)
    work = Work(replayed_change, tasks, base, prepare=compile_replays, is_compiled=True, about_s=about_s)
    outcomes: dict[tuple[str, str], RecordedOutcome] = {}
    for at, (wait_s, copied_s, unstarted) in engine(work, sys.maxsize):
        change, horizon = asked[at]
        outcomes[change, horizon] = RecordedOutcome(scenes[change], wait_s, copied_s, unstarted, horizon == "whole")
        if all((change, one) in outcomes for one in horizons):
            report(change)
    return outcomes


def replayed_change(scene: RecordedScene, asked: tuple[str, bool]) -> tuple[Float64s, Int64s, int]:
    """Replay the scene with a change, anew every day or in one piece; returns the outcome without its scene."""
    change, is_whole = asked
    found = outcome_of(scene if change == AS_IT_IS else changed_recorded(scene, change), is_whole=is_whole)
    return found.wait_s, found.copied_s, found.unstarted


def about_window(scene: RecordedScene, cluster: str, said: Sequence[str]) -> dict[str, Any]:
    """What every answer for a recorded cluster begins with."""
    return {
        "cluster": cluster,
        "jobs": int(scene.judged.sum()),
        "from_utc": instants.text(scene.from_s),
        "until_utc": instants.text(scene.until_s),
        "nodes": scene.most_nodes,
        "seed": scene.seed,
        "said": list(dict.fromkeys(said)),
    }


def job_times(
    scene: RecordedScene, daily: Sequence[tuple[str, RecordedOutcome]]
) -> tuple[list[str], list[SchedulerOutcome]]:
    """Return the ids of the jobs of the window, and each daily replay in the form of `job_files.write_times`."""
    jobs = scene.judged
    gpus = scene.about["gpus"].fill_null(0).to_numpy()[jobs].astype(np.float64)
    outcomes = []
    for change, outcome in daily:
        run_s = outcome.scene.run_s[jobs].astype(np.float64)
        start_s = np.where(np.isnan(outcome.wait_s), np.nan, outcome.start_s)[jobs]
        times = {
            "submit_s": scene.record.submit_s[jobs].astype(np.float64),
            "start_s": start_s,
            "end_s": start_s + run_s,
            "preemptions": np.zeros(len(run_s)),
            "gpu_s": gpus * run_s,
        }
        outcomes.append(SchedulerOutcome(RECORDED, change, scene.seed, {}, {}, (), times))
    return scene.about.filter(jobs)["job_id"].to_list(), outcomes


def as_schedules(whole: Sequence[tuple[str, RecordedOutcome]]) -> tuple[Workload, list[Replay]]:
    """Return the jobs of the window as a workload, and each replay in one piece as a schedule of it."""
    scene = whole[0][1].scene
    jobs, record = scene.judged, scene.record
    submit_s, start_s = record.submit_s[jobs], record.start_s[jobs]
    run_s, number = (record.end_s - record.start_s)[jobs], np.arange(len(submit_s))
    replays = []
    for change, outcome in whole:
        wait_s = outcome.wait_s[jobs]
        starts = np.where(wait_s < HORIZON_S, submit_s + wait_s, -1).astype(np.int64)  # -1 as well if not submitted
        replays.append(Replay(change, starts, outcome.scene.run_s[jobs], float("nan")))
    return Workload(number, submit_s, record.size[jobs], run_s, record.limit_s[jobs], start_s), replays


def feasible(scene: RecordedScene, changes: Sequence[str]) -> list[str]:
    """The changes that are possible in the scene."""
    possible = []
    for change in changes:
        with suppress(InputError):
            changed_recorded(scene, change)
            possible.append(change)
    return possible


def _about(data: DataFolder, cluster: str, record: RecordedTrace) -> pl.DataFrame:
    """The names of each job of the record, in its order."""
    names = warehouse.read(
        data,
        'SELECT job_key, user_name AS "user", account, partition, qos, job_id, '
        "greatest(coalesce(allocated_gpus, 0), 0) AS gpus, eligible_utc IS NOT NULL AS has_eligible "
        "FROM jobs WHERE cluster = ?",
        (cluster,),
    ).unique("job_key", keep="first")
    return pl.DataFrame({"job_key": record.job_key}).join(names, on="job_key", how="left", maintain_order="left")
