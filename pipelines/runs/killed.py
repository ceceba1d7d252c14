"""Dagster's runs whose process was killed: Dagster itself takes them for running, and its queue of one waits for ever.

A run is at work in the instance's folder while it has its resources (`assets.resources`). Where nobody is, what the
instance takes for running is dead.
"""

from __future__ import annotations

import time

import dagster as dg

from traces.files.presence import nobody_at_work
from traces.store.folder import DataFolder

GRACE_S = 300  # without news of it, before a run counts as dead: it is launched before it has its resources
OPEN = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def settle(instance: dg.DagsterInstance, data: DataFolder) -> list[str]:
    """Fails the runs of processes that are no more; returns their ids."""
    quiet = [
        record.dagster_run
        for record in instance.get_run_records(dg.RunsFilter(statuses=OPEN))
        if record.update_timestamp.timestamp() < time.time() - GRACE_S
    ]
    if not quiet or not data.dagster.is_dir():
        return []
    with nobody_at_work(data.dagster) as is_so:
        dead = quiet if is_so else []
        for run in dead:
            instance.report_run_failed(run, "the process of this run was killed before it could say what became of it")
    return [run.run_id for run in dead]
