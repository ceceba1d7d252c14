"""Mark Dagster runs as failed if their process was killed. Otherwise Dagster's queue, which runs one at a time, blocks.

While a run holds its resources (`assets.shared.resources`) it is registered as at work in the instance's folder. If no
process is registered there, the runs that the instance lists as running are dead.
"""

from __future__ import annotations

import time

import dagster as dg

from pipelines.runs.declared import run_tags
from traces.files.presence import nobody_at_work
from traces.store.folder import DataFolder

GRACE_S = 300  # without an event, before a run counts as dead: between two processes of a run nobody is at work
OPEN = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def settle(instance: dg.DagsterInstance, data: DataFolder) -> list[str]:
    """Mark the runs of processes that no longer exist as failed; return their ids.

    In an instance of the user's own, these are the runs of the command line on this data folder alone
    (`pipelines.runs.declared`). Dagster's run monitoring watches the runs that its daemon launched there.
    """
    quiet = [
        record.dagster_run
        for record in instance.get_run_records(dg.RunsFilter(statuses=OPEN, tags=run_tags(data)))
        if _last_s(instance, record) < time.time() - GRACE_S
    ]
    if not quiet or not data.dagster.is_dir():
        return []
    with nobody_at_work(data.dagster) as is_idle:
        dead = quiet if is_idle else []
        for run in dead:
            instance.report_run_failed(run, "the process of this run was killed before it reported a result")
    return [run.run_id for run in dead]


def _last_s(instance: dg.DagsterInstance, record: dg.RunRecord) -> float:
    """Return the time of the newest event of a run, s since 1970."""
    newest = instance.get_records_for_run(record.dagster_run.run_id, limit=1, ascending=False).records
    return max(record.update_timestamp.timestamp(), *(event.timestamp for event in newest), 0.0)
