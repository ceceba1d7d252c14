"""Slurm `sacct` dumps: with a header, without one (`--fields`), and TAB rows under a fixed-width header.

The odd cases are those of Slurm's own manual pages and sources; the tests name them one by one.
This module turns text columns into typed rows, one a record; `sacct_jobs` folds records into jobs and attempts.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from traces import slurm_text
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.readers import sacct_columns, sacct_jobs, sacct_lines, sacct_times
from traces.readers.common import Parsed, RawFile, map_unique

FINAL_EMPTY = ("None assigned", "None", "(null)", "")


class Sacct:
    """The reader of `sacct` text."""

    name = "sacct"
    version = 1

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Does a header of sacct stand on one of the first lines, or do the lines have the columns of `--fields`?"""
        lines = head.decode("utf-8", errors="replace").removeprefix("\ufeff").split("\n")
        if lines and sacct_columns.from_header(lines[0].rstrip("\r"), file.delimiter):
            return True
        if sacct_lines.fixed_header(lines, 0) or sacct_lines.fixed_header(lines, 1):
            return True
        return file.fields is not None and b"\0" not in head

    def read(self, file: RawFile) -> Parsed:
        """All records of the file. Raises InputError for a missing column or a file without one whole record."""
        lines = file.text().split("\n")
        if lines and lines[-1] == "":
            lines.pop()
        lines = [line.removesuffix("\r") for line in lines]
        layout = sacct_lines.find_layout(file, lines)
        sacct_columns.check_needed(list(layout.columns), f"{file.path}:{max(layout.first, 1)}")
        records = sacct_lines.split(lines, layout)
        del lines
        if records.frame.is_empty():
            why = (
                f"{records.rejects[0].reason} (line {records.rejects[0].line})" if records.rejects else "it holds none"
            )
            raise InputError(f"{file.path}: no record could be read: {why}")
        total = len(records.frame)
        frame = records.frame.unique(subset="raw", keep="first", maintain_order=True).drop("raw")
        rows = typed(frame, file.settings)
        parsed = sacct_jobs.fold(rows)
        parsed.rejects = records.rejects
        parsed.records = total + len(records.rejects)
        parsed.duplicates += total - len(frame)
        return parsed


def typed(text: pl.DataFrame, settings: ClusterSettings) -> pl.DataFrame:
    """One typed row a record.

    `text` has a String column for each column of the dump, and `line`. Ids, names and states are as in the canonical
    tables; times are naive UTC; what the dump lacks is null.
    """
    column = _Columns(text)
    rows = pl.DataFrame({"line": text["line"]}).with_columns(
        *_ids(column),
        column.text("JobName").alias("job_name"),
        pl.coalesce(column.text("User"), column.text("UID")).alias("user_name"),
        column.text("Account").alias("account"),
        column.text("Partition").alias("partition"),
        column.text("QOS").alias("qos"),
        column.number("Priority").cast(pl.Int64).alias("priority"),
        column.mapped("State", slurm_states, pl.String).alias("state"),
        pl.coalesce(column.number("ElapsedRaw"), column.number("Elapsed")).cast(pl.Int64).alias("elapsed_s"),
        column.number("Suspended").cast(pl.Int64).fill_null(0).alias("suspended_s"),
        pl.coalesce(column.number("TimelimitRaw"), column.number("Timelimit")).cast(pl.Int64).alias("limit_s"),
        column.mapped("ExitCode", lambda t: slurm_text.parse_exit_code(t)[0], pl.Int64).alias("exit_code"),
        column.mapped("ExitCode", lambda t: slurm_text.parse_exit_code(t)[1], pl.Int64).alias("exit_signal"),
        column.mapped("Flags", started_by, pl.String).alias("started_by"),
        column.mapped("MaxRSS", slurm_text.parse_rss_kib, pl.Int64).alias("max_rss_kib"),
        column.number("TotalCPU").alias("cpu_time_s"),
        column.text("NodeList").alias("node_list"),
    )
    rows = sacct_times.to_utc(rows, text, settings.timezone)
    rows = rows.with_columns(_sizes(column, settings))
    return _never_started(_states(rows, "State" in text.columns))


