"""Waits for nodes requested by name, explained by what ran on the nodes on which the job then started. No table.

Slurm's reason ReqNodeNotAvail means that a job waits for nodes that it named, or that its partition has too few others.
Slurm prints it for a node that is down or reserved, and also for a busy one (src/slurmctld/node_scheduler.c).
"""

from __future__ import annotations

import numpy as np
import polars as pl

from features.causes.fits import between
from features.resources.usage import Steps

REASON = "^ReqNodeNotAvail"
RESERVED = "reserved"
COUNTED = ("own_jobs_s", "cluster_full_s", "reservation_s", "nodes_down_s")  # possible causes of such a wait


def waits(waiting: pl.DataFrame, on_nodes: pl.DataFrame) -> pl.DataFrame:
    """Split the waits of jobs with reason REASON whose nodes the log names: row and COUNTED, s.

    Time during which the nodes ran jobs of the same user counts as own jobs, and of other users as cluster full. The
    rest counts as a reservation if the reason says so, else as nodes down. waiting: row, job_key, user_name, reason,
    eligible, waiting_to (epoch s). on_nodes: job_key, attempt, node, user_name, start_epoch and end_epoch of each
    placement.
    """
    asked = waiting.filter(pl.col("reason").cast(pl.String).str.contains(REASON).fill_null(False))
    nodes = on_nodes.filter(pl.col("attempt") == 0).select("job_key", pl.col("node").cast(pl.String))
    asked = asked.join(nodes.group_by("job_key").agg(pl.col("node").sort()), on="job_key")
    requested = asked["node"].explode().unique()
    runs = on_nodes.with_columns(pl.col("node", "user_name").cast(pl.String)).filter(pl.col("node").is_in(requested))
    of_node = {str(node): rows for (node,), rows in runs.group_by("node")}
    parts = [asked.select("row").clear().with_columns(pl.lit(0, pl.Int64).alias(name) for name in COUNTED)]
    for (names, user), jobs in asked.group_by("node", pl.col("user_name").cast(pl.String).alias("user")):
        on_these = pl.concat([of_node[name] for name in names])
        begin, end = jobs["eligible"].to_numpy(), jobs["waiting_to"].to_numpy()
        own = between(_busy(on_these.filter(pl.col("user_name") == str(user))), begin, end)
        every = between(_busy(on_these), begin, end)
        is_reserved = jobs["reason"].cast(pl.String).str.contains(RESERVED).to_numpy()
        idle = end - begin - every
        seconds = (own, every - own, np.where(is_reserved, idle, 0), np.where(is_reserved, 0, idle))
        columns = [pl.Series(name, values, pl.Int64) for name, values in zip(COUNTED, seconds, strict=True)]
        parts.append(jobs.select("row").with_columns(columns))
    return pl.concat(parts)


def _busy(runs: pl.DataFrame) -> Steps:
    """Return 1 while any of `runs` runs."""
    ones = np.ones(runs.height, np.int64)
    return Steps.of_intervals(runs["start_epoch"].to_numpy(), runs["end_epoch"].to_numpy(), ones).above(0)
