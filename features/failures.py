"""What fails, why and what it cost: attempts that ended badly, classed by state, signal and exit status.

Cancelled jobs are no failures (the user took them back), but they stand in `failures_by` by state with the rest.
"""

from __future__ import annotations

from typing import TypeVar

import polars as pl

from features.tables.failures import FAILURES, FAILURES_BY
from features.trace import Trace, read_trace, shaped
from features.usage import filled_gpus, size_bucket
from traces.clusters import ClusterSettings
from traces.schema import Table
from traces.store import DataFolder

Key = TypeVar("Key", int, str)
TABLES: tuple[Table, ...] = (FAILURES, FAILURES_BY)

# State: reason, category. FAILED is classed further, by signal and exit status.
STATE_REASONS: dict[str, tuple[str, str]] = {
    "OUT_OF_MEMORY": ("out of memory", "user"),
    "TIMEOUT": ("time limit", "user"),
    "DEADLINE": ("deadline", "scheduler"),
    "NODE_FAIL": ("node failure", "infrastructure"),
    "BOOT_FAIL": ("boot failure", "infrastructure"),
    "PREEMPTED": ("preempted", "scheduler"),
    "REQUEUED": ("requeued", "scheduler"),
}
FAILURE_STATES = ("FAILED", *STATE_REASONS)

# Signal numbers of Linux on x86 and Arm (signal(7)).
SIGNAL_REASONS: dict[int, tuple[str, str]] = {
    2: ("interrupted", "user"),
    4: ("core dump", "user"),
    6: ("core dump", "user"),
    7: ("invalid memory access", "user"),
    8: ("core dump", "user"),
    9: ("killed", "unknown"),
    11: ("invalid memory access", "user"),
    15: ("terminated", "unknown"),
}
# Exit statuses of POSIX shells; 2 is what they and most command-line parsers return for wrong usage.
EXIT_REASONS: dict[int, tuple[str, str]] = {
    2: ("wrong usage", "user"),
    126: ("command not executable", "user"),
    127: ("command not found", "user"),
}
OTHER_SIGNAL = ("other signal", "unknown")
ERROR_EXIT = ("error exit", "user")
NO_SIGNATURE = ("no signature", "unknown")


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Both tables for the cluster of `settings`, from the warehouse."""
    return from_trace(read_trace(data, settings.name), settings)


def from_trace(trace: Trace, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Both tables from canonical frames."""
    ended = _attempts(trace, settings)
    failures = ended.filter(pl.col("state").is_in(FAILURE_STATES)).with_columns(*_reason())
    return {
        FAILURES.name: shaped(failures.sort("end_utc", "job_key", "attempt"), FAILURES),
        FAILURES_BY.name: _by(ended, failures),
    }


def _attempts(trace: Trace, settings: ClusterSettings) -> pl.DataFrame:
    """Attempts that started, with their job's user, partition and final state, and GPUs filled from whole nodes."""
    jobs = trace.jobs.select("job_key", "user_name", "partition", pl.col("state").alias("job_state"))
    gpus = filled_gpus(pl.col("gpus"), pl.col("nodes"), settings)
    run = pl.coalesce("run_s", pl.col("end_utc").dt.epoch("s") - pl.col("start_utc").dt.epoch("s"))
    return (
        trace.attempts.filter(pl.col("start_utc").is_not_null())
        .join(jobs, on="job_key", how="left")
        .with_columns(
            gpus.alias("gpus"),
            run.alias("runtime_to_failure_s"),
            (pl.col("attempt").max().over("job_key") - pl.col("attempt")).alias("retries_after"),
            pl.coalesce("job_state", "state").alias("job_state"),
        )
        .with_columns(
            size_bucket(pl.col("gpus")).alias("size_bucket"),
            pl.coalesce("gpu_time_s", pl.col("gpus") * pl.col("runtime_to_failure_s")).alias("gpu_time_lost_s"),
        )
    )


def _reason() -> tuple[pl.Expr, pl.Expr]:
    """Columns `reason` and `category`: state first, then signal (also as a shell reports it), then exit status."""
    state, code = pl.col("state"), pl.col("exit_code")
    # Statuses over 128 + 64 name no signal: 255 is what ssh, and exit(-1), return.
    shell_signal = pl.when(code.is_between(129, 192)).then(code - 128).otherwise(0)
    signal = pl.coalesce(pl.when(pl.col("exit_signal") > 0).then(pl.col("exit_signal")), shell_signal).fill_null(0)

    def classed(part: int) -> pl.Expr:
        by_signal = signal.replace_strict(
            _part(SIGNAL_REASONS, part), default=OTHER_SIGNAL[part], return_dtype=pl.String
        )
        by_exit = code.replace_strict(_part(EXIT_REASONS, part), default=ERROR_EXIT[part], return_dtype=pl.String)
        by_state = state.replace_strict(_part(STATE_REASONS, part), default=None, return_dtype=pl.String)
        return (
            pl.when(by_state.is_not_null()).then(by_state)
            .when(signal > 0).then(by_signal)
            .when(code > 0).then(by_exit)
            .otherwise(pl.lit(NO_SIGNATURE[part]))
        )  # fmt: skip

    return classed(0).alias("reason"), classed(1).alias("category")


def _part(reasons: dict[Key, tuple[str, str]], part: int) -> dict[Key, str]:
    return {key: both[part] for key, both in reasons.items()}


def _by(ended: pl.DataFrame, failures: pl.DataFrame) -> pl.DataFrame:
    """Summary by state of the job, by reason and by size; shares of everything that ran."""
    jobs = max(ended["job_key"].n_unique(), 1)
    known = ended["gpu_time_lost_s"].drop_nulls()
    total = int(known.sum()) if len(known) else None
    parts = [
        rows.group_by("cluster", pl.col(column).alias("value"))
        .agg(*_summary())
        .with_columns(pl.lit(dimension).alias("dimension"))
        .sort("value")
        for dimension, column, rows in (
            ("state", "job_state", ended),
            ("reason", "reason", failures),
            ("size_bucket", "size_bucket", failures),
        )
    ]
    share = pl.col("gpu_time_s") / total if total else pl.lit(None, pl.Float64)
    return shaped(
        pl.concat(parts).with_columns((pl.col("jobs") / jobs).alias("jobs_share"), share.alias("gpu_time_share")),
        FAILURES_BY,
    )


def _summary() -> list[pl.Expr]:
    run, held = pl.col("runtime_to_failure_s"), pl.col("gpu_time_lost_s")
    return [
        pl.col("job_key").n_unique().alias("jobs"),
        pl.len().alias("attempts"),
        pl.col("user_name").drop_nulls().n_unique().alias("users"),
        pl.when(held.count() > 0).then(held.sum()).alias("gpu_time_s"),
        *(run.quantile(q, interpolation="linear").alias(f"runtime_p{round(q * 100)}_s") for q in (0.5, 0.9, 0.95)),
    ]
