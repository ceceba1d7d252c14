"""Replay one cluster's trace, or one of its jobs, with one thing changed.

The arithmetic is in `models.what_if`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from models.study.inputs import eligible_s, read_record, read_workload
from models.tables import WHAT_IF, frame
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.what_if.job import JobChange
    from models.what_if.schedulers import SchedulerOutcome
    from simulator.workload import Workload


REPORTED = ("nodes=+10%", "nodes=-10%", "ask=1.2", "backfill=off", "arrivals=+20%")  # changes of the pipeline


def what_if(data: DataFolder, settings: ClusterSettings) -> pl.DataFrame:
    """Make the rows of the table `what_if`: replay the cluster as recorded, with each of REPORTED that it allows.

    Raises InputError as `models.what_if.recorded.answer.read_recorded_scene` does.
    """
    from models.engine.engines import engine_of
    from models.what_if.recorded.answer import answer_recorded, feasible, read_recorded_scene

    scene = read_recorded_scene(data, settings)
    result, daily, _whole = answer_recorded(
        scene, settings.name, feasible(scene, REPORTED), engine=engine_of(data.root)
    )
    base, by_change = result["base"], dict[str, dict[str, dict[str, Any]]]()
    for row in result["results"]:
        by_change.setdefault(row["change"], {})[f"{row['horizon']} {row['figure']}"] = row
    rows, nodes = [], {change: outcome.scene.most_nodes for change, outcome in daily}
    for change, found in by_change.items():
        mean = found["daily mean_wait_s"]
        low, high = mean["difference_ci95"] or (None, None)
        rows.append(
            {
                "cluster": settings.name,
                "change": change,
                "capacity_nodes": nodes[change],
                "jobs": mean["jobs"],
                "mean_wait_s": mean["value"],
                "p50_wait_s": found["daily median_wait_s"]["value"],
                "p95_wait_s": found["daily p95_wait_s"]["value"],
                "mean_bounded_slowdown": found["daily mean_bounded_slowdown"]["value"],
                "wait_change_s": mean["difference"],
                "wait_change_low_s": low,
                "wait_change_high_s": high,
                "wait_change_whole_s": found["whole mean_wait_s"]["difference"],
                "verdict": mean["verdict"],
                "recorded_mean_wait_s": base["recorded"]["mean_wait_s"],
                "base_spearman": base["spearman"],
                "trust": base["trust"]["level"],
                "trust_why": base["trust"]["why"],
                "said": "\n".join(result["said"]),
            }
        )
    return frame(WHAT_IF, rows)


def flat_replays(
    data: DataFolder,
    settings: ClusterSettings,
    schedulers: Sequence[str],
    changes: Sequence[str],
    window: tuple[int | None, int | None],
    report: Callable[[str], None],
) -> tuple[Workload, int, list[SchedulerOutcome]]:
    """Replay the cluster's jobs under each flat scheduler and change; return jobs, nodes and outcomes.

    window: jobs submitted from the first and before the second, epoch s. Nodes are those declared, else the most in
    use. Raises InputError for an impossible change and for a window without jobs.
    """
    from models.what_if import flat

    workload, _keys = read_workload(data, settings.name)
    from_s, until_s = window
    inside = workload.submit_s >= (0 if from_s is None else from_s)
    if until_s is not None:
        inside &= workload.submit_s < until_s
    if not inside.any():
        raise InputError(f"cluster {settings.name!r} has no job that ran in that time; give a wider window")
    workload = workload.take(inside)
    capacity = flat.replayed_capacity(workload, settings.nodes)
    outcomes = flat.replays(flat.combinations(workload, capacity, schedulers, changes), report)
    return workload, capacity, outcomes


def what_if_of_job(
    data: DataFolder, cluster: str, job_key: str, changes: list[JobChange] | None
) -> dict[str, Any] | None:
    """Simulate other limits and sizes of a job in the warehouse; None if the record cannot place it in a queue.

    The rest is as in `models.what_if.job.what_if_job`.
    """
    from models.what_if.job import what_if_job as changed_waits

    record = read_record(data, cluster)
    if job_key not in record.job_key:
        return None
    return changed_waits(record, job_key, eligible_s(data, cluster, job_key), changes)
