"""Part of section `change`: the jobs under published GPU schedulers, who gains and loses, and the assumptions."""

from __future__ import annotations

from typing import Any

import polars as pl

from features.conventions import BLOCK_DAYS
from reports import format as fmt
from reports.layout import Section, TableView, columns, cut
from reports.source import Source
from simulator.gpu.registry import KNOW_RUN_TIMES
from simulator.metrics import PODS_HELD
from traces.counted import counted

NOT_TO_CHOOSE = ("mix=", "elastic=", "arrivals=")  # changes that an operator cannot make
PODS = ("kubernetes", "as it is"), ("kubernetes", "kubernetes.gang=1")
MOST_PARTS = 20  # groups shown, by the time that they gain or lose in total


def gpu_schedulers(source: Source, section: Section) -> None:
    """Add the tables `what_if_schedulers` and `what_if_groups` of the cluster, or the reason why they are empty."""
    replays = source.rows("what_if_schedulers")
    if replays.is_empty():
        section.missing.append(
            "The jobs were not replayed under other GPU schedulers: the log holds no job on GPUs, how many GPUs the "
            "cluster has is not known, or the asset simulation_what_if_schedulers was not materialized."
        )
        return
    rows = [_shown(source, row) for row in replays.sort("place").to_dicts()]
    base, others = rows[0], rows[1:]
    best = _recommended(base, others)
    section.sentences.append(_best(base, best))
    section.sentences.append(_beside_record(base))
    section.sentences += _gangs(source, rows)
    section.tables.append(_schedulers(source, base, rows))
    if best is not None:
        _parts(source, section, best)
    lines = dict.fromkeys(line for row in rows for line in row["assumptions"].splitlines())
    section.tables.append(
        TableView(
            "what_if_assumed",
            "Assumptions of these replays",
            "Values missing from the log are assumed or drawn at random with a seed; drawn values are generated, not "
            "recorded. The table of the schedulers shows how much the result varies over the draws. "
            f"{_caption(source, base)}",
            columns("line|assumed or drawn"),
            [{"line": line} for line in lines],
        )
    )


