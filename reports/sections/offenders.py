"""Whom to write to: users whose GPUs stood idle, who ran again what could not work, or who asked for far too long.

One row a user and row, as CSV beside the report, each with a mail that may be sent as it is. A list to start a
conversation with, not a verdict: thresholds are low enough to meet habits and high enough to leave single jobs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl

from reports import format as fmt
from reports.source import Source
from traces.export.tables import write_csv

IDLE_GPU_S, IDLE_SHARE = 24 * 3600, 0.25  # a GPU day idle, and a quarter of what was measured: no pause between epochs
REPEATS = 3  # of the same hopeless failure: the second may be a slip
ASKED_JOBS, ASKED_S = 10, 3600  # completed jobs with a limit of at least an hour: a habit, and one that planning feels
ASKED_SHARE = 0.25  # of the limit used, in the median: backfill is planned with the other three quarters
SLACK, STEP_S = 1.1, 600  # a limit that fits: a tenth over the 95th percentile, in whole steps
EXAMPLES = 5  # job ids

SCHEMA = {
    "cluster": pl.String,
    "finding": pl.String,  # idle GPUs, hopeless retries or over-asked limits
    "user_name": pl.String,
    "jobs": pl.Int64,  # with the finding
    "of_jobs": pl.Int64,  # that were looked at
    "gpu_time_s": pl.Int64,  # GPU s: idle, or held by the retries; null for limits
    "share": pl.Float64,  # idle share of the measured GPU time, or median share of the limit used; null for retries
    "examples": pl.String,  # job ids
    "mail_subject": pl.String,
    "mail_text": pl.String,
}


def beside(report: Path) -> Path:
    """Where the list of a report lies: offenders.csv beside report.html, and a part's list beside that part."""
    if "report" in report.stem:
        return report.with_name(f"{report.stem.replace('report', 'offenders')}.csv")
    return report.with_name(f"{report.stem}-offenders.csv")


def write_offenders(path: Path, sources: Iterable[Source]) -> int:
    """Write the list of those clusters, whole or not at all; returns its rows. Formulas are defused as in exports."""
    frames = [offenders(source) for source in sources]
    return write_csv(path, [pl.concat([pl.DataFrame(schema=SCHEMA), *frames])])


def offenders(source: Source) -> pl.DataFrame:
    """Rows of one cluster, those that cost most first within a finding; columns of SCHEMA. Names hidden if asked."""
    rows: list[dict[str, Any]] = []
    for find, mail in FINDINGS.values():
        rows += [_row(source, row, *mail(source, row)) for row in find(source).to_dicts()]
    return pl.DataFrame(rows, schema=SCHEMA)


def _row(source: Source, row: dict[str, Any], subject: str, text: str) -> dict[str, Any]:
    user, cluster = fmt.text(row["user_name"]), fmt.text(source.cluster)
    first, last = source.window
    mail = (
        f"Dear {user},\n\n{text}\n\nThis is about cluster {cluster} from {fmt.day(first)} to {fmt.day(last)}; examples "
        f"are the jobs {_ids(row)}. If something on our side stands in the way, please tell us: we are glad to help."
        "\n\nKind regards\nthe cluster's operators\n"
    )
    return {
        **{name: row.get(name) for name in SCHEMA},
        "cluster": source.cluster,
        "examples": _ids(row),
        "mail_subject": f"{cluster}: {subject}",
        "mail_text": mail,
    }


def _ids(row: dict[str, Any]) -> str:
    return ", ".join(fmt.text(job) for job in row["job_ids"][:EXAMPLES])


# -- idle GPUs --------------------------------------------------------------------------------------------------------


def idle_gpus(source: Source) -> pl.DataFrame:
    """Users whose GPUs read 0 for long, by samples; nothing where the log has none."""
    if "idle_gpu_time" not in source.tables:
        return _none()
    jobs = source.read(
        "SELECT j.user_name, j.job_id, i.idle_gpu_time_s AS idle_s, i.measured_gpu_time_s AS measured_s "
        "FROM idle_gpu_time i JOIN jobs j ON j.cluster = i.cluster AND j.job_key = i.value "
        "WHERE i.cluster = ? AND i.dimension = 'job_key' AND j.user_name IS NOT NULL"
    )
    idle = pl.col("idle_s") > 0
    return (
        jobs.sort("idle_s", "job_id", descending=[True, False])
        .group_by("user_name", maintain_order=True)
        .agg(
            pl.lit("idle GPUs").alias("finding"),
            idle.sum().cast(pl.Int64).alias("jobs"),
            pl.len().cast(pl.Int64).alias("of_jobs"),
            pl.col("idle_s").sum().alias("gpu_time_s"),
            (pl.col("idle_s").sum() / pl.col("measured_s").sum()).alias("share"),
            pl.col("job_id").filter(idle).head(EXAMPLES).alias("job_ids"),
        )
        .filter((pl.col("gpu_time_s") >= IDLE_GPU_S) & (pl.col("share") >= IDLE_SHARE))
        .sort("gpu_time_s", "user_name", descending=[True, False])
    )


def _idle_mail(_: Source, row: dict[str, Any]) -> tuple[str, str]:
    return (
        f"{fmt.gpu_time(row['gpu_time_s'])} of GPUs held and idle",
        f"your jobs held GPUs that did nothing for {fmt.number(row['gpu_time_s'] / 3600)} GPU hours: "
        f"{fmt.percent(row['share'])} of what we measured of them, in {row['jobs']:,} of {row['of_jobs']:,} "
        "jobs. Others wait for these GPUs. Could you ask for fewer, end sessions that you have left, or move loading "
        "and preparing of data into a job without GPUs?",
    )


