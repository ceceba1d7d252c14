"""The list of users to write to, because of idle GPUs, hopeless retries or far too long time limits.

It is a CSV file beside the report, with one row per finding and user, each with a mail that can be sent as it is. The
list is meant to start a conversation: thresholds are low enough to catch habits and high enough to skip single jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl

from reports import format as fmt
from reports.source import Source
from traces.export.tables import write_csv

IDLE, EARLY, LATE = "idle GPUs", "early hopeless retries", "late hopeless retries"
LIMITS = "over-asked limits"
IDLE_GPU_S, IDLE_SHARE = (
    24 * 3600,
    0.25,
)  # a GPU day idle and a quarter of the measured time: more than pauses between epochs
REPEATS = 3  # hopeless failures of a user, early and late together; the second may be a slip
EARLY_S = 600  # of run time; a short trial would show a failure up to here, but not a later one
ASKED_JOBS, ASKED_S = (
    10,
    3600,
)  # completed jobs with a limit of at least an hour: enough jobs for a habit, and long enough to affect planning
ASKED_SHARE = 0.25  # of the limit, used in the median; backfill is planned around the unused three quarters
SLACK, STEP_S = 1.1, 600  # a limit that fits: 10 % over the 95th percentile, rounded up to a whole step
EXAMPLES = 5  # jobs, those that cost most first

Mail = tuple[str, str, list[str]]  # subject, text, a line for each of the most costly jobs

SCHEMA = {
    "cluster": pl.String,
    "finding": pl.String,  # a key of FINDINGS
    "user_name": pl.String,
    "jobs": pl.Int64,  # jobs with the finding
    "of_jobs": pl.Int64,  # jobs examined
    "time_s": pl.Int64,  # of `unit`: idle, or held by the retries; null for limits
    "unit": pl.String,  # GPU s, core s, GiB s or node s
    "share": pl.Float64,  # idle share of the measured GPU time, or median share of the limit used; null for retries
    "examples": pl.String,  # job ids, those that cost most first
    "mail_subject": pl.String,
    "mail_text": pl.String,
}


def offenders_path(report: Path) -> Path:
    """Return the path of a report's list: offenders.csv beside report.html, otherwise named after the report."""
    if "report" in report.stem:
        return report.with_name(f"{report.stem.replace('report', 'offenders')}.csv")
    return report.with_name(f"{report.stem}-offenders.csv")


def write_offenders(path: Path, sources: Iterable[Source]) -> int:
    """Write the list of these clusters, whole or not at all, and return the number of rows.

    Spreadsheet formulas are defused as in exports.
    """
    frames = [offenders(source) for source in sources]
    return write_csv(path, [pl.concat([pl.DataFrame(schema=SCHEMA), *frames])])


def offenders(source: Source) -> pl.DataFrame:
    """Return one cluster's rows (columns of SCHEMA), the most costly of each finding first; names hidden on request."""
    rows: list[dict[str, Any]] = []
    for find, mail in FINDINGS.values():
        rows += [_row(source, row, *mail(row)) for row in find(source).to_dicts()]
    return pl.DataFrame(rows, schema=SCHEMA)


def _row(source: Source, row: dict[str, Any], subject: str, text: str, jobs: Iterable[str]) -> dict[str, Any]:
    user, cluster = fmt.text(row["user_name"]), fmt.text(source.cluster)
    first, last = source.window
    listed = "\n".join(f"  {line}" for line in jobs)
    mail = (
        f"Dear {user},\n\n{text}\n\nThe jobs that cost most:\n{listed}\n\n"
        f"This is about cluster {cluster} from {fmt.day(first)} to {fmt.day(last)}. If something on our side is in "
        "the way, please let us know: we are glad to help.\n\nKind regards\nthe cluster's operators\n"
    )
    return {
        **{name: row.get(name) for name in SCHEMA if name != "examples"},
        "cluster": source.cluster,
        "examples": ", ".join(fmt.text(job["job_id"]) for job in row["examples"]),
        "mail_subject": f"{cluster}: {subject}",
        "mail_text": mail,
    }


def _examples(*facts: str) -> pl.Expr:
    """Select the first jobs of a group, which is sorted by cost, as job_id and the given facts."""
    return pl.struct("job_id", *facts).head(EXAMPLES).alias("examples")


def _line(job: dict[str, Any], *facts: str) -> str:
    """Format one example of a mail: the job and what is known of it."""
    known = ", ".join(fact for fact in facts if fact)
    return fmt.text(job["job_id"]) + (f": {known}" if known else "")


# -- idle GPUs --------------------------------------------------------------------------------------------------------


