"""Top-level assembly of everything Dagster sees. Nothing is computed or read here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets import (
    checks,
    drift,
    evaluation,
    features,
    ingest,
    policies,
    queue_time,
    release,
    reports,
    simulation,
    warehouse,
)
from assets.shared import promises
from assets.shared.resources import Baton
from pipelines import jobs, triggers
from pipelines.runs.executor import declared_executor
from pipelines.runs.progress import progress_logger

REPOSITORY = Path(__file__).resolve().parents[1]


def build_defs(resources: Mapping[str, Any] | None = None) -> dg.Definitions:
    """Build the definitions; `resources` overrides the data folder (BATON_DATA, else the repository's data/)."""
    data = os.environ.get("BATON_DATA") or str(REPOSITORY / "data")
    return dg.Definitions(
        assets=dg.map_asset_specs(
            promises.promised,
            [
                ingest.raw_file,
                ingest.ingested_files,
                warehouse.canonical_tables,
                *features.ASSETS,
                simulation.simulation_replay,
                simulation.simulation_calibration,
                simulation.pair_tables,
                simulation.simulation_what_if,
                simulation.simulation_advice,
                simulation.simulation_what_if_schedulers,
                policies.trained_policies,
                evaluation.policy_comparison,
                release.provisioning_policy,
                drift.champion_drift,
                queue_time.queue_time_model,
                queue_time.queue_time_drift,
                reports.derived_tables,
                reports.report,
                reports.policy_tables,
                reports.report_with_policies,
            ],
        ),
        asset_checks=[checks.canonical_checks, checks.derived_checks, checks.policy_checks],
        jobs=[jobs.analytics, jobs.intake, jobs.everything, jobs.queue_time, jobs.tune, jobs.what_if],
        sensors=[triggers.raw_files, triggers.drifted, triggers.queue_time_drifted],
        schedules=[triggers.weekly_retraining, triggers.weekly_queue_time],
        resources={"baton": Baton(data=data), **(resources or {})},
        loggers={"progress": progress_logger, "console": dg.colored_console_logger},
        executor=declared_executor(Path(data)),
    )


defs = build_defs()