# -- hopeless retries -------------------------------------------------------------------------------------------------


def hopeless_retries(source: Source) -> pl.DataFrame:
    """Users who ran again what had failed for a reason that running again does not mend.

    A repeat is a hopeless failure of a job (or, by name, of another job of that user) that no completed run of that
    name divides from the one before.
    """
    if "failures" not in source.tables:
        return _none()
    name = "coalesce(j.job_name, j.job_key)"
    ends = source.read(
        f"SELECT j.user_name, {name} AS job_name, j.job_id, f.end_utc, f.gpu_time_lost_s AS lost_s, f.reason "  # noqa: S608
        "FROM failures f JOIN jobs j USING (cluster, job_key) "
        "WHERE cluster = ? AND f.is_hopeless AND j.user_name IS NOT NULL AND f.end_utc IS NOT NULL"
    )
    good = source.read(
        f"SELECT j.user_name, {name} AS job_name, j.end_utc FROM jobs j "  # noqa: S608
        "WHERE j.cluster = ? AND j.state = 'COMPLETED' AND j.user_name IS NOT NULL AND j.end_utc IS NOT NULL"
    )
    bad, of_job = pl.col("reason").is_not_null(), ("user_name", "job_name")
    return (
        pl.concat([ends, good], how="diagonal_relaxed")
        .sort(*of_job, "end_utc", nulls_last=True)
        .filter(bad & bad.shift(1, fill_value=False).over(of_job))
        .sort("end_utc", "job_id", descending=True)
        .group_by("user_name", maintain_order=True)
        .agg(
            pl.lit("hopeless retries").alias("finding"),
            pl.len().cast(pl.Int64).alias("repeats"),
            pl.col("job_id").n_unique().cast(pl.Int64).alias("jobs"),
            pl.when(pl.col("lost_s").count() > 0).then(pl.col("lost_s").sum()).alias("gpu_time_s"),
            pl.col("reason").mode().sort().first().alias("reason"),
            pl.col("job_id").unique(maintain_order=True).head(EXAMPLES).alias("job_ids"),
        )
        .filter(pl.col("repeats") >= REPEATS)
        .sort(pl.col("gpu_time_s").fill_null(0), "repeats", "user_name", descending=[True, True, False])
    )


def _retries_mail(_: Source, row: dict[str, Any]) -> tuple[str, str]:
    held = "" if not row["gpu_time_s"] else f", and held {fmt.gpu_time(row['gpu_time_s'])} for it"
    return (
        f"{row['repeats']:,} runs that could not work",
        f"your jobs failed {row['repeats']:,} times again in the way in which they had failed before, most often "
        f"with: {fmt.text(row['reason'])}{held}. Such an error does not go away by itself: could you try the job "
        f"{'on one GPU ' if held else ''}for a few minutes, or look at its output, before you submit "
        "it again, and switch automatic requeueing "
        "off for it?",
    )


# -- over-asked limits ------------------------------------------------------------------------------------------------


def over_asked(source: Source) -> pl.DataFrame:
    """Users whose completed jobs used a small part of their limit, in the median."""
    jobs = source.read(
        "SELECT user_name, job_id, limit_s, run_s FROM jobs WHERE cluster = ? AND state = 'COMPLETED' "  # noqa: S608
        f"AND limit_s >= {ASKED_S} AND run_s IS NOT NULL AND user_name IS NOT NULL ORDER BY limit_s - run_s DESC, 2"
    )
    used = pl.col("run_s") / pl.col("limit_s")
    fits_s = ((pl.col("run_s").quantile(0.95, "higher") * SLACK / STEP_S).ceil() * STEP_S).cast(pl.Int64)
    return (
        jobs.group_by("user_name", maintain_order=True)
        .agg(
            pl.lit("over-asked limits").alias("finding"),
            (used < ASKED_SHARE).sum().cast(pl.Int64).alias("jobs"),
            pl.len().cast(pl.Int64).alias("of_jobs"),
            used.median().alias("share"),
            pl.col("limit_s").median().alias("limit_p50_s"),
            fits_s.alias("fits_s"),
            (pl.col("limit_s") - pl.col("run_s")).sum().alias("unused_s"),
            pl.col("job_id").head(EXAMPLES).alias("job_ids"),
        )
        .filter(
            (pl.col("of_jobs") >= ASKED_JOBS)
            & (pl.col("share") < ASKED_SHARE)
            & (pl.col("fits_s") < pl.col("limit_p50_s"))
        )
        .sort("unused_s", "user_name", descending=[True, False])
    )


def _limits_mail(_: Source, row: dict[str, Any]) -> tuple[str, str]:
    used = fmt.percent(row["share"]) if row["share"] >= 0.001 else "less than 0.1 %"
    return (
        f"time limits: {used} of them used",
        f"your {row['of_jobs']:,} completed jobs used {used} of their time limit in the "
        f"median, which was {fmt.duration(row['limit_p50_s'])}. The scheduler fills gaps with jobs whose limit fits "
        f"into them, so a shorter one often starts sooner: {fmt.duration(row['fits_s'])} would have been enough for "
        "19 of 20 of these jobs. Could you try that (sbatch --time)?",
    )


def _none() -> pl.DataFrame:
    return pl.DataFrame()


Find = Callable[[Source], pl.DataFrame]
Mail = Callable[[Source, dict[str, Any]], tuple[str, str]]
FINDINGS: dict[str, tuple[Find, Mail]] = {
    "idle GPUs": (idle_gpus, _idle_mail),
    "hopeless retries": (hopeless_retries, _retries_mail),
    "over-asked limits": (over_asked, _limits_mail),
}
