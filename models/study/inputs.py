"""Read a study's inputs from the warehouse and a cluster's settings, or explain why they are insufficient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from features.resources.capacity import nodes_shown
from features.resources.usage import runs
from features.trace import read_trace
from models.study.as_of import RAN, RAN_OR_OPEN, jobs_as_of
from models.study.windows import DeclaredDates
from simulator.workload import Workload, workload_of
from traces import instants
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.errors import InputError
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import HOUR_S

if TYPE_CHECKING:
    from simulator.recorded.record import RecordedTrace

UNKNOWN_LIMIT_S = 48 * HOUR_S  # limit of jobs in a cluster without any time limit
GOES_ON_S = HOUR_S  # a user who continues a cut job submits the next one at most this long after its end
_NODES = (
    """CASE WHEN allocated_nodes > 0 THEN allocated_nodes WHEN requested_nodes > 0 THEN requested_nodes ELSE 1 END"""
)
_WORKLOAD = (
    "job_key", "job_id", "job_id_raw", "array_job_id", "array_task_id", "submit_utc", "start_utc", "run_s",
    "allocated_nodes", "requested_nodes", "is_open",
)  # fmt: skip
_RECORD = (*_WORKLOAD, "end_utc", "user_name", "priority", "job_name")


def declared_dates(settings: ClusterSettings) -> DeclaredDates:
    """The dates at which the cluster's settings divide its trace, as epoch seconds."""
    dates = (settings.fit_from, settings.fit_until, settings.select_until, settings.report_until)
    return DeclaredDates(*(None if date is None else instants.epoch_s(date) for date in dates))


def why_no_plan(data: DataFolder, cluster: str) -> str | None:
    """Explain in one sentence why nothing can be planned with the cluster's jobs; None if it can.

    Without time limits no job needs a successor, and without submissions the waits are unknown.
    """
    counts = warehouse.read(
        data,
        "SELECT count(*) AS jobs, count(submit_utc) AS submits, count(limit_s) AS limits, "
        "count(*) FILTER (submit_utc IS NOT NULL AND start_utc IS NOT NULL AND run_s > 0) AS ran "
        "FROM jobs WHERE cluster = ?",
        (cluster,),
    ).row(0, named=True)
    if not counts["jobs"]:
        return f"the trace of cluster {cluster!r} holds no jobs"
    if not counts["submits"]:
        return f"the log of cluster {cluster!r} does not record submissions, so waits are unknown"
    if not counts["limits"]:
        return f"no job of cluster {cluster!r} has a time limit, so none needs a successor"
    if not counts["ran"]:
        return f"none of the {counted(counts['jobs'], 'job')} of cluster {cluster!r} ran and ended"
    return None


def why_not_replayed(data: DataFolder, settings: ClusterSettings) -> str | None:
    """Explain in one sentence why the trace cannot be replayed on the cluster's nodes; None if it can."""
    if why := why_no_plan(data, settings.name):
        return why
    if settings.nodes is None:
        trace = read_trace(data, settings.name, by_node=True)
        return (
            f"the number of nodes of cluster {settings.name!r} is unknown (the log shows "
            f"{nodes_shown(trace, runs(trace, settings)):,}): give --nodes, or set nodes in clusters.toml"
        )
    try:
        capacity_of(data, settings)
    except InputError as error:
        return str(error)
    return None


def read_workload(
    data: DataFolder, cluster: str, from_s: int | None = None, until_s: int | None = None
) -> tuple[Workload, pl.Series]:
    """Read the cluster's jobs that ran, and their keys; with `from_s` (epoch s), only those submitted from then on.

    With `until_s` (epoch s), read only what a dump taken then would hold. The jobs that were running or pending then
    are included and run to their limit (docs/decisions/0021). A job without a limit gets the longest limit of its
    partition, as Slurm gives it the partition's. Raises InputError if no job ever ran.
    """
    frame, longest_s = read_jobs(data, cluster, _WORKLOAD, from_s, until_s, RAN_OR_OPEN)
    if frame.is_empty() and until_s is None:
        first = warehouse.read(
            data, "SELECT * FROM jobs WHERE cluster = ? ORDER BY submit_utc, job_key LIMIT 1", (cluster,)
        )
        if first.is_empty():
            raise InputError(f"cluster {cluster!r} has no jobs in {data.warehouse}; ingest its raw files first")
        jobs = warehouse.read(data, "SELECT count(*) FROM jobs WHERE cluster = ?", (cluster,)).item()
        line = _line_of(data, first.row(0, named=True))
        raise InputError(f"{line}: none of the {counted(jobs, 'job')} of cluster {cluster!r} ran and ended")
    return workload_of(frame, default_limit_s=longest_s)


def read_record(data: DataFolder, cluster: str, from_s: int | None = None, until_s: int | None = None) -> RecordedTrace:
    """Read the cluster's jobs for calibration, including those cancelled in the queue; otherwise as `read_workload`.

    With `until_s` the jobs that were running or pending then have no end, and the pending ones no start.
    """
    from simulator.recorded.record import record_of

    frame, longest_s = read_jobs(data, cluster, _RECORD, from_s, until_s)
    return record_of(frame, default_limit_s=longest_s)


