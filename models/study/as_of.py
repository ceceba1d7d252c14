"""SQL for the canonical jobs as a dump at an instant would hold them: what a fit until then may know."""

from __future__ import annotations

RAN = "submit_utc IS NOT NULL AND start_utc IS NOT NULL AND run_s > 0"
RAN_OR_OPEN = f"(({RAN}) OR is_open)"  # for the rows of `jobs_as_of`

_OPEN = "('PENDING', 'RUNNING', 'SUSPENDED')"  # states of jobs that had not ended when the log was taken
# A log without ends records run times. For a job that was still running, the run time gives no end.
END = f"coalesce(end_utc, CASE WHEN state_is_inferred OR state NOT IN {_OPEN} THEN start_utc + to_seconds(run_s) END)"


def jobs_as_of(until_s: int | None) -> str:
    """SELECT of `jobs` with a column `is_open`, as they were known before `until_s` (epoch s; None: no bound).

    Jobs submitted from then on are left out. A job that had not started has no start and holds no nodes. One that had
    not ended has no end and no run time, and is open. The requested nodes and time count as known from the submission
    on, because a log does not record later changes of a request.
    """
    if until_s is None:
        return "SELECT *, false AS is_open FROM jobs WHERE true"
    now = f"make_timestamp({int(until_s) * 1_000_000})"
    started = f"start_utc < {now}"
    ended = f"coalesce({END} < {now}, state NOT IN {_OPEN} AND coalesce({started}, true))"
    return (
        f"SELECT * REPLACE (CASE WHEN {started} THEN start_utc END AS start_utc, CASE WHEN {ended} THEN end_utc END AS "  # noqa: S608 - our own words
        f"end_utc, CASE WHEN {ended} THEN run_s END AS run_s, CASE WHEN {started} THEN allocated_nodes END AS "
        f"allocated_nodes), NOT {ended} AS is_open FROM jobs WHERE submit_utc < {now}"
    )


def attempts_as_of(until_s: int | None) -> str:
    """SELECT of `attempts` as they were known before `until_s` (epoch s; None: no bound).

    A run that was queued later is left out. One that had not started has no start; one that had not ended has no end
    and is still running.
    """
    if until_s is None:
        return "SELECT * FROM attempts WHERE true"
    now = f"make_timestamp({int(until_s) * 1_000_000})"
    started = f"start_utc < {now}"
    ended = f"coalesce(end_utc, start_utc + to_seconds(run_s)) < {now}"
    columns = [f"CASE WHEN {started} THEN {name} END AS {name}" for name in ("start_utc", "nodes", "gpus")]
    columns += [f"CASE WHEN {ended} THEN {name} END AS {name}" for name in ("end_utc", "run_s")]
    columns.append(f"CASE WHEN {ended} THEN state ELSE 'RUNNING' END AS state")
    return (
        f"SELECT * REPLACE ({', '.join(columns)}) FROM attempts "  # noqa: S608 - our own words
        f"WHERE (attempt = 0 OR submit_utc < {now})"
    )
