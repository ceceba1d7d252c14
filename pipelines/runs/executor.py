"""Where the steps of a run work: in the run's own process, or each in its own (`[dagster]` of deployment.toml)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg

from models.deployment import read_deployment


def declared_executor(root: Path) -> dg.ExecutorDefinition:
    """Return the executor of the data folder `root`; each run reads deployment.toml."""

    @dg.configured(dg.multi_or_in_process_executor, config_schema={})
    def declared(_config: object) -> dict[str, Any]:
        at_once = read_deployment(root).dagster.steps_at_once
        return {"in_process": {}} if at_once == 1 else {"multiprocess": {"max_concurrent": at_once}}

    return declared
