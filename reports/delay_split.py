"""Why jobs waited: fair share against fragmentation, and how far that split hangs on the quotas."""

from __future__ import annotations

import polars as pl

from reports import figures
from reports import format as fmt
from reports.layout import Figure, Section, TableView, columns
from reports.sizes import by_size, gpus
from reports.source import Source


def split(source: Source, section: Section, delays: pl.DataFrame, by: pl.DataFrame) -> None:
    """Fair share against fragmentation, seconds per cause, labelled by where the quota came from."""
    known = delays.filter(pl.col("fair_share_delay_s").is_not_null())
    sources = sorted(known["quota_source"].drop_nulls().unique().to_list())
    if known.is_empty() or not sources:
        section.missing.append(
            "Waits are not split into fair-share and fragmentation delay: no quota is given for this cluster, and the "
            "log does not name two groups (accounts or virtual clusters) from whose use quotas could be inferred."
        )
        return
    label = " and ".join(f"{kind} quotas" for kind in sources)
    fair, rest = float(known["fair_share_delay_s"].sum()), float(known["fragmentation_delay_s"].sum())
    if fair + rest <= 0:
        section.missing.append(f"With {label} no job has an eligible wait to split.")
        return
    section.sentences.append(
        f"By {label}, {fmt.percent(fair / (fair + rest))} of the eligible waiting is fair-share delay (the group was "
        f"at its quota) and {fmt.percent(rest / (fair + rest))} fragmentation delay (within it, but no fitting GPUs)."
    )
    sizes = by.filter(
        (pl.col("dimension") == "size_bucket")
        & pl.col("value").is_not_null()
        & (pl.col("fair_share_delay_s") + pl.col("fragmentation_delay_s") > 0)
    ).sort(by_size("value"))
    groups = {"all": (fair / (fair + rest), rest / (fair + rest))}
    for row in sizes.to_dicts():
        both = row["fair_share_delay_s"] + row["fragmentation_delay_s"]
        groups[gpus(row["value"])] = (row["fair_share_delay_s"] / both, row["fragmentation_delay_s"] / both)
    section.figures.append(
        Figure(
            "waits_split",
            f"What one waits for ({label})",
            f"Shares of the eligible waiting time. Quotas are {' and '.join(sources)}"
            + (" (99th percentile of what the group used while busy)" if "inferred" in sources else "")
            + f". {source.caption(known.height, 'jobs')}",
            figures.shares(
                f"{source.slug}-split",
                ("fair-share delay", "fragmentation delay"),
                groups,
                ("fair_share", "fragmentation"),
            ),
            "Stacked shares of fair-share and fragmentation delay by size.",
        )
    )
    _sensitivity(source, section)


def _sensitivity(source: Source, section: Section) -> None:
    """The split again with quotas inferred from other quantiles: a share that swings is no finding."""
    found = source.rows("quota_sensitivity")
    found = found.filter(pl.col("quota_source") == "inferred") if not found.is_empty() else found
    if found.height < 2:
        return
    low, high = found["fair_share_delay_share"].min(), found["fair_share_delay_share"].max()
    section.sentences.append(
        f"Those quotas are inferred, and the split hangs on how: with quotas from the {_quantile(found, 0)} to the "
        f"{_quantile(found, -1)} of a group's use, fair-share delay is between {fmt.percent(_number(low))} and "
        f"{fmt.percent(_number(high))} of the eligible waiting. Give quotas in clusters.toml to settle it."
    )
    section.tables.append(
        TableView(
            "quota_sensitivity",
            "How the split depends on the inferred quota",
            "A group's quota is the quantile of its own use over the time in which it used anything. "
            + source.caption(int(str(found["jobs"].max())), "jobs"),
            columns(
                "quantile|quota: quantile of use|percent", "is_default|used above",
                "quota_gpus|sum of quotas, GPUs|count",
                "fair_share_delay_share|fair-share delay|percent", "fair_share_jobs|jobs, mostly fair share|count",
                "fragmentation_jobs|jobs, mostly fragmentation|count",
            ),
            [{**row, "is_default": "yes" if row["is_default"] else ""} for row in found.sort("quantile").to_dicts()],
        )
    )  # fmt: skip


def _quantile(found: pl.DataFrame, at: int) -> str:
    share = float(found.sort("quantile")["quantile"][at])
    return "maximum" if share >= 1 else "median" if share == 0.5 else f"{100 * share:.0f} % quantile"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
