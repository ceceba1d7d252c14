"""Tables of the time held by partition, account, node and month, and of the CPU and memory that jobs used.

Section `waste` shows all but the months, which section `load` shows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl

from features.resources.accounting import TIME_OF
from features.resources.capacity import AMOUNTS, Resource
from features.resources.resource import UNITS
from reports import format as fmt
from reports.layout import Section, TableView, columns, cut
from reports.source import Source
from traces.counted import counted

MOST_ROWS = 25
LEAST_DAYS = 7  # of a month in the window; a month with fewer is not compared
ENDS = 8  # nodes shown of the most used, and as many of the least used
SHARE_OF_NODE = {"GPU": "gpu_share", "core": "core_share", "memory": "memory_share", "node": "busy_share"}
ENDED = ("completed_share|completed|percent", "failed_share|failed|percent", "cancelled_share|cancelled|percent",
         "timeout_share|ran into the limit|percent")  # fmt: skip
DOWN = ("DOWN", "DRAIN", "FAIL", "MAINT", "POWER", "NO_RESPOND")  # parts of a node state in which no job can start


def unit_time(source: Source) -> str:
    """Return the column of usage_by with the time held of the main resource."""
    return TIME_OF[source.binding].replace("_mib_s", "_gib_s")


def usage(source: Source, dimension: str) -> pl.DataFrame:
    """Return the rows of usage_by along one dimension, most held first.

    It adds `hours` of the main resource and `wait_mean_s`.
    """
    rows = source.rows("usage_by")
    if rows.is_empty():
        return rows
    waited = pl.when(pl.col("ran") > 0).then(pl.col("wait_total_s") / pl.col("ran"))
    return (
        rows.filter(pl.col("dimension") == dimension)
        .with_columns((pl.col(unit_time(source)) / 3600).alias("hours"), waited.alias("wait_mean_s"))
        .sort("hours", "value", descending=[True, False], nulls_last=True)
    )


def hidden(source: Source, rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Hide the names in `value` of `rows` on request; `column` says which kind of names they are."""
    return source.hide(rows.rename({"value": column})).rename({column: "value"})


def window_of(source: Source) -> tuple[datetime, datetime] | None:
    """Return the time in which the log shows every running job, beginning on a whole hour; None if nothing ran.

    For a dump of the jobs that ended within some days, it begins after the first start.
    """
    held, machine = source.rows("utilization_allocated"), source.machine
    if held.is_empty() or machine["since_utc"] is None:
        return None
    hours = held.filter((pl.col("scope") == "cluster") & pl.col("capacity_s").is_not_null())["hour_utc"]
    first = hours.min() if len(hours) else None
    since: datetime = machine["since_utc"]
    return (max(first, since) if isinstance(first, datetime) else since), machine["until_utc"]


def partitions(source: Source, section: Section) -> None:
    """Add each partition: its main resource, its capacity, and how much of that was held."""
    parts, held, window = source.rows("resources"), source.rows("utilization_allocated"), window_of(source)
    if window is None:
        return
    hours = (window[1] - window[0]).total_seconds() / 3600
    time = pl.col("allocated_s") / 3600
    sums = (
        held.filter((pl.col("scope") == "partition") & pl.col("is_binding"))
        .group_by("partition")
        .agg(time.sum().alias("held_hours"), time.filter(pl.col("hour_utc") >= _hour(window[0])).sum().alias("counted"))
    )
    jobs = usage(source, "partition").select(pl.col("value").alias("partition"), "jobs", "wait_mean_s")
    parts = parts.filter(pl.col("scope") == "partition").join(sums, on="partition").join(jobs, on="partition")
    rows = [_partition(row, hours) for row in parts.to_dicts()]
    rows.sort(key=lambda row: (-(row["share"] or 0), row["partition"]))
    if len(rows) < 2:
        return
    shown, left_out = cut(rows, MOST_ROWS)
    section.tables.append(
        TableView(
            "partitions",
            "Held by partition",
            "Each partition by its main resource, over the whole window. Partitions may share nodes, so jobs of one "
            f"may hold capacity that also counts for another. {source.caption(len(rows), 'partitions')}",
            columns(
                "partition|partition|name", "capacity|capacity", "known_by|capacity source",
                "held_hours|unit hours held|number",
                "share|of its capacity|percent", "jobs|jobs|count", "wait_mean_s|mean wait|duration",
            ),
            shown,
            left_out,
        )
    )  # fmt: skip


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def _partition(row: dict[str, Any], hours: float) -> dict[str, Any]:
    resource: Resource = row["resource"]
    amount = row[AMOUNTS[resource]]
    if amount is not None and resource == "memory":
        amount /= 1024
    unit = UNITS[resource]
    capacity = None if amount is None else f"{amount:,.0f} GiB" if resource == "memory" else counted(amount, unit)
    return {
        **row,
        "unit": unit,
        "capacity": capacity,
        "share": row["counted"] / (amount * hours) if amount and hours else None,
    }


