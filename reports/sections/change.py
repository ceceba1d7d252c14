"""Section `change`: what to change, and what other settings, schedulers or rules against failures would change."""

from __future__ import annotations

from typing import Any

import polars as pl

from features.conventions import BLOCK_DAYS, ORACLE, REACTIVE, size_rank
from reports import format as fmt
from reports.hand_over import best_on_select
from reports.layout import Section, TableView, columns
from reports.parts.advice import advised
from reports.parts.gpu_schedulers import gpu_schedulers
from reports.source import Source

BASE = "as it is"


def change(source: Source) -> Section:
    """Return the advice, replays of changes and of GPU schedulers, handovers of chained jobs, and failure rules."""
    section = Section("change", "What to change")
    advised(source, section)
    _replays(source, section)
    gpu_schedulers(source, section)
    _hand_over(source, section)
    _rules(source, section)
    _idle(source, section)
    return section


def _replays(source: Source, section: Section) -> None:
    replays = source.rows("what_if")
    if replays.is_empty():
        section.missing.append(
            "The trace was not replayed on a changed cluster: no job of it has a time limit to plan with, or the asset "
            "simulation_what_if was not materialized."
        )
        return
    base = replays.filter(pl.col("change") == BASE).to_dicts()[0]
    others = replays.filter(pl.col("change") != BASE).sort("wait_change_s").to_dicts()
    section.sentences.append(_best_replay(base, others))
    section.tables.append(
        TableView(
            "what_if",
            "The same jobs on a changed cluster",
            "Both sides of each comparison are replays of the cluster as recorded, with its inferred rules, anew from "
            "the record every day. Change: mean wait minus that on the unchanged cluster, below 0 is shorter, with its "
            f"95 % interval over blocks of {BLOCK_DAYS} days. A replay cannot tell a change smaller than its own "
            f"distance from the record. {fmt.sentence(base['trust_why'])}. {source.caption(base['jobs'], 'jobs')}",
            columns(
                "change|what differs", "capacity_nodes|nodes|count", "mean_wait_s|mean wait|duration",
                "p50_wait_s|median|duration", "p95_wait_s|p95|duration",
                "mean_bounded_slowdown|bounded slowdown|number", "wait_change_s|change|duration",
                "interval|95 %|interval_s", "wait_change_whole_s|change in one piece|duration",
                "verdict|what the replay can tell|name",
            ),
            [{**row, "interval": _interval(row)} for row in (base, *others)],
        )
    )  # fmt: skip


