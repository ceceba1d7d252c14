"""Materialize the jobs `analytics` and `whole_pipeline` for one cluster, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.whole_runs.raw_logs import RawLogs, Reading
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from dagster import AssetSelection


def analyse(folder: DataFolder, logs: RawLogs, reading: Reading, *, with_report: bool) -> None:
    """Build the warehouse, the analytics and, with `with_report`, the report. Raises what the failing asset raised.

    The report covers all clusters. When several clusters run in turn, only the last run makes it.
    """
    from pipelines.jobs import ANALYTICS, REPORT

    _materialize(folder, logs, reading, "analytics", ANALYTICS if with_report else ANALYTICS - REPORT)


def learn(folder: DataFolder, logs: RawLogs, reading: Reading, *, with_report: bool) -> None:
    """Simulate pairs, train, compare, release, and write the report again. Call it after `analyse`; same errors."""
    from pipelines.jobs import POLICIES, REPORT

    _materialize(folder, logs, reading, "whole_pipeline", POLICIES if with_report else POLICIES - REPORT)


def _materialize(folder: DataFolder, logs: RawLogs, reading: Reading, job: str, chosen: AssetSelection) -> None:
    from dagster import DagsterExecutionInterruptedError

    from assets.shared.resources import CLUSTERS, Baton
    from pipelines.definitions import build_defs
    from pipelines.runs.declared import run_tags
    from pipelines.runs.home import attribute_runs, instance_of

    name = logs.settings.name
    paths = [str(path) for path in logs.paths]
    baton = Baton(data=str(folder.root), cluster=name, raw=paths, **reading.flags, **reading.of_text)
    defs = build_defs({"baton": baton})
    try:
        with instance_of(folder) as instance:
            instance.add_dynamic_partitions(str(CLUSTERS.name), [name])
            attribute_runs(instance, job)
            defs.resolve_job_def(job).execute_in_process(
                instance=instance,
                asset_selection=list(chosen.resolve(defs.resolve_asset_graph())),
                partition_key=name,
                run_config={"loggers": {"progress": {}}},
                tags=run_tags(folder),
            )
    except DagsterExecutionInterruptedError:
        # Dagster turns Ctrl-C into its own exception, which our callers do not know.
        raise KeyboardInterrupt from None