class _Columns:
    """Typed columns of the text frame; a column that the dump lacks is null."""

    def __init__(self, text: pl.DataFrame) -> None:
        self.frame = text

    def __contains__(self, name: str) -> bool:
        return name in self.frame.columns

    def text(self, name: str) -> pl.Series:
        """The text, null where blank."""
        if name not in self.frame.columns:
            return pl.Series([None] * len(self.frame), dtype=pl.String)
        values = self.frame[name]
        return values.set(values == "", None)

    def mapped(self, name: str, convert: Any, kind: Any) -> pl.Series:
        return map_unique(self.text(name), convert, kind)[0]

    def number(self, name: str) -> pl.Series:
        return self.mapped(name, sacct_columns.FORMS[name], pl.Float64)


def slurm_states(text: str) -> str:
    """The base state."""
    return slurm_text.parse_state(text)


def started_by(flags: str) -> str | None:
    """Which scheduler pass started the job, by sacct's Flags."""
    for flag, name in (("SchedMain", "main"), ("SchedBackfill", "backfill"), ("SchedSubmit", "submit")):
        if flag in flags:
            return name
    return None


def _ids(column: _Columns) -> list[pl.Series]:
    """job_id (without its step), job_id_raw, base (the key before reuse is settled), array ids and step_id."""
    printed = column.text("JobID") if "JobID" in column else column.text("JobIDRaw")
    raw = column.text("JobIDRaw") if "JobIDRaw" in column else printed
    frame = pl.DataFrame({"printed": printed, "raw": raw})
    without_step = pl.col("printed").str.extract(r"^(\d+(?:_(?:\d+|\[[^\]]*\]?))?(?:\+\d+)?)")
    has_raw = "JobIDRaw" in column
    number = pl.col("raw").str.extract(r"^(\d+)(?:\.|$)" if not has_raw else r"^(\d+)").cast(pl.Int64)
    ids = frame.select(
        without_step.alias("job_id"),
        number.alias("job_id_raw"),
        (pl.col("raw").str.extract(r"^(\d+)") if has_raw else without_step).alias("base"),
        pl.col("printed").str.extract(r"^(\d+)_").cast(pl.Int64).alias("array_job_id"),
        pl.col("printed").str.extract(r"^\d+_(\d+)").cast(pl.Int64).alias("array_task_id"),
        pl.col("printed").str.extract(r"^\d+(?:_(?:\d+|\[[^\]]*\]?))?(?:\+\d+)?\.(.+)$").alias("step_id"),
    )
    return ids.get_columns()


def _sizes(column: _Columns, settings: ClusterSettings) -> list[pl.Expr]:
    """Nodes, CPUs, GPUs and memory, requested and allocated, as the record prints them."""

    def first(*names: str) -> pl.Series:
        given = [column.number(name) for name in names if name in column]
        return pl.select(pl.coalesce(given)).to_series().cast(pl.Int64) if given else column.text("").cast(pl.Int64)

    def tres(name: str, part: str) -> pl.Series:
        return column.mapped(name, lambda text: _tres_count(text, part), pl.Int64)

    nodes = pl.select(pl.coalesce(first("AllocNodes").replace(0, None), first("NNodes"))).to_series()
    requested_nodes = pl.select(pl.coalesce(first("ReqNodes"), tres("ReqTRES", "node"), nodes)).to_series()
    cpus = first("AllocCPUS", "NCPUS")
    requested_cpus = pl.select(pl.coalesce(first("ReqCPUS"), tres("ReqTRES", "cpu"), cpus)).to_series()
    allocated, requested = _gpus(column, nodes, requested_nodes, settings)
    return [
        pl.lit(nodes).alias("allocated_nodes"),
        pl.lit(requested_nodes).alias("requested_nodes"),
        pl.lit(cpus).alias("allocated_cpus"),
        pl.lit(requested_cpus).alias("requested_cpus"),
        pl.lit(allocated).alias("allocated_gpus"),
        pl.lit(requested).alias("requested_gpus"),
        pl.lit(_memory(column, requested_nodes, requested_cpus)).alias("requested_mem_mib"),
    ]


def _tres_count(text: str, part: str) -> int | None:
    value = slurm_text.parse_tres(text).get(part)
    return int(value) if value is not None and value.isdigit() else None


