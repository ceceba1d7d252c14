"""Replay one cluster's trace, or one of its jobs, with one thing changed.

The arithmetic is in `models.what_if`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from models.study.inputs import eligible_s, read_record, read_workload
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.what_if.job import JobChange
    from models.what_if.schedulers import SchedulerOutcome
    from simulator.workload import Workload


def what_if(data: DataFolder, settings: ClusterSettings) -> pl.DataFrame:
    """Make the rows of the table `what_if`: replay the trace once for each change.

    The cluster has its declared nodes, else the most that were ever in use at once. Raises InputError for a cluster
    without jobs that ran.
    """
    from models.what_if.cluster import what_if_cluster as changed_replays

    workload, _keys = read_workload(data, settings.name)
    return changed_replays(workload, settings.name, settings.nodes)


def flat_replays(
    data: DataFolder,
    settings: ClusterSettings,
    schedulers: Sequence[str],
    changes: Sequence[str],
    window: tuple[int | None, int | None],
    report: Callable[[str], None],
) -> tuple[Workload, int, list[SchedulerOutcome]]:
    """The cluster's jobs, its nodes, and the outcomes of the jobs under each flat scheduler and change.

    window: the first and the last submission (epoch s) of the jobs. Nodes are those of `what_if`. Raises InputError for
    an impossible change and for a window without jobs.
    """
    from models.what_if import flat
    from models.what_if.cluster import replayed_capacity

    workload, _keys = read_workload(data, settings.name)
    from_s, until_s = window
    inside = workload.submit_s >= (0 if from_s is None else from_s)
    if until_s is not None:
        inside &= workload.submit_s < until_s
    if not inside.any():
        raise InputError(f"cluster {settings.name!r} has no job that ran in that time; give a wider window")
    workload = workload.take(inside)
    capacity = replayed_capacity(workload, settings.nodes)
    outcomes = flat.replays(flat.combinations(workload, capacity, schedulers, changes), report)
    return workload, capacity, outcomes


def what_if_of_job(
    data: DataFolder, cluster: str, job_key: str, changes: list[JobChange] | None = None
) -> dict[str, Any] | None:
    """`models.what_if.job.what_if_job` of a job in the warehouse; None if the record cannot place it in a queue."""
    from models.what_if.job import what_if_job as changed_waits

    record = read_record(data, cluster)
    if job_key not in record.job_key:
        return None
    return changed_waits(record, job_key, eligible_s(data, cluster, job_key), changes)
