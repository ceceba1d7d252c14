"""Dagster's default run launcher with a health check, so that Dagster's run monitoring finds runs that died.

`run_launcher` of dagster.yaml names it. A code server notices by itself that the process of a run died. What it cannot
report is its own end, with its runs: a host that crashed, a container that was removed. Its successor at the same
address knows nothing of those runs.
"""

from __future__ import annotations

import time

from dagster import DagsterRun, DefaultRunLauncher
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._grpc.types import CanCancelExecutionRequest, CanCancelExecutionResult
from dagster._serdes import ConfigurableClassData, deserialize_value

SILENT_S = 600  # without an answer of the code server, before its runs count as dead
ANSWER_S = 20


class WatchedRunLauncher(DefaultRunLauncher):
    """Asks the code server of each run whether it executes it."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._silent_since_s: dict[str, float] = {}  # by run, monotonic

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Whether run monitoring can ask for the health of a run."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Return RUNNING, or NOT_FOUND with the reason, on which run monitoring marks the run as failed."""
        client = self._get_grpc_client_for_termination(run.run_id)  # type: ignore[no-untyped-call]
        if client is None:  # a run of the command line, or one that has just ended
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        try:
            answer = client.can_cancel_execution(CanCancelExecutionRequest(run_id=run.run_id), timeout=ANSWER_S)
        except DagsterUserCodeUnreachableError:
            since_s = self._silent_since_s.setdefault(run.run_id, time.monotonic())
            if time.monotonic() - since_s < SILENT_S:
                return CheckRunHealthResult(WorkerStatus.RUNNING)
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"no answer of its code server for {SILENT_S} s")
        self._silent_since_s.pop(run.run_id, None)
        if deserialize_value(answer, CanCancelExecutionResult).can_cancel:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its code server was restarted and does not execute it")
