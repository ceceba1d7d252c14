"""Part of section `waste`: measured utilization of GPUs, CPUs and memory, and GPUs held idle."""

from __future__ import annotations

import polars as pl

from features.resources.sizes import by_size
from reports import format as fmt
from reports.layout import Section, TableView, columns, cut
from reports.source import Source

MOST_ROWS = 25
_SHARES = ("mean_percent|mean, %|number", "p50_percent|median, %|number", "p90_percent|p90, %|number",
           "p95_percent|p95, %|number")  # fmt: skip


def measured(source: Source, section: Section, *, is_accounted: bool) -> None:
    """Add utilization by size and status, resource, number of servers and sharing, and idle time by user and job.

    is_accounted: whether Slurm's accounting records GPU utilization; missing samples are then not reported.
    """
    by = source.rows("utilization_by")
    with_samples = by.filter(pl.col("samples") > 0) if not by.is_empty() else by
    if not with_samples.is_empty():
        samples = float(with_samples["samples"].sum())
        mean = float((with_samples["utilization_mean_percent"].fill_null(0) * with_samples["samples"]).sum()) / samples
        section.sentences.append(
            f"GPUs of running jobs were {mean:.1f} % busy on average ({samples:,.0f} GPU minutes measured)."
        )
    elif not is_accounted:
        section.missing.append(
            "What jobs did with their GPUs is unknown: the trace has no utilization samples taken during a run, and no "
            "step of it records gres/gpuutil in TRESUsageInTot."
        )
    if not by.is_empty():
        section.tables.append(_by_size_and_state(source, by, is_measured=not with_samples.is_empty()))
    _percentiles(source, section)
    _idle(source, section)


def _by_size_and_state(source: Source, by: pl.DataFrame, *, is_measured: bool) -> TableView:
    rows = by.sort(by_size("size_bucket"), "state")
    shown = ("measured_attempts|attempts measured|count", "utilization_mean_percent|mean utilization, %|number",
             "idle_share|idle while held|percent")  # fmt: skip
    return TableView(
        "utilization_by",
        "GPU time" + (" and measured utilization" if is_measured else "") + " by size and final state",
        ("Idle while held: share of node minutes in which every counted GPU was exactly 0 %. " if is_measured else "")
        + source.caption(int(by["attempts"].sum()), "attempts"),
        columns(
            "size_bucket|GPUs", "state|state|name", "jobs|jobs|count", "gpu_time_s|GPU time|gpu_time",
            "gpu_time_share|of all GPU time|percent", *(shown if is_measured else ()),
        ),
        rows.to_dicts(),
    )  # fmt: skip


# The tables over samples: name, title, groupings shown, and first columns.
_VIEWS: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "utilization_resources",
        "GPU, CPU and memory in use, by size",
        ("all", "size_bucket"),
        ("resource", "size_bucket|GPUs"),
    ),
    ("utilization_states", "The same by final state", ("state",), ("resource", "state|state|name")),
    (
        "utilization_gpus_state",
        "GPU utilization by GPUs held and final state",
        ("gpus state",),
        ("gpus|GPUs|count", "state|state|name"),
    ),
    (
        "utilization_servers",
        "GPU utilization by GPUs held and number of servers",
        ("gpus nodes",),
        ("gpus|GPUs|count", "nodes|servers|count"),
    ),
    (
        "utilization_sharing",
        "GPU utilization on dedicated and on shared servers",
        ("sharing", "gpus sharing"),
        ("gpus|GPUs|count", "sharing|server"),
    ),
)


def _percentiles(source: Source, section: Section) -> None:
    """Add mean and percentiles over samples, by resource and size, status, number of servers and sharing."""
    percentiles = source.rows("utilization_percentiles")
    if percentiles.is_empty():
        return
    whole = {row["resource"]: row for row in percentiles.filter(pl.col("grouping") == "all").to_dicts()}
    others = [
        f"{whole[name]['mean_percent']:.1f} % of {what}"
        for name, what in (("CPU", "CPU"), ("memory", "memory"))
        if name in whole
    ]
    if others:
        section.sentences.append(f"While they ran, their nodes used {' and '.join(others)} on average.")
    n = int(percentiles.filter(pl.col("grouping") == "all")["samples"].sum())
    for name, title, groupings, keys in _VIEWS:
        rows = percentiles.filter(pl.col("grouping").is_in(groupings))
        if "resource" not in keys:
            rows = rows.filter(pl.col("resource") == "GPU")
        if rows.is_empty():
            continue
        rows = rows.sort("resource", by_size("size_bucket"), "gpus", "nodes", "state", "sharing", nulls_last=True)
        shown, left_out = cut(rows.with_columns(pl.col("size_bucket").fill_null("all")).to_dicts(), 2 * MOST_ROWS)
        section.tables.append(
            TableView(
                name,
                title,
                "Over one-minute samples. CPU and memory are those of the whole node, other jobs included. "
                + source.caption(n, "samples"),
                columns(
                    *(key if "|" in key else f"{key}|{key}" for key in keys),
                    "attempts|attempts|count", "samples|samples|count", *_SHARES,
                ),
                shown,
                left_out,
            )
        )  # fmt: skip


def _idle(source: Source, section: Section) -> None:
    """Add the GPU hours in which every GPU of the attempt on a node was at 0 %, in the measured minutes."""
    idle = source.rows("idle_gpu_time")
    whole = idle.filter(pl.col("dimension") == "all").to_dicts() if not idle.is_empty() else []
    if not whole or not whole[0]["measured_gpu_time_s"]:
        return
    (all_,) = whole
    section.sentences.append(
        f"Of the {fmt.unit_time(all_['measured_gpu_time_s'])} held and measured, "
        f"{fmt.unit_time(all_['idle_gpu_time_s'])} ({fmt.percent(all_['idle_share'])}) were idle: "
        "allocated, with every GPU at 0 %."
    )
    for dimension, title, label in (
        ("user_name", "Idle but allocated, by user", "user"),
        ("partition", "Idle but allocated, by partition or virtual cluster", "partition"),
        ("job_key", "Idle but allocated: the jobs that held most", "job"),
    ):
        rows = idle.filter((pl.col("dimension") == dimension) & pl.col("value").is_not_null())
        if rows.is_empty():
            continue
        if dimension == "user_name":
            rows = source.hide(rows.rename({"value": "user_name"})).rename({"user_name": "value"})
        rows = rows.sort("idle_gpu_time_s", "value", descending=[True, False])
        shown, left_out = cut(rows.to_dicts(), MOST_ROWS)
        section.tables.append(
            TableView(
                f"idle_by_{dimension}",
                title,
                "GPU time in minutes in which every GPU of the attempt on that node was at exactly 0 %. Unmeasured "
                f"minutes are left out. {source.caption(int(rows['attempts'].sum()), 'attempts')}",
                columns(
                    f"value|{label}|name", "attempts|attempts|count", "gpu_time_s|GPU time|gpu_time",
                    "measured_gpu_time_s|measured|gpu_time", "idle_gpu_time_s|idle|gpu_time",
                    "idle_share|of measured|percent",
                ),
                shown,
                left_out,
            )
        )  # fmt: skip