def accounts(source: Source, section: Section) -> None:
    """Add the totals by account."""
    rows = usage(source, "account")
    if rows.is_empty() or rows["value"].null_count() == rows.height:
        return
    shown, left_out = cut(hidden(source, rows, "account").to_dicts(), MOST_ROWS)
    section.tables.append(
        TableView(
            "accounts",
            f"{source.unit} hours held, by account",
            f"Completed, failed, cancelled, ran into the limit: shares of the account's {source.unit} hours by the "
            f"final state of the job. {source.caption(rows.height, 'accounts')}",
            columns(
                "value|account|name", "jobs|jobs|count", "ran|jobs that ran|count", f"hours|{source.unit} hours|number",
                "share|of all|percent", *ENDED, "wait_mean_s|mean wait|duration",
            ),
            shown,
            left_out,
        )
    )  # fmt: skip


def efficiency(source: Source, section: Section) -> None:
    """Add what jobs used of the CPUs and memory that they held, from the steps that record it."""
    whole = source.whole("usage_by")
    if whole is None or not whole["core_time_s"]:
        return
    if not whole["cpu_measured"] and not whole["memory_measured"]:
        section.missing.append(
            "What jobs used of their CPUs and memory is unknown: no step of the log records TotalCPU or MaxRSS."
        )
        return
    used = [
        f"{fmt.percent(whole[share])} of their {what} ({counted(whole[n], 'run')})"
        for what, share, n in (
            ("CPU time", "cpu_used_share", "cpu_measured"),
            ("memory", "memory_used_share", "memory_measured"),
        )
        if whole[share] is not None
    ]
    section.sentences.append(f"Jobs used {' and '.join(used)}, where their steps record it.")
    idle_s = pl.col("cpu_measured_s") * (1 - pl.col("cpu_used_share")).clip(0)
    users = usage(source, "user_name").with_columns(
        (pl.col("cpu_measured_s") / 3600).alias("cpu_hours"), (idle_s / 3600).alias("unused_hours")
    )
    users = users.filter((pl.col("cpu_measured") > 0) | (pl.col("memory_measured") > 0))
    users = users.sort("unused_hours", "value", descending=[True, False], nulls_last=True)
    shown, left_out = cut(hidden(source, users, "user_name").to_dicts(), MOST_ROWS)
    section.tables.append(
        TableView(
            "efficiency",
            "CPU and memory used, by user",
            "CPU: TotalCPU of the steps divided by the CPU time held. Memory: MaxRSS divided by the memory held, "
            "weighted by time; MaxRSS is that of the largest task, so jobs of several tasks used more. Runs: those "
            "that ended and whose steps record it. Most unused CPU hours first. "
            f"{source.caption(users.height, 'users')}",
            columns(
                "value|user|name", "cpu_measured|runs|count", "cpu_hours|core hours held|number",
                "cpu_used_share|CPU used|percent", "unused_hours|core hours unused|number",
                "memory_used_share|memory used|percent",
            ),
            shown,
            left_out,
        )
    )  # fmt: skip


