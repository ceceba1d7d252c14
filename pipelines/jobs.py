"""Jobs: what is materialized together, for one cluster a run. Steps run in one process: see docs/decisions/0003."""

from __future__ import annotations

import dagster as dg

from assets.resources import CLUSTERS
from assets.tuning import search_hyperparameters

# Everything that the report reads when no policy is trained: it is upstream of the report, by the asset graph.
_NOT_MADE = dg.AssetSelection.assets("raw_file")
ANALYTICS = dg.AssetSelection.assets("report").upstream().required_multi_asset_neighbors() - _NOT_MADE
# Queue-time models are made by a job of their own: fitting and scoring them takes minutes, and no policy reads them.
WHOLE = dg.AssetSelection.all() - dg.AssetSelection.assets("queue_time_model")
POLICIES = WHOLE - ANALYTICS - _NOT_MADE
# Of a cluster that has policies, what new logs change without training: the report is made once, with them.
_KNOWN = dg.AssetSelection.assets(
    "champion_drift", "queue_time_drift", ["warehouse", "policy_tables"], "report_with_policies"
)
INTAKE = (ANALYTICS - dg.AssetSelection.assets("report")) | _KNOWN
# Of all clusters at once: where several are materialized one after the other, the last one's run makes them.
REPORT = dg.AssetSelection.groups("reports")

analytics = dg.define_asset_job(
    "analytics",
    selection=ANALYTICS,
    partitions_def=CLUSTERS,
    executor_def=dg.in_process_executor,
    description="Raw logs of one cluster to the warehouse, the analytics and the report: no training.",
)

intake = dg.define_asset_job(
    "intake",
    selection=INTAKE,
    partitions_def=CLUSTERS,
    executor_def=dg.in_process_executor,
    description="New raw logs of one cluster to the analytics, the champions' drift and the report: no training.",
)

everything = dg.define_asset_job(
    "whole_pipeline",
    selection=WHOLE,
    partitions_def=CLUSTERS,
    executor_def=dg.in_process_executor,
    description="Raw logs of one cluster to the report, then compared policies, a release and the report again.",
)

what_if = dg.define_asset_job(
    "what_if",
    selection=dg.AssetSelection.assets(
        "simulation_what_if", "simulation_what_if_schedulers", ["warehouse", "derived_tables"], "report"
    ),
    partitions_def=CLUSTERS,
    executor_def=dg.in_process_executor,
    description="What would change if, of one cluster: other schedulers, nodes, limits; then the report. No new logs.",
)


queue_time = dg.define_asset_job(
    "queue_time",
    selection=dg.AssetSelection.groups("queue_time")
    | dg.AssetSelection.assets(["warehouse", "policy_tables"], "report_with_policies"),
    partitions_def=CLUSTERS,
    executor_def=dg.in_process_executor,
    description="When jobs of one cluster would start: methods scored, the better one released, the report again.",
)


@dg.job(
    executor_def=dg.in_process_executor,
    description="Hyper-parameters of one learner of one cluster, within a budget; gone on with when launched again.",
)
def tune() -> None:
    """The search alone."""
    search_hyperparameters()
