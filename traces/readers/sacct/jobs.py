"""Convert records of sacct to jobs, attempts, steps and placements.

One id may have several records, for one of three reasons:

- A job was requeued or resized: each run has its own record, with a new submission.
- Dumps taken at different times hold the same job.
- Slurm used all its ids and started again, so the id belongs to another job.

SLUIDs and Restarts distinguish these where the dump has them (`_newest`, `_uses_of_one_id`), else the rule that is
documented at `schema.REQUEUE_WITHIN_S`. Slurm gives each run a SLUID; OriginalSLUID (26.05) is that of the run before
the first resize. A requeue changes both and adds 1 to Restarts.

The key of a job with a reused id contains its submission. If a dump has no submissions, the start is used instead. If
it has no times, records of one id are runs of one job, in the order of the dump.
"""

from __future__ import annotations

import polars as pl

from traces.readers.common import Parsed
from traces.readers.sacct.ran import OPEN
from traces.readers.sacct.spill import GPU_COLUMNS
from traces.schema import REQUEUE_WITHIN_S


def fold(allocations: pl.DataFrame, steps: pl.DataFrame, *, single: bool = False) -> Parsed:
    """Convert typed rows to tables, and count the records; superseded rows count as duplicates.

    `single`: no id has two allocation records and no step two records, so the search for them is skipped.
    """
    superseded = 0
    if single:
        allocations = allocations.with_columns(pl.col("base").alias("job_key"))
    else:
        (allocations, one), (steps, other) = (
            _newest(allocations, ["base"]),
            _newest(steps, ["base", "step_id"]),
        )
        superseded = one + other
        allocations = _keyed(allocations)
    attempts = _attempts(allocations, single)
    jobs = _jobs(allocations, attempts, single)
    return Parsed(
        allocations=len(allocations),
        steps=len(steps),
        duplicates=superseded,
        jobs=len(jobs),
        attempts=len(attempts),
        tables={
            "jobs": jobs,
            "attempts": attempts.drop("listed"),
            "steps": _steps(steps, allocations, single),
            "placements": _placements(attempts),
        },
    )


def _newest(rows: pl.DataFrame, key: list[str]) -> tuple[pl.DataFrame, int]:
    """Remove rows that a newer record of the same run supersedes; return the other rows and the number removed.

    `key` names the columns that identify a job or a step. Records with the same SLUID are of the same run.
    """
    if rows["sluid"].null_count() == len(rows):
        kept = _newest_by_times(rows, [*key, "submit_utc"])
        return kept, len(rows) - len(kept)
    of_run = [*key, "submit_utc", "start_utc"]
    twins = rows.filter(pl.col("sluid").is_not_null()).select(*of_run, pl.col("sluid").alias("twin")).unique()
    twins = twins.unique(of_run, keep="none")
    same = rows.join(twins, on=of_run, how="left", nulls_equal=True, maintain_order="left")
    same = same.with_columns(pl.coalesce("sluid", "twin").alias("sluid")).drop("twin")  # dumps with and without SLUIDs
    order = ("ran", pl.col("start_utc").is_not_null(), ~pl.col("state").is_in(OPEN), "end_utc", "line")
    with_id = same.filter(pl.col("sluid").is_not_null()).sort(*order, nulls_last=False)
    with_id = with_id.unique([*key, "sluid"], keep="last", maintain_order=True)
    without = _newest_by_times(same.filter(pl.col("sluid").is_null()), [*key, "submit_utc"])
    kept = pl.concat([with_id, without]).sort("line")
    return kept, len(rows) - len(kept)


