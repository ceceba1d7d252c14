"""Retries of the raw-logs sensor: a failed run is retried up to MOST attempts, with growing delays.

Dagster starts no second run for a run key that it has seen, so each attempt has its own key. We look up earlier
attempts in the instance by these keys. A cancelled run is not retried. A run re-executed in the UI keeps its key and
counts as an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC

import dagster as dg

from traces import instants

WAITS_S = (600, 3600, 6 * 3600)  # after the first, second and third failure: time to fix the cause
MOST = len(WAITS_S) + 1
RUN_KEY_TAG, ATTEMPT_TAG = "dagster/run_key", "baton/attempt"


@dataclass(frozen=True)
class RunAttempt:
    """The next attempt at one content. `failure`: a sentence about failed attempts, empty if there are none."""

    run_key: str | None  # of the run to start; None: start no run
    number: int = 1
    failure: str = ""


def next_attempt(instance: dg.DagsterInstance, content: str, now_s: float) -> RunAttempt:
    """Return the first attempt at a content, or the next one if it is due; `now_s` in epoch seconds."""
    keys = [content, *(f"{content}-attempt-{number}" for number in range(2, MOST + 1))]
    records = instance.get_run_records(dg.RunsFilter(tags={RUN_KEY_TAG: keys}))
    if not records:
        return RunAttempt(content)
    statuses = [record.dagster_run.status for record in records]
    newest = records[0]
    if dg.DagsterRunStatus.SUCCESS in statuses or not newest.dagster_run.is_finished:
        return RunAttempt(None)
    made = max(keys.index(record.dagster_run.tags[RUN_KEY_TAG]) for record in records) + 1
    ended_s = newest.end_time or newest.update_timestamp.replace(tzinfo=UTC).timestamp()
    failed = f"attempt {made} of {MOST} (run {newest.dagster_run.run_id}) "
    if statuses[0] == dg.DagsterRunStatus.CANCELED:
        return RunAttempt(None, made, f"{failed}was cancelled: re-execute it or change a file to try again")
    failed += f"failed at {instants.text(int(ended_s))} UTC"
    if made == MOST:
        return RunAttempt(
            None, made, f"{failed}, and no other is made until a file changes: mend it, then re-execute it"
        )
    due_s = ended_s + WAITS_S[made - 1]
    if now_s < due_s:
        return RunAttempt(None, made, f"{failed}; the next is due at {instants.text(int(due_s))} UTC")
    return RunAttempt(keys[made], made + 1, f"{failed}; the next is started")