def _best_replay(base: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Describe the best change; only one that the replay can tell counts."""
    start = (
        f"The log records a mean wait of {fmt.duration(base['recorded_mean_wait_s'])}. In simulation it is "
        f"{fmt.duration(base['mean_wait_s'])} on the unchanged cluster"
    )
    if base["trust"] != "figures":
        start += f", which is too far off to say more than directions ({base['trust_why']})"
    known = [row for row in others if row["wait_change_high_s"] is not None]
    if not known:
        return f"{start}. The log is too short to distinguish the effect of a change from chance."
    sure = [row for row in known if row["verdict"] == "less"]
    if not sure:
        return f"{start}. No change tried here shortens it by more than chance and the replay's own error."
    best = sure[0]
    words = f"{start} and {fmt.duration(best['mean_wait_s'])} with {fmt.text(best['change'])}"
    free = [row for row in sure if row["capacity_nodes"] == base["capacity_nodes"]]
    if free and free[0] is not best:
        words += (
            f". Without more nodes, the largest reduction is to {fmt.duration(free[0]['mean_wait_s'])} with "
            f"{fmt.text(free[0]['change'])}"
        )
    return words + "."


def _interval(row: dict[str, Any]) -> list[float] | None:
    low, high = row["wait_change_low_s"], row["wait_change_high_s"]
    return None if row["change"] == BASE or low is None or high is None else [low, high]


def _hand_over(source: Source, section: Section) -> None:
    """Show what submitting the next job early gives and costs; section `policies` has the details."""
    results = source.rows("policy_results")
    results = results.filter(pl.col("load") == "all") if not results.is_empty() else results
    if results.is_empty():
        return  # the section on policies says why
    shown = []
    for size in sorted(set(results["size"]), key=size_rank):
        by = {row["policy"]: row for row in results.filter(pl.col("size") == size).to_dicts()}
        chosen = [by.get(REACTIVE), by.get(best_on_select(source, size) or ""), by.get(ORACLE)]
        shown += [{**row, "nodes_held": size} for row in chosen if row is not None]
    section.tables.append(
        TableView(
            "hand_over",
            "Chained jobs: the next one submitted ahead of time",
            "Reactive submits at the predecessor's end. The oracle knows every start, so no policy can do better. The "
            "other policy has the least cost on the select window. "
            f"Cost: interruption plus overlap, hours per handover. {source.caption(int(results['n'].max()), 'pairs')}",  # type: ignore[arg-type]
            columns(
                "nodes_held|nodes per job|name", "policy|policy|name", "n|pairs|count",
                "interruption_h|interruption, h|number", "overlap_h|overlap, h|number", "cost_w1|cost, h|number",
                "zero_share|no interruption|percent",
            ),
            shown,
        )
    )  # fmt: skip


def _rules(source: Source, section: Section) -> None:
    """Show a pre-run on one GPU and fewer hopeless retries: saved, paid, and wrongly stopped."""
    savings = source.rows("failure_savings")
    if savings.is_empty():
        section.missing.append(
            "The savings of a pre-run on one GPU or of fewer retries are unknown: the log does not record what jobs "
            "held, or no such rule applies to a job."
        )
        return
    best = savings.filter(pl.col("reason").is_null()).sort("time_net_s", descending=True).to_dicts()
    if best:
        row = best[0]
        rule = f"{row['rule']}" + (f" ({fmt.duration(row['limit_s'])})" if row["limit_s"] else "")
        section.sentences.append(
            f"The best rule against failures, {rule}, saves {fmt.unit_time(row['time_saved_s'], source.unit)} "
            f"and costs {fmt.unit_time(row['time_cost_s'], source.unit)}"
            + ("." if row["time_net_s"] > 0 else ", so no rule pays off on this log.")
        )
    section.tables.append(
        TableView(
            "failure_savings",
            "Rules against failures",
            ("Pre-run: every job of more than one GPU first runs this long on one GPU and is not started at full size "
            "if it fails there. " if source.binding == "GPU" else "")
            + "Stopped wrongly: stopped jobs that completed later in the log. "
            + source.caption(int(savings["jobs"].max()), "jobs"),  # type: ignore[arg-type]
            columns(
                "rule|rule", "limit_s|length|duration", "reason|for failures by|name", "jobs|jobs affected|count",
                "attempts_avoided|attempts avoided|count", f"time_saved_s|saved|{source.time_kind}",
                f"time_cost_s|cost|{source.time_kind}", f"time_net_s|net|{source.time_kind}",
                "jobs_stopped_wrongly|stopped wrongly|count",
            ),
            savings.sort("rule", "limit_s", "time_net_s", descending=[True, False, True]).to_dicts(),
        )
    )  # fmt: skip


def _idle(source: Source, section: Section) -> None:
    """Say how much GPU time would be free if idle GPUs were given back."""
    idle = source.rows("idle_gpu_time")
    whole = idle.filter(pl.col("dimension") == "all").to_dicts() if not idle.is_empty() else []
    if whole and whole[0]["idle_share"] is not None:
        section.sentences.append(
            f"If jobs gave GPUs back while they are at 0 %, {fmt.percent(whole[0]['idle_share'])} of the measured GPU "
            "time would be free for others. This is an upper bound, because gaps shorter than a handover cannot be "
            "used."
        )
