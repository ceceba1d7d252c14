"""The figures of the first page of four real logs, recomputed by SQL that shares no code with Baton."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import duckdb


class Log(NamedTuple):
    """What a person knows of a log before computing: the resource that it is about, whether it lacks what ended before
    its first end, its people's time zone, and how to count its machine."""

    resource: str
    is_cut: bool
    zone: str
    nodes: str
    capacity: str


_MACHINES = "FROM read_csv(getvariable('traces') || '/openb/openb_node_list_gpu_node.csv.gz')"
LOGS = {
    "a100": Log("GPU", True, "America/Chicago", "SELECT 80", "SELECT 80 * 3"),
    "theta": Log("node", False, "UTC", "SELECT 4360", "SELECT 4360"),
    "pozidriv": Log("core", True, "UTC", "SELECT count(*) FROM node", "SELECT sum(cores) FROM node"),
    "openb": Log("GPU", True, "UTC", f"SELECT count(*) {_MACHINES}", f"SELECT sum(gpu) {_MACHINES}"),
}

# Name of a figure -> the statement that computes it from the views of `first_page.sql`. Durations in s, shares in 0..1.
FROM_RAW = {
    "jobs": "SELECT count(*) FROM job",
    "users": "SELECT count(DISTINCT user_name) FROM job",
    "started": "SELECT count(*) FROM run",
    "first": "SELECT strftime(make_timestamp(min(submit) * 1000000), '%Y-%m-%d') FROM job",
    "last": "SELECT strftime(make_timestamp(max(greatest(submit, start, stop)) * 1000000), '%Y-%m-%d') FROM job",
    "shown_since": "SELECT strftime(make_timestamp(since * 1000000), '%Y-%m-%d') FROM shown",
    "median_wait": "SELECT quantile_cont(wait, 0.5) FROM run",
    "p95_wait": "SELECT quantile_cont(wait, 0.95) FROM run",
    "mean_wait": "SELECT avg(wait) FROM run",
    "waited": "SELECT sum(wait) FROM run",
    "completed": """SELECT sum(held * (stop - start)) FILTER (completed) / sum(held * (stop - start)) FROM run
        WHERE completed IS NOT NULL""",
    "known_ends": "SELECT count(completed) FROM job",
    "waiting_user": "SELECT name FROM waiting_user",
    "waiting_users_share": "SELECT waited / (SELECT sum(wait) FROM run) FROM waiting_user",
    "waiting_users_jobs": "SELECT jobs / (SELECT count(*) FROM run) FROM waiting_user",
    "waiting_pool": "SELECT name FROM waiting_pool",
    "waiting_pools_share": "SELECT waited / (SELECT sum(wait) FROM run) FROM waiting_pool",
    "holder": "SELECT name FROM holder",
    "holders_share": "SELECT held / (SELECT sum(held * (stop - start)) FROM run) FROM holder",
    "size_mean": "SELECT mean FROM pattern WHERE kind = 'size'",
    "size": "SELECT value FROM pattern WHERE kind = 'size'",
    "hour_mean": "SELECT mean FROM pattern WHERE kind = 'hour'",
    "hour": "SELECT lpad(value, 2, '0') || ':00' FROM pattern WHERE kind = 'hour'",
    "hour_end": "SELECT lpad(value, 2, '0') || ':59' FROM pattern WHERE kind = 'hour'",
    # of a log that is cut: how many of the runs that began before its first end should have ended before it
    "missing_ends": """SELECT sum(shorter) FROM (SELECT (SELECT avg((r.stop - r.start < first_end - early.start)::INT)
        FROM run AS r WHERE r.stop > r.start) AS shorter FROM run AS early, shown WHERE early.start < first_end)""",
    "most_nodes": """SELECT max(nodes) FROM (SELECT sum(change) OVER (ORDER BY t) AS nodes FROM (
        SELECT t, sum(n) AS change
        FROM (SELECT start AS t, nodes AS n FROM run UNION ALL SELECT stop, -nodes FROM run) GROUP BY t))""",
}  # fmt: skip


class Raw:
    """The raw logs below `traces`, in an in-memory DuckDB."""

    def __init__(self, traces: Path) -> None:
        self.database = duckdb.connect()
        self.database.execute("SET VARIABLE traces = $1", [str(traces)])
        self.database.execute(Path(__file__).with_name("first_page.sql").read_text())

    def figure(self, log: str, name: str) -> str | float | None:
        """Figure `name` of one log: of FROM_RAW, or `nodes`, `capacity` and `in_use` of its machine."""
        of = LOGS[log]
        for variable, value in (("log", log), ("resource", of.resource), ("is_cut", of.is_cut), ("zone", of.zone)):
            self.database.execute(f"SET VARIABLE {variable} = $1", [value])
        machine = {
            "nodes": of.nodes, "capacity": of.capacity, "in_use": f"SELECT mean / ({of.capacity}) FROM in_use",
        }  # fmt: skip
        (found,) = self.database.execute((FROM_RAW | machine)[name]).fetchone() or (None,)
        return found if found is None or isinstance(found, str) else float(found)


# The causes of `queueing_delay`, largest first: its seconds, the jobs that waited mostly for it (of equal causes of a
# job the one that is asked first), its share of all waiting, and the largest share of it in the jobs of one user.
_IN_ORDER = (
    "held_s", "dependency_s", "own_jobs_s", "array_limit_s", "own_limit_s", "cluster_full_s", "nodes_down_s",
    "fragmented_s", "reservation_s", "behind_s", "unknown_s",
)  # fmt: skip
CAUSES = f"""
WITH parts AS (
    UNPIVOT (SELECT job_key, user_name, {", ".join(_IN_ORDER)} FROM queueing_delay WHERE wait_s IS NOT NULL)
    ON {", ".join(_IN_ORDER)} INTO NAME cause VALUE seconds
), ranked AS (
    SELECT *, seconds > 0 AND row_number() OVER (
        PARTITION BY job_key ORDER BY seconds DESC, list_position({list(_IN_ORDER)}, cause)) = 1 AS is_main
    FROM parts
), by_user AS (
    SELECT cause, sum(seconds) AS seconds FROM parts WHERE user_name IS NOT NULL GROUP BY cause, user_name
)
SELECT cause, sum(seconds) AS seconds, count(*) FILTER (is_main) AS jobs,
    sum(seconds) / (SELECT sum(seconds) FROM parts) AS share,
    (SELECT max(u.seconds) FROM by_user AS u WHERE u.cause = r.cause) / nullif(sum(seconds), 0) AS users_share
FROM ranked AS r GROUP BY cause ORDER BY seconds DESC
"""
