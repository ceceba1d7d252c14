"""Triggers that start runs: a sensor on data/raw/CLUSTER/, two sensors on drift, two weekly training schedules.

They are on while Dagster's daemon runs (`make dev`), unless BATON_TRIGGERS is `off`. The UI switches each on or off.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import polars as pl

from assets.shared.resources import CLUSTERS, Baton
from models.queue_time.tables import QUEUE_TIME_DRIFT
from models.release.policies import drift
from models.tables import CHAMPION_DRIFT
from models.tracking import registered
from models.tracking.kinds import POLICY, QUEUE_TIME
from pipelines.jobs import everything, intake, queue_time
from pipelines.runs import attempts, killed
from reports.drift import drift_sentence, queue_time_sentence
from traces import clusters
from traces.errors import BatonError, InputError
from traces.store import derived
from traces.visible import visible

QUIET_S = 30  # a file changed more recently may still be being copied
QUEUE_TIME_CRON = "0 6 * * 0"
CRON = "0 3 * * 0"  # Sunday 03:00: outcomes of the last whole week are known by Saturday
SWITCH = "BATON_TRIGGERS"


def is_on(switch: str) -> bool:
    """Parse the value of the environment variable SWITCH. Raises InputError unless it is `on` or `off`."""
    if switch not in ("on", "off"):
        raise InputError(f"{SWITCH}={visible(switch)} is not allowed: use on or off")
    return switch == "on"


_ON = is_on(os.environ.get(SWITCH, "on"))
SENSOR_STATUS = dg.DefaultSensorStatus.RUNNING if _ON else dg.DefaultSensorStatus.STOPPED
SCHEDULE_STATUS = dg.DefaultScheduleStatus.RUNNING if _ON else dg.DefaultScheduleStatus.STOPPED


@dg.sensor(
    jobs=[everything, intake],
    minimum_interval_seconds=60,
    default_status=SENSOR_STATUS,
    description="New or changed files in data/raw/CLUSTER/.",
)
def raw_files(context: dg.SensorEvaluationContext, baton: Baton) -> dg.SensorResult:
    """Start one run per cluster for all its new files, and retry with growing delays if it fails.

    A cluster with a champion runs `intake`, which trains nothing; any other runs `whole_pipeline`. The run key holds
    the digest of the content, so content that succeeded never runs twice (`pipelines.runs.attempts`). The cursor keeps
    the size, time and digest of each file: unchanged files are not read again, and a file that disappeared is reported.
    It also keeps one sentence per cluster about failed attempts.
    """
    for run_id in killed.settle(context.instance, baton.folder):
        context.log.warning(f"the process of run {run_id} was killed; the run is marked as failed")
    known, failed_before = _of_cursor(context.cursor)
    seen: dict[str, list[object]] = {}
    requests, names, failed = [], [], {}
    for folder in sorted(path for path in baton.folder.raw.glob("*") if path.is_dir()):
        try:
            digests = [_digest(path, known, seen) for path in _settled(folder)]
            if not digests:
                continue
            clusters.resolve(baton.folder, cluster=folder.name, raw=folder)
        except (BatonError, OSError) as error:
            context.log.warning(f"{folder}: {error}")
            continue
        content = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
        names.append(folder.name)
        attempt = attempts.next_attempt(context.instance, f"{folder.name}-{content}", time.time())
        if attempt.failure:
            failed[folder.name] = attempt.failure
            if attempt.failure != failed_before.get(folder.name):  # log it once, not every minute
                context.log.warning(f"cluster {folder.name}: {attempt.failure}")
        if attempt.run_key is not None:
            tags = {attempts.ATTEMPT_TAG: str(attempt.number)}
            has_champion = registered.champion_version(baton.folder, folder.name) is not None
            requests.append(
                dg.RunRequest(
                    run_key=attempt.run_key,
                    job_name=(intake if has_champion else everything).name,
                    partition_key=folder.name,
                    tags=tags,
                )
            )
    for path in sorted(set(known) - set(seen)):
        if not Path(path).exists():
            context.log.warning(f"{path} has disappeared; its rows stay until it is deleted or ingested with changes")
    new = [name for name in names if not context.instance.has_dynamic_partition(str(CLUSTERS.name), name)]
    failures = [f"cluster {name}: {what}" for name, what in failed.items()]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(["nothing new in the raw logs", *failures]),
        dynamic_partitions_requests=[CLUSTERS.build_add_request(new)] if new else [],
        cursor=json.dumps({"files": seen, "failed": failed}),
    )


@dg.sensor(
    job=everything,
    minimum_interval_seconds=60,
    default_status=SENSOR_STATUS,
    description="Retrain when the newest week differs from those that the cluster's champion was fitted on.",
)
def drifted(context: dg.SensorEvaluationContext, baton: Baton) -> dg.SensorResult:
    """Read the table of the asset `champion_drift`, where it is about the present champion."""
    return _training(context, baton, CHAMPION_DRIFT.name, POLICY, "drift", drift_sentence)


@dg.sensor(
    job=queue_time,
    minimum_interval_seconds=60,
    default_status=SENSOR_STATUS,
    description="Refit when the cluster's queue-time champion did worse than promised in the newest week.",
)
def queue_time_drifted(context: dg.SensorEvaluationContext, baton: Baton) -> dg.SensorResult:
    """Read the table of the asset `queue_time_drift`, where it is about the present champion."""
    return _training(context, baton, QUEUE_TIME_DRIFT.name, QUEUE_TIME, "queue-time-drift", queue_time_sentence)


def _training(
    context: dg.SensorEvaluationContext,
    baton: Baton,
    table: str,
    model: str,
    asked_by: str,
    describe: Callable[[pl.DataFrame], str],
) -> dg.SensorResult:
    """Start one training run per cause (a champion and a week beyond a bound), and retry if it fails."""
    requests, reasons = [], []
    for name in sorted(context.instance.get_dynamic_partitions(str(CLUSTERS.name))):
        try:
            found = derived.read(baton.folder, table, name)
            champion = registered.champion_version(baton.folder, name, model)
        except InputError:
            continue  # the table was never made
        except BatonError as error:
            context.log.warning(f"cluster {name}: {error}")
            continue
        cause = None if champion is None else drift.cause(found.filter(champion_version=champion))
        if cause is None:
            continue
        reasons.append(f"cluster {name}: {describe(found)}")
        attempt = attempts.next_attempt(context.instance, f"{name}-{asked_by}-{cause}", time.time())
        reasons += [f"cluster {name}: {attempt.failure}"] if attempt.failure else []
        if attempt.run_key is not None:
            context.log.info(reasons[-1])
            tags = {attempts.ATTEMPT_TAG: str(attempt.number)}
            requests.append(dg.RunRequest(run_key=attempt.run_key, partition_key=name, tags=tags))
    return dg.SensorResult(
        run_requests=requests, skip_reason=None if requests else "; ".join(reasons) or "no champion has drifted"
    )


def _of_cursor(cursor: str | None) -> tuple[dict[str, list[object]], dict[str, str]]:
    """Return the files that the last tick saw and the failures by cluster; an older cursor holds only the files."""
    last = json.loads(cursor or "{}")
    return (last["files"], last["failed"]) if "files" in last else (last, {})


def _settled(folder: Path) -> list[Path]:
    """List the folder's files, without hidden files and files that are still being written."""
    newest = time.time() - QUIET_S
    files = (path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return sorted(path for path in files if path.stat().st_mtime <= newest)


def _digest(path: Path, known: dict[str, list[object]], seen: dict[str, list[object]]) -> str:
    status = path.stat()
    old = known.get(str(path))
    if old is None or old[:2] != [status.st_size, status.st_mtime_ns]:
        with path.open("rb") as file:
            old = [status.st_size, status.st_mtime_ns, hashlib.file_digest(file, "sha256").hexdigest()]
    seen[str(path)] = old
    return str(old[2])


@dg.schedule(
    job=everything,
    cron_schedule=CRON,
    default_status=SCHEDULE_STATUS,
    description="Retrain every cluster's policies once a week.",
)
def weekly_retraining(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
    """Start one run per ingested cluster: it reads, fits and compares what is new and reuses the rest.

    The run key holds the tick, so a restart repeats nothing.
    """
    return _run_per_cluster(context, "")


@dg.schedule(
    job=queue_time,
    cron_schedule=QUEUE_TIME_CRON,
    default_status=SCHEDULE_STATUS,
    description="Score and release every cluster's queue-time model once a week.",
)
def weekly_queue_time(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
    """Start one run per ingested cluster; without new input it ends at once."""
    return _run_per_cluster(context, "queue-time-")


def _run_per_cluster(context: dg.ScheduleEvaluationContext, prefix: str) -> list[dg.RunRequest]:
    tick = context.scheduled_execution_time.date().isoformat()
    names = context.instance.get_dynamic_partitions(str(CLUSTERS.name))
    return [dg.RunRequest(run_key=f"{prefix}{name}-{tick}", partition_key=name) for name in sorted(names)]
