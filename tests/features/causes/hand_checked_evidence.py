"""The figures that `hand_checked.toml` quotes, recomputed from the raw logs by SQL that shares no code with Baton."""

from __future__ import annotations

from pathlib import Path

import duckdb

# Name of a figure -> the statement that computes it for one job, over the views of `hand_checked.sql`.
# Those that end in _s are seconds; `idle_nodes_s` and `own_node_share` are summed over nodes.
FIGURES = {
    "wait_s": "SELECT start - submit FROM job",
    "held_s": "SELECT eligible - submit FROM job",
    # whole nodes of a declared machine
    "least_free": "SELECT min(free) FROM steps",
    "most_busy": "SELECT max(busy) FROM steps",
    "too_full_s": "SELECT coalesce(sum(seconds), 0) FROM steps WHERE free < (SELECT size FROM job)",
    "in_service": "SELECT nodes FROM service",
    "out_of_service_s": """SELECT coalesce(sum(seconds), 0) FROM steps, service, job
        WHERE free >= size AND service.nodes - busy < size""",
    "nearly_empty_s": """SELECT coalesce(sum(seconds), 0) FROM steps
        WHERE free >= 0.9 * (SELECT nodes FROM declared WHERE log = getvariable('log'))""",
    # other jobs
    "no_start_s": """WITH moments AS (
            SELECT o.start AS t FROM job AS j JOIN jobs AS o ON o.log = j.log AND o.start BETWEEN j.submit AND j.start
            UNION SELECT submit FROM job
        ) SELECT max(gap) FROM (SELECT lead(t) OVER (ORDER BY t) - t AS gap FROM moments)""",
    "started_meanwhile": """SELECT count(*) FROM job AS j JOIN jobs AS o
        ON o.log = j.log AND o.start >= j.submit AND o.start < j.start""",
    "overtaken_by": "SELECT count(*) FROM overtaking",
    "overtaken_by_as_large": "SELECT count(*) FROM overtaking WHERE large",
    "overtaken_on_its_nodes": """SELECT count(DISTINCT o.id) FROM job AS j JOIN placed AS o
        ON o.submit > j.submit AND o.start < j.start AND o.user_name <> j.user_name AND o.size >= j.size
        JOIN usable USING (node)""",
    # the user's own jobs
    "after_own_s": "SELECT min(before_start_s) FROM chain",
    "submitted_together": """SELECT count(*) FROM job AS j JOIN jobs AS o
        ON o.log = j.log AND o.user_name = j.user_name AND o.stem = j.stem AND abs(o.submit - j.submit) <= 5""",
    "own_most": "SELECT coalesce(max(jobs), 0) FROM own",
    "own_least": "SELECT coalesce(min(jobs), 0) FROM own",
    "own_running_s": "SELECT coalesce(sum(seconds), 0) FROM own WHERE jobs >= 1",
    "own_at_8_s": "SELECT coalesce(sum(seconds), 0) FROM own WHERE jobs >= 8",
    "own_queue": """SELECT count(*) FROM job AS j JOIN jobs AS o ON o.log = j.log AND o.user_name = j.user_name
        AND o.pool = j.pool AND o.submit < j.submit AND o.start > j.submit""",
    # nodes by name, shared by cores
    "before_record_s": "SELECT since - submit FROM recorded",
    "usable_nodes": "SELECT count(*) FROM usable",
    "idle_nodes_s": "SELECT coalesce(sum(seconds), 0) FROM room",
    "own_node_share": """SELECT round(sum(seconds) / ((SELECT count(*) FROM usable)
        * (SELECT start - since FROM recorded)), 2) FROM own_on_usable""",
    "after_node_s": "SELECT min(before_start_s) FROM left_node",
    "node_was_own": "SELECT arg_min(is_own, before_start_s)::INT FROM left_node",
    # pods: a machine without a pod is empty, and no more machines hold pods than pods run
    "gpus_busy": "SELECT round(max(busy), 1) FROM steps",
    "empty_machines": """SELECT (SELECT count(*) FROM machines AS m, job AS j
        WHERE m.gpus >= ceil(j.size) AND m.cpus >= j.cpus AND m.memory >= j.memory) - (SELECT max(jobs) FROM steps)""",
}


class Evidence:
    """The raw logs below `traces`, in an in-memory DuckDB."""

    def __init__(self, traces: Path) -> None:
        self.database = duckdb.connect()
        self.set(traces=str(traces))
        self.database.execute(Path(__file__).with_name("hand_checked.sql").read_text())

    def set(self, **variables: str) -> None:
        """Set variables of the database."""
        for name, value in variables.items():
            self.database.execute(f"SET VARIABLE {name} = $1", [value])

    def figure(self, name: str, log: str, job: str) -> float:
        """Figure `name` of FIGURES for one job; ValueError where the log has none."""
        self.set(log=log, id=job)
        found = self.database.execute(FIGURES[name]).fetchone()
        if found is None or found[0] is None:
            raise ValueError(f"{log} {job}: no {name} in the raw text")
        return float(found[0])

    def most_running(self, log: str) -> int:
        """The most jobs that any user of the log runs at once."""
        found = self.database.execute("SELECT max(jobs) FROM busy_of_user WHERE log = $1", [log]).fetchone()
        return int(found[0]) if found else 0
