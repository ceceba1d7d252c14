"""Combine the lake's files into the warehouse's tables, and keep the newest record of a job in several files.

- The rule documented at `schema.REQUEUE_WITHIN_S` decides which records of one id belong to the same job, across files
  as within one. If a file has no submissions, the start is used instead. A record without times belongs to the job
  before it.
- Attempts of a job are the union over its files. Those of one start come from one file, the newest. Attempts without
  times count only if no file has times.
- For a node in several machine lists, each column comes from the latest ingested list that has a value for it.

This module opens no connection; `traces.store.warehouse` passes one in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traces import schema
from traces.progress import Progress
from traces.store import raw_files
from traces.store.quoting import parquet, sql_text

if TYPE_CHECKING:
    import duckdb


def union(table: schema.Table, paths: Sequence[Path]) -> str:
    """Return a SELECT of the table's columns over the Parquet files; without files it returns no rows."""
    if not paths:
        columns = ", ".join(f'CAST(NULL AS {column.type}) AS "{column.name}"' for column in table.columns)
        return f"SELECT {columns} WHERE false"
    columns = ", ".join(f'"{name}"' for name in table.names)
    return f"SELECT {columns} FROM {parquet(*paths)}"  # noqa: S608


def create(connection: duckdb.DuckDBPyConnection, table: schema.Table, select: str) -> int:
    """Create the table from the SELECT, with the schema's comments; return its number of rows."""
    connection.execute(f'CREATE TABLE "{table.name}" AS {select}')
    connection.execute(f'COMMENT ON TABLE "{table.name}" IS {sql_text(table.meaning)}')
    for column in table.columns:
        meaning = f"{column.meaning} [{column.unit}]" if column.unit else column.meaning
        connection.execute(f'COMMENT ON COLUMN "{table.name}"."{column.name}" IS {sql_text(meaning)}')
    counted = connection.execute(f'SELECT count(*) FROM "{table.name}"').fetchone()  # noqa: S608
    return int(counted[0]) if counted else 0


def fill(
    connection: duckdb.DuckDBPyConnection,
    folders: Sequence[Path],
    derived: Mapping[str, tuple[schema.Table, Sequence[Path]]],
) -> dict[str, int]:
    """Create every canonical table from the lake's folders of raw files, and the derived ones from their Parquet files.

    Shows the progress in rows of the lake. Returns the number of rows of each table.
    """
    files = {
        table.name: [path for folder in folders if (path := folder / f"{table.name}.parquet").is_file()]
        for table in schema.CANONICAL
    } | {name: list(paths) for name, (_, paths) in derived.items()}
    lists = raw_files.by_ingest(path.parent for path in files[schema.NODES.name])
    files[schema.NODES.name] = [folder / f"{schema.NODES.name}.parquet" for folder in lists]
    held = {name: _rows(connection, paths) for name, paths in files.items()}
    rows: dict[str, int] = {}
    with Progress("building the warehouse", sum(held.values()), "rows", stays=False) as progress:
        progress.reach(0)
        selects = _canonical(connection, folders, {table.name: files[table.name] for table in schema.CANONICAL})
        selects |= {name: union(table, paths) for name, (table, paths) in derived.items()}
        for name, select in selects.items():
            rows[name] = create(connection, derived[name][0] if name in derived else schema.TABLES[name], select)
            progress.reach(sum(held[made] for made in rows))
    return rows