def _newest_by_times(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Remove rows that a newer record of the same run supersedes, judged by times.

    Records of the same run have the same key and start. A record that ran but has no start is superseded by an equal
    record; if the run is still open, by any record of the key that ended. A record that never ran is superseded by any
    record with the same key.
    """
    ordered = rows.sort(
        *key, pl.col("start_utc").is_null(), "start_utc", pl.col("state").is_in(OPEN), "end_utc", "line",
        descending=[False] * len(key) + [False, False, True, False, False], nulls_last=False, maintain_order=True,
    )  # fmt: skip
    started = ordered.filter(pl.col("start_utc").is_not_null()).unique(
        [*key, "start_utc"], keep="last", maintain_order=True
    )
    untimed = _untimed(ordered.filter(pl.col("start_utc").is_null() & pl.col("ran")), key)
    ran = pl.concat([started, untimed])
    waiting = ordered.filter(pl.col("start_utc").is_null() & ~pl.col("ran")).unique(
        key, keep="last", maintain_order=True
    )
    waiting = waiting.join(ran.select(key), on=key, how="anti", nulls_equal=True)
    return pl.concat([ran, waiting]).sort("line")


def _untimed(ordered: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Return the distinct runs among records that ran but have no printed start."""
    printed = [name for name in ordered.columns if name not in {"line", "nodes"}]
    ended = ordered.filter(~pl.col("state").is_in(OPEN)).unique(printed, keep="last", maintain_order=True)
    still = ordered.filter(pl.col("state").is_in(OPEN)).unique(key, keep="last", maintain_order=True)
    return pl.concat([ended, still.join(ended.select(key), on=key, how="anti", nulls_equal=True)])


def _keyed(allocations: pl.DataFrame) -> pl.DataFrame:
    """Add `job_key` to allocation rows; rows of one job are in order of (submit, start)."""
    several = pl.col("base").is_duplicated()
    single = allocations.filter(~several).with_columns(pl.col("base").alias("job_key"))
    # a window over one group per job would dominate the reading time, so only ids with several records get one
    return pl.concat([single, _uses_of_one_id(allocations.filter(several))])


def _uses_of_one_id(allocations: pl.DataFrame) -> pl.DataFrame:
    asked_utc = pl.coalesce("submit_utc", "start_utc")
    rows = allocations.sort("base", asked_utc, "start_utc", "line", nulls_last=True)
    last = pl.max_horizontal("end_utc", "start_utc", "submit_utc").cum_max().over("base").shift().over("base")
    name = pl.col("job_name").str.strip_chars_end("+")
    before = name.shift().over("base")
    same_name = (name.str.starts_with(before) | before.str.starts_with(name)).fill_null(True)
    same_user = (pl.col("user_name") == pl.col("user_name").shift().over("base")).fill_null(True)
    soon = ((asked_utc - last).dt.total_seconds() <= REQUEUE_WITHIN_S).fill_null(True)
    same_submit = (pl.col("submit_utc") == pl.col("submit_utc").shift().over("base")).fill_null(False)
    first = pl.int_range(pl.len()).over("base") == 0
    original, restarts = pl.col("original_sluid"), pl.col("restarts")
    is_resized = (original == original.shift().over("base")).fill_null(False)
    is_new = ((original != original.shift().over("base")) & (restarts == 0)).fill_null(False)
    is_requeued = (restarts > restarts.shift().over("base")).fill_null(False)
    by_times = same_submit | (same_name & same_user & (soon | is_requeued))
    another = ~first & ~is_resized & (is_new | ~by_times)
    rows = rows.with_columns(another.cast(pl.Int64).cum_sum().over("base").alias("use"))
    submitted = asked_utc.min().over("base", "use").dt.epoch("s").cast(pl.String)
    reused = pl.col("use").max().over("base") > 0
    key = pl.when(reused).then(pl.concat_str("base", pl.lit("@"), submitted.fill_null("?"))).otherwise("base")
    return rows.with_columns(key.alias("job_key")).drop("use")


def _attempts(allocations: pl.DataFrame, single: bool) -> pl.DataFrame:
    ran = allocations.filter("ran")
    ran = ran.with_columns(pl.lit(0, dtype=pl.Int64).alias("attempt")) if single else _numbered(ran)
    return ran.select(
        "job_key",
        "attempt",
        "submit_utc",
        "start_utc",
        pl.when(pl.col("state").is_in(OPEN)).then(None).otherwise("end_utc").alias("end_utc"),
        "run_s",
        "state",
        pl.col("allocated_nodes").alias("nodes"),
        pl.col("allocated_cpus").alias("cpus"),
        pl.col("allocated_gpus").alias("gpus"),
        pl.col("allocated_mem_mib").alias("mem_mib"),
        (pl.col("allocated_gpus") * pl.col("run_s")).alias("gpu_time_s"),
        "exit_code",
        "exit_signal",
        "exit_code_form",
        "failed_node",
        "line",
        pl.col("nodes").alias("listed"),
    )


def _numbered(ran: pl.DataFrame) -> pl.DataFrame:
    """Number the runs within each job; seconds of a resized job are counted once."""
    several = pl.col("job_key").is_duplicated()
    single = ran.filter(~several).with_columns(pl.lit(0, dtype=pl.Int64).alias("attempt"))
    # A resize ends the record. The next record repeats the job's own start and elapsed time, so count from the resize.
    before = pl.col("end_utc").shift().over("job_key")
    resized = (before > pl.col("start_utc")).fill_null(False)
    since = (pl.col("end_utc") - before).dt.total_seconds().clip(0)
    repeated = ran.filter(several).with_columns(
        pl.when(resized).then(pl.coalesce(since, "run_s")).otherwise("run_s").alias("run_s"),
        pl.when(resized).then(before).otherwise("start_utc").alias("start_utc"),
        pl.int_range(pl.len(), dtype=pl.Int64).over("job_key").alias("attempt"),
    )
    return pl.concat([single, repeated])


def _jobs(allocations: pl.DataFrame, attempts: pl.DataFrame, single: bool) -> pl.DataFrame:
    """Return the newest record of each job, with its first submission and start and the sums over its attempts."""
    if single:
        jobs = allocations.with_columns(
            (pl.col("allocated_gpus") * pl.when("ran").then("run_s")).alias("gpu_time_s"),
            pl.col("ran").cast(pl.Int64).alias("attempts"),
        )
    else:
        jobs = _summed(allocations, attempts)
    wait = (pl.col("start_utc") - pl.col("submit_utc")).dt.total_seconds()
    eligible_wait = (pl.col("start_utc") - pl.col("eligible_utc")).dt.total_seconds()
    jobs = jobs.with_columns(
        pl.when(pl.col("state").is_in(OPEN)).then(None).otherwise("end_utc").alias("end_utc"),
        # a requeue in the hour of a clock change may have a submission after its start
        pl.when(wait >= 0).then(wait).alias("wait_s"),
        # a requeue of a running job overwrites its eligible time
        pl.when(eligible_wait >= 0).then(eligible_wait).alias("eligible_wait_s"),
    )
    of_records = ("base", "step_id", "max_rss_kib", "cpu_time_s", "nodes", "ran")
    jobs = jobs.drop(*of_records, "failed_node", *GPU_COLUMNS)
    return jobs if single else jobs.sort("line")


def _summed(allocations: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    newest = allocations.unique("job_key", keep="last", maintain_order=True)
    first = allocations.group_by("job_key").agg(
        pl.col("submit_utc").min(), pl.col("eligible_utc").min(), pl.col("start_utc").min(),
        pl.col("is_time_ambiguous", "is_end_before_start").any(),
    )  # fmt: skip
    sums = attempts.group_by("job_key").agg(
        pl.when(pl.col("run_s").count() > 0).then(pl.col("run_s").sum()), pl.col("gpu_time_s").sum(),
        pl.len().cast(pl.Int64).alias("attempts"),
        pl.col("gpu_time_s").null_count().alias("unknown"),
    )  # fmt: skip
    jobs = newest.drop(
        "submit_utc", "eligible_utc", "start_utc", "is_time_ambiguous", "is_end_before_start", "run_s"
    ).join(first, on="job_key", how="left", maintain_order="left")
    return (
        jobs.join(sums, on="job_key", how="left", maintain_order="left")
        .with_columns(
            pl.col("attempts").fill_null(0), pl.when(pl.col("unknown") == 0).then("gpu_time_s").alias("gpu_time_s")
        )
        .drop("unknown")
    )


def _steps(steps: pl.DataFrame, allocations: pl.DataFrame, single: bool) -> pl.DataFrame:
    """Give each step the key of the latest job with its id at the time of the step."""
    if not single:
        steps = _owned(steps, allocations).sort("line")
    else:
        steps = steps.with_columns(pl.col("base").alias("job_key"))
    return steps.select(
        "job_key",
        "step_id",
        pl.col("job_name").alias("step_name"),
        "state",
        "start_utc",
        pl.when(pl.col("state").is_in(OPEN)).then(None).otherwise("end_utc").alias("end_utc"),
        "run_s",
        pl.col("allocated_cpus").alias("cpus"),
        "max_rss_kib",
        "cpu_time_s",
        "exit_code",
        "exit_signal",
        "exit_code_form",
        *GPU_COLUMNS,
        "line",
    )


def _owned(steps: pl.DataFrame, allocations: pl.DataFrame) -> pl.DataFrame:
    """Add `job_key` to steps."""
    asked = pl.coalesce("submit_utc", "start_utc")
    keys = allocations.select("base", "job_key", asked.alias("from_utc")).unique(["base", "job_key", "from_utc"])
    at = pl.coalesce("submit_utc", "start_utc")
    steps = steps.with_columns(at.alias("at_utc")).sort("at_utc", nulls_last=True)
    single = keys.unique("base", keep="none").select("base", pl.col("job_key").alias("only"))
    several = keys.filter(pl.col("base").is_duplicated() & pl.col("from_utc").is_not_null()).sort("from_utc")
    steps = steps.join(single, on="base", how="left")
    runs = allocations.select("base", "sluid", pl.col("job_key").alias("by_sluid")).drop_nulls("sluid")
    steps = steps.join(runs.unique(["base", "sluid"]), on=["base", "sluid"], how="left")
    if not several.is_empty():
        steps = steps.sort("at_utc").join_asof(
            several, left_on="at_utc", right_on="from_utc", by="base", strategy="backward", check_sortedness=False
        )
    else:
        steps = steps.with_columns(pl.lit(None, dtype=pl.String).alias("job_key"))
    return steps.with_columns(pl.coalesce("only", "by_sluid", "job_key", "base").alias("job_key"))


def _placements(attempts: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each attempt and node, with the node's GPUs if the total divides evenly."""
    listed = attempts.select("job_key", "attempt", "gpus", pl.col("listed").alias("node"))
    count = pl.col("node").list.len()
    each = pl.when((count > 0) & (pl.col("gpus") % count == 0)).then(pl.col("gpus") // count)
    listed = listed.with_columns(each.cast(pl.Int64).alias("gpus")).filter(count > 0)
    return listed.explode("node")