def gpus(source: Source, section: Section) -> bool:
    """Add what jobs used of their GPUs by Slurm's accounting; return whether the log records it."""
    whole = source.whole("usage_by")
    if whole is None or whole["gpu_used_share"] is None:
        return False
    section.sentences.append(
        f"By Slurm's accounting, jobs used {fmt.percent(whole['gpu_used_share'])} of their GPU time "
        f"({counted(whole['gpu_measured'], 'run')}). Slurm keeps the last reading of each step, not a mean over time."
    )
    idle_s = pl.col("gpu_measured_s") * (1 - pl.col("gpu_used_share")).clip(0)
    users = usage(source, "user_name").filter(pl.col("gpu_measured") > 0)
    users = users.with_columns(
        (pl.col("gpu_measured_s") / 3600).alias("gpu_hours"), (idle_s / 3600).alias("unused_hours")
    ).sort("unused_hours", "value", descending=[True, False], nulls_last=True)
    shown, left_out = cut(hidden(source, users, "user_name").to_dicts(), MOST_ROWS)
    section.tables.append(
        TableView(
            "gpus_used",
            "GPUs used by Slurm's accounting, by user",
            "gres/gpuutil of each step (TRESUsageInTot) times its run time, divided by the GPU time held. Runs: those "
            "that ended and whose steps record it. Most unused GPU hours first. "
            f"{source.caption(users.height, 'users')}",
            columns(
                "value|user|name", "gpu_measured|runs|count", "gpu_hours|GPU hours held|number",
                "gpu_used_share|GPU used|percent", "unused_hours|GPU hours unused|number",
            ),
            shown,
            left_out,
        )
    )  # fmt: skip
    return True


def nodes(source: Source, section: Section) -> None:
    """Add the most and the least used nodes."""
    rows = source.rows("node_utilization")
    if rows.is_empty():
        return
    share = SHARE_OF_NODE[source.binding]
    share = share if rows[share].null_count() < rows.height else "busy_share"
    rows = rows.sort(share, "node", descending=[True, False], nulls_last=True)
    known = rows[share].drop_nulls()
    if known.is_empty():
        return
    idle = rows.filter(pl.col("jobs") == 0)
    half, every = fmt.percent(_median(known)), counted(rows.height, "node")
    words = (
        f"Half of the {every} ran a job for at least {half} of the time in which the log shows them"
        if share == "busy_share"
        else f"On half of the {every}, jobs held at least {half} of the {source.resource} while the log shows them"
    )
    if idle.height:
        down = idle.filter(pl.col("state").str.to_uppercase().str.contains_any(list(DOWN))).height
        words += f"; {fmt.count(idle.height)} ran no job"
        words += f" ({fmt.count(down)} of them out of service according to the node list)" if down else ""
    section.sentences.append(f"{words}.")
    shown = rows if rows.height <= 2 * ENDS else pl.concat([rows.head(ENDS), rows.tail(ENDS)])
    section.tables.append(
        TableView(
            "nodes",
            "Most and least used nodes" if shown.height < rows.height else "Nodes by use",
            "Busy: share of the time with at least one job. A node of the node list counts over the whole window, any "
            f"other node from its first job to its last. {source.caption(rows.height, 'nodes')}",
            columns(
                "node|node|name", "busy_share|busy|percent", "gpu_share|GPUs held|percent",
                "core_share|cores held|percent", "memory_share|memory held|percent", "jobs|jobs|count",
                "gpus|GPUs|count", "cpus|cores|count", "first_utc|first job|utc", "last_utc|last job until|utc",
                "state|state in the node list|name",
            ),
            shown.to_dicts(),
            rows.height - shown.height,
        )
    )  # fmt: skip


