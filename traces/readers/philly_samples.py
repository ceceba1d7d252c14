"""Philly's CSV files: GPU, CPU and memory utilization a minute, and the machine list.

The utilization files may hold hundreds of millions of rows: they are read in pieces and written as they come.
Byte-equal lines are found within a piece. The times carry PDT or PST, which settles the hour of a clock change.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import timedelta
from typing import IO

import polars as pl
import pyarrow.parquet as pq

from traces import schema, store
from traces.errors import InputError
from traces.readers.common import Parsed, RawFile, Reject, localized, shown

PIECE_BYTES = 1 << 25
MOST_GPUS = 16
OFFSETS_H = {"PDT": 7, "PST": 8, "UTC": 0}
_NUMBER = r"^\s*\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s*$"
_TIME = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?:PDT|PST|UTC))?$"


class _Samples(ABC):
    """A CSV of samples: time, machine, values. Subclasses say which."""

    name: str
    version = 1
    table: schema.Table
    column: str  # of the header, by which the file is known
    values: tuple[str, ...]

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Does the header have the first value's column?"""
        first = head.split(b"\n", 1)[0].decode("utf-8", errors="replace").lower()
        names = [name.strip() for name in first.split(",")]
        return names[0].lstrip("\ufeff") == "time" and self.column in names

    def read(self, file: RawFile) -> Parsed:
        """All samples, written to the file's folder as they come. Raises InputError where a column is missing."""
        parsed = Parsed()
        assert file.folder is not None
        target = file.folder / f"{self.table.name}.parquet"
        writer: pq.ParquetWriter | None = None
        rows = 0
        try:
            with file.open() as stream:
                width = self._width(file, stream.readline().decode("utf-8", errors="replace"))
                for line, lines in _pieces(stream, 2):
                    frame = store.conform(self.table, self._piece(parsed, file, line, lines, width))
                    arrow = frame.to_arrow()
                    writer = writer or pq.ParquetWriter(target, arrow.schema, compression="zstd")
                    writer.write_table(arrow)
                    rows += len(frame)
        except (OSError, EOFError) as error:
            raise InputError(f"{file.path}: cannot be read: {error}: is the file whole?") from error
        finally:
            if writer is not None:
                writer.close()
        if parsed.records == 0:
            raise InputError(f"{file.path}: no sample under the header")
        parsed.written = {self.table.name: rows}
        return parsed

    def _width(self, file: RawFile, header: str) -> int:
        names = [name.strip().lower() for name in header.split(",") if name.strip()]
        known = ("time", "machineid", "machine_id")
        if len(names) < 2 + len(self.values[:1]) or names[1] not in known:
            raise InputError(
                f"{file.path}:1: column machineId or {self.column} is missing: the file has {', '.join(names)}"
            )
        return len(names)

    def _piece(self, parsed: Parsed, file: RawFile, line: int, lines: list[str], width: int) -> pl.DataFrame:
        """The table's rows of some lines; counts them and notes rejects."""
        frame = pl.DataFrame({"raw": lines}, schema={"raw": pl.String}).with_row_index("line", line)
        frame = frame.with_columns(pl.col("line").cast(pl.Int64)).filter(pl.col("raw").str.strip_chars() != "")
        parsed.records += len(frame)
        total = len(frame)
        frame = frame.unique("raw", keep="first", maintain_order=True)
        parsed.duplicates += total - len(frame)
        names = [f"v{i}" for i in range(width - 2)]
        # a trailing comma is common: one more, empty field
        split = (
            pl.col("raw").str.split_exact(",", width + 1).struct.rename_fields(["t", "node", *names, "rest", "more"])
        )
        frame = (
            frame.with_columns(split.alias("parts")).unnest("parts").with_columns(pl.col("t", "node").str.strip_chars())
        )
        ok_value = [
            (pl.col(n).str.contains(_NUMBER) | pl.col(n).str.strip_chars().is_in(["NA", ""]) | pl.col(n).is_null())
            for n in names
        ]
        checks = {
            "time": pl.col("t").str.contains(_TIME),
            "machine": pl.col("node").str.contains(r"^\S+$").fill_null(False),
            "value": pl.all_horizontal(*ok_value, pl.col("v0").is_not_null()),
            "number of fields": pl.col("rest").fill_null("").str.strip_chars().eq("") & pl.col("more").is_null(),
        }
        frame = frame.with_columns(**{f"ok_{n}": c.fill_null(False) for n, c in checks.items()})
        frame = frame.with_columns(self._times(file).alias("sample_utc"))
        fine = pl.all_horizontal(*(f"ok_{n}" for n in checks), pl.col("sample_utc").is_not_null())
        for row in frame.filter(~fine).iter_rows(named=True):
            wrong = next((n for n in checks if not row[f"ok_{n}"]), "time")
            parsed.rejects.append(Reject(row["line"], f"{wrong} is not of its form: {shown(row['raw'])}", row["raw"]))
        frame = frame.filter(fine)
        parsed.samples += len(frame)
        return self._rows(frame, names).with_columns(
            pl.lit(file.settings.name).alias("cluster"), pl.lit(file.sha256).alias("trace_sha256")
        )

    @staticmethod
    def _times(file: RawFile) -> pl.Expr:
        """Naive UTC by the suffix; a time without one is read in the cluster's zone."""
        local = pl.col("t").str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
        suffix = pl.col("t").str.slice(20)
        result = pl.when(suffix == "").then(localized(local, file.settings.timezone)[0])
        for zone, hours in OFFSETS_H.items():
            result = result.when(suffix == zone).then(local + timedelta(hours=hours))  # type: ignore[assignment]
        return result.otherwise(None)

    @abstractmethod
    def _rows(self, frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        """The canonical columns of the lines that passed; `names` are the columns that hold values."""


class GpuUtilization(_Samples):
    """`cluster_gpu_util`: a line a machine and minute, a column a GPU. 'NA' is an offline GPU, nothing is no GPU."""

    name = "philly-gpu-util"
    table = schema.GPU_UTILIZATION
    column = "gpu0_util"
    values = ("utilization_percent",)

    def _rows(self, frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        long = frame.select("sample_utc", "node", *names).unpivot(
            names, index=["sample_utc", "node"], variable_name="gpu", value_name="text"
        )
        long = long.with_columns(pl.col("text").str.strip_chars()).filter(pl.col("text").fill_null("") != "")
        return long.select(
            "node",
            "sample_utc",
            pl.col("gpu").str.slice(1).cast(pl.Int64),
            pl.col("text").cast(pl.Float64, strict=False).alias("utilization_percent"),
        )


class CpuUtilization(_Samples):
    """`cluster_cpu_util`."""

    name = "philly-cpu-util"
    table = schema.CPU_UTILIZATION
    column = "cpu_util"
    values = ("utilization_percent",)

    def _rows(self, frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        value = pl.col(names[0]).str.strip_chars().cast(pl.Float64, strict=False)
        return frame.select("node", "sample_utc", value.alias("utilization_percent"))


class MemoryUtilization(_Samples):
    """`cluster_mem_util`: KiB in the machine and free."""

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
            pl.col(n).str.strip_chars().cast(pl.Float64, strict=False).round().cast(pl.Int64).alias(name)
            for n, name in zip(names, self.values, strict=False)
        ]
        return frame.select("node", "sample_utc", *values)


def _pieces(stream: IO[bytes], line: int) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines) of about PIECE_BYTES each."""
    while lines := stream.readlines(PIECE_BYTES):
        yield (
            line,
            b"".join(lines).decode("utf-8", errors="replace").replace("\r\n", "\n").removesuffix("\n").split("\n"),
        )
        line += len(lines)


class MachineList:
    """`cluster_machine_list`: machineId, number of GPUs, single GPU mem (spaces after the commas)."""

    name = "philly-machines"
    version = 1

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """A header with machineId and number of GPUs."""
        names = self._names(head.split(b"\n", 1)[0].decode("utf-8", errors="replace"))
        return "machineid" in names and "number of gpus" in names

    @staticmethod
    def _names(header: str) -> list[str]:
        return [name.strip().lstrip("\ufeff").lower() for name in header.split(",")]

    def read(self, file: RawFile) -> Parsed:
        """All machines; the later line of a machine named twice is a duplicate."""
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
            memory = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:GB|G)?", size, re.IGNORECASE)
            if not node or not gpus.isdigit() or (size and not memory):
                reason = f"not a machine, a count of GPUs and a size in GB: {shown(raw)}"
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
