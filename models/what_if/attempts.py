"""Failed attempts of a log's jobs, for schedulers with rules about failures."""

from __future__ import annotations

import polars as pl

from features.failures.savings import SHOWS_ON_ONE_GPU
from traces.counted import counted
from traces.store import warehouse
from traces.store.folder import DataFolder

_HAS_FAILURES = "SELECT count(*) AS tables FROM information_schema.tables WHERE table_name = 'failures'"
_FAILED = """
WITH hopeless AS (
    SELECT job_key, min(attempt) AS last FROM failures WHERE cluster = $1 AND is_hopeless GROUP BY job_key
), stopped AS (
    SELECT job_key, sum(coalesce(run_s, epoch(end_utc) - epoch(start_utc)))::DOUBLE AS hopeless_s
    FROM attempts JOIN hopeless USING (job_key)
    WHERE cluster = $1 AND attempt <= last GROUP BY job_key
), first AS (
    SELECT job_key, runtime_to_failure_s::DOUBLE AS fails_s FROM failures
    WHERE cluster = $1 AND attempt = 0 AND state <> 'TIMEOUT' AND list_contains($2, category)
)
SELECT job_key, fails_s, hopeless_s FROM first FULL JOIN stopped USING (job_key)
"""
NO_FAILURES = {"job_key": pl.String, "fails_s": pl.Float64, "hopeless_s": pl.Float64}


def failed_attempts(data: DataFolder, cluster: str) -> pl.DataFrame:
    """Read the jobs of a log that failed: job_key, and fails_s and hopeless_s of `GpuJob`, s.

    `fails_s` is null if the first attempt did not fail by an error of the program. `hopeless_s` is null without a
    hopeless failure (`is_hopeless` of the table `failures`). Without that table, which `baton run` computes, there are
    no rows.
    """
    if not warehouse.read(data, _HAS_FAILURES)["tables"][0]:
        return pl.DataFrame(schema=NO_FAILURES)
    return warehouse.read(data, _FAILED, (cluster, list(SHOWS_ON_ONE_GPU)))


def failures_line(rows: pl.DataFrame) -> list[str]:
    """State how many of the jobs of a scene failed, if any did."""
    failed, stopped = (len(rows) - rows[name].null_count() for name in ("fails_s", "hopeless_s"))
    if not failed + stopped:
        return []
    return [
        f"the first attempt of {counted(failed, 'job')} failed by an error of the program, and "
        f"{counted(stopped, 'job')} had a failure that no retry cures (table failures)"
    ]
