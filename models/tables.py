"""Derived tables of the policies: comparison, curves, promises, release log, champion drift and what-ifs.

This module declares the tables and turns plain rows into typed frames. The assets write them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from features.conventions import BLOCK_DAYS, GATE_LEVEL, INDICATIVE_BELOW_BLOCKS, LIGHT_H, LOADS_IN_WORDS
from models.provisioning.worlds import WORLDS
from simulator.metrics import NOTICED_WAIT_S
from traces import instants
from traces.schema import CLUSTER, FLAG, FLOAT, INT, TEXT, UTC, Column, Table

_FEW_BLOCKS = f"fewer than {INDICATIVE_BELOW_BLOCKS} blocks: the intervals are only indicative"
_WITHIN = f"share of pairs with a gap of at most {NOTICED_WAIT_S // 60} minutes"
_POLICY = Column("policy", TEXT, "", "name in the registry of policies, or oracle", nullable=False)
_SIZE = Column("size", TEXT, "", "nodes of the pairs measured together: 1, 8, 2-4, 17-up; all", nullable=False)
_NODES = Column("pair_nodes", INT, "nodes", "nodes of the predecessor and of the successor; null where they differ")
_LIMIT = Column("limit_h", FLOAT, "h", "wall-clock limit of both jobs; null where pairs differ")
_TO_RULE = "less that of the best rule on the same pairs, h; null without a select window"
_PAIRS = Column("n", INT, "pairs", "pairs", nullable=False)
_INTERRUPTION = Column("interruption_h", FLOAT, "h", "mean interruption a pair", nullable=False)
_OVERLAP = Column("overlap_h", FLOAT, "h", "mean overlap a pair", nullable=False)
_ZERO = Column("zero_share", FLOAT, "", "share of pairs without interruption (gap <= 0)", nullable=False)
_COST_1 = Column("cost_w1", FLOAT, "h", "interruption + overlap a pair", nullable=False)
_IN_WORLD = Column("world", TEXT, "", f"simulated world: {' or '.join(WORLDS)}", nullable=False)
_BLOCKS = Column("blocks", INT, "blocks", f"{BLOCK_DAYS}-day blocks that hold these pairs", nullable=False)
_SEEDS = Column("seeds", INT, "seeds", "training seeds averaged", nullable=False)
_INDICATIVE = Column("indicative", FLAG, "", _FEW_BLOCKS, nullable=False)

POLICY_RESULTS = Table(
    "policy_results",
    "One row a policy, load and size of pairs: its figures on the report window at its headline setting",
    (
        CLUSTER,
        Column("window", TEXT, "", "part of the trace that the figures are from: report", nullable=False),
        _POLICY,
        Column("from_utc", UTC, "", "submission of the first predecessor measured", nullable=False),
        Column("to_utc", UTC, "", "submission of the last predecessor measured", nullable=False),
        Column("policy_version", TEXT, "", "digest of the artifacts compared", nullable=False),
        _IN_WORLD,
        Column("load", TEXT, "", f"all, or by reactive's gap: {LOADS_IN_WORDS}", nullable=False),
        Column("pairs", TEXT, "", "injected into the world, or recorded: jobs cut by their limit", nullable=False),
        _SIZE,
        _NODES,
        _LIMIT,
        _PAIRS,
        _BLOCKS,
        _SEEDS,
        _INDICATIVE,
        Column("knob", TEXT, "", "what a setting means, with its unit", nullable=False),
        Column("setting", FLOAT, "", "headline setting: least cost_w1 on the select window"),
        _INTERRUPTION,
        Column("interruption_p50_h", FLOAT, "h", "median interruption", nullable=False),
        Column("interruption_p95_h", FLOAT, "h", "95th percentile of interruption", nullable=False),
        _OVERLAP,
        _ZERO,
        Column("within_10min_share", FLOAT, "", _WITHIN, nullable=False),
        Column("cost_w05", FLOAT, "h", "interruption + 0.5 x overlap a pair", nullable=False),
        _COST_1,
        Column("regret_h_w1", FLOAT, "h", "cost_w1 above the clairvoyant oracle's", nullable=False),
        Column("reduction", FLOAT, "", "1 - interruption / interruption of reactive; null where reactive has none"),
        Column("at_overlap_025_h", FLOAT, "h", "interruption at a mean overlap of 0.25 h; null beyond the curve"),
        Column("at_overlap_05_h", FLOAT, "h", "interruption at a mean overlap of 0.5 h; null beyond the curve"),
        Column("at_overlap_1_h", FLOAT, "h", "interruption at a mean overlap of 1 h; null beyond the curve"),
        Column(
            "zero_share_at_overlap_05", FLOAT, "", "zero_share at a mean overlap of 0.5 h; null beyond the curve"
        ),
        Column("interruption_users_h", FLOAT, "h", "mean interruption on the pairs with which users went on"),
        Column("overlap_users_h", FLOAT, "h", "mean overlap on the pairs with which users went on"),
        Column("best_rule", TEXT, "", "of the rules that learn nothing, the one of least cost_w1 on the select window"),
        Column("cost_difference_h", FLOAT, "h", f"cost_w1 {_TO_RULE}"),
        Column("cost_difference_low_h", FLOAT, "h", "lower end of its paired 95 % interval"),
        Column("cost_difference_high_h", FLOAT, "h", "upper end of it"),
        Column("at_overlap_025_difference_h", FLOAT, "h", f"at_overlap_025_h {_TO_RULE}"),
        Column("at_overlap_025_difference_low_h", FLOAT, "h", "lower end of its paired 95 % interval"),
        Column("at_overlap_025_difference_high_h", FLOAT, "h", "upper end of it"),
        Column("world_spearman", FLOAT, "", "rank correlation of the world's waits with those recorded in the window"),
        Column("world_error_over_mean", FLOAT, "", "mean absolute error of the world's waits over the recorded mean"),
        Column("world_mean_wait_h", FLOAT, "h", "mean wait in the world of the jobs submitted in the window"),
        Column("recorded_mean_wait_h", FLOAT, "h", "their mean wait as recorded"),
        Column("chosen", TEXT, "", "JSON: setting picked on the select window for each overlap budget, its figures"),
        Column("ci95", TEXT, "", "JSON: figure to [low, high], moving-block bootstrap over starts", nullable=False),
        Column("trace_digest", TEXT, "", "digest of the raw files", nullable=False),
        Column("scenario", TEXT, "", "scheduler, capacity and world of the simulation", nullable=False),
        Column("code_version", TEXT, "", "commit, or package version and source digest", nullable=False),
    ),
    key=("cluster", "policy", "load", "size", "limit_h", "world"),
)  # fmt: skip

POLICY_CURVES = Table(
    "policy_curves",
    "One row a policy, window, size of pairs and setting: the interruption-against-overlap curve, seeds averaged",
    (
        CLUSTER,
        Column("window", TEXT, "", "select or report", nullable=False),
        _POLICY,
        _SIZE,
        _NODES,
        _LIMIT,
        Column("setting", FLOAT, "", "value of the policy's knob", nullable=False),
        _INTERRUPTION,
        _OVERLAP,
        _ZERO,
        _COST_1,
        _PAIRS,
    ),
    key=("cluster", "window", "policy", "size", "limit_h", "setting"),
)

_OF_PROMISED = f"share of the pairs with a promise that are interrupted for over {NOTICED_WAIT_S // 60} minutes"
POLICY_PROMISES = Table(
    "policy_promises",
    "One row a policy and risk: promises to interrupt with probability at most the risk, by a setting chosen each week",
    (
        CLUSTER,
        _POLICY,
        Column("risk", FLOAT, "", "promised upper bound on the probability of an interruption", nullable=False),
        _IN_WORLD,
        Column("from_utc", UTC, "", "submission of the first predecessor judged", nullable=False),
        Column("to_utc", UTC, "", "submission of the last one", nullable=False),
        _PAIRS,
        _SEEDS,
        _BLOCKS,
        _INDICATIVE,
        Column("weeks", INT, "weeks", "weeks with a pair", nullable=False),
        Column("promised_weeks", INT, "weeks", "weeks with a setting that kept the risk", nullable=False),
        Column("promised_pairs", INT, "pairs", "pairs of these weeks", nullable=False),
        Column("interrupted_share", FLOAT, "", f"{_OF_PROMISED}; null without a promise"),
        Column("interrupted_low", FLOAT, "", "lower end of its 95 % interval; null where all pairs are of one block"),
        Column("interrupted_high", FLOAT, "", "upper end of it"),
        Column("is_kept", FLAG, "", "lower end of the interval (the share, without an interval) is at most the risk"),
        Column("any_gap_share", FLOAT, "", "share of the pairs with a promise that have any gap (> 0)"),
        Column("interruption_h", FLOAT, "h", "mean interruption of the pairs with a promise"),
        Column("overlap_h", FLOAT, "h", "mean overlap of the pairs with a promise: the price"),
        Column("all_share", FLOAT, "", "share of all pairs interrupted; other weeks submit at once", nullable=False),
        Column("all_overlap_h", FLOAT, "h", "mean overlap of all pairs", nullable=False),
        Column("at_once_share", FLOAT, "", "share interrupted if every pair submitted at once", nullable=False),
        Column("next_setting", FLOAT, "", "setting for the week after the window; null: submit at once"),
        Column("is_next_promised", FLAG, "", "it keeps the risk on known outcomes; false: no setting does",
        nullable=False),
        Column("weekly", TEXT, "", "JSON: by week pairs, outcomes known, setting, share, overlap", nullable=False),
    ),
    key=("cluster", "policy", "risk", "world"),
)  # fmt: skip

RELEASE_LOG = Table(
    "release_log",
    "One row a decision about a release of a cluster's policy",
    (
        CLUSTER,
        Column("released_utc", UTC, "", "when it was decided", nullable=False),
        Column("registered_version", INT, "", "version with the champion alias afterwards, if any"),
        Column("candidate_version", INT, "", "version that the candidate is registered as, whatever the verdict"),
        Column("policy", TEXT, "", "policy of the candidate", nullable=False),
        Column("verdict", TEXT, "", "the gate's: passed, failed or cannot tell; or by hand", nullable=False),
        Column("provisional", FLAG, "", "first champion, although the gate cannot tell", nullable=False),
        Column("reason", TEXT, "", "the decision in one sentence", nullable=False),
        Column("pairs", INT, "pairs", "pairs compared"),
        Column("losing_pairs", INT, "pairs", f"pairs on which reactive loses over {LIGHT_H:g} h"),
        Column("blocks", INT, "blocks", f"blocks of at least {BLOCK_DAYS} days that hold them"),
        Column("cost_difference_h", FLOAT, "h", "cost_w1 of the candidate less that of the policy compared with it"),
        Column("cost_difference_low_h", FLOAT, "h", f"lower end of its paired {100 * GATE_LEVEL:.0f} % interval"),
        Column("cost_difference_high_h", FLOAT, "h", "upper end of it"),
        Column("champion_version", INT, "", "version that the candidate was compared with; null for reactive"),
    ),
    key=("cluster", "released_utc"),
)  # fmt: skip

CHAMPION_DRIFT = Table(
    "champion_drift",
    "One row a whole week since the champion's fit, and feature: how its jobs differ from those of the fit's weeks",
    (
        CLUSTER,
        Column("week_utc", UTC, "", "Monday 00:00 UTC; all outcomes of the week are known", nullable=False),
        Column("feature", TEXT, "", "as in drift; wait_error_s: the wait that agents predicted, less the wait",
        nullable=False),
        Column("champion_version", INT, "", "registered version that was champion", nullable=False),
        Column("before_from_utc", UTC, "", "first of the earlier weeks", nullable=False),
        Column("before_until_utc", UTC, "", "end of the last of them, at most that of the fit", nullable=False),
        Column("weeks", INT, "weeks", "earlier weeks compared", nullable=False),
        Column("n_before", INT, "jobs", "jobs of the earlier weeks with a value of the feature", nullable=False),
        Column("n", INT, "jobs", "jobs of this week with a value of it", nullable=False),
        Column("psi", FLOAT, "", "population stability index against all earlier weeks together", nullable=False),
        Column("bound", FLOAT, "", "of the index, from the spread between the earlier weeks", nullable=False),
        Column("chance", FLOAT, "", "share of weeks like these with any feature beyond its bound", nullable=False),
        Column("is_beyond", FLAG, "", "index over the bound: requests retraining", nullable=False),
    ),
    key=("cluster", "week_utc", "feature"),
)  # fmt: skip

WHAT_IF = Table(
    "what_if",
    "One row a change of the cluster as recorded: its replay anew every day, against the replay without the change",
    (
        CLUSTER,
        Column("change", TEXT, "", "what differs; 'as it is' for the base of all others", nullable=False),
        Column("capacity_nodes", INT, "nodes", "most nodes usable at once", nullable=False),
        Column("jobs", INT, "jobs", "jobs compared: submitted in the window, and ran", nullable=False),
        Column("mean_wait_s", FLOAT, "s", "mean wait in the replay", nullable=False),
        Column("p50_wait_s", FLOAT, "s", "median", nullable=False),
        Column("p95_wait_s", FLOAT, "s", "95th percentile", nullable=False),
        Column("mean_bounded_slowdown", FLOAT, "", "mean of max(1, (wait + run) / max(run, 10 s))", nullable=False),
        Column("wait_change_s", FLOAT, "s", "mean of wait minus base wait; negative is better", nullable=False),
        Column("wait_change_low_s", FLOAT, "s", "its 95 % interval, blocks of 7 days; null under two blocks"),
        Column("wait_change_high_s", FLOAT, "s", "upper end of it"),
        Column("wait_change_whole_s", FLOAT, "s", "the same of a replay of the window in one piece", nullable=False),
        Column("verdict", TEXT, "", "less, more, no change, or cannot tell", nullable=False),
        Column("recorded_mean_wait_s", FLOAT, "s", "recorded mean wait of the base's jobs", nullable=False),
        Column("base_spearman", FLOAT, "", "Spearman's rho of the base's waits with the recorded; null if undefined"),
        Column("trust", TEXT, "", "figures; direction: the base is too far from the record for more", nullable=False),
        Column("trust_why", TEXT, "", "distance of the base from the record", nullable=False),
        Column("said", TEXT, "", "assumptions, one a line", nullable=False),
    ),
    key=("cluster", "change"),
)  # fmt: skip

WHAT_IF_SCHEDULERS = Table(
    "what_if_schedulers",
    "One row a GPU scheduler and change: the same jobs replayed by it, against the first scheduler as the cluster is",
    (
        CLUSTER,
        Column("place", INT, "", "place in the order asked for; 1 is the base of all differences", nullable=False),
        Column("scheduler", TEXT, "", "scheduler of the replay", nullable=False),
        Column("change", TEXT, "", "what differs; 'as it is' for nothing", nullable=False),
        Column("jobs", INT, "jobs", "jobs replayed", nullable=False),
        Column("from_utc", UTC, "", "first submission among them", nullable=False),
        Column("until_utc", UTC, "", "last submission among them", nullable=False),
        Column("capacity_gpus", INT, "GPUs", "GPUs of the replayed cluster", nullable=False),
        Column("seed", INT, "", "first seed of what is drawn", nullable=False),
        Column("draws", INT, "", "replays with seeds from there on; figures are means over them", nullable=False),
        Column("mean_jct_s", FLOAT, "s", "mean job completion time: last end minus submission", nullable=False),
        Column("p50_jct_s", FLOAT, "s", "median of it", nullable=False),
        Column("p99_jct_s", FLOAT, "s", "99th percentile of it", nullable=False),
        Column("mean_queueing_s", FLOAT, "s", "mean time without GPUs before the end", nullable=False),
        Column("makespan_s", FLOAT, "s", "first submission to last end", nullable=False),
        Column("utilization", FLOAT, "0..1", "share of GPUs x makespan with progress", nullable=False),
        Column("fragmentation", FLOAT, "0..1", "share that was free while a job waited", nullable=False),
        Column("worst_rho", FLOAT, "", "largest completion time over that alone on a 1/N share", nullable=False),
        Column("mean_rho", FLOAT, "", "mean of it", nullable=False),
        Column("preemptions", FLOAT, "", "stops before the end, over all jobs", nullable=False),
        Column("lost_gpu_h", FLOAT, "GPU h", "GPU hours held without progress, for restarts", nullable=False),
        Column("mean_jct_low_s", FLOAT, "s", "95 % interval of the mean, blocks of 7 days; null under two blocks"),
        Column("mean_jct_high_s", FLOAT, "s", "upper end of it"),
        Column("mean_jct_least_s", FLOAT, "s", "least mean among the draws", nullable=False),
        Column("mean_jct_most_s", FLOAT, "s", "largest mean among the draws", nullable=False),
        Column("jct_change_s", FLOAT, "s", "mean of job completion time less base; negative is better", nullable=False),
        Column("jct_change_low_s", FLOAT, "s", "its 95 % interval, blocks of 7 days; null for the base"),
        Column("jct_change_high_s", FLOAT, "s", "upper end of it"),
        Column("jct_change_least_s", FLOAT, "s", "least change among the draws, each against its base", nullable=False),
        Column("jct_change_most_s", FLOAT, "s", "largest change among the draws", nullable=False),
        Column("queueing_change_s", FLOAT, "s", "mean of queueing minus the base's", nullable=False),
        Column("queueing_change_low_s", FLOAT, "s", "its 95 % interval, blocks of 7 days; null for the base"),
        Column("queueing_change_high_s", FLOAT, "s", "upper end of it"),
        Column("recorded_jobs", INT, "jobs", "jobs whose wait is recorded; here and below only for the base"),
        Column("recorded_mean_wait_s", FLOAT, "s", "mean recorded wait; null without any, as below"),
        Column("recorded_median_wait_s", FLOAT, "s", "median of it"),
        Column("recorded_p90_wait_s", FLOAT, "s", "90th percentile of it"),
        Column("base_mean_wait_s", FLOAT, "s", "mean wait of the same jobs in the replay"),
        Column("base_median_wait_s", FLOAT, "s", "median of it"),
        Column("base_p90_wait_s", FLOAT, "s", "90th percentile of it"),
        Column("base_spearman", FLOAT, "", "rank correlation of the two, job by job"),
        Column("assumptions", TEXT, "", "what was assumed or drawn because the log lacks it", nullable=False),
    ),
    key=("cluster", "scheduler", "change"),
)

WHAT_IF_GROUPS = Table(
    "what_if_groups",
    "One row a GPU scheduler, change and part of the jobs: gains and losses against the base",
    (
        CLUSTER,
        Column("scheduler", TEXT, "", "scheduler of the replay", nullable=False),
        Column("change", TEXT, "", "what differs; 'as it is' for nothing", nullable=False),
        Column("dimension", TEXT, "", "size (GPUs), group (virtual cluster or partition) or user", nullable=False),
        Column("name", TEXT, "", "name of the part; of users the 20 with most jobs", nullable=False),
        Column("jobs", INT, "jobs", "jobs of the part", nullable=False),
        Column("mean_jct_s", FLOAT, "s", "their mean job completion time", nullable=False),
        Column("jct_change_s", FLOAT, "s", "mean of job completion time less base; negative is a gain", nullable=False),
        Column("jct_change_low_s", FLOAT, "s", "its 95 % interval, blocks of 7 days; null under two blocks"),
        Column("jct_change_high_s", FLOAT, "s", "upper end of it"),
        Column("jct_change_least_s", FLOAT, "s", "least change among the draws", nullable=False),
        Column("jct_change_most_s", FLOAT, "s", "largest change among the draws", nullable=False),
    ),
    key=("cluster", "scheduler", "change", "dimension", "name"),
)

TABLES: tuple[Table, ...] = (
    POLICY_RESULTS, POLICY_CURVES, POLICY_PROMISES, RELEASE_LOG, CHAMPION_DRIFT, WHAT_IF, WHAT_IF_SCHEDULERS,
    WHAT_IF_GROUPS,
)  # fmt: skip

_DTYPES: dict[str, Any] = {
    TEXT: pl.String,
    INT: pl.Int64,
    FLOAT: pl.Float64,
    FLAG: pl.Boolean,
    UTC: pl.Datetime("us"),
}
_DIFFERENCES = {"cost_w1": "cost_difference", "interruption_h_at_overlap_0.25": "at_overlap_025_difference"}
_WORLD = {  # figure of `world_error`: column
    "spearman": "world_spearman",
    "error_over_mean": "world_error_over_mean",
    "mean_wait_h": "world_mean_wait_h",
    "recorded_mean_wait_h": "recorded_mean_wait_h",
}
_AT_OVERLAP = {"0.25": "at_overlap_025_h", "0.5": "at_overlap_05_h", "1": "at_overlap_1_h"}


def frame(table: Table, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Make a frame of rows, with the table's columns in order and its types. A key missing in a row becomes null."""
    schema = {column.name: _DTYPES[column.type] for column in table.columns}
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


