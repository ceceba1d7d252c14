"""Data quality: time gaps, ambiguous times and missing ends of each raw file, and missing fields of each cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

EVER_RAN = pl.col("attempts") > 0
NODE_NAMES = "node names"
# Information that a log may lack: columns of the table `jobs` (then all null), and the `sacct` fields that fill them.
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
    """The information that all logs of a cluster lack.

    `what` holds keys of _FIELDS, in words. `add` holds the fields to add to `sacct --format`; it is empty if no file of
    the cluster is a dump of sacct.
    """

    what: tuple[str, ...]
    add: tuple[str, ...]


def missing_fields(jobs: pl.DataFrame, files: pl.DataFrame, placed: Collection[str]) -> dict[str, Missing]:
    """Return the fields that no job of a cluster has, by cluster, for clusters with jobs and missing fields.

    `jobs` and `files` are rows of the tables `jobs` and `trace_files`; `placed` are the clusters with rows in
    `placements`. Only jobs that ran are checked, because the others hold 0 resources. So a log in which no job ran does
    not count as lacking node names.
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
    """Summarise rows of the table `jobs` as one row a raw file, with these columns.

    - `trace_sha256`, `jobs`
    - `ambiguous`: rows in the hour of a clock change that nothing in the log settles
    - `end_before_start`: rows for which the log prints an end before the start
    - `no_end_share`: share of the jobs that ran and have no end
    - `gap_s`, `gap_from_utc`: longest time (s) without a submission, and when it began
    - `median_gap_s`: median time (s) between submissions; a dump with missing days has a far longer `gap_s`
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
    """Return (reason without its values, count, text of the first) for rows of `rejects`, most frequent first."""
    if rejects.is_empty():
        return []
    pattern = pl.col("reason").str.replace_all(r"'[^']*'|\"[^\"]*\"|\d+", "…")
    counted = (
        rejects.sort("line").with_columns(pattern.alias("pattern")).group_by("pattern", maintain_order=True)
        .agg(n=pl.len(), example=pl.col("raw").first()).sort("n", descending=True, maintain_order=True)
    )  # fmt: skip
    return [(reason, int(n), raw) for reason, n, raw in counted.head(most).iter_rows()]