def _recommended(base: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the best change that an operator can make: the shortest mean beyond chance and in every draw.

    A change without further GPUs is preferred.
    """
    sure = [
        row
        for row in sorted(others, key=lambda row: row["jct_change_s"])
        if _is_sure(row, -1) and row["scheduler"] not in KNOW_RUN_TIMES and not row["asked"].startswith(NOT_TO_CHOOSE)
    ]
    return next((row for row in sure if row["capacity_gpus"] <= base["capacity_gpus"]), next(iter(sure), None))


def _schedulers(source: Source, base: dict[str, Any], rows: list[dict[str, Any]]) -> TableView:
    return TableView(
        "what_if_schedulers",
        "The same jobs under other GPU schedulers",
        "All replays use the same engine and the same cost of a restart. Change: mean completion time minus that "
        f"under {fmt.text(base['scheduler'])} with nothing changed, below 0 is shorter, with its 95 % interval over "
        f"blocks of {BLOCK_DAYS} days. Over draws: the smallest and the largest change over "
        f"{counted(base['draws'], 'random draw')} of the values missing from the log. "
        f"{' and '.join(KNOW_RUN_TIMES)} know every run time, so they are bounds that no cluster can run. Preemptions: "
        "stops of running jobs before their end. Lost: GPU time that restarts held without progress. Finish-time "
        "fairness rho: completion time over that alone on an equal share of the GPUs. "
        f"{_caption(source, base)}",
        columns(
            "scheduler|scheduler|name", "change|what differs", "capacity_gpus|GPUs|count",
            "mean_jct_s|mean completion|duration", "jct_change_s|change|duration", "interval|95 %|interval_s",
            "over_draws|over draws|interval_s", "preemptions|preemptions|count", "lost_gpu_s|lost|gpu_time",
            "p50_jct_s|median|duration", "p99_jct_s|p99|duration", "mean_queueing_s|mean queueing|duration",
            "utilization|in use|percent", "fragmentation|free while jobs wait|percent",
            "worst_rho|largest finish-time fairness rho|number", "mean_rho|mean finish-time fairness rho|number",
        ),
        rows,
    )  # fmt: skip


def _caption(source: Source, row: dict[str, Any]) -> str:
    return source.caption(row["jobs"], "jobs", row["draws"], (row["from_utc"], row["until_utc"]))


def _shown(source: Source, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of `what_if_schedulers` as the table shows it."""
    is_base = row["place"] == 1
    known = row["jct_change_low_s"] is not None
    change = row["change"]
    if source.names.are_hidden and change.startswith("quota."):  # groups may be users
        change = "quota of one group=" + change.rpartition("=")[2]
    return {
        **row,
        "asked": row["change"],
        "change": change,
        "interval": [row["jct_change_low_s"], row["jct_change_high_s"]] if known else None,
        "over_draws": None if is_base else [row["jct_change_least_s"], row["jct_change_most_s"]],
        "lost_gpu_s": row["lost_gpu_h"] * 3600.0,
    }


def _is_sure(row: dict[str, Any], sign: int) -> bool:
    """Whether the change has that sign at both ends of its interval, and in every draw."""
    ends = (row["jct_change_low_s"], row["jct_change_high_s"], row["jct_change_least_s"], row["jct_change_most_s"])
    return all(end is not None and end * sign > 0 for end in ends)


def _best(base: dict[str, Any], best: dict[str, Any] | None) -> str:
    """Describe the best change; only one beyond chance and in every draw counts as better."""
    start = (
        f"In simulation, GPU jobs complete on average {fmt.duration(base['mean_jct_s'])} after submission under "
        f"{fmt.text(base['scheduler'])}"
    )
    if base["mean_jct_low_s"] is None:
        return f"{start}. The log is too short to distinguish the effect of another scheduler from chance."
    if best is None:
        return f"{start}. No other scheduler and no change tried here shortens this by more than chance in every draw."
    ends = fmt.interval_s([best["jct_change_low_s"], best["jct_change_high_s"]])
    words = f"{start} and {fmt.duration(best['mean_jct_s'])} under {_named(best)} (95 % interval of the change: {ends})"
    if best["draws"] > 1:
        words += (
            f". Values missing from the log were drawn {best['draws']} times; the change was "
            f"{fmt.interval_s(best['over_draws'])} over these draws"
        )
    per_job = best["preemptions"] / best["jobs"]
    return (
        f"{words}. {_named(best)} preempts running jobs {fmt.count(best['preemptions'])} times "
        f"({fmt.number(per_job)} per job), and restarts cost {fmt.unit_time(best['lost_gpu_s'])}."
    )


def _beside_record(base: dict[str, Any]) -> str:
    """Compare the waits of the base with the recorded ones."""
    if not base["recorded_jobs"]:
        return "The log has no starts, so how far these replays are from the cluster is unknown."

    def waits(of: str) -> str:
        mean, median, p90 = (fmt.duration(base[f"{of}_{figure}_wait_s"]) for figure in ("mean", "median", "p90"))
        return f"{mean} (median {median}, 90th percentile {p90})"

    error_s = abs(base["base_mean_wait_s"] - base["recorded_mean_wait_s"])
    rho = "" if base["base_spearman"] is None else f", with Spearman's rho {base['base_spearman']:.2f} job by job"
    return (
        f"The log records a mean wait of {waits('recorded')} for {counted(base['recorded_jobs'], 'job')}; this replay "
        f"of {fmt.text(base['scheduler'])} has {waits('base')}{rho}. Differences below {fmt.duration(error_s)} are "
        "within the error of the replay."
    )


def _gangs(source: Source, rows: list[dict[str, Any]]) -> list[str]:
    """Compare pods placed one by one with gangs (all pods of a job or none), if both were replayed."""
    by_pod, gangs = (next((row for row in rows if (row["scheduler"], row["asked"]) == key), None) for key in PODS)
    if by_pod is None or gangs is None:
        return []
    costs = [line.removeprefix(PODS_HELD) for line in by_pod["assumptions"].splitlines() if line.startswith(PODS_HELD)]
    if not costs:  # computed by another version
        return []
    mean, before = (fmt.duration(row["mean_jct_s"]) for row in (gangs, by_pod))
    compared = (
        f"Placed pod by pod, jobs with only some of their pods placed held {fmt.text(costs[0])}. With all pods of a "
        f"job placed together (gangs), jobs complete on average {mean} after submission, compared with {before} pod by "
        "pod"
    )
    slowest, slowest_by_pod = (fmt.duration(row["p99_jct_s"]) for row in (gangs, by_pod))
    tail = f"the 99th percentile is {slowest} compared with {slowest_by_pod}."
    if by_pod["place"] != 1:
        return [f"{compared} (no interval: kubernetes is not the base of these replays); {tail}"]
    if gangs["interval"] is None:
        return [f"{compared} (the log is too short for an interval); {tail}"]
    is_certain = _is_sure(gangs, -1) or _is_sure(gangs, 1)
    ends = fmt.interval_s(gangs["interval"])
    sentences = [
        f"{compared} (95 % interval of the change: {ends}{'' if is_certain else '; this may be chance'}); {tail}"
    ]
    groups = source.rows("what_if_groups").filter(
        (pl.col("scheduler") == PODS[1][0]) & (pl.col("change") == PODS[1][1]) & (pl.col("dimension") == "size")
    )
    for word, sign in (("sooner", -1), ("later", 1)):
        names = [row["name"] for row in groups.to_dicts() if _is_sure(row, sign)]
        if names:
            sentences.append(
                f"With gangs, jobs of {', '.join(map(fmt.text, names))} GPUs complete {word}, by more than chance."
            )
    return sentences


def _named(row: dict[str, Any]) -> str:
    return fmt.text(row["scheduler"]) + ("" if row["asked"] == "as it is" else f" with {fmt.text(row['change'])}")


def _parts(source: Source, section: Section, best: dict[str, Any]) -> None:
    """Show which groups gain and lose under the best change, beyond chance and in every draw, largest sums first."""
    groups = source.rows("what_if_groups")
    if groups.is_empty():
        return
    of_best = groups.filter((pl.col("scheduler") == best["scheduler"]) & (pl.col("change") == best["asked"])).to_dicts()
    for row in of_best:
        if row["dimension"] == "user":
            row["name"] = source.hidden("user_name", row["name"])
        row["effect"] = "gains" if _is_sure(row, -1) else "loses" if _is_sure(row, 1) else "not significant"
        row["interval"] = (
            None if row["jct_change_low_s"] is None else [row["jct_change_low_s"], row["jct_change_high_s"]]
        )
    of_best.sort(key=lambda row: (row["effect"] == "not significant", -abs(row["jct_change_s"]) * row["jobs"]))
    losing = [row for row in of_best if row["effect"] == "loses"]
    if losing:
        most = max(losing, key=lambda row: row["jct_change_s"] * row["jobs"])
        section.sentences.append(
            f"Under {_named(best)}, {len(losing)} of {counted(len(of_best), 'group')} of jobs complete later "
            f"than under the base scheduler; {_part(most)} lose most: each completes "
            f"{fmt.duration(most['jct_change_s'])} later."
        )
    else:
        section.sentences.append(f"Under {_named(best)}, no group of jobs completes later by more than chance.")
    shown, left_out = cut(of_best, MOST_PARTS)
    section.tables.append(
        TableView(
            "what_if_groups",
            f"Groups of jobs that gain or lose under {_named(best)}",
            "Change of the mean completion time, by GPUs requested, virtual cluster or partition, and user (those with "
            "most jobs). A group gains or loses only if its 95 % interval and every draw agree on the sign. "
            f"{_caption(source, best)}",
            columns(
                "dimension|by|name", "name|which|name", "effect|effect", "jobs|jobs|count",
                "mean_jct_s|mean completion|duration", "jct_change_s|change|duration", "interval|95 %|interval_s",
            ),
            shown,
            left_out,
        )
    )  # fmt: skip


def _part(row: dict[str, Any]) -> str:
    kind = {"size": "jobs of {} GPUs", "group": "jobs of {}", "user": "jobs of user {}"}[row["dimension"]]
    return kind.format(fmt.text(row["name"]))
