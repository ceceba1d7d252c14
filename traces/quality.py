"""Data quality: of each raw file gaps in time, doubtful times, rows without an end; of each cluster missing fields."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

EVER_RAN = pl.col("attempts") > 0
NODE_NAMES = "node names"
# What a log may lack: columns of the table `jobs`, all null where it does, and the fields of `sacct` that fill them.
_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    NODE_NAMES: ((), ("NodeList",)),
    "partitions": (("partition",), ("Partition",)),
    "nodes held": (("allocated_nodes",), ("NNodes",)),
    "CPUs": (("allocated_cpus", "requested_cpus"), ("AllocCPUS", "AllocTRES")),
    "GPUs": (("allocated_gpus", "requested_gpus"), ("AllocTRES",)),
    "memory": (("allocated_mem_mib", "requested_mem_mib"), ("ReqMem", "AllocTRES")),
    "time limits": (("limit_s",), ("TimelimitRaw",)),
    "users": (("user_name",), ("User",)),
    "submissions": (("submit_utc",), ("Submit",)),
    "eligible times": (("eligible_utc",), ("Eligible",)),
    "reasons of waiting": (("reason",), ("Reason",)),
}


# Columns of `jobs` that `missing_fields` reads.
COLUMNS = ("attempts", *dict.fromkeys(column for columns, _ in _FIELDS.values() for column in columns))


@dataclass(frozen=True)
class Missing:
    """What the whole log of a cluster lacks (keys of _FIELDS, in words), and the fields to add to `sacct --format`.

    `add` is empty where no file of the cluster is a dump of sacct.
    """

    what: tuple[str, ...]
    add: tuple[str, ...]


def missing_fields(jobs: pl.DataFrame, files: pl.DataFrame, placed: Collection[str]) -> dict[str, Missing]:
    """What no job of a cluster has, by cluster; a cluster that lacks nothing, or has no job, is left out.

    `jobs` and `files` are rows of the tables `jobs` and `trace_files`, `placed` the clusters with rows in `placements`.
    What jobs hold is asked of those that ran, as the others hold 0; so a log of which no job ran lacks no node names.
    """
    dumped = set(files.filter(pl.col("format") == "sacct")["cluster"])
    found = {}
    for (cluster,), of_cluster in jobs.group_by("cluster", maintain_order=True):
        ran = of_cluster.filter(EVER_RAN)
        rows = of_cluster if ran.is_empty() else ran
        what = [
            name
            for name, (columns, _) in _FIELDS.items()
            if columns and all(rows[column].null_count() == len(rows) for column in columns)
        ]
        if not ran.is_empty() and cluster not in placed:
            what.insert(0, NODE_NAMES)
        fields = dict.fromkeys(field for name in what for field in _FIELDS[name][1])
        if what:
            found[str(cluster)] = Missing(tuple(what), tuple(fields) if cluster in dumped else ())
    return found


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