def idle_gpus(source: Source) -> pl.DataFrame:
    """Return the users whose GPUs were at 0 % for long, by samples; an empty frame if the log has no samples."""
    if "idle_gpu_time" not in source.tables:
        return _none()
    jobs = source.read(
        "SELECT j.user_name, j.job_id, j.run_s, i.idle_gpu_time_s AS idle_s, i.measured_gpu_time_s AS measured_s "
        "FROM idle_gpu_time i JOIN jobs j ON j.cluster = i.cluster AND j.job_key = i.value "
        "WHERE i.cluster = ? AND i.dimension = 'job_key' AND j.user_name IS NOT NULL"
    )
    return (
        jobs.sort("idle_s", "job_id", descending=[True, False])
        .group_by("user_name", maintain_order=True)
        .agg(
            pl.lit(IDLE).alias("finding"),
            pl.lit("GPU").alias("unit"),
            (pl.col("idle_s") > 0).sum().cast(pl.Int64).alias("jobs"),
            pl.len().cast(pl.Int64).alias("of_jobs"),
            pl.col("idle_s").sum().alias("time_s"),
            (pl.col("idle_s").sum() / pl.col("measured_s").sum()).alias("share"),
            _examples("idle_s", "measured_s", "run_s"),
        )
        .with_columns(pl.col("examples").list.filter(pl.element().struct.field("idle_s") > 0))
        .filter((pl.col("time_s") >= IDLE_GPU_S) & (pl.col("share") >= IDLE_SHARE))
        .sort("time_s", "user_name", descending=[True, False])
    )


def _idle_mail(row: dict[str, Any]) -> Mail:
    return (
        f"{fmt.unit_time(row['time_s'])} of GPUs held and idle",
        f"your jobs held GPUs that were idle for {fmt.number(row['time_s'] / 3600)} GPU hours: "
        f"{fmt.percent(row['share'])} of their measured time, in {row['jobs']:,} of {row['of_jobs']:,} "
        "jobs. Others wait for these GPUs. Could you request fewer, end sessions that you no longer use, or move data "
        "loading and preparation into a job without GPUs?",
        [
            _line(job, f"idle for {fmt.unit_time(job['idle_s'])} of {fmt.unit_time(job['measured_s'])}", _ran(job))
            for job in row["examples"]
        ],
    )


def _ran(job: dict[str, Any]) -> str:
    return "" if job["run_s"] is None else f"ran {fmt.duration(job['run_s'])}"


# -- hopeless retries -------------------------------------------------------------------------------------------------


def early_retries(source: Source) -> pl.DataFrame:
    """Return the users whose repeats of a hopeless failure fail within EARLY_S."""
    return _retries(source).filter(pl.col("finding") == EARLY)


def late_retries(source: Source) -> pl.DataFrame:
    """Return the users whose repeats of a hopeless failure run longer than EARLY_S, or for an unknown time."""
    return _retries(source).filter(pl.col("finding") == LATE)


def _retries(source: Source) -> pl.DataFrame:
    """Return the users who reran what had failed for a reason that a rerun does not change; a row per user and finding.

    A repeat is a hopeless failure that follows another one of the same job (or, by name, of another job of that user),
    with no completed run of that name in between.
    """
    if "failures" not in source.tables:
        return pl.DataFrame(schema={"finding": pl.String})
    name = "coalesce(j.job_name, j.job_key)"
    ends = source.read(
        f"SELECT j.user_name, {name} AS job_name, j.job_id, f.end_utc, f.unit_time_lost_s AS lost_s, "  # noqa: S608
        "f.runtime_to_failure_s AS run_s, f.reason FROM failures f JOIN jobs j USING (cluster, job_key) "
        "WHERE cluster = ? AND f.is_hopeless AND j.user_name IS NOT NULL AND f.end_utc IS NOT NULL"
    )
    good = source.read(
        f"SELECT j.user_name, {name} AS job_name, j.end_utc FROM jobs j "  # noqa: S608
        "WHERE j.cluster = ? AND j.state = 'COMPLETED' AND j.user_name IS NOT NULL AND j.end_utc IS NOT NULL"
    )
    bad, of_job = pl.col("reason").is_not_null(), ("user_name", "job_name")
    is_early = (pl.col("run_s") <= EARLY_S).fill_null(value=False)
    known_lost_s = pl.when(pl.col("lost_s").count() > 0).then(pl.col("lost_s").sum())
    of_user = ("finding", "user_name")
    return (
        pl.concat([ends, good], how="diagonal_relaxed")
        .sort(*of_job, "end_utc", nulls_last=True)
        .filter(bad & bad.shift(1, fill_value=False).over(of_job))
        .with_columns(pl.when(is_early).then(pl.lit(EARLY)).otherwise(pl.lit(LATE)).alias("finding"))
        .group_by(*of_user, "job_id")
        .agg(pl.len().alias("repeats"), known_lost_s, pl.col("run_s").max(), "reason")
        .sort("lost_s", "run_s", "job_id", descending=[True, True, False], nulls_last=True)
        .group_by(*of_user, maintain_order=True)
        .agg(
            pl.col("repeats").sum().cast(pl.Int64),
            pl.len().cast(pl.Int64).alias("jobs"),
            known_lost_s.alias("time_s"),
            pl.lit(source.unit).alias("unit"),
            pl.col("reason").explode().mode().sort().first(),
            _examples("lost_s", "run_s"),
        )
        .filter(pl.col("repeats").sum().over("user_name") >= REPEATS)
        .sort(pl.col("time_s").fill_null(0), "repeats", "user_name", descending=[True, True, False])
    )


