"""Rules for the tables, each one SELECT of violations: keys, required columns, states, time order, conservation.

Where possible they are derived from the declarations in `traces.schema`. `assets.checks` runs them as Dagster checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from traces import schema
from traces.schema import Table
from traces.store.quoting import sql_name

STATES = ", ".join(f"'{state}'" for state in schema.STATES)


@dataclass(frozen=True)
class Rule:
    """One rule of one table. `sql` selects violations; `only_warns` marks rules that describe the log, not our work."""

    table: str
    name: str
    description: str
    sql: str
    only_warns: bool = False


def busy(held: str) -> str:
    """Return a SELECT of the instants at which more nodes are held than exist.

    `held` selects cluster, capacity, start_utc, end_utc, nodes. An end gives its nodes back before a start at the same
    instant takes them.
    """
    return f"""
        WITH held AS ({held}), events AS (
            SELECT cluster, capacity, start_utc AS at_utc, nodes AS change FROM held
            UNION ALL SELECT cluster, capacity, end_utc, -nodes FROM held
        ), in_use AS (
            SELECT *, sum(change) OVER (PARTITION BY cluster ORDER BY at_utc, change ROWS UNBOUNDED PRECEDING) AS nodes
            FROM events
        )
        SELECT cluster, at_utc, nodes, capacity FROM in_use WHERE nodes > capacity ORDER BY nodes DESC
    """  # noqa: S608 - our own SQL


def declared(table: Table) -> list[Rule]:
    """Return the rules that the declaration implies: unique keys, and no null in required columns."""
    required = [column.name for column in table.columns if not column.nullable]
    rules = [
        Rule(
            table.name,
            "required_columns",
            "No null in " + ", ".join(required),
            f"SELECT * FROM {table.name} WHERE " + " OR ".join(f"{sql_name(name)} IS NULL" for name in required),  # noqa: S608
        )
    ]
    if table.key:
        key = ", ".join(map(sql_name, table.key))
        rules.append(
            Rule(
                table.name,
                "unique_key",
                f"({', '.join(table.key)}) identifies a row",
                f"SELECT {key}, count(*) AS rows FROM {table.name} GROUP BY ALL HAVING count(*) > 1",  # noqa: S608
            )
        )
    return rules


def known_states(table: str) -> Rule:
    """Return the rule that every state of a table is one that the schema knows."""
    return Rule(
        table,
        "known_states",
        "Every state is one of schema.STATES",
        f"SELECT * FROM {table} WHERE state NOT IN ({STATES})",  # noqa: S608 - our own names
    )


def durations(table: Table) -> Rule:
    """Return the rule that no duration, count or amount is negative."""
    numbers = [c.name for c in table.columns if c.unit in ("s", "nodes", "GPUs", "CPUs", "GPU s", "jobs", "records")]
    return Rule(
        table.name,
        "not_negative",
        "No negative duration or amount",
        f"SELECT * FROM {table.name} WHERE least({', '.join(numbers)}) < 0",  # noqa: S608 - our own names
    )


# Machines with more GPUs in the log than in the machine list (such as Philly's m51: a job on 8, and 2 listed).
CONTRADICTED_NODES = """
    WITH held AS (
        SELECT cluster, node, max(greatest(coalesce(gpus, 0), coalesce(list_max(
                   list_transform(string_split(nullif(gpu_numbers, ''), ','), n -> n::INT)) + 1, 0))) AS by_jobs
        FROM placements GROUP BY ALL
    ), sampled AS (
        SELECT cluster, node, max(gpu) + 1 AS by_samples FROM gpu_utilization GROUP BY ALL
    )
    SELECT n.cluster, n.node, n.gpus AS listed, h.by_jobs, s.by_samples
    FROM nodes n LEFT JOIN held h USING (cluster, node) LEFT JOIN sampled s USING (cluster, node)
    WHERE greatest(coalesce(h.by_jobs, 0), coalesce(s.by_samples, 0)) > n.gpus
    ORDER BY ALL
