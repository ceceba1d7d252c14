"""Failures, their causes and their cost: failed attempts, classified by state, log signature, signal and exit status.

Cancelled jobs do not count as failures, because the user withdrew them; `failures_by` includes them in its rows by
state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import polars as pl

from features.failures.savings import known_sum, retries, savings
from features.failures.signatures import TAILS, read_tails
from features.resources.capacity import AMOUNTS, Resource, capacity
from features.resources.resource import resource_of, unit_time
from features.resources.sizes import size_bucket
from features.resources.usage import filled_gpus, has_run, runs
from features.tables.failures import FAILURE_SAVINGS, FAILURES, FAILURES_BY, RETRIES
from features.trace import Trace, read_trace, shaped
from traces.clusters import ClusterSettings
from traces.schema import REDUCED, Table
from traces.store.folder import DataFolder

Key = TypeVar("Key", int, str)
TIMES = ("gpu_time", "unit_time")  # time held by attempts: of GPUs, and of the binding resource
TABLES: tuple[Table, ...] = (FAILURES, FAILURES_BY, RETRIES, FAILURE_SAVINGS)

# State -> (reason, category). FAILED is classified further, by signal and exit status.
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
# Exit statuses of POSIX shells. Shells and most command-line parsers return 2 for wrong usage.
EXIT_REASONS: dict[int, tuple[str, str]] = {
    2: ("wrong usage", "user"),
    126: ("command not executable", "user"),
    127: ("command not found", "user"),
}
# Exit statuses that are more often a signal's 128 + s where the log may have printed them without 128.
ASSUMED_SIGNALS = tuple(set(SIGNAL_REASONS) - set(EXIT_REASONS))
MAYBE_255 = 127  # printed without 128
OTHER_SIGNAL = ("other signal", "unknown")
ERROR_EXIT = ("error exit", "user")
NO_SIGNATURE = ("no signature", "unknown")
# Philly's log gives a status per job but none per attempt, so an attempt followed by another may have been preempted.
RAN_AGAIN = ("failed or preempted", "unknown")


def compute(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    """Compute the tables for the cluster of `settings`, from the warehouse and the tails of logs in the data folder."""
    read = ("cluster", "run_s", "gpu_time_s", "exit_code", "exit_signal", "exit_code_form", "trace_sha256")
    tails = read_tails(data, settings.name)
    return from_trace(read_trace(data, settings.name, jobs=("job_id",), attempts=read, by_node=True), settings, tails)


def from_trace(trace: Trace, settings: ClusterSettings, tails: pl.DataFrame | None = None) -> dict[str, pl.DataFrame]:
    """Compute the tables from canonical frames; `tails` as returned by `signatures.read_tails`.

    If the caller keeps no reference to `trace`, as `compute` does, its columns are freed as soon as they are used.
    """
    held = runs(trace, settings)
    resource = resource_of(trace, settings, held, capacity(trace, settings, held))
    trace = replace(trace, placements=trace.placements.clear())
    ended = _attempts(trace, settings, held, resource)
    ended = _with_tails(ended, trace, pl.DataFrame(schema=TAILS) if tails is None else tails)
    del trace, held
    is_failure = pl.col("state").is_in(FAILURE_STATES)
    ended = ended.with_columns(is_failure.alias("is_failure"), *_reason())
    failures = ended.filter("is_failure")
    return {
        FAILURES.name: shaped(failures.sort("end_utc", "job_key", "attempt"), FAILURES),
        FAILURES_BY.name: _by(ended, failures),
        RETRIES.name: retries(ended, settings.name),
        FAILURE_SAVINGS.name: savings(ended, settings.name, resource),
    }


def _with_tails(ended: pl.DataFrame, trace: Trace, tails: pl.DataFrame) -> pl.DataFrame:
    """Add log_reason, log_category, is_weak, is_hopeless and has_tail to `ended`.

    A tail without an attempt belongs to the last attempt. Where a cluster reused a job id, the tail belongs to the
    latest job with that id.
    """
    tails = tails.cast({"job_id": trace.jobs.schema["job_id"]})
    with_tail = trace.jobs.join(tails.select("job_id").unique(), on="job_id", how="semi")
    ids = with_tail.select("job_key", "job_id", "submit_utc").sort("submit_utc", nulls_last=False)
    ids = ids.unique("job_id", keep="last", maintain_order=True).select("job_key", "job_id")
    attempts = trace.attempts.join(ids, on="job_key", how="semi")
    last = attempts.group_by("job_key").agg(pl.col("attempt").max().alias("last"))
    reasons = (
        tails.join(ids, on="job_id")
        .join(last, on="job_key")
        .with_columns(pl.coalesce("attempt", "last").alias("attempt"), pl.lit(True).alias("has_tail"))
        .unique(["job_key", "attempt"], keep="first", maintain_order=True)
        .drop("job_id", "last")
    )
    return ended.join(reasons, on=["job_key", "attempt"], how="left").with_columns(pl.col("has_tail").fill_null(False))


def _attempts(trace: Trace, settings: ClusterSettings, held: pl.DataFrame, resource: Resource) -> pl.DataFrame:
    """List the attempts that ran, with their job's user, partition and final state, and what they held.

    Missing GPU counts are filled from whole nodes. Sizes are in the binding resource. The GPU time of an attempt
    without a start is the log's own figure, as in `usage.with_gpu_time`.
    """
    started = pl.col("start_utc").is_not_null()
    jobs = trace.jobs.select("job_key", "user_name", "partition", pl.col("state").alias("job_state"))
    held = held.select(
        "job_key", "attempt", pl.col("gpus").alias("held_gpus"), pl.col("gpu_time_s").alias("held_gpu_time_s"),
        unit_time(resource).alias("unit_time_lost_s"),
    )  # fmt: skip
    gpus = filled_gpus(pl.col("gpus"), pl.col("nodes"), settings)
    run = pl.coalesce("run_s", pl.col("end_utc").dt.epoch("s") - pl.col("start_utc").dt.epoch("s"))
    return (
        trace.attempts.filter(has_run())
        .drop("trace_sha256", "submit_utc")
        .join(held, on=["job_key", "attempt"], how="left")
        .join(jobs, on="job_key", how="left")
        .with_columns(
            pl.when(started).then("held_gpus").otherwise(gpus).alias("gpus"),
            pl.when(started).then("held_gpu_time_s").otherwise("gpu_time_s").alias("gpu_time_lost_s"),
            run.alias("runtime_to_failure_s"),
            (pl.col("attempt").max().over("job_key") - pl.col("attempt")).alias("retries_after"),
            pl.coalesce("job_state", "state").alias("job_state"),
        )
        .drop("held_gpus", "held_gpu_time_s", "gpu_time_s")
        .with_columns(
            size_bucket(pl.col(AMOUNTS[resource]), resource).cast(pl.Categorical).alias("size_bucket"),
            pl.col("gpu_time_lost_s" if resource == "GPU" else "unit_time_lost_s").alias("unit_time_lost_s"),
        )
    )


def _reason() -> tuple[pl.Expr, ...]:
    """Build the columns reason, category, reason_source and is_hopeless.

    The first source that applies decides: the state from the scheduler, an explicit log signature, the signal (also as
    a shell reports it), an exit status with a known meaning, a weak signature, any other exit status. An attempt with
    such an exit status and a tail in which nothing matches has no signature. An attempt without exit status and tail
    that was run again may have failed or been preempted.

    Text of Slurm 22.05 and 24.11 prints exit statuses without 128. There we assume that 9 is a kill (137), as other
    versions print it, and we call no retry hopeless because of 127, which may be 255.
    """
    state, code = pl.col("state"), pl.col("exit_code")
    # Statuses over 128 + 64 name no signal: ssh and exit(-1) return 255.
    may_lack = (pl.col("exit_code_form") == REDUCED).fill_null(False)
    is_assumed = may_lack & code.is_in(ASSUMED_SIGNALS) & (pl.col("exit_signal").fill_null(0) == 0)
    shell_signal = pl.when(code.is_between(129, 192)).then(code - 128).when(is_assumed).then(code).otherwise(0)
    signal = pl.coalesce(pl.when(pl.col("exit_signal") > 0).then(pl.col("exit_signal")), shell_signal).fill_null(0)
    logged = pl.col("log_reason").is_not_null()

    ran_again = code.is_null() & pl.col("exit_signal").is_null() & (pl.col("retries_after") > 0) & ~pl.col("has_tail")

    def first(
        of_state: pl.Expr, of_log: pl.Expr, of_signal: pl.Expr, of_exit: pl.Expr, other: str, again: str, none: str
    ) -> pl.Expr:
        return (
            pl.when(state.is_in(list(STATE_REASONS))).then(of_state)
            .when(logged & ~pl.col("is_weak")).then(of_log)
            .when(signal > 0).then(of_signal)
            .when(code.is_in(list(EXIT_REASONS))).then(of_exit)
            .when(logged).then(of_log)
            .when(((code > 0) | may_lack) & ~pl.col("has_tail")).then(pl.lit(other))
            .when(ran_again).then(pl.lit(again))
            .otherwise(pl.lit(none))
        )  # fmt: skip

    def classed(part: int, log: str) -> pl.Expr:
        def named(code: pl.Expr, known: dict[Key, tuple[str, str]], default: str | None = None) -> pl.Expr:
            return code.replace_strict(_part(known, part), default=default, return_dtype=pl.String)

        by_signal = named(signal, SIGNAL_REASONS, OTHER_SIGNAL[part])
        by_state, by_exit = named(state, STATE_REASONS), named(code, EXIT_REASONS)
        others = (ERROR_EXIT[part], RAN_AGAIN[part], NO_SIGNATURE[part])
        return first(by_state, pl.col(log), by_signal, by_exit, *others)

    of_exit = "exit status"
    of_signal = pl.when(is_assumed).then(pl.lit("exit status, 128 assumed")).otherwise(pl.lit("signal"))
    source = first(pl.lit("state"), pl.lit("log"), of_signal, pl.lit(of_exit), of_exit, "none", "none")
    is_known = (signal == 0) & ~(may_lack & (code == MAYBE_255))
    hopeless = ((source == "log") & pl.col("is_hopeless")) | (
        (source == of_exit) & code.is_in(list(EXIT_REASONS)) & is_known
    )
    return (
        classed(0, "log_reason").cast(pl.Categorical).alias("reason"),
        classed(1, "log_category").cast(pl.Categorical).alias("category"),
        source.cast(pl.Categorical).alias("reason_source"),
        hopeless.fill_null(False).alias("is_hopeless"),
    )


def _part(reasons: dict[Key, tuple[str, str]], part: int) -> dict[Key, str]:
    return {key: both[part] for key, both in reasons.items()}


def _by(ended: pl.DataFrame, failures: pl.DataFrame) -> pl.DataFrame:
    """Summarize by state of the job, reason, category, size and user; shares are relative to everything that ran."""
    jobs = max(ended["job_key"].n_unique(), 1)
    parts = [
        rows.group_by("cluster", pl.col(column).alias("value"))
        .agg(*_summary())
        .with_columns(pl.col("value").cast(pl.String), pl.lit(dimension).alias("dimension"))
        .sort("value")
        for dimension, column, rows in (
            ("state", "job_state", ended),
            *((name, name, failures) for name in ("reason", "category", "size_bucket", "user_name")),
        )
    ]
    run, all_runs = pl.col("runtime_total_s"), pl.col("runtime_total_s").sum().over("dimension")
    by_value = pl.concat(parts).with_columns(
        (pl.col("jobs") / jobs).alias("jobs_share"),
        *((pl.col(f"{held}_s") / (ended[f"{held}_lost_s"].sum() or None)).alias(f"{held}_share") for held in TIMES),
        pl.when(all_runs > 0).then(run / all_runs).alias("runtime_share"),
    )
    return shaped(by_value, FAILURES_BY)


def _summary() -> list[pl.Expr]:
    run = pl.col("runtime_to_failure_s")
    users = pl.col("user_name").drop_nulls().n_unique()
    return [
        pl.col("job_key").n_unique().alias("jobs"),
        pl.len().alias("attempts"),
        users.alias("users"),
        (pl.len() / pl.col("job_key").n_unique()).alias("repetition_per_job"),
        pl.when(users > 0).then(pl.len() / users).alias("repetition_per_user"),
        *(known_sum(f"{held}_lost_s").alias(f"{held}_s") for held in TIMES),
        *(run.quantile(q, interpolation="linear").alias(f"runtime_p{round(q * 100)}_s") for q in (0.5, 0.9, 0.95)),
        run.sum().alias("runtime_total_s"),
    ]