def _rows(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> int:
    """Return the number of rows of Parquet files, from their footers."""
    counted = connection.execute(f"SELECT count(*) FROM {parquet(*paths)}").fetchone() if paths else None  # noqa: S608
    return int(counted[0]) if counted else 0


def _canonical(
    connection: duckdb.DuckDBPyConnection, folders: Sequence[Path], files: Mapping[str, Sequence[Path]]
) -> dict[str, str]:
    """Return the SELECT of every canonical table, and make the temporary tables that several of them need."""
    raw = {name: union(schema.TABLES[name], paths) for name, paths in files.items()}
    for name in ("jobs", "attempts", "steps", "placements"):
        connection.execute(f"CREATE TEMP VIEW raw_{name} AS {raw[name]}")
    connection.execute(_SHARED)
    connection.execute(_SETTLED)
    connection.execute(_KEPT_ATTEMPTS)
    selects = dict(raw)
    selects["jobs"] = _JOBS
    selects["attempts"] = _select(schema.ATTEMPTS, "all_attempts", "kept")
    selects["steps"] = _STEPS
    selects["placements"] = _PLACEMENTS
    selects["nodes"] = _latest_nodes(files["nodes"])
    samples = {
        "gpu_utilization": "cluster, node, sample_utc, gpu",
        "cpu_utilization": "cluster, node, sample_utc",
        "memory_utilization": "cluster, node, sample_utc",
    }
    for name, key in samples.items():
        if sum((folder / f"{name}.parquet").is_file() for folder in folders) > 1:
            selects[name] = f"{raw[name]} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY trace_sha256) = 1"
    for table in (schema.AGENT_DECISIONS, schema.AGENT_EVENTS):
        selects[table.name] = _once(raw[table.name], table)
    columns = ", ".join(f't."{c}"' for c in schema.TRACE_FILES.names if c != "superseded")
    selects["trace_files"] = (
        f"SELECT {columns}, (SELECT count(*) FROM settled s WHERE s.cluster = t.cluster AND s.trace_sha256 = t.sha256 "  # noqa: S608
        f"AND NOT s.wins) AS superseded FROM ({raw['trace_files']}) t ORDER BY ALL"
    )
    selects["trace_files"] = _in_order(selects["trace_files"], schema.TRACE_FILES)
    return selects


def _in_order(select: str, table: schema.Table) -> str:
    columns = ", ".join(f'"{name}"' for name in table.names)
    return f"SELECT {columns} FROM ({select})"  # noqa: S608


def _latest_nodes(paths: Sequence[Path]) -> str:
    """Return a SELECT with one row per node: each column from the last list in `paths` that has a value.

    If the last list gives a node no GPUs, its GPU type and GPU memory are null, whatever an earlier list has.
    """
    if len(paths) < 2:
        return union(schema.NODES, paths)
    lists = [f"SELECT *, {n} AS rank FROM ({union(schema.NODES, [path])})" for n, path in enumerate(paths)]  # noqa: S608
    columns = []
    for name in schema.NODES.names:
        last = f'arg_max("{name}", rank)'
        if name in ("gpu_type", "gpu_mem_gb"):
            last = f"CASE WHEN arg_max(gpus, rank) > 0 THEN {last} END"
        columns.append(f'"{name}"' if name in schema.NODES.key else f'{last} AS "{name}"')
    rows = " UNION ALL ".join(lists)
    return f"SELECT {', '.join(columns)} FROM ({rows}) GROUP BY cluster, node ORDER BY cluster, node"  # noqa: S608


def _once(select: str, table: schema.Table) -> str:
    """Keep the first of equal lines in several files, because a log that grew repeats the lines of earlier copies."""
    content = ", ".join(f'"{name}"' for name in table.names if name not in (schema.FILE.name, schema.LINE.name))
    return f"{select} QUALIFY row_number() OVER (PARTITION BY {content} ORDER BY trace_sha256, line) = 1"


def _select(table: schema.Table, source: str, condition: str) -> str:
    columns = ", ".join(f'"{name}"' for name in table.names)
    return f"SELECT {columns} FROM {source} WHERE {condition}"  # noqa: S608


# Ids that are in more than one file. The part of a key after '@' distinguishes the uses of one id within a file.
_SHARED = """
CREATE TEMP TABLE shared AS
SELECT cluster, split_part(job_key, '@', 1) AS base
FROM raw_jobs GROUP BY ALL HAVING count(DISTINCT trace_sha256) > 1
"""

_SETTLED = f"""
CREATE TEMP TABLE settled AS
WITH records AS (
  SELECT j.cluster, j.trace_sha256, j.job_key, s.base, j.submit_utc, j.user_name,
         coalesce(j.submit_utc, j.start_utc) AS asked_utc, rtrim(j.job_name, '+') AS name,
         j.state, j.start_utc, j.end_utc, j.attempts, j.line, j.original_sluid, j.restarts,
         coalesce(j.end_utc, j.start_utc, j.submit_utc) AS last_utc
  FROM raw_jobs j JOIN shared s ON s.cluster = j.cluster AND s.base = split_part(j.job_key, '@', 1)
), after AS (
  SELECT *, lag(asked_utc) OVER w AS p_asked, lag(user_name) OVER w AS p_user, lag(name) OVER w AS p_name,
         lag(original_sluid) OVER w AS p_original, lag(restarts) OVER w AS p_restarts,
         max(last_utc) OVER (PARTITION BY cluster, base ORDER BY asked_utc, trace_sha256, line
                             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS p_last
  FROM records WINDOW w AS (PARTITION BY cluster, base ORDER BY asked_utc, trace_sha256, line)
), uses AS (
  SELECT *, sum(CASE
      WHEN p_last IS NULL OR asked_utc IS NULL OR asked_utc IS NOT DISTINCT FROM p_asked THEN 0
      WHEN original_sluid = p_original THEN 0
      WHEN original_sluid != p_original AND restarts = 0 THEN 1
      WHEN coalesce(user_name = p_user, true)
       AND coalesce(starts_with(name, p_name) OR starts_with(p_name, name), true)
       AND (asked_utc <= p_last + INTERVAL {schema.REQUEUE_WITHIN_S} SECOND OR coalesce(restarts > p_restarts, false))
      THEN 0
      ELSE 1 END)
    OVER (PARTITION BY cluster, base ORDER BY asked_utc, trace_sha256, line) AS use
  FROM after
), keyed AS (
  SELECT *, CASE WHEN max(use) OVER (PARTITION BY cluster, base) = 0 THEN base
    ELSE base || '@' || epoch(min(asked_utc) OVER (PARTITION BY cluster, base, use))::BIGINT END AS final_key
  FROM uses
)
SELECT cluster, trace_sha256, job_key, final_key,
  row_number() OVER (PARTITION BY cluster, final_key
    ORDER BY submit_utc DESC NULLS LAST, state IN ('PENDING', 'RUNNING', 'SUSPENDED'), end_utc DESC NULLS LAST,
             attempts DESC, trace_sha256, job_key) = 1 AS wins
FROM keyed
"""  # noqa: S608 - a number of ours

_KEPT_ATTEMPTS = """
CREATE TEMP TABLE all_attempts AS
WITH mapped AS (
  SELECT a.* REPLACE (coalesce(s.final_key, a.job_key) AS job_key), a.job_key AS file_key, a.attempt AS file_attempt,
         s.final_key IS NOT NULL AS is_shared, coalesce(s.wins, true) AS wins
  FROM raw_attempts a LEFT JOIN settled s USING (cluster, trace_sha256, job_key)
), ranked AS (
  SELECT *, NOT is_shared OR CASE WHEN coalesce(start_utc, submit_utc) IS NULL
    THEN wins AND NOT bool_or(start_utc IS NOT NULL) OVER (PARTITION BY cluster, job_key)
    ELSE trace_sha256 = first_value(trace_sha256) OVER (
      PARTITION BY cluster, job_key, coalesce(start_utc, submit_utc)
      ORDER BY end_utc DESC NULLS LAST, wins DESC, trace_sha256, attempt) END AS kept
  FROM mapped
)
SELECT * REPLACE (CASE WHEN is_shared THEN
    row_number() OVER (PARTITION BY cluster, job_key, kept ORDER BY start_utc NULLS LAST, attempt) - 1
    ELSE attempt END AS attempt)
FROM ranked
"""

_JOBS = """
WITH together AS (
  SELECT s.cluster, s.final_key, min(j.submit_utc) AS submit_utc, min(j.eligible_utc) AS eligible_utc,
         min(j.start_utc) AS start_utc
  FROM settled s JOIN raw_jobs j USING (cluster, trace_sha256, job_key) GROUP BY ALL
), runs AS (
  SELECT cluster, job_key AS final_key, count(*) AS attempts, sum(run_s)::BIGINT AS run_s,
         sum(gpu_time_s)::BIGINT AS gpu_time_s
  FROM all_attempts WHERE is_shared AND kept GROUP BY ALL
)
SELECT j.* REPLACE (
    coalesce(s.final_key, j.job_key) AS job_key,
    CASE WHEN s.final_key IS NULL THEN j.submit_utc ELSE t.submit_utc END AS submit_utc,
    CASE WHEN s.final_key IS NULL THEN j.eligible_utc ELSE t.eligible_utc END AS eligible_utc,
    CASE WHEN s.final_key IS NULL THEN j.start_utc ELSE t.start_utc END AS start_utc,
    coalesce(r.run_s, j.run_s) AS run_s,
    coalesce(r.gpu_time_s, j.gpu_time_s) AS gpu_time_s,
    coalesce(r.attempts, j.attempts) AS attempts,
    CASE WHEN s.final_key IS NULL THEN j.wait_s ELSE date_diff('second', t.submit_utc, t.start_utc) END AS wait_s,
    CASE WHEN s.final_key IS NULL THEN j.eligible_wait_s
         WHEN t.eligible_utc <= t.start_utc THEN date_diff('second', t.eligible_utc, t.start_utc)
         END AS eligible_wait_s)
FROM raw_jobs j
LEFT JOIN settled s USING (cluster, trace_sha256, job_key)
LEFT JOIN together t ON t.cluster = s.cluster AND t.final_key = s.final_key
LEFT JOIN runs r ON r.cluster = s.cluster AND r.final_key = s.final_key
WHERE coalesce(s.wins, true)
"""

_STEPS = """
WITH mapped AS (
  SELECT p.* REPLACE (coalesce(s.final_key, p.job_key) AS job_key), s.final_key IS NOT NULL AS is_shared
  FROM raw_steps p LEFT JOIN settled s USING (cluster, trace_sha256, job_key)
)
SELECT * EXCLUDE (is_shared) FROM mapped
QUALIFY NOT is_shared OR row_number() OVER (PARTITION BY cluster, job_key, step_id, start_utc
  ORDER BY end_utc DESC NULLS LAST, trace_sha256, line) = 1
"""

_PLACEMENTS = """
SELECT p.* REPLACE (a.job_key AS job_key, a.attempt AS attempt)
FROM raw_placements p JOIN all_attempts a ON a.cluster = p.cluster AND a.trace_sha256 = p.trace_sha256
  AND a.file_key = p.job_key AND a.file_attempt = p.attempt
WHERE a.kept
"""
