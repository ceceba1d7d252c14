"""Dagster jobs: the assets that one run materializes for one cluster (docs/decisions/0003)."""

from __future__ import annotations

import dagster as dg

from assets.shared.resources import CLUSTERS
from assets.tuning import search_hyperparameters

# Everything that the report reads when no policy is trained: the assets upstream of it.
_NOT_MADE = dg.AssetSelection.assets("raw_file")
ANALYTICS = dg.AssetSelection.assets("report").upstream().required_multi_asset_neighbors() - _NOT_MADE
# A separate job makes queue-time models: fitting and scoring takes minutes, and no policy reads them.
WHOLE = dg.AssetSelection.all() - dg.AssetSelection.assets("queue_time_model")
POLICIES = WHOLE - ANALYTICS - _NOT_MADE
# The assets that new logs change without training, for a cluster that has policies. The report is written once, at the
# end, with the policies.
_KNOWN = dg.AssetSelection.assets(
    "champion_drift", "queue_time_drift", ["warehouse", "policy_tables"], "report_with_policies"
)
INTAKE = (ANALYTICS - dg.AssetSelection.assets("report")) | _KNOWN
# Reports cover all clusters. When several clusters are materialized in turn, the last run makes them.
REPORT = dg.AssetSelection.groups("reports")

analytics = dg.define_asset_job(
    "analytics",
    selection=ANALYTICS,
    partitions_def=CLUSTERS,
    description="From the raw logs of one cluster to the warehouse, the analytics and the report, without training.",
)

intake = dg.define_asset_job(
    "intake",
    selection=INTAKE,
    partitions_def=CLUSTERS,
    description="From new raw logs of one cluster to the analytics, the champions' drift and the report; no training.",
)

everything = dg.define_asset_job(
    "whole_pipeline",
    selection=WHOLE,
    partitions_def=CLUSTERS,
    description="From the raw logs of one cluster to the report, then policies, their comparison, release and report.",
)

what_if = dg.define_asset_job(
    "what_if",
    selection=dg.AssetSelection.assets(
        "simulation_what_if",
        "simulation_advice",
        "simulation_what_if_schedulers",
        ["warehouse", "derived_tables"],
        "report",
    ),
    partitions_def=CLUSTERS,
    description="Replay one cluster with other schedulers, nodes and limits, then write the report. Reads no new logs.",
)


queue_time = dg.define_asset_job(
    "queue_time",
    selection=dg.AssetSelection.groups("queue_time")
    | dg.AssetSelection.assets(["warehouse", "policy_tables"], "report_with_policies"),
    partitions_def=CLUSTERS,
    description="Score queue-time methods of one cluster, release the better one, and write the report again.",
)


@dg.job(
    description="Search hyper-parameters of one learner on one cluster within a time budget; a new launch resumes it.",
)
def tune() -> None:
    """Run only the search."""
    search_hyperparameters()
