"""Dagster definitions for `test_killed_runs`: a sensor that asks for runs of two clusters, which wait for a file."""

import os
import time
from pathlib import Path

import dagster as dg

FOLDER = Path(os.environ["BATON_WAITING"])


@dg.op
def wait(context: dg.OpExecutionContext) -> None:
    """Note the process, and wait."""
    (FOLDER / context.run_id).write_text(str(os.getpid()))
    while not (FOLDER / "go").exists():
        time.sleep(0.1)


@dg.job(executor_def=dg.in_process_executor)
def waits() -> None:
    """Wait."""
    wait()


@dg.sensor(job=waits, minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING)
def asks(_context: dg.SensorEvaluationContext) -> list[dg.RunRequest]:
    """Ask for three runs of one cluster and one of another."""
    wanted = [("1", "lab"), ("2", "lab"), ("3", "lab"), ("4", "other")]
    return [dg.RunRequest(key, tags={"dagster/partition": cluster}) for key, cluster in wanted]


defs = dg.Definitions(jobs=[waits], sensors=[asks])
