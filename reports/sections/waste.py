"""Section `waste`: how much of the main resource (GPUs, cores, memory, nodes) is idle, held or not."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.resources.capacity import KNOWN_BY, Resource
from features.resources.sizes import by_size
from reports import figures, usage
from reports import format as fmt
from reports.advice import findings
from reports.layout import Figure, Section, TableView, columns, cut
from reports.parts.measured import measured
from reports.source import Source
from traces.counted import counted

MOST_USERS = 25
SHORTEST_PLOT = 3  # points over time; fewer make no line
_WASTED: dict[Resource, str] = {"GPU": "GPUs are", "core": "cores are", "memory": "memory is", "node": "nodes are"}


def waste(source: Source) -> Section:
    """Return the held share over time, by partition, user, account and node, and the efficiency of jobs.

    For GPUs it adds fragmentation, spread over nodes and measured utilization.
    """
    section = Section("waste", f"Where {_WASTED[source.machine.get('resource', 'node')]} wasted")
    _allocated(source, section)
    usage.partitions(source, section)
    _by_user(source, section)
    usage.accounts(source, section)
    usage.efficiency(source, section)
    usage.nodes(source, section)
    _fragmentation(source, section)
    if source.unit == "GPU":
        _empty_nodes(source, section)
        _spread(source, section)
        measured(source, section, is_accounted=usage.gpus(source, section))
    return section


def _floats(frame: pl.DataFrame, column: str) -> NDArray[np.float64]:
    return frame[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _allocated(source: Source, section: Section) -> None:
    held = source.rows("utilization_allocated")
    unknown = "How much was allocated over time is unknown: no run has both a time and a size."
    if held.is_empty():
        section.missing.append(source.why_empty("utilization_allocated", "start_utc", unknown))
        return
    held = held.filter((pl.col("scope") == "cluster") & pl.col("is_binding")).sort("hour_utc")
    in_use = findings.in_use(source)
    if held.is_empty() or in_use is None:
        section.missing.append(unknown)
        return
    unit, machine = source.unit, source.machine
    section.sentences += [
        f"{in_use}: {float(held['allocated_s'].sum()) / 3600:,.0f} {unit} h, with running jobs counted until the end "
        "of the log.",
        f"Shares are counted in {source.resource}: {machine['why']}.",
    ]
    if held["capacity_s"].null_count():
        section.sentences.append(
            f"No job of the log ended before {fmt.moment(machine['since_utc'])} UTC, although many had started. The "
            "log lacks the jobs that ended earlier, so shares of the capacity cover only the time after that."
        )
    if machine["contradictions"]:
        section.sentences.append(
            "The log contradicts the known size of the cluster, so the larger number counts: "
            f"{machine['contradictions']}."
        )
    if machine["known_by"] == KNOWN_BY["peak in use"]:
        section.missing.append(
            "The size of the cluster is unknown. The report assumes the most that was in use at once, so shares are "
            "upper bounds. Give a node list, or set the nodes and their GPUs and CPUs in clusters.toml."
        )
    if held.height < SHORTEST_PLOT:
        section.missing.append("The window is too short for a plot over time.")
        return
    section.figures.append(_allocated_share(source, held))


def _allocated_share(source: Source, held: pl.DataFrame) -> Figure:
    return Figure(
        "allocated",
        f"{source.unit} hours allocated",
        f"Share of the cluster's {source.unit} hours held by jobs, averaged into at most {figures.MOST_POINTS} points. "
        + source.caption(held.height, "hours"),
        figures.over_time(
            f"{source.slug}-allocated",
            held["hour_utc"].to_list(),
            {"allocated": (_floats(held, "allocated_share"), "allocated")},
            f"share of {source.resource}",
            fill=True,
            as_share=True,
        ),
        "Allocated share over time.",
    )


def _by_user(source: Source, section: Section) -> None:
    """Show which users held the cluster, over the whole log and in its last four weeks."""
    held = source.rows("allocated_by_user")
    if held.is_empty() or not held["allocated_s"].sum() or held["user_name"].null_count() == held.height:
        return
    unit, last = held["unit"][0], held["week_utc"].max()
    recent = pl.col("allocated_s").filter(pl.col("week_utc") > pl.lit(last).dt.offset_by("-4w")).sum()
    users = (
        held.group_by("user_name")
        .agg(
            (pl.col("allocated_s").sum() / 3600).alias("hours"),
            (recent / 3600).alias("recent"),
            pl.len().alias("weeks"),
        )
        .with_columns(
            (pl.col("hours") / pl.col("hours").sum()).alias("share"),
            (pl.col("recent") / pl.col("recent").sum()).alias("recent_share"),
        )
        .sort("hours", "user_name", descending=[True, False])
    )
    top = users["share"].head(3).sum()
    section.sentences.append(
        f"The three largest users held {fmt.percent(float(top))} of all {unit} hours."
        if users.height > 3
        else f"{counted(users.height, 'user')} held all {unit} hours."
    )
    rows, left_out = cut(users.to_dicts(), MOST_USERS)
    section.tables.append(
        TableView(
            "allocated_by_user",
            f"{unit} hours held, by user",
            f"Weeks: number of weeks in which the user held anything. {source.caption(users.height, 'users')}",
            columns(
                "user_name|user|name", f"hours|{unit} hours|number", "share|of all|percent", "weeks|weeks|count",
                "recent_share|of the last 4 weeks|percent",
            ),
            rows,
            left_out,
        )
    )  # fmt: skip


def _fragmentation(source: Source, section: Section) -> None:
    state = source.rows("fragmentation")
    if state.is_empty():
        section.missing.append("The table fragmentation holds nothing for this cluster.")
        return
    state = state.sort("time_utc")
    in_gpus = source.unit == "GPU" and all(
        state[name].null_count() < state.height for name in ("free_gpus", "largest_gang_gpus")
    )
    unit, free, gang = ("GPU", "free_gpus", "largest_gang_gpus") if in_gpus else ("node", "empty_nodes", "empty_nodes")
    known = state.with_columns(pl.col(free).alias("free"), pl.col(gang).alias("gang")).drop_nulls("free")
    _fitted(source, section)
    if known.is_empty():
        section.missing.append(f"Free {unit}s over time are unknown: nothing shows how many {unit}s the cluster has.")
        return
    free_mean, gang_mean = (float(str(known[name].mean() or 0)) for name in ("free", "gang"))
    section.sentences.append(
        f"On average {free_mean:,.1f} GPUs were free, {gang_mean:,.1f} of them on empty nodes, where a gang could "
        "start at once."
        if in_gpus
        else f"On average {free_mean:,.1f} nodes had no job."
    )
    note = ""
    if state["basis"][0] == "node counts":
        note = (
            "The log names no nodes, so the report assumes that jobs hold whole nodes and free GPUs are not scattered. "
        )
        if in_gpus:
            section.missing.append("Whether free GPUs are scattered over nodes is unknown: the log names no nodes.")
    elif in_gpus and isinstance(unusable := known["unusable_free_share"].mean(), float):
        section.sentences.append(
            f"A job drawn from the trace's own mix could not use {fmt.percent(unusable)} of the free GPUs, because "
            "they are on nodes with too few free GPUs for it."
        )
    if known.height >= SHORTEST_PLOT:
        section.figures.append(_free_over_time(source, known, unit, note))


def _fitted(source: Source, section: Section) -> None:
    """Say how much of the waiting passed although the job would have fitted on the nodes that it could use."""
    whole = source.whole("queueing_by")
    if whole is None or not whole["wait_total_s"] or whole["behind_s"] is None:
        return
    fitted = whole["behind_s"] + whole["reservation_s"]
    section.sentences.append(
        f"{fmt.percent(fitted / whole['wait_total_s'])} of the waiting passed although enough was free for the job on "
        "the nodes that it could use: other users' jobs came first, or nothing started."
    )


def _free_over_time(source: Source, known: pl.DataFrame, unit: str, note: str) -> Figure:
    """Plot what was free over time.

    `known` holds the columns time_utc, free and gang, the latter two in `unit`. The caption begins with `note`.
    """
    series = {f"free {unit}s": (_floats(known, "free"), "free")}
    if unit == "GPU":
        series["largest gang"] = (_floats(known, "gang"), "gang")
    return Figure(
        "fragmentation",
        "Free GPUs against the largest gang that could start" if unit == "GPU" else "Nodes without a job",
        f"{note}Values are averaged into at most {figures.MOST_POINTS} points. "
        + source.caption(known.height, "instants"),
        figures.over_time(f"{source.slug}-fragmentation", known["time_utc"].to_list(), series, f"{unit}s"),
        f"Free {unit}s{' and the largest startable gang' if unit == 'GPU' else ''} over time.",
    )


def _empty_nodes(source: Source, section: Section) -> None:
    """Show the share of empty nodes at each tenth of use, which bounds what defragmentation could give back."""
    empty = source.rows("empty_nodes")
    if empty.is_empty():
        return
    unit = empty["unit"][0]
    rows = [
        {
            **row,
            "used": f"{100 * row['utilization_from']:.0f}"
            + (f" to {100 * row['utilization_from'] + 10:.0f} %" if row["utilization_from"] < 1 else " %"),
        }
        for row in empty.sort("utilization_from").to_dicts()
    ]
    section.tables.append(
        TableView(
            "empty_nodes",
            "Empty nodes by how much is in use",
            f"One row per range of {unit}s in use. Free, on empty nodes: share of the free {unit}s on nodes without a "
            "job. Free, not usable: expected share of the free GPUs that a job drawn from the trace's mix cannot use "
            "(Weng et al., ATC'23). "
            + source.caption(int(empty["instants"].sum()), "instants"),
            columns(
                f"used|{unit}s in use", "instants|instants|count", "empty_node_share_mean|empty nodes, mean|percent",
                "empty_node_share_p50|median|percent", "largest_gang_share_mean|free, on empty nodes|percent",
                "unusable_free_share_mean|free, not usable|percent",
            ),
            rows,
        )
    )  # fmt: skip


def _spread(source: Source, section: Section) -> None:
    """Show the nodes that jobs used beyond the fewest possible, by size."""
    names = ("size_bucket", "gpus", "nodes", "fewest_nodes", "excess_nodes", "shared_share")
    spread = source.columns("placement_spread", *names)
    if spread.is_empty():
        return
    known = spread.filter(pl.col("excess_nodes").is_not_null() & (pl.col("gpus") > 0))
    if known.is_empty():
        section.missing.append(
            "The spread of jobs over nodes is unknown: the log does not record the GPUs or nodes of its jobs."
        )
        return
    rows = (
        known.group_by("size_bucket")
        .agg(
            pl.len().alias("attempts"),
            pl.col("nodes").mean().alias("nodes"),
            pl.col("fewest_nodes").mean().alias("fewest"),
            (pl.col("excess_nodes") > 0).mean().alias("spread_share"),
            pl.col("shared_share").mean().alias("shared_share"),
        )
        .sort(by_size("size_bucket"))
    )
    section.tables.append(
        TableView(
            "spread",
            "Spread over nodes by size",
            "Nodes that an attempt used, compared with the fewest that can hold its GPUs. Time shared: mean share of "
            f"node time with another job on the node. {source.caption(known.height, 'attempts')}",
            columns(
                "size_bucket|GPUs", "attempts|attempts|count", "nodes|mean nodes|number",
                "fewest|fewest possible|number",
                "spread_share|on more than the fewest|percent", "shared_share|time shared with others|percent",
            ),
            rows.to_dicts(),
        )
    )  # fmt: skip
