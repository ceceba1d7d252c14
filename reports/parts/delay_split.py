"""Part of section `waits`: the causes that add up to the wait, and the Philly study's two-way split."""

from __future__ import annotations

from typing import Any

import polars as pl

from features.causes.waits import MAIN_CAUSES
from features.resources.sizes import by_size, size_in_words
from reports import figures
from reports import format as fmt
from reports.causes import CAUSES, shares
from reports.layout import Figure, Section, TableView, columns, cut
from reports.source import Source
from traces.counted import counted

MOST_ROWS = 25
COLUMNS = tuple(cause.column for cause in CAUSES)
_WAITED = "FROM queueing_delay WHERE cluster = ? AND main_cause IS NOT NULL"
INFERRED = ("dependency_s", "own_jobs_s", "array_limit_s")  # causes that `evidence` is about
LEAST_SHARE = 0.01  # of the waiting, for a cause to be in the sentence; the table has all causes


def split(source: Source, section: Section, by: pl.DataFrame) -> None:
    """Add seconds and shares of each cause, in total, by size and by user; then the split of the Philly study."""
    _causes(source, section, by)
    _as_philly(source, section, by)
    _sensitivity(source, section)


def _causes(source: Source, section: Section, by: pl.DataFrame) -> None:
    main = dict(source.read(f"SELECT main_cause, count(*) {_WAITED} GROUP BY 1").iter_rows())
    jobs = sum(main.values())
    if not jobs:
        section.missing.append("No job that started had to wait, so there is no wait to explain.")
        return
    listed = ", ".join(f'sum("{name}")::BIGINT AS "{name}"' for name in COLUMNS)
    sums = source.read(f"SELECT {listed} {_WAITED}").row(0, named=True)
    total = sum(sums.values())
    parts = [f"{fmt.percent(share)} {cause.words}" for cause, share in shares(sums).items() if share >= LEAST_SHARE]
    section.sentences.append(f"Jobs waited {fmt.duration(total)} in total: {'; '.join(parts)}.")
    limits = source.read(
        f"SELECT own_limit {_WAITED} AND own_limit_s > 0 AND own_limit IS NOT NULL "
        "GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 3"
    )
    if not limits.is_empty():
        named = ", ".join(fmt.text(name) for name in limits["own_limit"])
        section.sentences.append(f"Limits that kept jobs waiting: {named}.")
    section.sentences += _pools(source) + _inferred(source)
    section.missing += _unexplained(source)
    rows = [
        {"cause": cause.name, "meaning": cause.words, "wait_s": sums[cause.column], "share": sums[cause.column] / total,
         "jobs": main.get(MAIN_CAUSES[cause.column], 0)}
        for cause in CAUSES
        if sums[cause.column]
    ]  # fmt: skip
    section.tables.append(
        TableView(
            "causes",
            "What jobs waited for",
            "Every second of every wait, up to the first start, counts once, for the first cause in this order that "
            f"applied; the sum is {fmt.duration(total)}. Main cause of: jobs for which it was the largest cause. "
            + source.caption(jobs, "jobs"),
            columns("cause|cause", "wait_s|waiting|duration", "share|share|percent", "jobs|main cause of|count",
                    "meaning|meaning"),
            rows,
        )
    )  # fmt: skip
    section.figures.append(_figure(source, by, sums, jobs))
    for dimension, title, label in (
        ("size_bucket", f"What jobs waited for, by {source.units} requested", source.units),
        ("user_name", "What jobs waited for, by user, longest total wait first", "user"),
        ("partition", "What jobs waited for, by partition or virtual cluster", "partition"),
    ):
        if (table := _by(source, by, dimension, title, label)) is not None:
            section.tables.append(table)


def _unexplained(source: Source) -> list[str]:
    """Say what the log cannot show about the causes."""
    found = source.read(f"SELECT DISTINCT cause_basis {_WAITED} AND cause_basis IS NOT NULL ORDER BY 1")
    bases = found["cause_basis"].to_list()
    if bases in ([], ["placements"]):
        return []
    return [
        f"The log names no nodes, so whether a job would have fitted is judged by {' and '.join(bases)} over the whole "
        "cluster. If enough was free in total, but only scattered over nodes or in other partitions, that time counts "
        "as behind others or as unknown."
    ]


