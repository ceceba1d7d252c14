"""Section `change`: what would change if: the scheduler, the nodes, the time limits, or what is done about failures."""

from __future__ import annotations

from typing import Any

import polars as pl

from features.conventions import BLOCK_DAYS, ORACLE, REACTIVE, size_rank
from reports import format as fmt
from reports.hand_over import best_on_select
from reports.layout import Section, TableView, columns
from reports.sections.gpu_schedulers import gpu_schedulers
from reports.source import Source

BASE = "as it is"


def change(source: Source) -> Section:
    """Replays of a changed cluster and under GPU schedulers, chained jobs handed over, rules against failures."""
    section = Section("change", "What would change if")
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
            "Replays in the simulator, both sides of each comparison, every job on whole nodes; how far its "
            "waits are from the recorded ones is told in its own section below. Change: mean over jobs of the wait "
            f"against the cluster as it is, with its 95 % interval over blocks of {BLOCK_DAYS} days. "
            f"{source.caption(base['jobs'], 'jobs')}",
            columns(
                "change|what differs", "scheduler|scheduler|name", "capacity_nodes|nodes|count",
                "mean_wait_s|mean wait|duration", "p50_wait_s|median|duration", "p95_wait_s|p95|duration",
                "mean_bounded_slowdown|bounded slowdown|number", "wait_change_s|change|duration",
                "interval|95 %|interval_s",
            ),
            [{**row, "interval": _interval(row)} for row in (base, *others)],
        )
    )  # fmt: skip


def _best_replay(base: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Only a change whose interval leaves out zero is called one."""
    start = f"In simulation the mean wait is {fmt.duration(base['mean_wait_s'])} with the cluster as it is"
    known = [row for row in others if row["wait_change_high_s"] is not None]
    if not known:
        return f"{start}; the log is too short to tell a change from chance."
    sure = [row for row in known if row["wait_change_high_s"] < 0]
    if not sure:
        return f"{start}; no change that was tried shortens it by more than chance would."
    best = sure[0]
    words = f"{start}, {fmt.duration(best['mean_wait_s'])} with {fmt.text(best['change'])}"
    free = [row for row in sure if row["capacity_nodes"] == base["capacity_nodes"]]
    if free and free[0] is not best:
        words += (
            f", and {fmt.duration(free[0]['mean_wait_s'])} without a further node, by {fmt.text(free[0]['change'])}"
        )
    return words + "."


def _interval(row: dict[str, Any]) -> list[float] | None:
    low, high = row["wait_change_low_s"], row["wait_change_high_s"]
    return None if row["change"] == BASE or low is None or high is None else [low, high]


def _hand_over(source: Source, section: Section) -> None:
    """Chained jobs: what submitting the next one ahead of time gives and costs; the section on policies has it all."""
    results = source.rows("policy_results")
    results = results.filter(pl.col("load") == "all") if not results.is_empty() else results
    if results.is_empty():
        return  # the section on policies says why
    kept = []
    for size in sorted(set(results["size"]), key=size_rank):
        by = {row["policy"]: row for row in results.filter(pl.col("size") == size).to_dicts()}
        chosen = [by.get(REACTIVE), by.get(best_on_select(source, size) or ""), by.get(ORACLE)]
        kept += [{**row, "nodes_held": size} for row in chosen if row is not None]
    section.tables.append(
        TableView(
            "hand_over",
            "Chained jobs: the next one submitted ahead of time",
            "Reactive submits at the end of the job before; the policy between is the one of least cost on the select "
            "window; oracle knows every start and bounds what is possible. "
            f"Cost: interruption plus overlap, hours a hand-over. {source.caption(int(results['n'].max()), 'pairs')}",  # type: ignore[arg-type]
            columns(
                "nodes_held|nodes a job|name", "policy|policy|name", "n|pairs|count",
                "interruption_h|interruption, h|number", "overlap_h|overlap, h|number", "cost_w1|cost, h|number",
                "zero_share|no interruption|percent",
            ),
            kept,
        )
    )  # fmt: skip


def _rules(source: Source, section: Section) -> None:
    """A pre-run on one GPU, and no retry of what cannot succeed: saved, paid, and wrongly stopped."""
    savings = source.rows("failure_savings")
    if savings.is_empty():
        section.missing.append(
            "What a pre-run on one GPU or fewer retries would save is not known: the log holds no GPU counts, or no "
            "job that such a rule would touch."
        )
        return
    best = savings.filter(pl.col("reason").is_null()).sort("gpu_time_net_s", descending=True).to_dicts()
    if best:
        row = best[0]
        what = f"{row['rule']}" + (f" ({fmt.duration(row['limit_s'])})" if row["limit_s"] else "")
        section.sentences.append(
            f"Of the rules against failures, {what} comes out best: {fmt.gpu_time(row['gpu_time_saved_s'])} saved for "
            f"{fmt.gpu_time(row['gpu_time_cost_s'])} spent"
            + ("." if row["gpu_time_net_s"] > 0 else ", which does not pay on this log.")
        )
    section.tables.append(
        TableView(
            "failure_savings",
            "Rules against failures",
            "Pre-run: every job of more than one GPU first runs so long on one, and is not started at full size if it "
            "fails there. Stopped wrongly: jobs that completed later after all. "
            + source.caption(int(savings["jobs"].max()), "jobs"),  # type: ignore[arg-type]
            columns(
                "rule|rule", "limit_s|length|duration", "reason|for failures by|name", "jobs|jobs touched|count",
                "attempts_avoided|attempts avoided|count", "gpu_time_saved_s|saved|gpu_time",
                "gpu_time_cost_s|paid|gpu_time", "gpu_time_net_s|net|gpu_time",
                "jobs_stopped_wrongly|stopped wrongly|count",
            ),
            savings.sort("rule", "limit_s", "gpu_time_net_s", descending=[True, False, True]).to_dicts(),
        )
    )  # fmt: skip


def _idle(source: Source, section: Section) -> None:
    """GPUs held idle, as the GPUs that would be free if they were given back."""
    idle = source.rows("idle_gpu_time")
    whole = idle.filter(pl.col("dimension") == "all").to_dicts() if not idle.is_empty() else []
    if whole and whole[0]["idle_share"] is not None:
        section.sentences.append(
            f"If GPUs were given back while they read 0, {fmt.percent(whole[0]['idle_share'])} of the measured GPU "
            "time would be free for others: an upper bound, for gaps shorter than a hand-over cannot be used."
        )
