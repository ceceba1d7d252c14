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
    "shown_until": "SELECT strftime(make_timestamp(until * 1000000), '%Y-%m-%d') FROM shown",
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
    "missing_ends": """SELECT sum(shorter) FROM (
        SELECT (SELECT avg((stop - start < first_end - early.start)::INT) FROM run WHERE stop > start) AS shorter
        FROM run AS early, shown WHERE early.start < first_end)""",
    # nodes that were in use at once for an hour in all: ends and starts that overlap by seconds do not count
    "most_nodes": """WITH steps AS (
            SELECT sum(sum(n)) OVER (ORDER BY t) AS nodes, lead(t) OVER (ORDER BY t) - t AS s
            FROM (SELECT start AS t, nodes AS n FROM run UNION ALL SELECT stop, -nodes FROM run) GROUP BY t
        )
        SELECT max(nodes) FROM (SELECT nodes, sum(s) OVER (ORDER BY nodes DESC) AS at_least FROM steps)
        WHERE at_least >= 3600""",
}  # fmt: skip

# Name of a figure -> the statement for (week, figure of that week); {capacity} is the machine's.
_OF_SUBMISSION = "SELECT date_trunc('week', make_timestamp(j.submit * 1000000)) AS week, "
BY_WEEK = {
    "jobs": f"{_OF_SUBMISSION} count(*) FROM job AS j GROUP BY week",
    "median_wait": f"{_OF_SUBMISSION} quantile_cont(j.start - j.submit, 0.5) FROM job AS j GROUP BY week",
    "p95_wait": f"{_OF_SUBMISSION} quantile_cont(j.start - j.submit, 0.95) FROM job AS j GROUP BY week",
    "completed": f"""{_OF_SUBMISSION} sum(if(r.completed, held * (r.stop - r.start), 0))
            / nullif(sum(held * (r.stop - r.start)) FILTER (r.completed IS NOT NULL), 0)
        FROM job AS j LEFT JOIN run AS r USING (id) GROUP BY week""",
    "in_use": """WITH weeks AS (
            SELECT w AS week, greatest(since, epoch(w)::BIGINT) AS since,
                least(until, epoch(w)::BIGINT + 7 * 86400) AS until
            FROM shown, unnest(generate_series(date_trunc('week', make_timestamp(since * 1000000)),
                make_timestamp(until * 1000000), INTERVAL 7 DAY)) AS t (w)
        )
        SELECT week, sum(held * greatest(0, least(stop, until) - greatest(start, since)))
            / any_value((until - since) * ({capacity}))
        FROM weeks, run GROUP BY week""",
}  # fmt: skip


class Raw:
    """The raw logs below `traces`, in an in-memory DuckDB."""

    def __init__(self, traces: Path) -> None:
        self.database = duckdb.connect()
        self.database.execute("SET VARIABLE traces = $1", [str(traces)])
        self.database.execute(Path(__file__).with_name("first_page.sql").read_text())

    def _of(self, log: str) -> Log:
        of = LOGS[log]
        for variable, value in (("log", log), ("resource", of.resource), ("is_cut", of.is_cut), ("zone", of.zone)):
            self.database.execute(f"SET VARIABLE {variable} = $1", [value])
        return of

    def weeks(self, log: str, name: str) -> list[float | None]:
        """Figure `name` of BY_WEEK for each week, oldest first; null for a week of which nothing says it."""
        statement = BY_WEEK[name].format(capacity=self._of(log).capacity)
        return [value for _, value in sorted(self.database.execute(statement).fetchall())]

    def figure(self, log: str, name: str) -> str | float | None:
        """Figure `name` of one log: of FROM_RAW, or `nodes`, `capacity` and `in_use` of its machine."""
        of = self._of(log)
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