def results_frame(results: Sequence[Mapping[str, Any]], world_error: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Make `policy_results` from the rows of a comparison; nested figures become columns or JSON.

    world_error: `models.study.world_error.world_error` of the same window; every row holds its figures.
    """
    of_world = {column: (world_error or {}).get(name) for name, column in _WORLD.items()}
    flat: list[dict[str, Any]] = []
    for row in results:
        at_overlap = row["interruption_h_at_overlap"]
        flat.append(
            {
                **row,
                **{name: instants.parse(row[name]) for name in ("from_utc", "to_utc")},
                **{column: at_overlap[budget] for budget, column in _AT_OVERLAP.items()},
                **_difference(row["difference_to_best_rule"]),
                **of_world,
                "chosen": json.dumps(row["chosen"], sort_keys=True),
                "ci95": json.dumps(row["ci95"], sort_keys=True),
            }
        )
    return frame(POLICY_RESULTS, flat)


def _difference(difference: Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns of a `difference_to_best_rule`; none if there is no best rule."""
    if difference is None:
        return {}
    columns: dict[str, Any] = {"best_rule": difference["rule"]}
    for figure, column in _DIFFERENCES.items():
        low, high = difference["ci95"][figure] or (None, None)
        columns |= {f"{column}_h": difference[figure], f"{column}_low_h": low, f"{column}_high_h": high}
    return columns


def curves_frame(curves: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Make `policy_curves` from the curve points of `models.provisioning.comparison.compare.compare`."""
    return frame(POLICY_CURVES, curves)


def promises_frame(cluster: str, world: str, promises: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Make `policy_promises` from the rows of `models.provisioning.comparison.promises.promises`."""
    flat = []
    for row in promises:
        low, high = row["ci95"] or (None, None)
        bounds = {name: instants.parse(row[name]) for name in ("from_utc", "to_utc")}
        ends = {"interrupted_low": low, "interrupted_high": high, "weekly": json.dumps(row["weekly"], sort_keys=True)}
        flat.append({**row, **bounds, **ends, "cluster": cluster, "world": world})
    return frame(POLICY_PROMISES, flat)
