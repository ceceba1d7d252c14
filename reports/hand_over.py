"""Handovers from a job to its successor, in sentences: what users lose, what a policy would, and how certain that is.

The figures come from the comparison in the warehouse. The featured policy is the one with the least cost on the select
window, as the gate sees it, and never the one that turned out best on the reported window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from features.conventions import (
    ALL_SIZES,
    CUT_LIMIT_H,
    POOLED_WINDOWS,
    REACTIVE,
    USERS,
    is_offered,
    judged_sizes,
    size_rank,
)
from reports import format as fmt
from reports.source import Source
from traces.counted import counted

RECORDED = "recorded"  # kind of pairs: jobs that, in the log, ran into their limit
OPTIMAL_WITHIN_H = 0.05  # h per pair; reactive is called near optimal if the oracle saves no more than this
NEAR_SPEARMAN, NEAR_ERROR = 0.75, 0.5  # least rank correlation, and largest error over the mean, of a close world


@dataclass(frozen=True)
class SizeComparison:
    """The comparison of one size of pairs, all loads together, with one row per policy."""

    size: str
    rows: list[dict[str, Any]]

    def of(self, policy: str | None) -> dict[str, Any] | None:
        """Return the row of that policy; None if it has none."""
        return next((row for row in self.rows if row["policy"] == policy), None)

    @property
    def any_row(self) -> dict[str, Any]:
        """The row of a policy that was measured on every pair."""
        return max(self.rows, key=lambda row: int(row["n"]))

    @property
    def is_recorded(self) -> bool:
        """Whether these are recorded pairs."""
        return bool(self.any_row["pairs"] == RECORDED)

    @property
    def what(self) -> str:
        """The pairs in words: '8-node 48 h pairs, plain world', 'all recorded pairs, calibrated world'."""
        row = self.any_row
        size = "all" if self.size == ALL_SIZES else f"{self.size}-node"
        limit = "" if row["limit_h"] is None else f" {row['limit_h']:g} h"
        return f"{size}{limit}{' recorded' * self.is_recorded} pairs, {fmt.text(row['world'])} world"


def comparisons_by_size(source: Source) -> list[SizeComparison]:
    """Return the comparison of each size of pairs in order, all sizes together first."""
    results = source.rows("policy_results")
    if results.is_empty():
        return []
    results = results.filter(pl.col("load") == "all")
    order = sorted(set(results["size"]), key=lambda size: -1 if size == ALL_SIZES else size_rank(size))
    return [SizeComparison(size, results.filter(pl.col("size") == size).to_dicts()) for size in order]


def headline_comparison(source: Source) -> SizeComparison | None:
    """Return the comparison that one sentence about handovers is based on; None if nothing was compared."""
    comparisons = comparisons_by_size(source)
    widest = judged_sizes(one.size for one in comparisons)[-1:]
    return next((one for one in comparisons if [one.size] == widest), None)


def best_on_select(source: Source, size: str) -> str | None:
    """Return the releasable policy with the least cost on the select window; None without a select window."""
    curves = source.rows("policy_curves")
    if curves.is_empty():
        return None
    offered = [name for name in curves["policy"].unique() if is_offered(name)]
    select = curves.filter(
        (pl.col("window") == "select") & (pl.col("size") == size) & pl.col("policy").is_in(offered)
    ).sort("cost_w1", "policy")
    return None if select.is_empty() else str(select["policy"][0])


def sentences(source: Source, pairs: SizeComparison) -> list[str]:
    """Return what a reader must know of the comparison before its tables."""
    best = pairs.of(best_on_select(source, pairs.size))
    parts = [_users(source, pairs, best)] if pairs.is_recorded else []
    parts += [_policy(pairs, best), optimal(pairs), against_rule(best), world(pairs.any_row)]
    return [sentence for sentence in parts if sentence]


def _users(source: Source, pairs: SizeComparison, best: dict[str, Any] | None) -> str:
    """Say what users lose today, and what they would lose with the policy on the same jobs."""
    every, users = pairs.any_row, pairs.of(USERS)
    jobs = f"{counted(every['n'], 'job')}"
    start = (
        f"Of {jobs} submitted from {fmt.day(every['from_utc'])} to {fmt.day(every['to_utc'])} and ended by their "
        f"time limit (of at least {CUT_LIMIT_H} h){_one_user(source, every)}, users continued "
    )
    if users is None:
        return f"{start}none within an hour, so the time lost between two jobs is unknown."
    lost = (
        f"{start}{users['n']:,} within an hour and lost {users['interruption_h'] * users['n']:,.0f} h between two jobs "
        f"(median {users['interruption_p50_h']:.1f} h, mean {users['interruption_h']:.1f} h)"
    )
    if best is None or best["interruption_users_h"] is None:
        return lost + "."
    return (
        f"{lost}. With {fmt.text(best['policy'])} the same jobs lose {best['interruption_users_h']:.1f} h on average, "
        f"with {best['overlap_users_h']:.1f} h of overlap."
    )


def _one_user(source: Source, every: dict[str, Any]) -> str:
    """Return a clause if all these jobs belong to one user, else ''."""
    users = source.read(
        "SELECT count(DISTINCT user_name) AS users FROM jobs WHERE cluster = ? AND state = 'TIMEOUT' "  # noqa: S608 - our own numbers
        f"AND limit_s >= {CUT_LIMIT_H * 3600} AND submit_utc BETWEEN TIMESTAMP '{every['from_utc']:%Y-%m-%d %H:%M:%S}' "
        f"AND TIMESTAMP '{every['to_utc']:%Y-%m-%d %H:%M:%S}'"
    )
    return ", all of one user" if users["users"][0] == 1 else ""


def _policy(pairs: SizeComparison, best: dict[str, Any] | None) -> str:
    reactive = pairs.of(REACTIVE)
    if best is None or reactive is None:
        return f"On {pairs.what}, {len(pairs.rows)} policies were compared; none was picked without a select window."
    verdict = "costs less" if best["cost_w1"] < reactive["cost_w1"] else "costs no less"
    return (
        f"On {pairs.what}, reactive submission interrupts each pair for {reactive['interruption_h']:.2f} h on average. "
        f"{fmt.text(best['policy'])}, the policy with the least cost on the select window, interrupts for "
        f"{best['interruption_h']:.2f} h and overlaps for {best['overlap_h']:.2f} h. At weight 1 it {verdict} than "
        f"reactive: {best['cost_w1']:.2f} h compared with {reactive['cost_w1']:.2f} h per pair, "
        f"{best['regret_h_w1']:.2f} h above the oracle."
    )


def optimal(pairs: SizeComparison) -> str:
    """Say that there is nothing to gain, if that is so; else ''."""
    reactive = pairs.of(REACTIVE)
    if reactive is None or reactive["regret_h_w1"] > OPTIMAL_WITHIN_H:
        return ""
    return (
        f"Reactive is near optimal here: it interrupts for {reactive['interruption_h']:.2f} h per pair, and "
        f"the oracle, which knows every start, would save only {reactive['regret_h_w1']:.2f} h of that."
    )


def against_rule(best: dict[str, Any] | None) -> str:
    """Compare the policy with the best rule that learned nothing.

    One window does not support the claim that one beats the other, so the sentence does not make it.
    """
    if best is None or best["best_rule"] is None:
        return ""
    name, rule = fmt.text(best["policy"]), fmt.text(best["best_rule"])
    if name == rule:
        return f"{name[0].upper()}{name[1:]} is a rule, not a learner: no learner costs less on the select window."
    ends = best["cost_difference_low_h"], best["cost_difference_high_h"]
    known = f"95 % interval {fmt.interval(ends)} h, same pairs" if None not in ends else "no interval: one block"
    return (
        f"The cost of {name} minus that of {rule}, the best rule, is {best['cost_difference_h']:+.2f} h per pair "
        f"({known}). One window does not show which is better; that takes {POOLED_WINDOWS} pooled windows."
    )


def world(row: dict[str, Any]) -> str:
    """Say how far the world of this comparison is from the record, in the same window."""
    spearman, error = row["world_spearman"], row["world_error_over_mean"]
    if spearman is None or error is None:
        return f"The error of the waits in the {fmt.text(row['world'])} world is unknown."
    met = (spearman >= NEAR_SPEARMAN) + (error <= NEAR_ERROR)
    verdict = (
        "far from the log: trust directions, not sizes",
        "only partly close to the log",
        "close to the log",
    )[met]
    return (
        f"The {fmt.text(row['world'])} world is {verdict}. In this window its waits have a rank correlation of "
        f"{spearman:.2f} with the recorded waits and a mean absolute error of {100 * error:.0f} % of the recorded mean "
        f"({row['world_mean_wait_h']:.1f} h simulated, {row['recorded_mean_wait_h']:.1f} h recorded)."
    )