def _median(known: pl.Series) -> float:
    return float(known.sort(descending=True)[(len(known) - 1) // 2])


def month_table(source: Source, section: Section) -> None:
    """Add each month with its change from the month before, in total and by account."""
    rows, window = usage(source, "month"), window_of(source)
    if rows.height < 2 or window is None:
        return
    known = pl.col("capacity_s").is_not_null()
    of_cluster = source.rows("utilization_allocated").filter((pl.col("scope") == "cluster") & pl.col("is_binding"))
    of_months = of_cluster.filter(known).group_by(pl.col("hour_utc").dt.truncate("1mo").alias("month_utc")).agg(
        pl.when(pl.col("capacity_s").sum() > 0).then(pl.col("allocated_s").sum() / pl.col("capacity_s").sum())
        .alias("capacity_share")
    )  # fmt: skip
    begin, end = pl.col("month_utc"), pl.col("month_utc").dt.offset_by("1mo")
    part = pl.min_horizontal(end, pl.lit(window[1])) - pl.max_horizontal(begin, pl.lit(window[0]))
    days = rows.select("month_utc", (part.dt.total_seconds() / 86_400).clip(0).alias("days"))
    rows = rows.join(of_months, on="month_utc", how="left").join(days, on="month_utc")
    rows = _by_day(rows.sort("month_utc"), None)
    section.tables.append(
        TableView(
            "months",
            "Month by month",
            f"{source.unit} hours a day: over the part of the month in which the log shows every running job, if that "
            f"is at least {LEAST_DAYS} days. Change: of the {source.unit} hours a day, from the month before. "
            + source.caption(rows.height, "months"),
            columns(
                "value|month (UTC)", "jobs|jobs|count", f"hours|{source.unit} hours|number",
                "capacity_share|of the capacity|percent", f"a_day|{source.unit} hours a day|number",
                "change|change|percent", "completed_share|completed|percent", "cpu_used_share|CPU used|percent",
                "wait_mean_s|mean wait|duration",
            ),
            rows.to_dicts(),
        )
    )  # fmt: skip
    _accounts_by_month(source, section, days)


def _by_day(rows: pl.DataFrame, by: str | None) -> pl.DataFrame:
    """Add hours a day (`a_day`), those of the month before (`before`) and the change to `rows`, sorted by month.

    They are null for a month with fewer than LEAST_DAYS (`days`) in the window.
    """
    a_day = pl.when(pl.col("days") >= LEAST_DAYS).then(pl.col("hours") / pl.col("days"))
    before = pl.col("a_day").shift(1)
    rows = rows.with_columns(a_day.alias("a_day"))
    rows = rows.with_columns((before.over(by) if by else before).alias("before"))
    return rows.with_columns(pl.when(pl.col("before") > 0).then(pl.col("a_day") / pl.col("before") - 1).alias("change"))


def _accounts_by_month(source: Source, section: Section, days: pl.DataFrame) -> None:
    """Compare the last month of each account with the one before."""
    rows, long = usage(source, "account month").drop_nulls("value"), days.filter(pl.col("days") >= LEAST_DAYS)
    if rows["value"].n_unique() < 2 or long.height < 2:
        return
    # An account that held nothing in a month has no row for it.
    every = rows.select("value").unique().join(long, how="cross")
    rows = every.join(rows, on=["value", "month_utc"], how="left").with_columns(pl.col("hours").fill_null(0))
    rows = _by_day(rows.sort("month_utc", "value"), "value")
    last: datetime = rows["month_utc"].to_list()[-1]  # sorted
    rows = rows.filter((pl.col("month_utc") == last) & ((pl.col("a_day") > 0) | (pl.col("before") > 0)))
    rows = rows.sort("a_day", "value", descending=[True, False])
    shown, left_out = cut(hidden(source, rows, "account").to_dicts(), MOST_ROWS)
    section.tables.append(
        TableView(
            "accounts_last_month",
            "Accounts, last month compared with the one before",
            f"{source.unit} hours held a day in {last:%Y-%m} (UTC), and in the month before. "
            + source.caption(rows.height, "accounts"),
            columns(
                "value|account|name", "jobs|jobs submitted|count", f"a_day|{source.unit} hours a day|number",
                "share|of all|percent", "before|month before|number", "change|change|percent",
            ),
            shown,
            left_out,
        )
    )  # fmt: skip