def _pools(source: Source) -> list[str]:
    """Say how many nodes jobs could use, and how that number is known."""
    asked = source.read(
        f"SELECT DISTINCT pool_nodes, pool_known_by {_WAITED} AND cluster_full_s + nodes_down_s > 0 "
        "AND pool_nodes IS NOT NULL"
    )
    if asked.is_empty():
        return []
    sizes = sorted(asked["pool_nodes"].unique().to_list())
    nodes = ("" if len(sizes) == 1 else f"{sizes[0]:,} to ") + counted(sizes[-1], "node")
    known_by = " or ".join(fmt.text(name) for name in sorted(asked["pool_known_by"].drop_nulls().unique()))
    return [f"“Full” and “out of service” refer to the {nodes} that each job could use ({known_by})."]


def _inferred(source: Source) -> list[str]:
    """Say how many waits for the user's own jobs are inferred, with the evidence of the longest."""
    inferred_s = " + ".join(INFERRED)
    found = source.read(
        f"SELECT count(*) AS jobs, max_by(evidence, {inferred_s}) AS longest {_WAITED} AND evidence IS NOT NULL "
        f"AND {inferred_s} > 0"
    ).row(0, named=True)
    if not found["jobs"]:
        return []
    longest, jobs = fmt.text(found["longest"]), counted(found["jobs"], "job")
    return [
        f"For {jobs}, waiting behind jobs of the same user is inferred from starts and ends "
        f"(the longest wait: {longest})."
    ]


def _figure(source: Source, by: pl.DataFrame, sums: dict[str, int], n: int) -> Figure:
    rows = [{"value": None, **sums}]
    found = [cause for cause in CAUSES if sums[cause.column]]
    sizes = by.filter((pl.col("dimension") == "size_bucket") & pl.col("value").is_not_null()).sort(by_size("value"))
    groups = {}
    for row in [*rows, *sizes.to_dicts()]:
        if parts := shares(row):
            groups["all" if row["value"] is None else size_in_words(row["value"], source.unit)] = [
                parts.get(cause, 0.0) for cause in found
            ]
    return Figure(
        "waits_causes",
        "What jobs wait for",
        f"Shares of the waiting time by cause. {source.caption(n, 'jobs')}",
        figures.shares(
            f"{source.slug}-causes", [cause.name for cause in found], groups, [cause.tint for cause in found]
        ),
        "Stacked shares of the causes of waits, in all and by size; the table of causes has the figures.",
    )  # fmt: skip


def _by(source: Source, by: pl.DataFrame, dimension: str, title: str, label: str) -> TableView | None:
    rows = by.filter((pl.col("dimension") == dimension) & (pl.sum_horizontal(COLUMNS) > 0))
    if rows.is_empty() or rows["value"].null_count() == rows.height:
        return None
    total = pl.sum_horizontal(COLUMNS)
    rows = rows.with_columns(total.alias("all_s"), *((pl.col(name) / total).alias(_parts(name)) for name in COLUMNS))
    rows = rows.sort(by_size("value")) if dimension == "size_bucket" else rows.sort("all_s", descending=True)
    if dimension == "user_name":
        rows = source.hide(rows.rename({"value": "user_name"})).rename({"user_name": "value"})
    shown, left_out = cut(rows.to_dicts(), MOST_ROWS)
    return TableView(
        f"causes_by_{dimension}",
        title,
        f"Shares of the waiting time. {source.caption(int(rows['jobs'].sum()), 'jobs')}",
        columns(
            f"value|{label}|name", "jobs|jobs|count", "all_s|waiting|duration",
            *(f"{_parts(cause.column)}|{cause.name}|percent" for cause in CAUSES if rows[cause.column].sum()),
        ),
        shown,
        left_out,
    )  # fmt: skip


def _parts(column: str) -> str:
    return f"{column.removesuffix('_s')}_share"