def cut_by_limit(data: DataFolder, cluster: str, least_limit_s: int, until_s: int | None = None) -> pl.DataFrame:
    """Find the jobs that the log shows cut by a limit of at least so many seconds, and each one's continuation.

    With `until_s` (epoch s), use what a dump taken then shows.

    Columns: job_key, submit_s and end_s (epoch s), next_job_key. The next job is the one that the same user submitted
    next under the same name for as many nodes. It counts only if it was submitted while this one ran or at most
    GOES_ON_S after its end, and started after that end; else the key is null, because jobs that run side by side are
    not a chain. Rows are in order of (submit_s, job_key).
    """
    return warehouse.read(
        data,
        f"""WITH ran AS (
            SELECT job_key, job_id_raw, state, limit_s, user_name, job_name, {_NODES} AS nodes,
                epoch(submit_utc)::BIGINT AS submit_s, epoch(start_utc)::BIGINT AS start_s,
                epoch(end_utc)::BIGINT AS end_s
            FROM ({jobs_as_of(until_s)}) WHERE cluster = ? AND {RAN_OR_OPEN}),
        followed AS (
            SELECT *, lead(job_key) OVER following AS next_key, lead(submit_s) OVER following AS next_submit_s,
                lead(start_s) OVER following AS next_start_s
            FROM ran
            WINDOW following AS (PARTITION BY user_name, job_name, nodes ORDER BY submit_s, job_id_raw, job_key))
        SELECT job_key, submit_s, end_s,
            CASE WHEN user_name IS NOT NULL AND job_name IS NOT NULL AND next_submit_s > start_s
                AND next_submit_s <= end_s + {GOES_ON_S} AND coalesce(next_start_s >= end_s, true)
                THEN next_key END AS next_job_key
        FROM followed WHERE state = 'TIMEOUT' AND end_s IS NOT NULL AND limit_s >= ? ORDER BY submit_s, job_key""",  # noqa: S608 - our own names
        (cluster, least_limit_s),
    )


def eligible_s(data: DataFolder, cluster: str, job_key: str) -> int | None:
    """When the job became eligible, epoch s, if that was between its submission and its start; else None."""
    eligible = warehouse.read(
        data,
        "SELECT CAST(epoch(eligible_utc) AS BIGINT) FROM jobs WHERE cluster = ? AND job_key = ? AND "
        "eligible_utc > submit_utc AND eligible_utc <= coalesce(start_utc, end_utc)",
        [cluster, job_key],
    )
    return None if eligible.is_empty() else int(eligible.item())


def capacity_of(data: DataFolder, settings: ClusterSettings, override: int | None = None) -> int:
    """Nodes of the simulated cluster. Raises InputError if unknown, or smaller than the largest job that ran."""
    capacity = override or settings.nodes
    if capacity is None:
        raise InputError(f"cluster {settings.name!r} declares no nodes; set nodes in clusters.toml, or give --capacity")
    largest = warehouse.read(
        data,
        f"SELECT *, {_NODES} AS nodes FROM jobs WHERE cluster = ? AND {RAN} AND {_NODES} > ? "  # noqa: S608 - ours
        "ORDER BY nodes DESC, submit_utc, job_id_raw, job_key LIMIT 1",
        (settings.name, capacity),
    )
    for job in largest.iter_rows(named=True):
        raise InputError(
            f"{_line_of(data, job)}: job {job['job_id']!r} ran on {counted(job['nodes'], 'node')}, but cluster "
            f"{settings.name!r} has {capacity}; correct nodes in clusters.toml, or give --nodes (--capacity)"
        )
    return capacity


def read_jobs(
    data: DataFolder,
    cluster: str,
    columns: Sequence[str],
    from_s: int | None,
    until_s: int | None,
    condition: str = "true",
) -> tuple[pl.DataFrame, int]:
    """Read columns and `limit_s` of the cluster's jobs as known before `until_s`; also the default limit, s.

    The default is for jobs in a partition without any known limit.
    """
    since = "true" if from_s is None else f"submit_utc >= make_timestamp({int(from_s) * 1_000_000})"
    frame = warehouse.read(
        data,
        f"WITH known AS ({jobs_as_of(until_s)} AND cluster = ?), "  # noqa: S608 - our own names
        "longest AS (SELECT partition, max(limit_s) AS most_s FROM known GROUP BY partition) "
        f"SELECT {', '.join(f'known.{name}' for name in columns)}, coalesce(limit_s, most_s) AS limit_s, "
        "(SELECT max(most_s) FROM longest) AS longest_s "
        "FROM known JOIN longest ON longest.partition IS NOT DISTINCT FROM known.partition "
        f"WHERE {condition} AND {since}",
        (cluster,),
    )
    longest_s = next(iter(frame["longest_s"]), None)
    return frame.drop("longest_s"), UNKNOWN_LIMIT_S if longest_s is None else int(longest_s)


def _line_of(data: DataFolder, job: dict[str, object]) -> str:
    """file:line of a job's newest record."""
    files = warehouse.read(data, "SELECT path FROM trace_files WHERE sha256 = ?", (str(job["trace_sha256"]),))
    return f"{files['path'][0] if len(files) else 'trace'}:{job['line']}"
