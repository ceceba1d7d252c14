"""Readers of Philly's CSV files: GPU, CPU and memory utilization per minute, and the machine list.

The utilization files may hold hundreds of millions of rows, so they are read and written in pieces. Byte-equal lines
are found only within a piece. The times end with PDT or PST, which settles the hour of a clock change.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from traces import schema
from traces.errors import InputError
from traces.readers.common import (
    HEAD_BYTES,
    Parsed,
    RawFile,
    Reject,
    localized,
    shown,
)
from traces.readers.plausible import implausible
from traces.readers.raw_text import UNREADABLE, whole_lines

PIECE_BYTES = 1 << 25
MOST_GPUS = 16
OFFSETS_H = {"PDT": 7, "PST": 8, "UTC": 0}
_VALUE = r"^\s*(?:NA|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)?\s*$"
_TIME = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?:PDT|PST|UTC))?$"


class _Samples(ABC):
    """A CSV of samples: time, machine, values. Subclasses define the values."""

    name: str
    version = 2
    table: schema.Table
    column: str  # column of the header that identifies the file
    values: tuple[str, ...]

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the header has the column of the first value."""
        first = head.split(b"\n", 1)[0].decode("utf-8", errors="replace").lower()
        names = [name.strip() for name in first.split(",")]
        return names[0].lstrip("\ufeff") == "time" and self.column in names

    def read(self, file: RawFile) -> Parsed:
        """Read all samples and write them to the file's folder in pieces. Raises InputError for a missing column."""
        parsed = Parsed()
        assert file.folder is not None
        same = {"cluster": file.settings.name, "trace_sha256": file.sha256}
        try:
            with file.open() as stream, _Writer(file.folder, self.table, same) as writer:
                width = self._width(file, stream.readline(HEAD_BYTES).decode("utf-8", errors="replace"))
                for lines in _pieces(stream, 2, file.path):
                    writer.write(self._piece(parsed, file, lines, width))
        except UNREADABLE as error:
            raise InputError(f"{file.path}: cannot be read: {error}: is the file whole?") from error
        if parsed.records == 0:
            raise InputError(f"{file.path}: no sample under the header")
        parsed.written = {self.table.name: writer.rows}
        return parsed

    def _width(self, file: RawFile, header: str) -> int:
        names = [name.strip().lower() for name in header.split(",") if name.strip()]
        known = ("time", "machineid", "machine_id")
        if len(names) < 2 + len(self.values[:1]) or names[1] not in known:
            raise InputError(
                f"{file.path}:1: column machineId or {self.column} is missing: the file has {', '.join(names)}"
            )
        return len(names)

    def _piece(self, parsed: Parsed, file: RawFile, frame: pl.DataFrame, width: int) -> pl.DataFrame:
        """Return the table's rows from some lines (line, raw); count them and record rejects in `parsed`."""
        parsed.records += len(frame)
        if frame["raw"].n_unique() < len(frame):
            total = len(frame)
            frame = frame.unique("raw", keep="first", maintain_order=True)
            parsed.duplicates += total - len(frame)
        names = [f"v{i}" for i in range(width - 2)]
        # a trailing comma is common, and adds an empty field
        split = frame["raw"].str.split_exact(",", width + 1).struct.rename_fields(["t", "node", *names, "rest", "more"])
        frame = frame.hstack(split.struct.unnest())
        node = pl.col("node").str.strip_chars()
        times = _each(frame["t"], self._times(file)).alias("sample_utc")
        checks: dict[str, pl.Expr | pl.Series] = {
            "time": _each(frame["t"], pl.col("t").str.strip_chars().str.contains(_TIME)),
            "machine": _each(frame["node"], node.str.contains(r"^\S+$").fill_null(False)),
            "value": pl.all_horizontal(pl.col(names).str.contains(_VALUE).fill_null(True), pl.col("v0").is_not_null()),
            "number of fields": pl.col("rest").fill_null("").str.strip_chars().eq("") & pl.col("more").is_null(),
        }
        passed = frame.select(**checks)
        fine = passed.select(pl.all_horizontal(pl.all(), times.is_not_null())).to_series()
        if not fine.all():
            raws = frame.select("line", "raw").filter(~fine).iter_rows()
            for (line, raw), oks in zip(raws, passed.filter(~fine).iter_rows(named=True), strict=True):
                wrong = next((name for name in checks if not oks[name]), "time")
                parsed.rejects.append(Reject(line, f"{wrong} has the wrong form: {shown(raw)}", raw))
        nodes = _each(frame["node"], node.cast(pl.Categorical))
        rows = self._rows(frame.select(times, nodes, *names).filter(fine), names)
        if implausible(rows).null_count() < len(rows):  # rare: hardly one in hundreds of millions of lines
            value = pl.col(names).str.strip_chars().cast(pl.Float64, strict=False)
            most = schema.most(self.values[0])
            fits = frame.select(pl.all_horizontal((value <= most).fill_null(True)))[:, 0] & fine
            for line, raw in frame.select("line", "raw").filter(fine & ~fits).iter_rows():
                parsed.rejects.append(Reject(line, f"a value is not from 0 to {most:,}: {shown(raw)}", raw))
            rows, fine = self._rows(frame.select(times, nodes, *names).filter(fits), names), fits
        parsed.samples += int(fine.sum())
        return rows

    @staticmethod
    def _times(file: RawFile) -> pl.Expr:
        """Convert to naive UTC by the suffix, or in the cluster's zone without one; null for an invalid time."""
        text = pl.col("t").str.strip_chars()
        local = text.str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
        suffix = text.str.slice(20)
        result = pl.when(suffix == "").then(localized(local, file.settings.timezone)[0])
        for zone, hours in OFFSETS_H.items():
            result = result.when(suffix == zone).then(local + timedelta(hours=hours))  # type: ignore[assignment]
        utc = result.otherwise(None)
        return pl.when(utc.is_between(schema.FIRST_UTC, schema.LAST_UTC)).then(utc)

    @abstractmethod
    def _rows(self, frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        """Return the canonical columns of the valid lines; `names` are the columns with values."""


class GpuUtilization(_Samples):
    """The reader of `cluster_gpu_util`: one line per machine and minute, one column per GPU.

    'NA' means an offline GPU; a blank means that the machine has no such GPU.
    """

    name = "philly-gpu-util"
    table = schema.GPU_UTILIZATION
    column = "gpu0_util"
    values = ("utilization_percent",)

    def _rows(self, frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        gpus = [
            frame.lazy()
            .select("node", "sample_utc", pl.lit(gpu, pl.Int64).alias("gpu"), pl.col(name).str.strip_chars())
            .filter(pl.col(name) != "")
            .rename({name: "utilization_percent"})
            .with_columns(pl.col("utilization_percent").cast(pl.Float64, strict=False))
            for gpu, name in enumerate(names)
        ]
        return pl.concat(gpus).collect()


class CpuUtilization(_Samples):
    """The reader of `cluster_cpu_util`."""

    name = "philly-cpu-util"
    table = schema.CPU_UTILIZATION
    column = "cpu_util"
    values = ("utilization_percent",)

    def _rows(self, frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        value = pl.col(names[0]).str.strip_chars().cast(pl.Float64, strict=False)
        return frame.select("node", "sample_utc", value.alias("utilization_percent"))


class MemoryUtilization(_Samples):
    """The reader of `cluster_mem_util`: total and free KiB of the machine."""

    name = "philly-mem-util"
    table = schema.MEMORY_UTILIZATION
    column = "mem_total"
    values = ("total_kib", "free_kib")

    def _width(self, file: RawFile, header: str) -> int:
        width = super()._width(file, header)
        if width < 4:
            raise InputError(f"{file.path}:1: column mem_free is missing: the file has {header.strip()}")
        return width

    def _rows(self, frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        values = [
            pl.col(n)
            .str.strip_chars()
            .cast(pl.Float64, strict=False)
            .round()
            .clip(upper_bound=2.0**62)
            .cast(pl.Int64)
            .alias(name)
            for n, name in zip(names, self.values, strict=False)
        ]
        return frame.select("node", "sample_utc", *values)


class _Writer:
    """Writes a table's rows in its own thread; each batch is a row group, and at most one batch waits.

    Texts are categories: the few distinct texts become the file's dictionary, instead of a text for every row.
    """

    def __init__(self, folder: Path, table: schema.Table, same: dict[str, str]) -> None:
        self.rows = 0
        self._path = folder / f"{table.name}.parquet"
        self._columns = [
            pl.lit(same[name], pl.Categorical).alias(name) if name in same else pl.col(name) for name in table.names
        ]
        self._writer: pq.ParquetWriter | None = None
        self._thread = ThreadPoolExecutor(1)
        self._waiting: Future[None] | None = None

    def write(self, rows: pl.DataFrame) -> None:
        if len(rows) == 0:
            return
        self.rows += len(rows)
        if self._waiting:
            self._waiting.result()
        self._waiting = self._thread.submit(self._append, rows)

    def _append(self, rows: pl.DataFrame) -> None:
        arrow = rows.select(self._columns).to_arrow()
        if self._writer is None:
            # without the Arrow schema in the file, readers get texts and not categories
            self._writer = pq.ParquetWriter(self._path, arrow.schema, compression="zstd", store_schema=False)
        self._writer.write_table(arrow)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._waiting and kind is None:
                self._waiting.result()
        finally:
            self._thread.shutdown()
            if self._writer is not None:
                self._writer.close()


def _each(values: pl.Series, compute: pl.Expr) -> pl.Series:
    """Compute the expression over the column, once for each distinct value."""
    distinct = values.unique()
    return values.replace_strict(distinct, distinct.to_frame().select(compute).to_series())


def _pieces(stream: IO[bytes], line: int, path: Path) -> Iterator[pl.DataFrame]:
    """Yield frames of (line, raw) of about PIECE_BYTES each, without blank lines; `line` is the number of the first."""
    for block in whole_lines(stream, PIECE_BYTES, path):
        lines = _lines(block)
        yield _numbered(lines, line)
        line += len(lines)


def _numbered(lines: pl.Series, line: int) -> pl.DataFrame:
    numbers = pl.int_range(line, line + pl.len(), dtype=pl.Int64).alias("line")
    return lines.to_frame("raw").select(numbers, "raw").filter(pl.col("raw").str.contains(r"\S"))


def _lines(text: bytes) -> pl.Series:
    """Split text that ends with a line break into lines; bytes that are not UTF-8 become U+FFFD."""
    if not text.isascii():
        text = text.decode("utf-8", errors="replace").encode()
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    offsets = pa.py_buffer(np.concatenate([[0], ends]))
    lines = pl.Series(pl.from_arrow(pa.LargeStringArray.from_buffers(len(ends), offsets, pa.py_buffer(text))))
    return lines.str.strip_suffix("\n")


class MachineList:
    """The reader of `cluster_machine_list`: machineId, number of GPUs, single GPU mem (spaces after the commas)."""

    name = "philly-machines"
    version = 2

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the header has machineId and number of GPUs."""
        names = self._names(head.split(b"\n", 1)[0].decode("utf-8", errors="replace"))
        return "machineid" in names and "number of gpus" in names

    @staticmethod
    def _names(header: str) -> list[str]:
        return [name.strip().lstrip("\ufeff").lower() for name in header.split(",")]

    def read(self, file: RawFile) -> Parsed:
        """Read all machines; a later line for the same machine is a duplicate."""
        lines = file.text().split("\n")
        names = self._names(lines[0])
        parsed = Parsed()
        nodes: dict[str, tuple[str, int, float | None, int]] = {}
        for number, raw in enumerate(lines[1:], 2):
            if not raw.strip():
                continue
            parsed.records += 1
            row = dict(zip(names, (value.strip() for value in raw.split(",")), strict=False))
            node, gpus = row.get("machineid", ""), row.get("number of gpus", "")
            size = row.get("single gpu mem", "")
            memory = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(?:GB|G)?", size, re.IGNORECASE)
            counted = re.fullmatch("[0-9]{1,9}", gpus) and int(gpus) <= schema.MOST["gpus"]
            if not node or not counted or (size and not memory):
                reason = f"no machine name, count of GPUs or size in GB: {shown(raw)}"
                parsed.rejects.append(Reject(number, reason, raw))
            elif node in nodes:
                parsed.duplicates += 1
            else:
                nodes[node] = (node, int(gpus), float(memory[1]) if memory else None, number)
        if not parsed.records:
            raise InputError(f"{file.path}: no machine under the header")
        kinds = {"node": pl.String, "gpus": pl.Int64, "gpu_mem_gb": pl.Float64, "line": pl.Int64}
        parsed.samples = len(nodes)
        parsed.tables = {"nodes": pl.DataFrame(list(nodes.values()), schema=kinds, orient="row")}
        return parsed
