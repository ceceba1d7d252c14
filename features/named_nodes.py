"""Waits for nodes asked for by name: what ran meanwhile on the nodes on which a job then started. No table of its own.

Slurm's reason ReqNodeNotAvail says that a job waits for nodes that it named, or that its partition has too few others.
Slurm prints it of a node that is down or reserved, and of one that is merely busy (src/slurmctld/node_scheduler.c).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from features.fits import between
from features.usage import Steps

REASON = "^ReqNodeNotAvail"
RESERVED = "reserved"
COUNTED = ("own_jobs_s", "cluster_full_s", "reservation_s", "nodes_down_s")  # the causes that such a wait has


def waits(waiting: pl.DataFrame, on_nodes: pl.DataFrame) -> pl.DataFrame:
    """row and COUNTED of the jobs whose reason is REASON and whose nodes the log names.

    Busy with jobs of the same user is own jobs, with those of others cluster full; else the nodes were reserved, where
    the reason says so, or down. waiting: row, job_key, user_name, reason, eligible, waiting_to (epoch s). on_nodes: see
    `capacity.by_node`, with user_name.
    """
    asked = waiting.filter(pl.col("reason").cast(pl.String).str.contains(REASON).fill_null(False))
    nodes = on_nodes.filter(pl.col("attempt") == 0).select("job_key", pl.col("node").cast(pl.String))
    asked = asked.join(nodes.group_by("job_key").agg(pl.col("node")), on="job_key")
    wanted = asked["node"].explode().unique()
    busy = {
        str(node): rows
        for (node,), rows in on_nodes.filter(pl.col("node").cast(pl.String).is_in(wanted)).group_by("node")
    }
    found = []
    for job in asked.select("row", "user_name", "reason", "eligible", "waiting_to", "node").iter_rows(named=True):
        runs = pl.concat([busy[node] for node in job["node"]])
        is_own = pl.col("user_name").cast(pl.String) == str(job["user_name"])
        own, every = (_seconds(rows, job) for rows in (runs.filter(is_own.fill_null(False)), runs))
        idle = job["waiting_to"] - job["eligible"] - every
        is_reserved = RESERVED in str(job["reason"])
        found.append((job["row"], own, every - own, idle if is_reserved else 0, 0 if is_reserved else idle))
    kinds: Any = {"row": waiting.schema["row"], **dict.fromkeys(COUNTED, pl.Int64)}
    return pl.DataFrame(found, schema=kinds, orient="row")


def _seconds(runs: pl.DataFrame, job: dict[str, int]) -> int:
    """Seconds of a wait in which any of `runs` ran."""
    if runs.is_empty():
        return 0
    ones = np.ones(runs.height, np.int64)
    any_ = Steps.of_intervals(runs["start_epoch"].to_numpy(), runs["end_epoch"].to_numpy(), ones).above(0)
    return int(between(any_, np.array([job["eligible"]]), np.array([job["waiting_to"]]))[0])
