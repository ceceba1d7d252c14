"""Decide which records of sacct ran, for how long, on which resources and with which exit code; infer missing states.

The text of Slurm 22.05 and 24.11 prints exit codes of 128 and above without 128 (`PRINT_EXITCODE` of
`src/sacct/print.c`); that of 26.05, and JSON, print them whole. The column DerivedExitCode, the highest code of a job's
steps, is whole in every version. The text does not name its version: a code above 127 or a column of 26.05 shows it.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from traces.schema import REDUCED

OPEN = ("PENDING", "RUNNING", "SUSPENDED")  # not over yet
# A job in one of these states ran. A cancelled job, or one that missed its deadline, may never have run.
RAN_BY_STATE = (
    "COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REQUEUED", "RESIZING", "RUNNING", "SUSPENDED",
    "TIMEOUT",
)  # fmt: skip

LOST = 128
WHOLE, RESTORED = "whole", "restored from DerivedExitCode"
_COLUMNS_OF_26_05 = frozenset({"Exclusive", "ReqReservation"})


def settled(rows: pl.DataFrame, *, has_state: bool, has_start: bool, has_end: bool) -> pl.DataFrame:
    """Add `state`, `state_is_inferred`, `ran` and `run_s` to typed rows; `has_...`: whether the dump has that column.

    Without the column End, the end of a finished record is its start plus elapsed and suspended time.
    """
    rows = _states(rows, has_state)
    if has_state and not has_end:
        over = ~pl.col("state").is_in(OPEN) & pl.col("elapsed_s").is_not_null()
        ran_s = pl.col("elapsed_s") + pl.col("suspended_s").fill_null(0)
        rows = rows.with_columns(pl.when(over).then(pl.col("start_utc") + pl.duration(seconds=ran_s)).alias("end_utc"))
    return _never_started(rows) if has_start else _without_starts(rows)


def _states(rows: pl.DataFrame, has_state: bool) -> pl.DataFrame:
    """Add `state` and `state_is_inferred`; without a column State it is inferred from times, limit and exit code."""
    if has_state:
        return rows.with_columns(pl.col("state").fill_null("UNKNOWN"), pl.lit(False).alias("state_is_inferred"))
    run = (pl.col("end_utc") - pl.col("start_utc")).dt.total_seconds()
    zero = (pl.col("exit_code").fill_null(0) == 0) & (pl.col("exit_signal").fill_null(0) == 0)
    state = (
        pl.when(pl.col("start_utc").is_null() & pl.col("end_utc").is_null())
        .then(pl.lit("PENDING"))
        .when(pl.col("start_utc").is_null() | (run <= 0))
        .then(pl.lit("CANCELLED"))
        .when(pl.col("end_utc").is_null())
        .then(pl.lit("RUNNING"))
        .when(pl.coalesce("elapsed_s", run) >= pl.col("limit_s"))
        .then(pl.lit("TIMEOUT"))
        .when(zero)
        .then(pl.lit("COMPLETED"))
        .otherwise(pl.lit("FAILED"))
    )
    return rows.with_columns(state.alias("state"), pl.lit(True).alias("state_is_inferred"))


def _never_started(rows: pl.DataFrame) -> pl.DataFrame:
    """Clear start and held resources of records that never ran, and compute the run time of the others.

    Before Slurm 22.05, a job cancelled while pending has Start = End (bug 7449). So does a job that ran for less than a
    second, but it also has nodes or an AllocTRES (if the dump prints these), or a state that implies a run.
    """
    held = pl.col("nodes").is_not_null() | pl.col("has_alloc_tres").fill_null(False)
    run = (pl.col("end_utc") - pl.col("start_utc")).dt.total_seconds()
    still = (run == 0) & (pl.col("elapsed_s").fill_null(0) == 0)
    never = (
        pl.col("start_utc").is_null()
        | (pl.col("state") == "PENDING")
        | (still & ~pl.col("state").is_in(RAN_BY_STATE) & ~held)
        | (still & pl.col("is_unassigned").fill_null(False))
    )
    rows = rows.with_columns((~never.fill_null(True)).alias("ran"))
    # sacct itself clamps a start after the end to the end; in the hour of a clock change the order is only apparent
    before = pl.col("ran") & (run < 0).fill_null(False) & ~pl.col("is_time_ambiguous")
    start = pl.when(pl.col("ran")).then(pl.min_horizontal("start_utc", pl.coalesce("end_utc", "start_utc")))
    rows = rows.with_columns(start.alias("start_utc"), before.alias("is_end_before_start"))
    return _held_while_run(rows)


def _without_starts(rows: pl.DataFrame) -> pl.DataFrame:
    """Do the same as `_never_started` for a dump without the column Start.

    A job ran if it has run time or its state implies a run; a job that failed at once ran without run time. Every step
    ran, because steps are recorded only after they start.
    """
    by_state = pl.col("state").is_in(RAN_BY_STATE) | pl.col("step_id").is_not_null()
    ran = (pl.col("elapsed_s") > 0).fill_null(False) | by_state
    return _held_while_run(rows.with_columns(ran.alias("ran"), pl.lit(False).alias("is_end_before_start")))


def _held_while_run(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `run_s`, and set the held resources of records that never ran to 0."""
    run = (pl.col("end_utc") - pl.col("start_utc")).dt.total_seconds() - pl.col("suspended_s")
    kept = [
        pl.when("ran").then(pl.col(name)).otherwise(pl.lit(0)).alias(name)
        for name in ("allocated_nodes", "allocated_cpus", "allocated_gpus", "allocated_mem_mib")
    ]
    return rows.with_columns(
        pl.when("ran").then(pl.coalesce("elapsed_s", run)).clip(0).alias("run_s"),
        *kept,
    ).drop("elapsed_s", "suspended_s", "has_alloc_tres", "is_unassigned")


def prints_whole_codes(columns: Iterable[str], codes: pl.Series) -> bool:
    """Return whether the columns of a dump, or one of its exit codes, show that it prints exit codes whole."""
    return not _COLUMNS_OF_26_05.isdisjoint(columns) or bool((codes >= LOST).any())


def with_exit_codes(rows: pl.DataFrame, *, whole: bool) -> pl.DataFrame:
    """Restore exit codes and add `exit_code_form`, null where no 128 can be missing; `derived_exit_code` is dropped.

    A code is restored if DerivedExitCode, which only jobs have, is the same code with 128. `whole`: the dump prints all
    codes whole.
    """
    code = pl.col("exit_code")
    if whole:
        known = pl.when(code.is_not_null()).then(pl.lit(WHOLE))
        return rows.with_columns(known.alias("exit_code_form")).drop("derived_exit_code", strict=False)
    if "derived_exit_code" not in rows.columns:
        rows = rows.with_columns(pl.lit(None, dtype=pl.Int64).alias("derived_exit_code"))
    is_restored = (code + LOST == pl.col("derived_exit_code")).fill_null(False)
    # only a job that failed by itself has a code; one that a signal ended has none
    may_lack = (code > 0) | ((code == 0) & (pl.col("exit_signal") == 0) & (pl.col("state") == "FAILED"))
    return rows.with_columns(
        pl.when(is_restored).then(pl.lit(RESTORED)).when(may_lack).then(pl.lit(REDUCED)).alias("exit_code_form"),
        pl.when(is_restored).then(code + LOST).otherwise(code).alias("exit_code"),
    ).drop("derived_exit_code")