def _as_philly(source: Source, section: Section, by: pl.DataFrame) -> None:
    """Split waits into fair share and the rest, which the study calls fragmentation, by the source of the quota."""
    known = source.read(
        "SELECT count(*) AS jobs, coalesce(sum(fair_share_delay_s), 0)::DOUBLE AS fair, "
        "coalesce(sum(fragmentation_delay_s), 0)::DOUBLE AS rest, list_sort(list(DISTINCT quota_source)) AS kinds "
        "FROM queueing_delay WHERE cluster = ? AND fair_share_delay_s IS NOT NULL"
    ).row(0, named=True)
    fair, rest = known["fair"], known["rest"]
    if fair + rest <= 0:
        return  # without a quota, given or inferred, the study's split adds nothing to the causes
    label = " and ".join(f"{kind} quotas" for kind in known["kinds"] or [])
    section.sentences.append(
        f"By the Philly study's split (with {label}), {fmt.percent(_share(fair, rest))} of the eligible waiting is "
        f"fair-share delay (the group was at its quota). The study calls the rest, {fmt.percent(_share(rest, fair))}, "
        "fragmentation delay, whether the cluster was full or not."
    )
    sizes = by.filter(
        (pl.col("dimension") == "size_bucket") & (pl.col("fair_share_delay_s") + pl.col("fragmentation_delay_s") > 0)
    ).sort(by_size("value"))
    rows: list[dict[str, Any]] = [{"value": "all", "fair_share_delay_s": int(fair), "fragmentation_delay_s": int(rest)}]
    rows += [
        {
            "value": size_in_words(row["value"], source.unit),
            **{name: row[name] for name in ("fair_share_delay_s", "fragmentation_delay_s")},
        }
        for row in sizes.to_dicts()
    ]
    rows = [{**row, "share": _share(row["fair_share_delay_s"], row["fragmentation_delay_s"])} for row in rows]
    section.tables.append(
        TableView(
            "philly_split",
            f"The Philly study's split ({label})",
            "Eligible waiting of jobs with a quota. An inferred quota is the 99th percentile of what the group used "
            f"while busy. {source.caption(known['jobs'], 'jobs')}",
            columns("value|size", "fair_share_delay_s|fair-share delay|duration",
                    "fragmentation_delay_s|fragmentation delay|duration", "share|fair share|percent"),
            rows,
        )
    )  # fmt: skip


def _share(part: float, other: float) -> float:
    return part / (part + other)


def _sensitivity(source: Source, section: Section) -> None:
    """Repeat the split with quotas inferred from other quantiles: a share that varies widely is no finding."""
    splits = source.rows("quota_sensitivity")
    splits = splits.filter(pl.col("quota_source") == "inferred") if not splits.is_empty() else splits
    if splits.height < 2:
        return
    low, high = splits["fair_share_delay_share"].min(), splits["fair_share_delay_share"].max()
    section.sentences.append(
        f"These quotas are inferred, and the split depends on how: with quotas from the {_quantile(splits, 0)} to the "
        f"{_quantile(splits, -1)} of a group's use, fair-share delay is between {fmt.percent(_number(low))} and "
        f"{fmt.percent(_number(high))} of the eligible waiting. Give quotas in clusters.toml to settle it."
    )
    section.tables.append(
        TableView(
            "quota_sensitivity",
            "How the split depends on the inferred quota",
            "A group's quota is the quantile of its own use over the time in which it used anything. "
            + source.caption(int(str(splits["jobs"].max())), "jobs"),
            columns(
                "quantile|quota: quantile of use|percent", "is_default|used above",
                "quota_gpus|sum of quotas, GPUs|count",
                "fair_share_delay_share|fair-share delay|percent", "fair_share_jobs|jobs, mainly fair share|count",
                "fragmentation_jobs|jobs, mainly fragmentation|count",
            ),
            [{**row, "is_default": "yes" if row["is_default"] else ""} for row in splits.sort("quantile").to_dicts()],
        )
    )  # fmt: skip


def _quantile(splits: pl.DataFrame, at: int) -> str:
    share = float(splits.sort("quantile")["quantile"][at])
    return "maximum" if share >= 1 else "median" if share == 0.5 else f"{100 * share:.0f} % quantile"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
