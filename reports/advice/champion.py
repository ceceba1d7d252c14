"""The champion of a cluster: which policy it is, why it is a rule if it is one, and what would change that."""

from __future__ import annotations

from typing import Any

import polars as pl

from features.conventions import BY_HAND, GATE_BLOCKS, GATE_LOSING, LIGHT_H, RULES, is_offered, judged_sizes
from reports import format as fmt
from reports.source import Source
from traces.counted import counted
from traces.units import HOUR_S

SAME_H = 1e-9  # costs that differ by less are equal, as in the candidate rule


def why(source: Source) -> str:
    """Describe the champion of `release_log` in two or three sentences; '' if no release was decided."""
    log = source.rows("release_log")
    if log.is_empty():
        return ""
    log = log.sort("released_utc")
    newest = log.row(-1, named=True)
    version = newest["registered_version"]
    if version is None:
        return "There is no champion."
    made = log.filter(candidate_version=version, registered_version=version)
    if made.is_empty():
        return ""
    champion = made.row(-1, named=True)
    name, provisional = fmt.text(champion["policy"]), "provisional " * champion["provisional"]
    if champion["verdict"] == BY_HAND:
        return f"{name} is the champion: a person promoted it."
    if champion["policy"] not in RULES:
        return f"{name}, a learned policy, is the {provisional}champion."
    return f"{name}, a rule that learned nothing, is the {provisional}champion. {_no_learner(source, champion)}"


def _no_learner(source: Source, champion: dict[str, Any]) -> str:
    """Say what kept learned policies from being champion, and what a newer log must hold to change that."""
    costs, pairs = _on_select(source)
    learned = costs.filter(~pl.col("policy").is_in(RULES)).sort("cost_w1", "policy")
    rule = costs.filter(policy=champion["policy"])
    if learned.is_empty() or rule.is_empty():
        return "No learned policy was compared with it."
    best, least_h, rule_h = learned["policy"][0], learned["cost_w1"][0], rule["cost_w1"][0]
    policies = f"{fmt.text(best)} {_cost(least_h)}, {fmt.text(champion['policy'])} {_cost(rule_h)}"
    figures = f"{policies} of interruption and overlap per pair"
    where = f"on the {counted(pairs, 'pair')} of the select window"
    if least_h < rule_h - SAME_H:
        reason = f"A learned policy costs less {where} ({figures}), but the gate does not show that it is better"
        needed = "it must pass the gate"
    else:
        reason = f"No learned policy costs less {where} ({figures})"
        needed = "a learned policy must cost less there and pass the gate"
    return f"{reason}. To change that, add newer logs and run again: {needed}{_gate_needs(champion)}."


def _on_select(source: Source) -> tuple[pl.DataFrame, int]:
    """Return each policy's least cost on the select window (h per pair, sizes averaged), and the number of pairs."""
    curves = source.rows("policy_curves")
    if curves.is_empty():
        return pl.DataFrame(schema={"policy": pl.String, "cost_w1": pl.Float64}), 0
    select = curves.filter(
        (pl.col("window") == "select")
        & pl.col("size").is_in(judged_sizes(curves["size"]))
        & pl.col("policy").map_elements(lambda name: name in RULES or is_offered(name), pl.Boolean)
    )
    pairs = int(select.group_by("size").agg(pl.col("n").max())["n"].sum())
    costs = select.group_by("policy", "setting").agg(pl.col("cost_w1").mean())
    return costs.group_by("policy").agg(pl.col("cost_w1").min()), pairs


def _gate_needs(champion: dict[str, Any]) -> str:
    """Say how much of what the gate needs the log has; '' if it has it all."""
    losing, blocks = champion["losing_pairs"] or 0, champion["blocks"] or 0
    if losing >= GATE_LOSING and blocks >= GATE_BLOCKS:
        return ""
    return (
        f", which needs {GATE_LOSING} pairs that reactive submission interrupts for over {LIGHT_H:g} h (now "
        f"{losing}) and {GATE_BLOCKS} blocks of 7 days (now {blocks})"
    )


def _cost(hours: float) -> str:
    return fmt.duration(hours * HOUR_S)
