"""Readers of Alibaba's openb trace: pods and nodes of a Kubernetes cluster that shares GPUs.

Format: cluster-trace-gpu-v2023 of the public repository alibaba/clusterdata (Weng et al., USENIX ATC 2023). Times are
seconds since the start of the trace, which the tables show as the start of 1970.
"""

from __future__ import annotations

import re

import polars as pl

from traces import schema
from traces.errors import InputError
from traces.readers.common import HEAD_BYTES, Parsed, RawFile, Reject, shown
from traces.readers.csv_lines import header_names, since_zero, split_lines, whole
from traces.readers.plausible import implausible
from traces.readers.published.job_csv import CsvColumn, JobCsv
from traces.readers.raw_text import UNREADABLE, numbered_lines

PHASES = ("Succeeded", "Failed", "Running", "Pending", "Unknown")


def phase(values: pl.Series) -> pl.Series:
    """Return the phase of a pod; null unless it is one of Kubernetes' phases."""
    return values.set(~values.is_in(PHASES), None)


def thousandths(values: pl.Series) -> pl.Series:
    """Return the part of a GPU that a pod takes, in thousandths."""
    number = whole(values)
    return number.set(number > 1000, None)


class OpenbPods(JobCsv):
    """The reader of `openb_pod_list_*.csv`: a pod is a job on one node.

    A pod that takes a part of one GPU (`gpu_milli` below 1000) has one GPU, and its part in `gpu_part`. The phase is
    the last one observed. A pod deleted while Running or Pending counts as CANCELLED. If many pods share the last
    second of the trace as deletion time, they still existed at the snapshot.
    """

    name = "openb-pods"
    version = 3
    header = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "pod_phase", "creation_time", "deletion_time",
              "scheduled_time")  # fmt: skip
    fields = (
        CsvColumn("job_id", "name", required=True),
        CsvColumn("cpu_milli", "cpu_milli", whole),
        CsvColumn("requested_mem_mib", "memory_mib", whole),
        CsvColumn("requested_gpus", "num_gpu", whole),
        CsvColumn("gpu_milli", "gpu_milli", thousandths),
        CsvColumn("partition", "gpu_spec"),  # the GPU types that it may run on
        CsvColumn("qos", "qos"),
        CsvColumn("phase", "pod_phase", phase, required=True),
        CsvColumn("submit_utc", "creation_time", since_zero, required=True),
        CsvColumn("start_utc", "scheduled_time", since_zero),
        CsvColumn("end_utc", "deletion_time", since_zero),
    )

    def meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert to columns of `jobs`: states from phases, GPU time from the part of a GPU held."""
        ends = rows["end_utc"].drop_nulls()
        last = pl.lit(ends.max(), dtype=pl.Datetime("us"))
        shared = int((ends == ends.max()).sum()) > 1 if len(ends) else False
        there = pl.col("end_utc").is_null() | (pl.lit(shared) & (pl.col("end_utc") == last))
        open_ = pl.col("phase").is_in(["Running", "Pending", "Unknown"])
        state = (
            pl.when(pl.col("phase") == "Succeeded").then(pl.lit("COMPLETED"))
            .when(pl.col("phase") == "Failed").then(pl.lit("FAILED"))
            .when(~there).then(pl.lit("CANCELLED"))
            .when(pl.col("start_utc").is_null()).then(pl.lit("PENDING"))
            .otherwise(pl.lit("RUNNING"))
        )  # fmt: skip
        run = (pl.col("end_utc") - pl.col("start_utc")).dt.total_seconds()
        part = pl.col("gpu_milli").fill_null(1000) / 1000
        gpus = pl.col("requested_gpus") * part
        return rows.with_columns(
            state=state,
            state_is_inferred=open_,
            end_utc=pl.when(open_ & there).then(None).otherwise(pl.col("end_utc")),
            requested_cpus=(pl.col("cpu_milli") / 1000).ceil().cast(pl.Int64),
            requested_nodes=pl.lit(1, dtype=pl.Int64),
            gpu_type_asked=pl.col("partition"),
            gpu_part=pl.when((part < 1) & (gpus > 0)).then(part),
            gpu_time_s=pl.when(~(open_ & there)).then((run * gpus).round()).cast(pl.Int64),
        ).drop("cpu_milli", "gpu_milli", "phase")


class OpenbNodes:
    """The reader of `openb_node_list_*.csv`: name, CPUs, memory, GPUs and their model.

    The model's name may hold its memory (V100M32). A fraction of a CPU is dropped.
    """

    name = "openb-nodes"
    version = 4
    header = ("sn", "cpu_milli", "memory_mib", "gpu", "model")

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the header holds the format's columns."""
        return set(self.header) <= set(header_names(head.split(b"\n", 1)[0]))

    def read(self, file: RawFile) -> Parsed:
        """Read all nodes; a later line for the same node is a duplicate. Raises InputError without nodes."""
        parsed = Parsed()
        rows: dict[str, tuple[str, int, str | None, float | None, int | None, int | None, int]] = {}
        try:
            with file.open() as stream:
                names = header_names(stream.readline(HEAD_BYTES))
                if not set(self.header) <= set(names) or len(set(names)) < len(names):
                    what = "is missing" if not set(self.header) <= set(names) else "is named twice"
                    raise InputError(f"{file.path}:1: a column {what}: format {self.name} has {', '.join(self.header)}")
                for lines in numbered_lines(stream, 2, file.path):
                    parsed.records += len(lines)
                    parts = split_lines(parsed, lines, names)
                    columns = (parts["line"], parts["raw"], parts["sn"], whole(parts["gpu"]), parts["model"])
                    for line, raw, node, gpus, model, cpus, mib, wrong in zip(*columns, *_sizes(parts), strict=True):
                        memory = re.search(r"M(\d{1,6})$", model)
                        if not node or gpus is None or gpus > schema.MOST["gpus"]:
                            parsed.rejects.append(Reject(line, f"no node name or count of GPUs: {shown(raw)}", raw))
                        elif wrong:
                            parsed.rejects.append(Reject(line, wrong, raw))
                        elif node in rows:
                            parsed.duplicates += 1
                        else:
                            gpu = (model or None, float(memory[1]) if memory else None) if gpus else (None, None)
                            rows[node] = (node, gpus, *gpu, cpus, mib, line)
        except UNREADABLE as error:
            raise InputError(f"{file.path}: cannot be read: {error}: is the file whole?") from error
        if not parsed.records:
            raise InputError(f"{file.path}: no node under the header")
        kinds = {
            "node": pl.String, "gpus": pl.Int64, "gpu_type": pl.String, "gpu_mem_gb": pl.Float64, "cpus": pl.Int64,
            "memory_mib": pl.Int64, "line": pl.Int64,
        }  # fmt: skip
        parsed.samples = len(rows)
        parsed.tables = {"nodes": pl.DataFrame(list(rows.values()), schema=kinds, orient="row")}
        return parsed


def _sizes(parts: pl.DataFrame) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Return (whole CPUs, MiB, the reason if a value is out of bounds) of each node."""
    sizes = pl.DataFrame({"cpus": whole(parts["cpu_milli"]) // 1000, "memory_mib": whole(parts["memory_mib"])})
    return sizes["cpus"], sizes["memory_mib"], implausible(sizes)