def _early_mail(row: dict[str, Any]) -> Mail:
    trial = "on one GPU " if row["time_s"] and row["unit"] == "GPU" else ""
    return _retries_mail(
        row,
        f", within {fmt.duration(EARLY_S)} of their start",
        f"could you try the job {trial}for a few minutes first, or look at its output, before you submit it again",
    )


def _late_mail(row: dict[str, Any]) -> Mail:
    is_known = all(job["run_s"] is not None for job in row["examples"])
    return _retries_mail(
        row,
        f", after more than {fmt.duration(EARLY_S)}" if is_known else "",
        "could you look at the job's output before you submit it again, check its time limit and memory, and save "
        "checkpoints so that a failure costs little",
    )


def _retries_mail(row: dict[str, Any], when: str, advice: str) -> Mail:
    held = "" if not row["time_s"] else f", and held {fmt.unit_time(row['time_s'], row['unit'])} for it"
    again = f"{row['repeats']:,} {'times' if row['repeats'] > 1 else 'time'}"
    return (
        f"{row['repeats']:,} {'runs' if row['repeats'] > 1 else 'run'} that could not work",
        f"your jobs failed {again} with an error that had already made them fail{when}, most often: "
        f"{fmt.text(row['reason'])}{held}. Such an error does not go away on its own: {advice}? Please also switch off "
        "automatic requeueing for these jobs.",
        [
            _line(job, _ran(job), fmt.unit_time(job["lost_s"], row["unit"]) if job["lost_s"] is not None else "")
            for job in row["examples"]
        ],
    )


# -- over-asked limits ------------------------------------------------------------------------------------------------


def over_asked(source: Source) -> pl.DataFrame:
    """Return the users whose completed jobs used, in the median, a small part of their limit."""
    jobs = source.read(
        "SELECT user_name, job_id, limit_s, run_s FROM jobs WHERE cluster = ? AND state = 'COMPLETED' "  # noqa: S608
        f"AND limit_s >= {ASKED_S} AND run_s IS NOT NULL AND user_name IS NOT NULL ORDER BY limit_s - run_s DESC, 2"
    )
    used = pl.col("run_s") / pl.col("limit_s")
    fits_s = ((pl.col("run_s").quantile(0.95, "higher") * SLACK / STEP_S).ceil() * STEP_S).cast(pl.Int64)
    return (
        jobs.group_by("user_name", maintain_order=True)
        .agg(
            pl.lit(LIMITS).alias("finding"),
            (used < ASKED_SHARE).sum().cast(pl.Int64).alias("jobs"),
            pl.len().cast(pl.Int64).alias("of_jobs"),
            used.median().alias("share"),
            pl.col("limit_s").median().alias("limit_p50_s"),
            fits_s.alias("fits_s"),
            (pl.col("limit_s") - pl.col("run_s")).sum().alias("unused_s"),
            _examples("limit_s", "run_s"),
        )
        .filter(
            (pl.col("of_jobs") >= ASKED_JOBS)
            & (pl.col("share") < ASKED_SHARE)
            & (pl.col("fits_s") < pl.col("limit_p50_s"))
        )
        .sort("unused_s", "user_name", descending=[True, False])
    )


def _limits_mail(row: dict[str, Any]) -> Mail:
    used = fmt.percent(row["share"]) if row["share"] >= 0.001 else "less than 0.1 %"
    return (
        f"time limits: {used} of them used",
        f"your {row['of_jobs']:,} completed jobs used {used} of their time limit in the "
        f"median, which was {fmt.duration(row['limit_p50_s'])}. The scheduler fills gaps with jobs whose limit fits "
        f"into them, so a shorter one often starts sooner: {fmt.duration(row['fits_s'])} would have been enough for "
        "19 of 20 of these jobs. Could you try that (sbatch --time)?",
        [_line(job, _ran(job), f"asked for {fmt.duration(job['limit_s'])}") for job in row["examples"]],
    )


def _none() -> pl.DataFrame:
    return pl.DataFrame()


Find = Callable[[Source], pl.DataFrame]
FINDINGS: dict[str, tuple[Find, Callable[[dict[str, Any]], Mail]]] = {
    IDLE: (idle_gpus, _idle_mail),
    EARLY: (early_retries, _early_mail),
    LATE: (late_retries, _late_mail),
    LIMITS: (over_asked, _limits_mail),
}
