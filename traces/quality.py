"""Data quality of each raw file: gaps in time, doubtful times, rows without an end."""

from __future__ import annotations

import polars as pl

EVER_RAN = pl.col("attempts") > 0


def of_jobs(jobs: pl.DataFrame) -> pl.DataFrame:
    """A row a raw file from rows of the table `jobs`: `trace_sha256`, `jobs`, `ambiguous`, `end_before_start`,
    `no_end_share`, `gap_s`, `gap_from_utc`.

    `ambiguous` counts rows in the hour of a clock change that nothing in the log settles, `end_before_start` those of
    which the log prints an end before the start. `no_end_share` is of jobs that ran. The gap is the longest time (s)
    without a submission, beside the median of all such times, `median_gap_s`: a dump that was cut, or lacks days,
    stands out by it.
    """
    submitted = jobs.sort("trace_sha256", "submit_utc").with_columns(
        gap_s=pl.col("submit_utc").diff().over("trace_sha256").dt.total_seconds()
    )
    without_end = EVER_RAN & pl.col("end_utc").is_null()
    begin = pl.col("submit_utc").get(pl.col("gap_s").fill_null(-1).arg_max()) - pl.duration(
        seconds=pl.col("gap_s").max()
    )
    return (
        submitted.group_by("trace_sha256", maintain_order=True)
        .agg(
            jobs=pl.len(),
            ambiguous=pl.col("is_time_ambiguous").sum(),
            end_before_start=pl.col("is_end_before_start").sum(),
            no_end_share=without_end.sum() / pl.when(EVER_RAN.any()).then(EVER_RAN.sum()),
            gap_s=pl.col("gap_s").max(),
            median_gap_s=pl.col("gap_s").median(),
            gap_from_utc=pl.when(pl.col("gap_s").max().is_not_null()).then(begin),
        )
    )  # fmt: skip


def reasons(rejects: pl.DataFrame, most: int = 3) -> list[tuple[str, int, str]]:
    """(reason without its values, how many, the first one's text) of the rows of `rejects`, the most frequent first."""
    if rejects.is_empty():
        return []
    pattern = pl.col("reason").str.replace_all(r"'[^']*'|\"[^\"]*\"|\d+", "…")
    counted = (
        rejects.sort("line").with_columns(pattern.alias("pattern")).group_by("pattern", maintain_order=True)
        .agg(n=pl.len(), example=pl.col("raw").first()).sort("n", descending=True, maintain_order=True)
    )  # fmt: skip
    return [(reason, int(n), raw) for reason, n, raw in counted.head(most).iter_rows()]
