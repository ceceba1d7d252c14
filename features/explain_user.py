"""Explanation of one user of one cluster from the record: waits and their causes, runs, and outliers."""

from __future__ import annotations

from typing import Any

import polars as pl

from features import explain
from features.causes.waits import CAUSES, EXPLAINED
from traces.clusters import ClusterSettings
from traces.store import warehouse
from traces.store.folder import DataFolder

MOST_JOBS = 5
ASKED_FAR_OVER = 0.1  # share of the limit used below which a limit is far too long


def user(data: DataFolder, settings: ClusterSettings, name: str) -> dict[str, Any]:
    """Describe a user: waits by cause, states, use of limits and longest waits, with the cluster's waits to compare.

    `wait_s_by_cause` adds up to the `wait_s` of the jobs whose wait is known and not negative.
    """
    everyone = explain.delays(data, settings)
    jobs = everyone.filter(pl.col("user_name") == name)
    held = warehouse.read(
        data,
        "SELECT job_id, job_key, state, run_s, limit_s FROM jobs WHERE cluster = ? AND user_name = ?",
        [settings.name, name],
    )
    used = pl.col("run_s") / pl.col("limit_s")
    ended_well = held.filter((pl.col("state") == "COMPLETED") & (pl.col("limit_s") > 0))
    longest = jobs.drop_nulls("wait_s").sort("wait_s", "job_key", descending=[True, False]).head(MOST_JOBS)
    total_s = int(everyone["gpu_time_s"].sum())
    own_s = int(jobs["gpu_time_s"].sum()) if jobs["gpu_time_s"].count() else None
    by_node = explain.node_time(data, settings, everyone)
    return {
        "cluster": settings.name,
        "user_name": name,
        "jobs": held.height,
        "never_ran": jobs.filter(~pl.col("ran")).height,
        **_waits(jobs),
        "wait_s_by_cause": {cause: int(jobs[cause].sum()) for cause in CAUSES},
        "of_the_cluster": _waits(everyone),
        "gpu_time_s": own_s,
        "gpu_time_share": own_s / total_s if own_s is not None and total_s else None,
        **_node_time(by_node, name),
        **_cores(data, settings.name, name),
        "pools": _pools(jobs),
        "states": held.group_by("state").len("jobs").sort("jobs", "state", descending=[True, False]).to_dicts(),
        "limit_used_p50_share": ended_well.select(used.median()).item(),
        "far_over_asked_jobs": ended_well.filter(used < ASKED_FAR_OVER).height,
        "completed_with_limit_jobs": ended_well.height,
        "waited_longest": longest.join(held.select("job_key", "job_id"), on="job_key", maintain_order="left")
        .select("job_id", "submit_utc", "nodes", "gpus", "wait_s", "main_cause", *CAUSES, *EXPLAINED)
        .to_dicts(),
    }


def _node_time(by_node: pl.DataFrame | None, name: str) -> dict[str, Any]:
    """Compute the node time of the user, s, and its share; null on a cluster with GPUs or without known node counts."""
    if by_node is None or not (total_s := int(by_node["node_time_s"].sum())):
        return {"node_time_s": None, "node_time_share": None}
    own_s = int(by_node.filter(pl.col("user_name") == name)["node_time_s"].sum())
    return {"node_time_s": own_s, "node_time_share": own_s / total_s}


def _cores(data: DataFolder, cluster: str, name: str) -> dict[str, Any]:
    """Compute what the user held and used of cores and memory; null where the log does not record it.

    core_time_s: cores held times run time, s. core_time_share: its share of all users'. cpu_used_share: CPU time of the
    steps over core time, for jobs that record it. memory_used_p50_share: median over jobs of the largest resident set
    over the requested memory, a lower bound where several tasks ran.
    """
    row = warehouse.read(
        data,
        """
        WITH held AS (
            SELECT job_key, user_name, requested_mem_mib, allocated_cpus * run_s AS core_s FROM jobs WHERE cluster = $1
        ), used AS (
            SELECT job_key, sum(cpu_time_s) AS cpu_s, max(max_rss_kib) / 1024 AS mib FROM steps
            WHERE cluster = $1 GROUP BY job_key
        )
        SELECT
            sum(core_s) FILTER (user_name = $2)::BIGINT AS core_time_s,
            sum(core_s) FILTER (user_name = $2) / nullif(sum(core_s), 0) AS core_time_share,
            sum(cpu_s) FILTER (user_name = $2 AND core_s > 0)
                / sum(core_s) FILTER (user_name = $2 AND core_s > 0 AND cpu_s IS NOT NULL) AS cpu_used_share,
            median(mib / requested_mem_mib) FILTER (user_name = $2 AND requested_mem_mib > 0) AS memory_used_p50_share
        FROM held LEFT JOIN used USING (job_key)
        """,
        [cluster, name],
    )
    return row.row(0, named=True)


def _pools(jobs: pl.DataFrame) -> list[dict[str, Any]]:
    """Count the jobs that found their nodes full or out of service, by number of usable nodes and its source."""
    asked = jobs.filter(pl.col("pool_nodes").is_not_null() & (pl.col("cluster_full_s") + pl.col("nodes_down_s") > 0))
    named = asked.group_by(pl.col("pool_nodes").alias("nodes"), pl.col("pool_known_by").alias("known_by")).len("jobs")
    return named.sort("jobs", "nodes", descending=True).to_dicts()


def _waits(jobs: pl.DataFrame) -> dict[str, Any]:
    """Compute percentiles of the waits of jobs, s; null without waits."""
    wait = jobs["wait_s"].drop_nulls()
    return {
        "waited_jobs": len(wait),
        "wait_s": int(wait.filter(wait >= 0).sum()),
        "wait_p50_s": wait.median(),
        "wait_p95_s": wait.quantile(0.95, "linear"),
    }
