"""An empty table of step times with the placements that a cluster's log shows, for a site to fill in."""

from __future__ import annotations

import polars as pl

from simulator.gpu.cluster import PLAIN
from traces.errors import InputError
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.visible import visible

MOST_ROWS = 200
_PLACEMENTS = """
SELECT coalesce(gpu_type_asked, ?) AS gpu_type, greatest(coalesce(allocated_nodes, requested_nodes, 1), 1) AS nodes,
    CASE WHEN allocated_gpus > 0 THEN allocated_gpus ELSE requested_gpus END AS gpus,
    count(*) AS jobs, round(coalesce(sum(gpu_time_s), 0) / 3600, 1) AS gpu_h
FROM jobs WHERE cluster = ? AND run_s > 0 GROUP BY ALL HAVING gpus >= nodes ORDER BY gpu_h DESC, gpu_type, gpus, nodes
"""


def profile_template(data: DataFolder, cluster: str) -> pl.DataFrame:
    """Return a row per GPU type and placement of the cluster's jobs, those with most GPU hours first, at most 200.

    Columns are those of `simulator.gpu.profiles.table`; model, local_batch, step_s and sync_s are empty. A gang is
    taken as spread evenly over its nodes. Raises InputError for a cluster without jobs that ran on GPUs.
    """
    found = warehouse.read(data, _PLACEMENTS, (PLAIN, cluster)).head(MOST_ROWS)
    if found.is_empty():
        raise InputError(f"the log of cluster {cluster!r} holds no job that ran on GPUs")
    empty = pl.lit(None, dtype=pl.String)
    return found.select(
        model=empty,
        gpu_type=pl.col("gpu_type").map_elements(visible, return_dtype=pl.String),
        placement=pl.struct("gpus", "nodes").map_elements(
            lambda row: placement(row["gpus"], row["nodes"]), return_dtype=pl.String
        ),
        local_batch=empty,
        step_s=empty,
        sync_s=empty,
        packed_with=empty,
        jobs=pl.col("jobs"),
        gpu_h=pl.col("gpu_h"),
    )


def placement(gpus: int, nodes: int) -> str:
    """Return the GPUs on each node of a gang that is spread evenly: 10 on 4 nodes are 3-3-2-2."""
    each, more = divmod(gpus, nodes)
    return "-".join(map(str, [each + 1] * more + [each] * (nodes - more)))
