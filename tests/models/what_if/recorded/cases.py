"""A small cluster of 6 nodes, whose jobs were started by the rules that calibration infers: no job is held."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from models.what_if.recorded.scene import RecordedScene, follow_window
from simulator.recorded.free import free_starts
from simulator.recorded.parameters import jobs_of
from simulator.recorded.record import NEVER, RecordedTrace
from simulator.recorded.state import RecordedRules
from tests.reports import warehouse
from traces import schema
from traces.store.folder import DataFolder
from traces.store.frames import conform, empty
from traces.units import DAY_S

NODES = 6
FIRST_S = 1_704_067_200  # 2024-01-01
DAYS = 63


def record(seed: int = 3, jobs: int = 1200, order: int = 0) -> RecordedTrace:
    """Nine weeks of jobs of 1 to 4 nodes in bursts, in an order of ORDERS with backfill; two never ran."""
    rng = np.random.default_rng(seed)
    submit_s = FIRST_S + np.sort(rng.uniform(0, DAYS * DAY_S, jobs)).astype(np.int64)
    run_s = rng.exponential(9000, jobs).astype(np.int64) + 60
    limit_s, size, user = run_s * rng.integers(1, 6, jobs), rng.choice([1, 1, 2, 4], jobs), rng.integers(0, 40, jobs)
    keys, priority = [f"job {row}" for row in range(jobs)], np.zeros(jobs, np.int64)
    blank = RecordedTrace(submit_s, submit_s, submit_s + run_s, size, limit_s, user, priority, keys)
    rules = RecordedRules(NODES, 0, 0, NEVER, NEVER, 0, 0, order=order)
    start_s = free_starts(blank, jobs_of(blank, None), rules, np.array([NODES]))
    end_s = start_s + run_s
    start_s[[50, 500]], end_s[[50, 500]] = NEVER, submit_s[[50, 500]] + 100
    return RecordedTrace(submit_s, start_s, end_s, size, limit_s, user, priority, keys)


def about(of: RecordedTrace) -> pl.DataFrame:
    """Names of users, accounts and partitions; QOS is unknown."""
    users = [f"user{number}" for number in of.user]
    return pl.DataFrame(
        {
            "job_key": of.job_key,
            "user": users,
            "account": ["odd" if number % 2 else "even" for number in of.user],
            "partition": ["gpu"] * len(of),
            "qos": pl.Series([None] * len(of), dtype=pl.String),
            "job_id": of.job_key,
            "gpus": of.size * 4,
        }
    )


def scene(days: int = 28) -> RecordedScene:
    """The last `days` days of the record."""
    of = record()
    return follow_window(of, about(of), FIRST_S + (DAYS - days) * DAY_S, FIRST_S + DAYS * DAY_S)


def in_warehouse(root: Path, recorded: RecordedTrace | None = None) -> DataFolder:
    """The jobs of the record that ran (default: of `record`), as cluster `busy` of a data folder."""
    of = record() if recorded is None else recorded
    named = about(of)
    listed = []
    for row in range(len(of)):
        submit_utc = datetime.fromtimestamp(int(of.submit_s[row]), UTC).replace(tzinfo=None)
        if of.start_s[row] == NEVER:
            continue
        listed.append(
            warehouse.job(
                "busy", row, submit_utc=submit_utc, wait_s=int(of.start_s[row] - of.submit_s[row]),
                run_s=int(of.end_s[row] - of.start_s[row]), requested_nodes=int(of.size[row]),
                allocated_nodes=int(of.size[row]), limit_s=int(of.limit_s[row]),
                user_name=named["user"][row], account=named["account"][row], partition="gpu",
            )
        )  # fmt: skip
    folder = DataFolder(root)
    files = conform(schema.TRACE_FILES, pl.DataFrame([warehouse.trace_file("busy", len(listed))]))
    jobs = conform(schema.JOBS, pl.DataFrame(listed))
    attempts = warehouse.attempts_of(jobs)
    tables = {"jobs": jobs, "attempts": attempts, "placements": empty(schema.PLACEMENTS), "trace_files": files}
    warehouse.write(folder, tables)
    return folder
