"""Jobs: what is materialized together, for one cluster a run. Steps run in one process: see docs/decisions/0003."""

from __future__ import annotations

import dagster as dg

from assets.resources import CLUSTERS

everything = dg.define_asset_job(
    "whole_pipeline",
    selection=dg.AssetSelection.all(),
    partitions_def=CLUSTERS,
    executor_def=dg.in_process_executor,
    description="Raw logs of one cluster to compared policies, a release and the report.",
)
