"""Section `waste`: where GPUs (or nodes) stand idle, held or not."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from reports import figures
from reports import format as fmt
from reports.layout import Figure, Section, TableView, columns, cut
from reports.source import Source
from reports.waits import by_size

MOST_USERS = 25
SHORTEST_PLOT = 3  # points over time; fewer make no line


def waste(source: Source) -> Section:
    """Allocated share and fragmentation over time, measured utilization by size and status, idle-but-allocated time."""
    section = Section("waste", "Where GPUs are wasted")
    _allocated(source, section)
    _fragmentation(source, section)
    _spread(source, section)
    _measured(source, section)
    return section


def _floats(frame: pl.DataFrame, column: str) -> NDArray[np.float64]:
    return frame[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _allocated(source: Source, section: Section) -> None:
    held = source.rows("utilization_allocated")
    if not held.is_empty():
        held = held.filter(pl.col("scope") == "cluster").sort("hour_utc")
    if held.is_empty() or held["allocated_share"].null_count() == held.height:
        section.missing.append("How much was allocated over time is not known: no run has both a time and a size.")
        return
    unit, basis = held["unit"][0], held["capacity_source"][0]
    share = float(held["allocated_s"].sum()) / max(float(held["capacity_s"].sum()), 1.0)
    known = "the most ever in use at once" if basis == "peak in use" else f"the {basis}"
    section.sentences.append(
        f"Over the whole window {fmt.percent(share)} of the {unit} hours were allocated (capacity by {known})."
    )
    if basis == "peak in use":
        section.missing.append(
            "Nothing tells the size of the cluster, so the peak of use stands for it and shares are upper bounds: "
            "set nodes and gpus_per_node in clusters.toml."
        )
    if held.height < SHORTEST_PLOT:
        section.missing.append("The window is too short for a plot over time.")
        return
    section.figures.append(
        Figure(
            "allocated",
            f"{unit} hours allocated",
            f"Share of the cluster's {unit} hours held by jobs, averaged into at most {figures.MOST_POINTS} points. "
            + source.caption(held.height, "hours"),
            figures.over_time(
                f"{source.slug}-allocated",
                held["hour_utc"].to_list(),
                {"allocated": (_floats(held, "allocated_share"), "allocated")},
                f"share of {unit}s",
                fill=True,
                as_share=True,
            ),
            "Allocated share over time.",
        )
    )


def _fragmentation(source: Source, section: Section) -> None:
    state = source.rows("fragmentation")
    if state.is_empty():
        section.missing.append("The table fragmentation holds nothing for this cluster.")
        return
    state = state.sort("time_utc")
    in_gpus = state["free_gpus"].null_count() < state.height and state["largest_gang_gpus"].null_count() < state.height
    if not in_gpus:
        state = state.with_columns(pl.col("empty_nodes").alias("free"), pl.col("largest_gang_nodes").alias("gang"))
    else:
        state = state.with_columns(pl.col("free_gpus").alias("free"), pl.col("largest_gang_gpus").alias("gang"))
    unit = "GPU" if in_gpus else "node"
    by_counts = state["basis"][0] == "node counts"
    known = state.filter(pl.col("free").is_not_null())
    if known.is_empty():
        section.missing.append("Free GPUs over time are not known: nothing tells the size of the cluster.")
        return
    free, gang = float(known["free"].mean() or 0), float(known["gang"].mean() or 0)  # type: ignore[arg-type]
    waiting = known.filter((pl.col("pending_jobs") > 0) & (pl.col("free") > 0)).height
    section.sentences.append(
        f"On average {free:,.1f} {unit}s were free, of which {gang:,.1f} on empty nodes, where a gang could start at "
        f"once; for {fmt.percent(waiting / known.height)} of the time {unit}s stood free while eligible jobs queued."
    )
    note = ""
    if by_counts:
        note = "The log names no nodes, so every job is taken to hold whole ones and free GPUs are never scattered. "
        section.missing.append(
            "Scatter of free GPUs inside nodes cannot be seen: the log names no nodes, whole ones are assumed."
        )
    unusable = known["unusable_free_share"].mean()
    if isinstance(unusable, float) and not by_counts:
        section.sentences.append(
            f"A job drawn from the trace's own mix could not use {fmt.percent(unusable)} of the free GPUs, because its "
            "node has too few of them free."
        )
    if known.height < SHORTEST_PLOT:
        return
    section.figures.append(
        Figure(
            "fragmentation",
            f"Free {unit}s against the largest gang that could start",
            f"{note}Instants are averaged into at most {figures.MOST_POINTS} points. "
            + source.caption(known.height, "instants"),
            figures.over_time(
                f"{source.slug}-fragmentation",
                known["time_utc"].to_list(),
                {f"free {unit}s": (_floats(known, "free"), "free"), "largest gang": (_floats(known, "gang"), "gang")},
                f"{unit}s",
            ),
            f"Free {unit}s and the largest startable gang over time.",
        )
    )


def _spread(source: Source, section: Section) -> None:
    """Nodes used beyond the fewest possible, by size."""
    spread = source.rows("placement_spread")
    if spread.is_empty():
        return
    known = spread.filter(pl.col("excess_nodes").is_not_null() & (pl.col("gpus") > 0))
    if known.is_empty():
        section.missing.append("Spread of jobs over nodes is not known: the log lacks GPUs or nodes of its jobs.")
        return
    rows = (
        known.group_by("size_bucket")
        .agg(
            pl.len().alias("attempts"),
            pl.col("nodes").mean().alias("nodes"),
            pl.col("fewest_nodes").mean().alias("fewest"),
            (pl.col("excess_nodes") > 0).mean().alias("spread_share"),
        )
        .sort(by_size("size_bucket"))
    )
    section.tables.append(
        TableView(
            "spread",
            "Spread over nodes by size",
            f"Nodes an attempt used against the fewest that hold its GPUs. {source.caption(known.height, 'attempts')}",
            columns(
                "size_bucket|GPUs", "attempts|attempts|count", "nodes|mean nodes|number",
                "fewest|fewest possible|number",
                "spread_share|on more than the fewest|percent",
            ),
            rows.to_dicts(),
        )
    )  # fmt: skip


def _measured(source: Source, section: Section) -> None:
    by, measured = source.rows("utilization_by"), source.rows("utilization_measured")
    with_samples = by.filter(pl.col("samples") > 0) if not by.is_empty() else by
    if with_samples.is_empty():
        section.missing.append(
            "What jobs did with their GPUs is not known: the trace holds no utilization samples that fall into a run."
        )
        if not by.is_empty():
            section.tables.append(_by_size_and_state(source, by, is_measured=False))
        return
    samples = float(with_samples["samples"].sum())
    mean = float((with_samples["utilization_mean_percent"].fill_null(0) * with_samples["samples"]).sum()) / samples
    section.sentences.append(
        f"GPUs of running jobs were {mean:.1f} % busy on average ({samples:,.0f} GPU minutes measured)."
    )
    section.tables.append(_by_size_and_state(source, by, is_measured=True))
    if not measured.is_empty() and "attempts" in source.tables:
        _idle(source, section)


def _by_size_and_state(source: Source, by: pl.DataFrame, *, is_measured: bool) -> TableView:
    rows = by.sort(by_size("size_bucket"), "state")
    shown = ("measured_attempts|attempts measured|count", "utilization_mean_percent|mean utilization, %|number",
             "idle_share|idle while held|percent")  # fmt: skip
    return TableView(
        "utilization_by",
        "GPU time" + (" and measured utilization" if is_measured else "") + " by size and final state",
        ("Idle while held: share of node minutes in which every GPU counted read exactly 0. " if is_measured else "")
        + source.caption(int(by["attempts"].sum()), "attempts"),
        columns(
            "size_bucket|GPUs", "state|state|name", "jobs|jobs|count", "gpu_time_s|GPU time|gpu_time",
            "gpu_time_share|of all GPU time|percent", *(shown if is_measured else ()),
        ),
        rows.to_dicts(),
    )  # fmt: skip


def _idle(source: Source, section: Section) -> None:
    """GPU hours held while every GPU read 0, by user; only attempts with samples count."""
    idle = source.read(
        "SELECT j.user_name, count(*) AS attempts, sum(a.gpu_time_s) AS gpu_time_s, "
        "sum(a.gpu_time_s * m.idle_share) AS idle_gpu_time_s "
        "FROM utilization_measured m JOIN attempts a USING (cluster, job_key, attempt) "
        "JOIN jobs j USING (cluster, job_key) "
        "WHERE m.cluster = ? AND m.idle_share IS NOT NULL AND a.gpu_time_s IS NOT NULL GROUP BY j.user_name"
    )
    if idle.is_empty():
        return
    total, lost = float(idle["gpu_time_s"].sum()), float(idle["idle_gpu_time_s"].sum())
    section.sentences.append(
        f"Of the {fmt.gpu_time(total)} held by attempts with samples, about {fmt.gpu_time(lost)} "
        f"({fmt.percent(lost / total if total else None)}) were idle: allocated, with every GPU at 0."
    )
    rows, left_out = cut(idle.sort("idle_gpu_time_s", "user_name", descending=[True, False]).to_dicts(), MOST_USERS)
    section.tables.append(
        TableView(
            "idle_by_user",
            "Idle but allocated, by user",
            "An attempt's GPU time times the share of its node minutes in which every GPU counted read exactly 0; the "
            "unmeasured part of an attempt is taken to be like the measured. "
            + source.caption(int(idle["attempts"].sum()), "attempts"),
            columns(
                "user_name|user",
                "attempts|attempts|count",
                "gpu_time_s|GPU time|gpu_time",
                "idle_gpu_time_s|idle|gpu_time",
            ),
            rows,
            left_out,
        )
    )
