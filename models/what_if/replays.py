"""Replay the trace of one cluster as it was: make a table of the starts, and compare it with the record."""

from __future__ import annotations

import polars as pl

from models.study.inputs import capacity_of, read_workload
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder


def replay(data: DataFolder, settings: ClusterSettings, scheduler: str) -> pl.DataFrame:
    """Make the rows of `simulated_starts`: every job that ran, started by `scheduler` on the declared nodes."""
    from simulator.flat.replay import simulate
    from simulator.tables import simulated_starts

    capacity = capacity_of(data, settings)
    workload, keys = read_workload(data, settings.name)
    starts = simulate(workload, scheduler=scheduler, capacity=capacity)
    return simulated_starts(workload, keys, starts, cluster=settings.name, scheduler=scheduler, capacity=capacity)


def distances(starts: pl.DataFrame) -> pl.DataFrame:
    """Compare the simulated waits of `simulated_starts` with the recorded ones: figure, value."""
    from simulator.metrics import wait_distance

    both = starts.drop_nulls(["recorded_wait_s", "simulated_wait_s"])
    figures = wait_distance(both["simulated_wait_s"].to_numpy(), both["recorded_wait_s"].to_numpy())
    return pl.DataFrame(list(figures.items()), schema=("figure", "value"), orient="row")
