"""Convert text columns of sacct to typed rows, one a record, and report which rows have only valid columns.

Polars and the kernel convert common forms in bulk. Only distinct texts, and texts of rare forms, go through the
functions of `traces.slurm.text`, which define the forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from traces.clusters import ClusterSettings
from traces.readers.common import map_codes, map_unique
from traces.readers.plausible import implausible
from traces.readers.sacct import columns as sacct_columns
from traces.readers.sacct import ran as sacct_ran
from traces.readers.sacct import times as sacct_times
from traces.readers.sacct.fields import SacctField, reader_kernel, series
from traces.slurm import text as slurm_text

_ID = re.compile(
    r"(?P<id>(?P<job>[0-9]{1,18})(?:_(?:(?P<task>[0-9]{1,18})|(?P<range>\[[^\]]*\]?)))?(?:\+[0-9]{1,9})?)"
    r"(?:\.[A-Za-z0-9_+.]+)?"
)
_GPU_USE = re.compile(rb"/gpu(?:util|mem)=")
NO_ARRAY, RANGE = -1, -2
_ONE_BRACKET = r"^[^\[\],\s]*\[[0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*\]$"


def typed(
    fields: Mapping[str, SacctField],
    line: NDArray[np.int64],
    settings: ClusterSettings,
    cut: Mapping[str, NDArray[np.bool_]] | None = None,
) -> tuple[pl.DataFrame, pl.Series]:
    """Return (rows, valid): a typed row for each record, and whether all its columns are valid.

    `fields` holds each column of the dump that is read, `line` (rows,) the line of each record. Ids, names and states
    are as in the canonical tables; times are naive UTC; `ran` says whether the record ran. Missing columns are null. A
    row that is not valid has nulls in its invalid columns. `cut` (rows,) marks, by column, blanks that were text cut
    short: nothing stands in for what they held.
    """
    column = _Columns(fields, len(line), cut or {})
    rows = pl.DataFrame({"line": line}).with_columns(
        *_ids(column),
        *(column.word(name).alias(canonical) for name, canonical in sacct_columns.PRINTED.items()),
        pl.coalesce(column.word("User"), column.word("UID")).alias("user_name"),
        column.count("Priority").alias("priority"),
        column.mapped("State", sacct_columns.state, pl.String).alias("state"),
        column.mapped("State", sacct_columns.unknown_state, pl.String).alias("unknown_state"),
        column.mapped("Flags", sacct_columns.unknown_flags, pl.String).alias("unknown_flags"),
        pl.coalesce(column.count("ElapsedRaw"), column.duration("Elapsed").cast(pl.Int64)).alias("elapsed_s"),
        column.duration("Suspended").cast(pl.Int64).fill_null(0).alias("suspended_s"),
        pl.coalesce(_limit(column, "TimelimitRaw"), _limit(column, "Timelimit")).alias("limit_s"),
        column.mapped("ExitCode", _code, pl.Int64).alias("exit_code"),
        column.mapped("ExitCode", lambda text: slurm_text.parse_exit_code(text)[1], pl.Int64).alias("exit_signal"),
        column.mapped("DerivedExitCode", _code, pl.Int64).alias("derived_exit_code"),
        column.mapped("Flags", sacct_columns.started_by, pl.String).alias("started_by"),
        column.word("Cluster").alias("printed_cluster"),
        column.count("Restarts").alias("restarts"),
        column.sluid("SLUID").alias("sluid"),
        column.sluid("OriginalSLUID").alias("original_sluid"),
        *_gpu_use(column),
        column.size_kib("MaxRSS").alias("max_rss_kib"),
        column.duration("TotalCPU").alias("cpu_time_s"),
        column.nodes("NodeList").alias("nodes"),
        column.is_text("NodeList", "None assigned").alias("is_unassigned"),
    )
    other = pl.lit(None, dtype=pl.String)
    if rows["unknown_state"].null_count() + rows["unknown_flags"].null_count() < 2 * len(rows):
        other = pl.concat_str("unknown_state", "unknown_flags", separator=",", ignore_nulls=True).replace("", None)
    rows = rows.with_columns(other.alias("other_flags"))
    rows, fits = sacct_times.to_utc(rows, fields, settings.timezone)
    column.valid &= fits
    rows = rows.with_columns(_sizes(column, settings))
    for name in ("Group", "GID"):
        column.mapped(name, sacct_columns.FORMS[name], pl.Object)
    rows = sacct_ran.settled(rows, has_state="State" in fields, has_start="Start" in fields, has_end="End" in fields)
    column.valid &= out_of_bounds(rows).is_null().to_numpy()
    return rows, pl.Series(column.valid)


def out_of_bounds(rows: pl.DataFrame) -> pl.Series:
    """Return why each typed row is implausible, including the GPU time of its run; null where it is plausible."""
    return implausible(rows.with_columns((pl.col("allocated_gpus") * pl.col("run_s")).alias("gpu_time_s")))


class _Columns:
    """Typed columns of a dump; a missing column is null. `valid` (rows,) marks the rows whose texts were valid."""

    def __init__(self, fields: Mapping[str, SacctField], rows: int, cut: Mapping[str, NDArray[np.bool_]]) -> None:
        self.fields = fields
        self.cut = cut
        self.rows = rows
        self.valid = np.ones(rows, np.bool_)
        self._codes: dict[str, tuple[pl.Series, pl.Series]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def none(self, kind: Any) -> pl.Series:
        """Return a column of nulls."""
        return pl.Series([None], dtype=kind).new_from_index(0, self.rows)

    def codes(self, name: str) -> tuple[pl.Series, pl.Series]:
        """Return (distinct texts of the column, the index of each row's text), computed once."""
        if name not in self._codes:
            self._codes[name] = self.fields[name].codes()
        return self._codes[name]

    def text(self, name: str) -> pl.Series:
        """Return the text, null where blank."""
        if name not in self.fields:
            return self.none(pl.String)
        distinct, codes = self.codes(name)
        return distinct.gather(codes)

    def is_text(self, name: str, text: str) -> pl.Series:
        """Return whether the column has that text; null where blank."""
        if name not in self.fields:
            return self.none(pl.Boolean)
        distinct, codes = self.codes(name)
        return (distinct == text).gather(codes)

    def unless_cut(self, name: str, values: pl.Series) -> pl.Series:
        """Return the values; null where the text of the column was cut short."""
        return values if name not in self.cut else pl.select(pl.when(~pl.lit(self.cut[name])).then(values)).to_series()

    def mapped(self, name: str, convert: Callable[[str], Any], kind: Any) -> pl.Series:
        """Convert each distinct text with `convert`."""
        if name not in self.fields:
            return self.none(kind)
        values, valid = map_codes(*self.codes(name), convert, kind)
        self.valid &= valid.to_numpy()
        return values

    def word(self, name: str) -> pl.Series:
        """Return the text, which must be valid if the column has a parser."""
        if name in self.fields and name in sacct_columns.FORMS:
            self.mapped(name, sacct_columns.FORMS[name], pl.Object)
        return self.text(name)

    def count(self, name: str) -> pl.Series:
        """Convert to whole numbers."""
        return self._read(name, "counts", np.int64)

    def duration(self, name: str) -> pl.Series:
        """Convert [DD-[HH:]]MM:SS[.mmm] to seconds."""
        return self._read(name, "durations", np.float64)

    def size_kib(self, name: str) -> pl.Series:
        """Convert sizes to KiB."""
        return self._read(name, "sizes_kib", np.int64)

    def _read(self, name: str, form: str, kind: Any) -> pl.Series:
        if name not in self.fields:
            return self.none(pl.Int64 if kind is np.int64 else pl.Float64)
        field = self.fields[name]
        values, odd = field.read(form, kind)
        if len(odd) == 0:
            return values
        new, valid = map_codes(*field.take(odd).codes(), sacct_columns.FORMS[name], values.dtype)
        self.valid[odd] &= valid.to_numpy()
        return values.scatter(odd, new)

    def sluid(self, name: str) -> pl.Series:
        """Return Slurm's unique ids of records."""
        return self.fields[name].sluids() if name in self.fields else self.none(pl.String)

    def nodes(self, name: str) -> pl.Series:
        """Return the distinct nodes of each node list; null without nodes."""
        if name not in self.fields:
            return self.none(pl.List(pl.String))
        distinct, codes = self.codes(name)
        lists, valid = node_lists(distinct)
        if not valid.all():
            self.valid &= valid.gather(codes).to_numpy()
        return lists.gather(codes)


def node_lists(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Expand node lists to (the distinct nodes of each list, null without nodes; valid), as `slurm_text.expand_nodes`.

    Single nodes and names with one bracket at the end, nearly all lists, are expanded in bulk.
    """
    frame = texts.to_frame("text").with_row_index("code")
    text = pl.col("text")
    bulk = frame.filter(text.str.contains(_ONE_BRACKET))
    items = (
        bulk.select("code", text.str.extract(r"^([^\[]*)").alias("name"), text.str.extract(r"\[(.*)\]$").str.split(","))
        .explode("text")
        .with_columns(text.str.split_exact("-", 1).struct.rename_fields(["first", "last"]).struct.unnest())
        .with_columns(
            pl.col("first").cast(pl.Int64).alias("low"), pl.coalesce("last", "first").cast(pl.Int64).alias("high")
        )
        .with_columns((pl.col("high") - pl.col("low") + 1).alias("count"))
    )
    size = items.group_by("code").agg(pl.col("count").sum(), pl.col("count").min().alias("least"))
    fine = size.filter((pl.col("least") > 0) & (pl.col("count") <= slurm_text.MOST_NODES))
    nodes = (
        items.join(fine.select("code"), on="code", how="semi", maintain_order="left")
        .with_columns(pl.int_ranges("low", pl.col("high") + 1).alias("number"))
        .explode("number")
        .select("code", pl.col("name") + pl.col("number").cast(pl.String).str.zfill(pl.col("first").str.len_bytes()))
        .group_by("code", maintain_order=True)
        .agg(pl.col("name").alias("nodes"))
    )
    if (nodes["nodes"].list.len() != nodes["nodes"].list.n_unique()).any():
        nodes = nodes.with_columns(pl.col("nodes").list.unique(maintain_order=True))
    single = frame.filter(~text.str.contains(r"[\[\],\s()]") & (text != "None")).select(
        "code", pl.concat_list("text").alias("nodes")
    )
    done = pl.concat([nodes, single])
    rest = frame.join(done.select("code"), on="code", how="anti", maintain_order="left")

    def expanded(text: str) -> list[str] | None:
        return list(dict.fromkeys(slurm_text.expand_nodes(text))) or None

    slow, valid = map_unique(rest["text"], expanded, pl.List(pl.String))
    done = pl.concat([done, rest.select("code").with_columns(slow.alias("nodes"))])
    lists = frame.join(done, on="code", how="left", maintain_order="left")["nodes"]
    every = pl.repeat(True, len(texts), eager=True)
    return lists, every.scatter(rest["code"], valid) if len(rest) else every


def _gpu_use(column: _Columns) -> list[pl.Series]:
    """Return gpu_percent, gpu_max_percent and gpu_mem_max_kib, from what Slurm's jobacct_gather plugins record.

    Each reading of a task is the sum over its processes. TRESUsageInTot sums the last reading of each task,
    TRESUsageInAve divides that by the tasks, and TRESUsageInMax is the highest reading of any task (`common_jag.c`).
    """
    data = {id(f.data): f.data for name, f in column.fields.items() if name in sacct_columns.GPU_USAGE}
    is_recorded = any(_GPU_USE.search(texts.data) for texts in data.values())  # few dumps do; reading each row is slow

    def usage(name: str, part: str) -> pl.Series:
        if not is_recorded or name not in column:
            return column.none(pl.String)
        return column.fields[name].texts().str.extract(rf"(?:^|,)gres/{part}=([^,]+)")

    total, mean, most = (usage(name, "gpuutil").cast(pl.Float64, strict=False) for name in sacct_columns.GPU_USAGE)
    memory, _ = map_unique(usage("TRESUsageInMax", "gpumem"), slurm_text.parse_rss_kib, pl.Int64)
    last = pl.select(pl.coalesce(total, mean * column.count("NTasks"))).to_series()
    return [last.alias("gpu_percent"), most.alias("gpu_max_percent"), memory.alias("gpu_mem_max_kib")]


def _code(text: str) -> int | None:
    return slurm_text.parse_exit_code(text)[0]


def _limit(column: _Columns, name: str) -> pl.Series:
    return column.mapped(name, sacct_columns.FORMS[name], pl.Int64)


def _ids(column: _Columns) -> list[pl.Series]:
    """Return job_id (without its step), job_id_raw, base (the key before reuse is settled), array ids, step_id."""
    printed = column.fields["JobID" if "JobID" in column else "JobIDRaw"]
    parts = _parts(printed)
    column.valid &= parts.valid
    job_id = SacctField(printed.data, printed.before, parts.stops).texts()
    if "JobIDRaw" in column:
        raw = column.fields["JobIDRaw"]
        raw_parts = _parts(raw) if raw is not printed else parts
        column.valid &= raw_parts.valid
        base, number = SacctField(raw.data, raw.before, raw_parts.digits).texts(), pl.Series(raw_parts.numbers)
    else:
        base, number = job_id, series(parts.numbers, parts.digits == parts.stops)
    distinct, codes = SacctField(printed.data, parts.stops, printed.end).codes()
    return [
        job_id.alias("job_id"),
        number.alias("job_id_raw"),
        base.alias("base"),
        series(parts.numbers, parts.tasks != NO_ARRAY).alias("array_job_id"),
        series(parts.tasks, parts.tasks >= 0).alias("array_task_id"),
        distinct.gather(codes).alias("step_id"),
    ]


@dataclass(frozen=True)
class _Parts:
    """The parts of ids; every array is (rows,)."""

    numbers: NDArray[np.int64]
    tasks: NDArray[np.int64]  # RANGE for several tasks, NO_ARRAY for none
    digits: NDArray[np.int32]  # end of the id's first digits in the bytes
    stops: NDArray[np.int32]  # end of the id in the bytes, before the dot of a step
    valid: NDArray[np.bool_]  # whether the text has the form of an id


def _parts(ids: SacctField) -> _Parts:
    numbers, tasks = np.empty((2, len(ids)), np.int64)
    digits, stops = np.empty((2, len(ids)), np.int32)
    valid = np.empty(len(ids), np.bool_)
    reader_kernel().ids(ids.data, ids.before, ids.end, numbers, tasks, digits, stops, valid)
    odd = np.flatnonzero(~valid)
    for row, text in zip(odd.tolist(), ids.take(odd).texts(), strict=True):
        match = _ID.fullmatch(text or "")
        begin = ids.before[row] + 1
        if match is None:
            numbers[row], tasks[row], digits[row], stops[row] = 0, NO_ARRAY, begin, begin
            continue
        valid[row] = True
        numbers[row], digits[row] = int(match["job"]), begin + len(match["job"])
        tasks[row] = int(match["task"]) if match["task"] else RANGE if match["range"] else NO_ARRAY
        stops[row] = begin + len(match["id"].encode())
    return _Parts(numbers, tasks, digits, stops, valid)


def _sizes(column: _Columns, settings: ClusterSettings) -> list[pl.Expr]:
    """Return nodes, CPUs, GPUs and memory of each record, requested and allocated."""

    def first(*names: str) -> pl.Series:
        counts = [column.count(name) for name in names if name in column]
        return pl.select(pl.coalesce(counts)).to_series() if counts else column.none(pl.Int64)

    def tres(name: str, part: str) -> pl.Series:
        return column.mapped(name, lambda text: _tres_count(text, part), pl.Int64)

    nodes = pl.select(pl.coalesce(first("AllocNodes").replace(0, None), first("NNodes"))).to_series()
    requested_nodes = pl.select(
        pl.coalesce(first("ReqNodes"), tres("ReqTRES", "node"), column.unless_cut("ReqTRES", nodes))
    ).to_series()
    cpus = pl.select(pl.coalesce(first("AllocCPUS", "NCPUS"), tres("AllocTRES", "cpu"))).to_series()
    requested_cpus = pl.select(
        pl.coalesce(first("ReqCPUS"), tres("ReqTRES", "cpu"), column.unless_cut("ReqTRES", cpus))
    ).to_series()
    allocated, requested = _gpus(column, nodes, requested_nodes, settings)
    return [
        pl.lit(nodes).alias("allocated_nodes"),
        pl.lit(requested_nodes).alias("requested_nodes"),
        pl.lit(cpus).alias("allocated_cpus"),
        pl.lit(requested_cpus).alias("requested_cpus"),
        pl.lit(allocated).alias("allocated_gpus"),
        pl.lit(requested).alias("requested_gpus"),
        pl.lit(column.mapped("ReqTRES", slurm_text.tres_gpu_types, pl.String)).alias("gpu_type_asked"),
        pl.lit(_memory(column, requested_nodes, requested_cpus)).alias("requested_mem_mib"),
        pl.lit(_tres_mib(column, "AllocTRES").round().cast(pl.Int64)).alias("allocated_mem_mib"),
    ]


def _tres_count(text: str, part: str) -> int | None:
    value = slurm_text.parse_tres(text).get(part)
    return int(value) if value is not None and value.isascii() and value.isdigit() else None


def _gpus(
    column: _Columns, nodes: pl.Series, requested_nodes: pl.Series, settings: ClusterSettings
) -> tuple[pl.Series, pl.Series]:
    """Return (allocated, requested) GPUs from TRES, else from old Slurm's GRES columns, else from nodes.

    Without any of these columns, a job holds all GPUs of its nodes, as many as `settings.gpus_per_node` declares.
    """
    held = column.mapped("AllocTRES", sacct_columns.tres_gpus, pl.Int64)
    asked = column.mapped("ReqTRES", sacct_columns.tres_gpus, pl.Int64)
    columns = [c for c in ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES") if c in column]
    if not columns and settings.gpus_per_node is not None:
        return nodes * settings.gpus_per_node, requested_nodes * settings.gpus_per_node
    # AllocGRES holds the job's total, ReqGRES the request per node.
    held_old = column.mapped("AllocGRES", sacct_columns.gres_gpus, pl.Int64)
    asked_old = column.mapped("ReqGRES", sacct_columns.gres_gpus, pl.Int64) * requested_nodes
    allocated = pl.select(pl.coalesce(held, held_old)).to_series()
    requested = pl.select(pl.coalesce(asked, asked_old, column.unless_cut("ReqTRES", allocated))).to_series()
    return pl.select(pl.coalesce(allocated, column.unless_cut("AllocTRES", requested))).to_series(), requested


def _size_mib(text: str) -> float | None:
    parsed = sacct_columns.memory(text)
    return None if parsed is None else parsed[0]


def _tres_mib(column: _Columns, name: str) -> pl.Series:
    """Return the MiB of a TRES column's mem, over all nodes; null without mem."""

    def of_tres(text: str) -> float | None:
        value = slurm_text.parse_tres(text).get("mem")
        return _size_mib(value) if value else None

    return column.mapped(name, of_tres, pl.Float64)


def _memory(column: _Columns, nodes: pl.Series, cpus: pl.Series) -> pl.Series:
    """Return the requested MiB over all nodes: mem of ReqTRES, else ReqMem per node (`n`), CPU (`c`) or in total."""

    def per(text: str) -> str | None:
        parsed = sacct_columns.memory(text)
        return None if parsed is None else parsed[1]

    frame = pl.DataFrame({"nodes": nodes, "cpus": cpus}).with_columns(
        size=column.mapped("ReqMem", _size_mib, pl.Float64),
        per=column.mapped("ReqMem", per, pl.String),
        tres=_tres_mib(column, "ReqTRES"),
    )
    times = pl.when(pl.col("per") == "n").then("nodes").when(pl.col("per") == "c").then("cpus").otherwise(1)
    whole = pl.coalesce("tres", pl.col("size") * times).round().clip(upper_bound=2.0**62)  # `implausible` rejects it
    return frame.select(whole.cast(pl.Int64)).to_series()