"""

CANONICAL: tuple[Rule, ...] = (
    *(rule for table in schema.CANONICAL for rule in declared(table)),
    *(known_states(table) for table in ("jobs", "attempts", "steps")),
    *(durations(table) for table in (schema.JOBS, schema.ATTEMPTS, schema.TRACE_FILES)),
    Rule(
        "jobs",
        "time_order",
        "submit <= eligible <= start <= end, where the log holds them and no clock change makes them ambiguous",
        """SELECT * FROM jobs WHERE NOT is_time_ambiguous AND (
               submit_utc > eligible_utc OR submit_utc > start_utc
               OR eligible_utc > start_utc OR start_utc > end_utc)""",
    ),
    Rule(
        "attempts",
        "time_order",
        "start <= end, and no attempt starts before the previous one ended",
        """SELECT * FROM (
               SELECT *, lag(end_utc) OVER (PARTITION BY cluster, job_key ORDER BY attempt) AS before_utc FROM attempts
           ) WHERE start_utc > end_utc OR start_utc < before_utc""",
    ),
    Rule("steps", "time_order", "start <= end", "SELECT * FROM steps WHERE start_utc > end_utc"),
    Rule(
        "jobs",
        "attempts_counted",
        "jobs.attempts is the number of rows in attempts",
        """SELECT jobs.cluster, jobs.job_key, jobs.attempts, count(attempts.attempt) AS found
           FROM jobs LEFT JOIN attempts USING (cluster, job_key) GROUP BY ALL HAVING jobs.attempts <> found""",
    ),
    Rule(
        "trace_files",
        "conservation",
        "records = allocations + steps + samples + duplicates + rejects",
        """SELECT * FROM trace_files
           WHERE records <> allocations + steps + samples + duplicates + rejects""",
    ),
    Rule(
        "rejects",
        "conservation",
        "a file has as many rows here as trace_files counts",
        """SELECT f.path, f.rejects, count(r.line) AS found
           FROM trace_files f LEFT JOIN rejects r ON (r.cluster, r.trace_sha256) = (f.cluster, f.sha256)
           GROUP BY ALL HAVING f.rejects <> found""",
    ),
    *(
        Rule(
            f"{kind}_utilization",
            "percent",
            "utilization between 0 and 100 %",
            f"SELECT * FROM {kind}_utilization WHERE utilization_percent NOT BETWEEN 0 AND 100",  # noqa: S608
            only_warns=True,
        )
        for kind in ("gpu", "cpu")
    ),
    Rule(
        "nodes",
        "gpus_in_use",
        "no job held and no sample shows more GPUs of a machine than the machine list has (both counts are kept)",
        CONTRADICTED_NODES,
        only_warns=True,
    ),
    Rule(
        "attempts",
        "capacity",
        "running attempts never hold more nodes than the cluster declares (clusters.toml)",
        busy(
            """SELECT a.cluster, c.capacity, start_utc, end_utc, nodes FROM attempts a JOIN capacities c USING (cluster)
               WHERE start_utc < end_utc AND nodes > 0"""
        ),
        only_warns=True,
    ),
)

SIMULATED: tuple[Rule, ...] = (
    Rule(
        "simulated_starts",
        "capacity",
        "the replay never holds more nodes than its capacity",
        busy(
            """SELECT cluster, capacity, nodes, begin_utc AS start_utc, begin_utc + to_seconds(held_s) AS end_utc FROM (
                   SELECT s.cluster, s.capacity_nodes AS capacity, s.nodes,
                          s.submit_utc + to_seconds(s.simulated_wait_s) AS begin_utc,
                          least(j.run_s, coalesce(j.limit_s, j.run_s)) AS held_s
                   FROM simulated_starts s JOIN jobs j USING (cluster, job_key)
                   WHERE j.run_s > 0 AND s.simulated_wait_s IS NOT NULL
               )"""
        ),
    ),
    Rule(
        "simulated_starts",
        "not_before_submission",
        "no simulated start before the submission",
        "SELECT * FROM simulated_starts WHERE simulated_wait_s < 0",
    ),
    Rule(
        "calibrated_starts",
        "not_before_submission",
        "no calibrated start before the submission",
        "SELECT * FROM calibrated_starts WHERE least(frozen_wait_s, causal_wait_s, forked_wait_s, informed_wait_s) < 0",
    ),
    Rule(
        "what_if_schedulers",
        "figures",
        "shares are in 0 to 1, the quantiles are in order, and a mean lies between its smallest and largest draw",
        """SELECT * FROM what_if_schedulers
           WHERE utilization NOT BETWEEN 0 AND 1 + 1e-9 OR fragmentation NOT BETWEEN 0 AND 1
              OR p50_jct_s > p99_jct_s OR least(mean_queueing_s, preemptions, lost_gpu_h) < -1e-3
              OR mean_jct_s NOT BETWEEN mean_jct_least_s - 1e-3 AND mean_jct_most_s + 1e-3""",
    ),
    Rule(
        "what_if_groups",
        "sizes_add_up",
        "the size classes add up to all replayed jobs",
        """SELECT s.cluster, s.scheduler, s.change, s.jobs, sum(g.jobs) AS found
           FROM what_if_schedulers s JOIN what_if_groups g USING (cluster, scheduler, change)
           WHERE g.dimension = 'size' GROUP BY ALL HAVING s.jobs <> sum(g.jobs)""",
    ),
    Rule(
        "calibration_figures",
        "jobs_counted",
        "the figures of every form are over the jobs of calibrated_starts",
        """SELECT f.cluster, f.from_utc, f.form, f.jobs, count(s.job_key) AS found
           FROM calibration_figures f LEFT JOIN calibrated_starts s USING (cluster, from_utc)
           WHERE f.change = 'all'
           GROUP BY f.cluster, f.from_utc, f.form, f.change, f.mechanism, f.jobs HAVING f.jobs <> found""",
    ),
)

POLICIES: tuple[Rule, ...] = (
    Rule(
        "policy_results",
        "figures",
        "hours are not negative, shares are in 0 to 1, cost is interruption + overlap, no policy beats the oracle",
        """SELECT * FROM policy_results
           WHERE least(interruption_h, overlap_h, cost_w1) < 0 OR zero_share NOT BETWEEN 0 AND 1
              OR abs(cost_w1 - interruption_h - overlap_h) > 1e-6
              OR (regret_h_w1 < -1e-6 AND policy <> 'users')""",
    ),
)


def of_derived(tables: Iterable[Table]) -> tuple[Rule, ...]:
    """Return the rules of these derived tables."""
    declaring = tuple(tables)
    names = {table.name for table in declaring}
    own = [rule for rule in (*SIMULATED, *POLICIES) if rule.table in names]
    return (*(rule for table in declaring for rule in declared(table)), *own)
