"""Export of jobs from the warehouse as a Standard Workload Format 2.2 log, for simulators and archives.

Definition: Chapin et al., Benchmarks and Standards for the Evaluation of Parallel Job Schedulers (JSSPP 1999), and the
archive's page on the format. The reader is `traces.readers.published.swf_jobs`. Each job is one line. If it ran several
times, its wait is the first wait and its run time the sum. Users, accounts and job names are written only as numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from traces.counted import counted
from traces.errors import InputError
from traces.files.whole import write_text
from traces.readers.published.swf import COLUMNS
from traces.readers.published.swf_jobs import NAMES

FAILED = ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL", "PREEMPTED")


@dataclass(frozen=True)
class ExportedSwf:
    """The SWF file written; `left_out` counts jobs without a submission, which SWF cannot represent."""

    path: Path
    jobs: int
    left_out: int
    processors: str
    max_procs: int


def write_swf(jobs: pl.DataFrame, path: Path, *, cluster: str, processors: str, most: int | None = None) -> ExportedSwf:
    """Write rows of the table `jobs` as SWF. `processors` chooses what SWF counts as processors: cpus, nodes or gpus.

    `most` is the machine's number of processors; None means the most that jobs held at once. Raises InputError if no
    job has a count of processors.
    """
    asked, held = f"requested_{processors}", f"allocated_{processors}"
    if asked not in jobs.columns:
        raise InputError(f"processors {processors!r} are not understood: allowed are cpus, nodes and gpus")
    known = jobs.filter(pl.col("submit_utc").is_not_null()).sort("submit_utc", "job_key")
    if known.filter((pl.col(asked) > 0) | (pl.col(held) > 0)).is_empty():
        raise InputError(f"cluster {cluster!r}: no job has a count of {processors}: choose another with --processors")
    first_s = known.select(pl.col("submit_utc").dt.epoch("s").min()).item()
    peak = most or _peak(known, held)
    numbers, legend = _numbers(known)
    lines = _lines(numbers, first_s, asked, held)
    text = [*_header(cluster, processors, first_s, peak, known, declared=most is not None), *legend, *lines]
    write_text(path, "\n".join(text) + "\n")
    return ExportedSwf(path, len(known), len(jobs) - len(known), processors, peak)


def _header(cluster: str, processors: str, first_s: int, peak: int, jobs: pl.DataFrame, *, declared: bool) -> list[str]:
    lines = ["; Version: 2.2", f"; Computer: {cluster}", f"; UnixStartTime: {first_s}", f"; MaxJobs: {len(jobs)}"]
    lines += [f"; MaxRecords: {len(jobs)}", f"; MaxProcs: {peak}"]
    if processors == "nodes":
        lines.append(f"; MaxNodes: {peak}")
    source = "declared for the cluster" if declared else "the most that jobs held at once"
    several = int((jobs["attempts"] > 1).sum())
    lines.append(f"; Note: processors are {processors}; MaxProcs is {source}")
    lines.append(f"; Note: {counted(several, 'job')} ran several times: wait is the first wait, run time the sum")
    return lines


def _peak(jobs: pl.DataFrame, held: str) -> int:
    """Return the most processors held at once; an end comes before a start in the same second."""
    ran = jobs.filter((pl.col("end_utc") > pl.col("start_utc")) & (pl.col(held) > 0))
    events = pl.concat([
        ran.select(at="start_utc", change=pl.col(held)), ran.select(at="end_utc", change=-pl.col(held)),
    ])  # fmt: skip
    total = events.sort("at", "change").select(pl.col("change").cum_sum().max()).item()
    return int(total or jobs.select(pl.max_horizontal(pl.col(held).max(), 1)).item())


def _numbers(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Return the jobs with names replaced by numbers, and header lines that explain numbers of queues and partitions.

    If all names of a column are numbers, they stay. Otherwise names are numbered from 1 in order of appearance.
    """
    legend, columns = [], []
    for name, field in NAMES.items():
        names = jobs[name]
        number = names.cast(pl.Int64, strict=False)
        if number.null_count() > names.null_count() or (number < 0).any():
            order = names.drop_nulls().unique(maintain_order=True)
            codes = pl.DataFrame({name: order, "code": range(1, len(order) + 1)}, schema_overrides={"code": pl.Int64})
            number = jobs.select(name).join(codes, on=name, how="left", maintain_order="left")["code"]
            if field in ("queue", "partition"):
                shown = [" ".join(text.split()) for text in order.head(1_000)]
                legend += [f"; {field.title()}: {code} - {text}" for code, text in enumerate(shown, 1)]
        columns.append(number.alias(field))
    ids = jobs["job_id_raw"]
    if ids.null_count() or ids.is_duplicated().any() or (ids < 0).any():
        ids = pl.int_range(1, len(jobs) + 1, dtype=pl.Int64, eager=True)
    return jobs.with_columns(*columns, ids.alias("job")), legend


def _lines(jobs: pl.DataFrame, first_s: int, asked: str, held: str) -> list[str]:
    """Return a line of 18 numbers for each job. The wait of a job that never ran ends when it was cancelled."""
    ran = pl.col("attempts") > 0
    until = pl.when(ran).then(pl.col("start_utc")).otherwise(pl.col("end_utc"))
    size = pl.coalesce(pl.when(pl.col(asked) > 0).then(asked), pl.when(pl.col(held) > 0).then(held))
    status = (
        pl.when(pl.col("state") == "COMPLETED").then(1).when(pl.col("state") == "CANCELLED").then(5)
        .when(pl.col("state").is_in(FAILED)).then(0).otherwise(-1)
    )  # fmt: skip
    values: dict[str, Any] = {
        "submit": pl.col("submit_utc").dt.epoch("s") - first_s,
        "wait": (until - pl.col("submit_utc")).dt.total_seconds(),
        "run": pl.when(ran).then("run_s"),
        "allocated": pl.when(pl.col(held) > 0).then(held),
        "requested": pl.when(pl.col(asked) > 0).then(asked),
        "limit": pl.col("limit_s"),
        "memory": (pl.col("requested_mem_mib") * 1024 / size).round(),
        "status": status,
    }
    kept = ("job", *NAMES.values())
    columns = [
        pl.col(name) if name in kept else pl.lit(-1) if name not in values else values[name].alias(name)
        for name in COLUMNS
    ]
    texts = [column.fill_null(-1).cast(pl.Int64).cast(pl.String) for column in columns]
    return jobs.select(pl.concat_str(texts, separator=" "))[:, 0].to_list()
