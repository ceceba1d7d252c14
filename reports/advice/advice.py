"""Recommended actions, best first: each with its effect, and how far to trust that effect.

A simulated effect is offered only if the replay of the unchanged cluster is close to the record and the effect is
larger than the difference between the two. Otherwise the advice rests on the record alone: whom to talk to, about which
jobs, nodes or limits. Actions that cost nothing come before those that need new hardware.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import polars as pl

from features.conventions import INDICATIVE_BELOW_BLOCKS, REACTIVE
from reports import format as fmt
from reports.advice.record_advice import by_cause
from reports.advice.trust import trust_in_replays
from reports.hand_over import against_rule, best_on_select, headline_comparison, world
from reports.layout import Action
from reports.source import Source
from simulator.metrics import NOTICED_WAIT_S

NEARLY_ALL = "95 % of the jobs that started waited at most"
WORTH = 0.1  # of the mean wait, or of the cost of a handover; a smaller gain is not recommended first
WORTH_TIME = 0.01  # of all time held of the cluster's main resource
AS_IT_IS = "as it is"
_WORDS = {"ask=1.2": "Ask users for tighter time limits (simulated: 1.2 times the run time of each job)"}
_BOUND = "It is an upper bound, counted in the log and not simulated."


def actions(source: Source) -> list[Action]:
    """Return what helps, best first; if nothing would, return one action that says so."""
    whole = source.whole("queueing_by")
    offered: list[Action | None] = []
    small_gain = None
    if whole is not None and (whole["wait_p95_s"] or 0) > NOTICED_WAIT_S:
        free, bought, small_gain = _replays(source)
        offered += [free, _hand_over(source), *by_cause(source, whole), bought]
    else:
        offered.append(_hand_over(source))
    offered += [_rule(source), _idle(source)]
    return [action for action in offered if action is not None] or [_nothing(source, whole, small_gain)]


def _nothing(source: Source, whole: dict[str, Any] | None, small_gain: Action | None) -> Action:
    if whole is None and source.mean_wait_s is not None:
        return Action(
            "Run `baton analyze`",
            "The tables that explain the waits of this cluster have not been computed yet.",
            "Not known until then.",
        )
    if whole is None or whole["wait_p95_s"] is None:
        return Action(
            "Nothing can be recommended on waits",
            "The log has no job with both a submission and a start.",
            _until_known(source.jobs),
        )
    if whole["wait_p95_s"] <= NOTICED_WAIT_S:
        return Action(
            "No action on waits is needed",
            f"{NEARLY_ALL} {fmt.duration(whole['wait_p95_s'])}.",
            "Fully, because it is counted in the log and not simulated.",
        )
    if small_gain is not None:
        best = f"{small_gain.do[0].lower()}{small_gain.do[1:]}"
        effect = f"The best change ({best}) helps little: {small_gain.effect[0].lower()}{small_gain.effect[1:]}"
        return replace(small_gain, do="No simulated change is worth making", effect=effect)
    return Action(
        "No simulated change is certain to help",
        "None shortens the mean wait by more than chance."
        if not source.rows("what_if").is_empty()
        else "No replay of a changed cluster is in the warehouse: replays need time limits.",
        "Not known: no effect was found.",
    )


def _until_known(jobs: pl.DataFrame) -> str:
    """Say what it takes to know the waits: the fields that no job has, or jobs that ran."""
    if not jobs["attempts"].sum():
        return "Not known until some of its jobs have run."
    fields = ("Submit", "Start", "End")
    missing = [name for name in fields if jobs[f"{name.lower()}_utc"].null_count() == jobs.height]
    if not missing:
        return "Not known: no job has both times."
    named = " and ".join([", ".join(missing[:-1]), missing[-1]] if missing[1:] else missing)
    return f"Not known until the log is dumped again with the field{'s' * (len(missing) > 1)} {named}."


def _replays(source: Source) -> tuple[Action | None, Action | None, Action | None]:
    """Return the best simulated changes: the best free one, the fewest further nodes, and a free one of small effect.

    All three shorten the mean wait beyond chance and beyond the replay's own distance from the record. The first two
    are worth it (WORTH); the third is the best free change that is not. Each may be None. Changes of the load are not
    an administrator's to make and are left out.
    """
    replays = source.rows("what_if")
    base = replays.filter(pl.col("change") == AS_IT_IS).to_dicts() if not replays.is_empty() else []
    if not base or not base[0]["mean_wait_s"]:
        return None, None, None
    if base[0]["trust"] != "figures":
        return None, None, None
    trust = trust_in_replays(source, base[0])
    sure = replays.filter((pl.col("verdict") == "less") & ~pl.col("change").str.starts_with("arrivals"))
    sure = sure.with_columns(is_worth=pl.col("wait_change_s") <= -WORTH * base[0]["mean_wait_s"])
    same = pl.col("capacity_nodes") == base[0]["capacity_nodes"]
    free = sure.filter(same).sort("wait_change_s")
    more = sure.filter(~same & pl.col("is_worth")).sort("capacity_nodes")

    def first(rows: pl.DataFrame) -> Action | None:
        return None if rows.is_empty() else _replay(base[0], rows.to_dicts()[0], trust)

    return first(free.filter("is_worth")), first(more), first(free.filter(~pl.col("is_worth")))


def _replay(base: dict[str, Any], row: dict[str, Any], trust: str) -> Action:
    more = row["capacity_nodes"] - base["capacity_nodes"]
    bought = f"Add {more} node{'s' * (more != 1)} ({100 * more / base['capacity_nodes']:.0f} % more)"
    do = bought if more else _WORDS.get(row["change"], fmt.text(row["change"]).capitalize())
    ends = [row["wait_change_low_s"], row["wait_change_high_s"]]
    return Action(
        do,
        f"In simulation the mean wait falls from {fmt.duration(base['mean_wait_s'])} to "
        f"{fmt.duration(row['mean_wait_s'])} (by {fmt.duration(-row['wait_change_s'])}; 95 % interval "
        f"{fmt.duration(-ends[1])} to {fmt.duration(-ends[0])}).",
        trust,
        ends,
    )


def _hand_over(source: Source) -> Action | None:
    """Return the advice for chained jobs: the policy picked on the select window.

    Returns None unless it costs clearly less than submitting when the predecessor ends.
    """
    pairs = headline_comparison(source)
    if pairs is None:
        return None
    reactive, best = pairs.of(REACTIVE), pairs.of(best_on_select(source, pairs.size))
    if reactive is None or best is None or best["cost_w1"] > (1 - WORTH) * reactive["cost_w1"]:
        return None
    ends = json.loads(best["ci95"] or "{}").get("interruption_h")
    known = f" (95 % interval {fmt.interval(ends)} h)" if ends and None not in ends else ""
    few = (
        f" With only {best['blocks']} blocks of 7 days it is indicative."
        if best["blocks"] < INDICATIVE_BELOW_BLOCKS
        else ""
    )
    jobs = "jobs ended by their limit" if pairs.is_recorded else f"{best['pair_nodes']}-node jobs"
    return Action(
        f"Let chained jobs submit their next one ahead of time, by the policy {fmt.text(best['policy'])}",
        f"In simulation a chain of {jobs} is interrupted for {best['interruption_h']:.1f} h between two jobs{known}, "
        f"compared with {reactive['interruption_h']:.1f} h under reactive submission. Both jobs hold nodes "
        f"for {best['overlap_h']:.1f} h at the same time.",
        "No further than the simulation itself. "
        f"It was measured on {best['n']:,} handovers that the policy was not fitted on.{few} "
        + " ".join([world(best), against_rule(best)]).rstrip(),
        [float(end) for end in ends] if known else None,
        "h",
    )


def _rule(source: Source) -> Action | None:
    """Return the rule against failures that saves most, if it saves a share worth naming."""
    savings, all_ = source.rows("failure_savings"), float(source.jobs["unit_time_s"].sum() or 0)
    if savings.is_empty():
        return None
    best = savings.filter(pl.col("reason").is_null()).sort("time_net_s", descending=True).to_dicts()
    if not best or best[0]["time_net_s"] < WORTH_TIME * all_ or not all_:
        return None
    row = best[0]
    is_pre_run = row["limit_s"] is not None
    do = (
        f"Run every job of several GPUs for {fmt.duration(row['limit_s'])} on one GPU first"
        if is_pre_run
        else "Do not rerun jobs that failed for a reason that a rerun does not change"
    )
    return Action(
        do,
        f"It would have saved {fmt.unit_time(row['time_net_s'], source.unit)} "
        f"({fmt.percent(row['time_net_s'] / all_)} of all {source.unit} time held).",
        "It is counted in the past of this log, not simulated. "
        f"The rule affects {row['jobs']:,} jobs, {row['jobs_stopped_wrongly']:,} of which later completed in the log.",
    )


def _idle(source: Source) -> Action | None:
    """Return the advice on GPUs that were at 0 % utilization while they were held."""
    all_ = source.whole("idle_gpu_time")
    if source.unit != "GPU" or all_ is None or (all_["idle_share"] or 0) < WORTH_TIME:
        return None
    return Action(
        "Reclaim idle GPUs (warn, then end, jobs whose GPUs are all at 0 % utilization)",
        f"Jobs held {fmt.unit_time(all_['idle_gpu_time_s'])} with every GPU at 0 % utilization, "
        f"{fmt.percent(all_['idle_share'])} of the {fmt.unit_time(all_['measured_gpu_time_s'])} measured.",
        _BOUND + " Gaps shorter than a handover cannot be used.",
    )
