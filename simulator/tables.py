"""The derived tables that replays and calibrations write to the warehouse."""

from __future__ import annotations

import numpy as np
import polars as pl

from simulator.metrics import NOTICED_WAIT_S, bounded_slowdown
from simulator.workload import Replay, Workload
from traces.arrays import Int64s
from traces.schema import CLUSTER, FLOAT, INT, JOB_KEY, TEXT, UTC, Column, Table

SIMULATED_STARTS = Table(
    "simulated_starts",
    "One row per job that ran and replay: recorded and simulated wait",
    (
        CLUSTER,
        JOB_KEY,
        Column("scheduler", TEXT, "", "scheduler of the replay, a page of docs/schedulers", nullable=False),
        Column("capacity_nodes", INT, "nodes", "nodes of the simulated cluster", nullable=False),
        Column("submit_utc", UTC, "", "submission", nullable=False),
        Column("nodes", INT, "nodes", "nodes held", nullable=False),
        Column("recorded_wait_s", INT, "s", "recorded start minus submission; null if the log holds no start"),
        Column("simulated_wait_s", INT, "s", "simulated start minus submission; null for a job that never started"),
    ),
    key=("cluster", "job_key", "scheduler", "capacity_nodes"),
)

_FORM = Column("form", TEXT, "", "frozen, causal, forked or informed (docs/calibration.md)", nullable=False)
_FROM = Column("from_utc", UTC, "", "start of the judged month; fitted on the record before it", nullable=False)
_UNTIL = Column("until_utc", UTC, "", "end of the judged month, not included", nullable=False)

CALIBRATION_FIGURES = Table(
    "calibration_figures",
    "One row per judged month, form and set of mechanisms: calibrated waits compared with the recorded ones",
    (
        CLUSTER,
        _FROM,
        _UNTIL,
        _FORM,
        Column(
            "change", TEXT, "", "all, none, added (to the mechanisms before it) or left out (of all)", nullable=False
        ),
        Column("mechanism", TEXT, "", "the mechanism added or left out; empty for all and none", nullable=False),
        Column("jobs", INT, "jobs", "jobs submitted in the month that ran (for mechanisms: a sample)", nullable=False),
        Column("recorded_mean_wait_s", FLOAT, "s", "mean recorded wait", nullable=False),
        Column("simulated_mean_wait_s", FLOAT, "s", "mean calibrated wait", nullable=False),
        Column("recorded_p90_wait_s", FLOAT, "s", "90th percentile of the recorded waits", nullable=False),
        Column("simulated_p90_wait_s", FLOAT, "s", "90th percentile of the calibrated waits", nullable=False),
        Column("mean_absolute_error_s", FLOAT, "s", "mean absolute difference job by job", nullable=False),
        Column("spearman", FLOAT, "", "rank correlation over all jobs, ties averaged; null if undefined"),
        Column(
            "spearman_waited",
            FLOAT,
            "",
            f"rank correlation over recorded waits of more than {NOTICED_WAIT_S // 60} minutes; null if undefined",
        ),
        Column("spearman_ceiling", FLOAT, "", "spearman of a model that knows every wait but ties those up to 10 s"),
    ),
    key=("cluster", "from_utc", "form", "change", "mechanism"),
)

CALIBRATED_STARTS = Table(
    "calibrated_starts",
    "One row per job of a judged month: its recorded wait and its wait under each calibrated form",
    (
        CLUSTER,
        JOB_KEY,
        _FROM,
        Column("submit_utc", UTC, "", "submission", nullable=False),
        Column("recorded_wait_s", INT, "s", "recorded start minus submission", nullable=False),
        Column("frozen_wait_s", INT, "s", "free-running, parameters from before the month", nullable=False),
        Column("causal_wait_s", INT, "s", "free-running, usable nodes as in the record until then", nullable=False),
        Column(
            "forked_wait_s",
            INT,
            "s",
            "simulated from the state of the other jobs at its submission",
            nullable=False,
        ),
        Column("informed_wait_s", INT, "s", "against the recorded state of the other jobs", nullable=False),
        Column("forked_error", TEXT, "", "class of the error of the forked form", nullable=False),
    ),
    key=("cluster", "job_key"),
)

CALIBRATION_PARAMETERS = Table(
    "calibration_parameters",
    "One row per judged month: parameters inferred from the record before it",
    (
        CLUSTER,
        _FROM,
        Column("nodes", INT, "nodes", "most nodes in use over the last three days", nullable=False),
        Column("max_jobs", INT, "jobs", "most running jobs of a user; null if no limit is visible"),
        Column("max_nodes", INT, "nodes", "most nodes held by a user; null if no limit is visible"),
        Column("points_per_hour", FLOAT, "", "growth of the priority per hour; null: first come, first served"),
        Column("concordance", FLOAT, "", "share of overtaking pairs that priority and its growth order correctly"),
        Column("concordance_fcfs", FLOAT, "", "the same for first come, first served"),
        Column("pairs", INT, "pairs", "overtaking pairs", nullable=False),
    ),
    key=("cluster", "from_utc"),
)

CALIBRATION = (CALIBRATION_FIGURES, CALIBRATED_STARTS, CALIBRATION_PARAMETERS)
TABLES = (SIMULATED_STARTS, *CALIBRATION)


def simulated_starts(
    workload: Workload, job_keys: pl.Series, starts: Int64s, *, cluster: str, scheduler: str, capacity: int
) -> pl.DataFrame:
    """Build rows of `simulated_starts`; `job_keys` and `starts` (s, -1 for never) are in the order of `workload`."""
    count = len(workload)
    return pl.DataFrame(
        {
            "cluster": pl.Series([cluster], dtype=pl.String).new_from_index(0, count),
            "job_key": job_keys.cast(pl.String),
            "scheduler": pl.Series([scheduler], dtype=pl.String).new_from_index(0, count),
            "capacity_nodes": np.full(count, capacity, np.int64),
            "submit_utc": workload.submit_s * 1_000_000,
            "nodes": workload.size,
            "recorded_wait_s": _waits(workload.start_s, workload.submit_s),
            "simulated_wait_s": _waits(starts, workload.submit_s),
        }
    ).with_columns(pl.col("submit_utc").cast(pl.Datetime("us")))


def per_job(workload: Workload, ids: pl.Series, replay: Replay) -> pl.DataFrame:
    """Build one row per job of a replay: times in s of the trace's clock, size in units; null for events that never
    happened.

    `ids` are the jobs' names in the trace, in the order of `workload`. The slowdown is bounded (tau 10 s).
    """
    ran = replay.starts >= 0
    wait = replay.starts - workload.submit_s
    return pl.DataFrame(
        {
            "job_id": ids,
            "scheduler": pl.Series([replay.scheduler], dtype=pl.String).new_from_index(0, len(workload)),
            "submit": workload.submit_s,
            "start": pl.Series(replay.starts).set(pl.Series(~ran), None),
            "end": pl.Series(replay.starts + replay.run_s).set(pl.Series(~ran), None),
            "wait": _waits(replay.starts, workload.submit_s),
            "size": workload.size,
            "limit": workload.limit_s,
            "bounded_slowdown": pl.Series(bounded_slowdown(wait, replay.run_s)).set(pl.Series(~ran), None),
            "recorded_wait": _waits(workload.start_s, workload.submit_s),
        }
    )


def _waits(start_s: Int64s, submit_s: Int64s) -> pl.Series:
    return pl.Series(start_s - submit_s).set(pl.Series(start_s < 0), None)
