"""What a policy may know at a decision instant: one function for training, evaluation and live use.

Imports numpy alone.
"""

from __future__ import annotations

# Name: meaning. The order is the order of the vector; a change of either is a new VERSION.
VERSION = 1
FEATURES: tuple[str, ...] = (
    "remaining_h",  # until the predecessor's end
    "predecessor_elapsed_h",
    "predecessor_wait_h",
    "successor_nodes",
    "successor_limit_h",
    "capacity_nodes",
    "free_nodes",
    "pending_jobs",
    "pending_nodes",
    "pending_node_h",  # nodes x limit
    "pending_widest_nodes",
    "pending_age_max_h",
    "pending_age_median_h",
    "pending_limit_mean_h",
    "running_jobs",
    "running_node_h",  # nodes x time left to the limit
    "running_elapsed_mean_h",
    "release_1h_nodes",  # nodes that running jobs give back within 1 h by their limits
    "release_4h_nodes",
    "release_12h_nodes",
    "release_24h_nodes",
    "start_estimate_h",  # wait if submitted now, by a reservation profile on time limits (squeue --start)
    "start_estimate_gap_h",  # that, minus remaining_h
    "start_estimate_expected_h",  # the same with run times expected from recently ended jobs in place of limits
    "start_estimate_idle_h",  # wait if nobody else were pending
    "recent_wait_mean_h",  # mean wait of the last 100 jobs started
    "recent_wait_p50_h",
    "recent_wait_p90_h",
    "recent_wait_max_h",
    "recent_wide_wait_mean_h",  # mean wait of those of the last 100 that asked for at least half the successor's nodes
    "started_6h_jobs",
    "arrived_1h_node_h",  # node-hours (by limit) submitted in the last hour
    "arrived_6h_node_h",
    "arrived_24h_node_h",
    "limit_use_mean",  # run time over limit, mean of the last 100 jobs ended
    "hour_sin",
    "hour_cos",
    "weekday_sin",
    "weekday_cos",
)
