"""Materialize the jobs `analytics` and `whole_pipeline` for the clusters of one command.

The clusters follow each other in this process. If `[dagster] at_once` of deployment.toml allows more than one, that
many run at once, each in a process of its own whose messages begin with the cluster's name. The report covers all
clusters and is written once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stderr
from multiprocessing import get_context
from typing import TYPE_CHECKING, Literal

from models.child import end_with_parent
from models.deployment import read_deployment
from pipelines.process.terminal import LabelledStream
from pipelines.whole_runs.raw_logs import STANDARD_INPUT, RawLogs, Reading
from traces.errors import WorkError
from traces.progress import say
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from dagster import AssetSelection

Job = Literal["analytics", "whole_pipeline"]
Part = Literal["tables", "report", "tables and report"]


def materialize(
    folder: DataFolder, logs: Sequence[RawLogs], reading: Reading, job: Job
) -> Iterator[tuple[str, Exception | None]]:
    """Materialize `job` for each cluster; yield the cluster's name and what the failing asset raised, if one failed.

    `analytics` makes the warehouse, the analytics and the report. After it, `whole_pipeline` simulates pairs, trains,
    compares, releases, and writes the report again.
    """
    at_once = min(read_deployment(folder.root).dagster.at_once, len(logs))
    if at_once < 2 or any(STANDARD_INPUT in log.paths for log in logs):  # only this process has the standard input
        for log in logs:
            part: Part = "tables and report" if log is logs[-1] else "tables"
            yield log.settings.name, _error(folder, log, reading, job, part)
        return
    with ProcessPoolExecutor(at_once, get_context("spawn"), initializer=end_with_parent) as pool:
        made = [pool.submit(_in_child, folder, log, reading, job) for log in logs]
        for log, future in zip(logs, made, strict=True):
            try:
                error = future.result()
            except BrokenProcessPool:
                error = WorkError("the process of a cluster was killed; memory may have run out; run again to resume")
            yield log.settings.name, error
    yield logs[-1].settings.name, _error(folder, logs[-1], reading, job, "report")


def _in_child(folder: DataFolder, log: RawLogs, reading: Reading, job: Job) -> Exception | None:
    # A copy of the descriptor, because Dagster redirects it while steps run.
    with (
        open(os.dup(2), "w", encoding="utf-8", errors="backslashreplace") as stream,
        redirect_stderr(LabelledStream(stream, f"{log.settings.name}: ")),
    ):
        return _error(folder, log, reading, job, "tables")


def _error(folder: DataFolder, log: RawLogs, reading: Reading, job: Job, part: Part) -> Exception | None:
    name = log.settings.name
    if part == "report":
        say("report of all clusters")
    elif job == "analytics":
        say(f"cluster {name}: {', '.join(map(str, log.paths)) or 'logs already read'}")
    else:
        say(f"policies of cluster {name}")
    try:
        _execute(folder, log, reading, job, part)
    except Exception as error:
        return error
    return None


def _selected(job: Job, part: Part) -> AssetSelection:
    from pipelines.jobs import ANALYTICS, POLICIES, REPORT

    whole = ANALYTICS if job == "analytics" else POLICIES
    return {"tables": whole - REPORT, "report": whole & REPORT, "tables and report": whole}[part]


def _execute(folder: DataFolder, log: RawLogs, reading: Reading, job: Job, part: Part) -> None:
    from dagster import DagsterExecutionInterruptedError

    from assets.shared.resources import CLUSTERS, Baton
    from pipelines.definitions import build_defs
    from pipelines.runs.declared import run_tags
    from pipelines.runs.home import attribute_runs, instance_of

    name = log.settings.name
    paths = [str(path) for path in log.paths]
    baton = Baton(data=str(folder.root), cluster=name, raw=paths, **reading.flags, **reading.of_text)
    defs = build_defs({"baton": baton})
    try:
        with instance_of(folder) as instance:
            instance.add_dynamic_partitions(str(CLUSTERS.name), [name])
            attribute_runs(instance, job)
            defs.resolve_job_def(job).execute_in_process(
                instance=instance,
                asset_selection=list(_selected(job, part).resolve(defs.resolve_asset_graph())),
                partition_key=name,
                run_config={"loggers": {"progress": {}}},
                tags=run_tags(folder),
            )
    except DagsterExecutionInterruptedError:
        # Dagster turns Ctrl-C into its own exception, which our callers do not know.
        raise KeyboardInterrupt from None
