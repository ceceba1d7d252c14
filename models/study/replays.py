"""Tables of replays of one cluster: as it was, calibrated, and with one thing changed. Read, simulate, hand back.

The arithmetic is in `simulator` and in `models.what_if`; how much of a long trace is taken is in `models.study.extent`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from models.study import extent
from models.study.inputs import capacity_of, declared_dates, eligible_s, read_record, read_workload
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.what_if.job import Change
    from simulator.recorded.judge import Month
    from simulator.recorded.record import Record
    from simulator.recorded.study import Study as Calibration

MECHANISMS_EVERY = 8  # of the last month's jobs: enough to rank what each mechanism of calibration contributes


def replay(data: DataFolder, settings: ClusterSettings, scheduler: str) -> pl.DataFrame:
    """Rows of `simulated_starts`: every job that ran, started by `scheduler` on the cluster's declared nodes."""
    from simulator.flat.replay import simulate
    from simulator.tables import simulated_starts

    capacity = capacity_of(data, settings)
    workload, keys = read_workload(data, settings.name)
    starts = simulate(workload, scheduler=scheduler, capacity=capacity)
    return simulated_starts(workload, keys, starts, cluster=settings.name, scheduler=scheduler, capacity=capacity)


def distances(starts: pl.DataFrame) -> pl.DataFrame:
    """How far the simulated waits of `simulated_starts` are from the recorded ones: figure, value."""
    from simulator.metrics import wait_distance

    both = starts.drop_nulls(["recorded_wait_s", "simulated_wait_s"])
    figures = wait_distance(both["simulated_wait_s"].to_numpy(), both["recorded_wait_s"].to_numpy())
    return pl.DataFrame(list(figures.items()), schema=("figure", "value"), orient="row")


def calibrate(data: DataFolder, settings: ClusterSettings) -> Calibration:
    """Every month of `months_to_judge`, calibrated on what came before it; no rows where there is none."""
    from simulator.recorded.study import study

    record, months = months_to_judge(data, settings)
    every = extent.MECHANISMS_EVERY if months and months[-1].is_near else MECHANISMS_EVERY
    return study(record, settings.name, months, mechanisms_every=every)


def months_to_judge(data: DataFolder, settings: ClusterSettings) -> tuple[Record, list[Month]]:
    """The record that calibration reads and the months that it judges; of a long one see `models.study.extent`."""
    from simulator.recorded.judge import months

    from_s = extent.first_calibrated_s(data, settings.name)
    record = read_record(data, settings.name, from_s)
    declared_from_s = declared_dates(settings).fit_from_s
    if from_s is None:
        return record, months(record, declared_from_s)
    newest = months(record, max(from_s, declared_from_s or 0))[-extent.MOST_MONTHS :]
    counts = [int(np.count_nonzero(month.of(record))) for month in newest]
    return record, [
        replace(month, every=-(-count // extent.MOST_JUDGED), is_near=True)
        for month, count in zip(newest, counts, strict=True)
    ]


def what_if(data: DataFolder, settings: ClusterSettings) -> pl.DataFrame:
    """Rows of the table `what_if`: the trace replayed with one thing changed, once a change.

    The cluster has its declared nodes, else as many as were ever in use at once. Raises InputError for a cluster
    without jobs that ran.
    """
    from models.what_if.cluster import what_if as changed_replays

    workload, _keys = read_workload(data, settings.name)
    return changed_replays(workload, settings.name, settings.nodes)


def what_if_of_job(
    data: DataFolder, cluster: str, job_key: str, changes: list[Change] | None = None
) -> dict[str, Any] | None:
    """`models.what_if.job.what_if` of a job of the warehouse; None where the record cannot place it in a queue."""
    from models.what_if.job import what_if as changed_waits

    record = read_record(data, cluster)
    if job_key not in record.job_key:
        return None
    return changed_waits(record, job_key, eligible_s(data, cluster, job_key), changes)