def _gpus(
    column: _Columns, nodes: pl.Series, requested_nodes: pl.Series, settings: ClusterSettings
) -> tuple[pl.Series, pl.Series]:
    """(allocated, requested) GPUs: TRES, else the GRES columns of old Slurm, else whole nodes of the cluster's size."""
    held = column.mapped("AllocTRES", slurm_text.tres_gpus, pl.Int64)
    asked = column.mapped("ReqTRES", slurm_text.tres_gpus, pl.Int64)
    # AllocGRES prints the job's total, ReqGRES what was asked of each node.
    held_old = column.mapped("AllocGRES", slurm_text.gres_gpus, pl.Int64)
    asked_old = column.mapped("ReqGRES", slurm_text.gres_gpus, pl.Int64) * requested_nodes
    columns = [c for c in ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES") if c in column]
    if not columns and settings.gpus_per_node is not None:
        return nodes * settings.gpus_per_node, requested_nodes * settings.gpus_per_node
    requested = pl.select(pl.coalesce(asked, asked_old, held, held_old)).to_series()
    return pl.select(pl.coalesce(held, held_old, requested)).to_series(), requested


def _memory(column: _Columns, nodes: pl.Series, cpus: pl.Series) -> pl.Series:
    """MiB asked for over all nodes: ReqMem a node (`n`), a CPU (`c`) or in all, else mem of ReqTRES."""

    def size(text: str) -> float | None:
        parsed = slurm_text.parse_memory_mib(text)
        return None if parsed is None else parsed[0]

    def per(text: str) -> str | None:
        parsed = slurm_text.parse_memory_mib(text)
        return None if parsed is None else parsed[1]

    def of_tres(text: str) -> float | None:
        value = slurm_text.parse_tres(text).get("mem")
        return size(value) if value else None

    frame = pl.DataFrame({"nodes": nodes, "cpus": cpus}).with_columns(
        size=column.mapped("ReqMem", size, pl.Float64),
        per=column.mapped("ReqMem", per, pl.String),
        tres=column.mapped("ReqTRES", of_tres, pl.Float64),
    )
    times = pl.when(pl.col("per") == "n").then("nodes").when(pl.col("per") == "c").then("cpus").otherwise(1)
    return frame.select(pl.coalesce("tres", pl.col("size") * times).round().cast(pl.Int64)).to_series()


def _states(rows: pl.DataFrame, has_state: bool) -> pl.DataFrame:
    """`state` and `state_is_inferred`: without a State column, from times, limit and exit code."""
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
    """Clear start and sizes held of records that never ran, and settle the run time of the others.

    Before Slurm 22.05 a job cancelled while pending has Start = End (bug 7449); a job that ran for less than a second
    has them too, but also nodes or an AllocTRES where the dump prints these.
    """
    nodes_known = pl.col("node_list").is_not_null()
    has_nodes = nodes_known & ~pl.col("node_list").is_in(FINAL_EMPTY)
    held = has_nodes | pl.col("has_alloc_tres").fill_null(False)
    run = (pl.col("end_utc") - pl.col("start_utc")).dt.total_seconds()
    still = (run == 0) & (pl.col("elapsed_s").fill_null(0) == 0)
    never = (
        pl.col("start_utc").is_null()
        | (pl.col("state") == "PENDING")
        | (still & (pl.col("state") == "CANCELLED") & ~held)
        | (still & (pl.col("node_list") == "None assigned"))
    )
    rows = rows.with_columns(never.fill_null(True).alias("never"))
    # sacct itself clamps a start after the end to the end.
    start = (
        pl.when(pl.col("never"))
        .then(None)
        .otherwise(pl.min_horizontal("start_utc", pl.coalesce("end_utc", "start_utc")))
    )
    rows = rows.with_columns(start.alias("start_utc"))
    run = (pl.col("end_utc") - pl.col("start_utc")).dt.total_seconds() - pl.col("suspended_s")
    kept = [
        pl.when(pl.col("never")).then(pl.lit(0)).otherwise(pl.col(name)).alias(name)
        for name in ("allocated_nodes", "allocated_cpus", "allocated_gpus")
    ]
    return rows.with_columns(
        pl.when(pl.col("never")).then(None).otherwise(pl.coalesce("elapsed_s", run)).clip(0).alias("run_s"),
        *kept,
    ).drop("never", "elapsed_s", "suspended_s", "has_alloc_tres")
