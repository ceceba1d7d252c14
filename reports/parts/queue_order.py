"""Part of section `waits`: the order in which the queue was served, and what a relaxed placement saved."""

from __future__ import annotations

import polars as pl

from features.resources.sizes import by_size
from reports import format as fmt
from reports.layout import Section, TableView, columns
from reports.source import Source


def order(source: Source, section: Section) -> None:
    """Add the starts out of order, and how many of them took nothing from the overtaken jobs."""
    orders = source.rows("start_order_by")
    whole = orders.filter(pl.col("dimension") == "all").to_dicts() if not orders.is_empty() else []
    if not whole or not whole[0]["starts"]:
        return
    (all_,) = whole
    is_named = all_["harmless_share"] is not None and all_["harmless_share"] >= 0.005
    harmless = (
        f"; at least {fmt.percent(all_['harmless_share'])} of these were harmless: no overtaken job would have fitted "
        "in the meantime"
    )
    section.sentences.append(
        f"{fmt.percent(all_['out_of_order_share'])} of the starts overtook a job of the same queue that had been "
        f"eligible longer{harmless if is_named else ''}."
    )
    rows = pl.concat(
        [
            orders.filter(pl.col("dimension") == "all"),
            orders.filter(pl.col("dimension") == "size_bucket").sort(by_size("value")),
            orders.filter(pl.col("dimension") == "partition").sort("starts", descending=True).head(20),
        ]
    )
    names = {"all": "all", "size_bucket": source.units, "partition": "queue"}
    section.tables.append(
        TableView(
            "start_order",
            "Starts out of order",
            "Out of order: a job of the same partition or virtual cluster had been eligible longer and still waited. "
            f"Harmless: counted in {source.units}, no overtaken job would have fitted while this job ran, even without "
            f"it (a lower bound). {source.caption(all_['starts'], 'starts')}",
            columns(
                "by|by", "value|value|name", "starts|starts|count", "out_of_order|out of order|count",
                "out_of_order_share|of starts|percent", "harmless|harmless|count",
                "harmless_share|of those out of order|percent",
            ),
            [{**row, "by": names[row["dimension"]]} for row in rows.to_dicts()],
        )
    )  # fmt: skip


def locality(source: Source, section: Section) -> None:
    """Add waits by nodes beyond the fewest possible, if any job was placed on more."""
    spreads = source.rows("locality")
    if spreads.is_empty() or not spreads.filter(pl.col("excess_nodes") > 0)["jobs"].sum():
        return
    rows = spreads.sort(by_size("size_bucket"), "excess_nodes").to_dicts()
    section.tables.append(
        TableView(
            "locality",
            "Waits by how far the placement was relaxed",
            "Nodes of the first placement beyond the fewest that can hold the job's GPUs. Shared: mean share of its "
            f"node time with another job on the node. {source.caption(int(spreads['jobs'].sum()), 'jobs')}",
            columns(
                "size_bucket|GPUs", "excess|nodes beyond the fewest", "jobs|jobs|count",
                "wait_p50_s|median wait|duration",
                "wait_mean_s|mean|duration", "wait_p90_s|p90|duration", "wait_p95_s|p95|duration",
                "run_p50_s|ran, median|duration", "shared_share|shared|percent",
            ),
            [{**row, "excess": "3 or more" if row["excess_nodes"] == 3 else str(row["excess_nodes"])} for row in rows],
        )
    )  # fmt: skip
