"""Warehouses made by hand for the tests of the report: canonical rows, real feature tables, invented policy figures."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

from features.catalog import FEATURES
from models.tables import CHAMPION_DRIFT, POLICY_CURVES, POLICY_RESULTS, RELEASE_LOG, frame
from simulator.tables import CALIBRATED_STARTS, CALIBRATION_FIGURES, SIMULATED_STARTS
from tests.reports import changed, scheduled
from tests.reports.agent_log import agent_tables
from tests.reports.drifted import champion_drift
from tests.reports.started import started_tables
from traces import schema
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.store.frames import conform, empty

START = datetime(2024, 1, 1)
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "javascript:alert(3)",
    "'; DROP TABLE jobs; --",
    "{{ 7 * 7 }}{% raw %}",
    "</td></table><h1>owned",
    "$\\frac{1}{2}$ & <b>bold</b>",
    "abc‮txt.exe\u0000\n",
)
SHA = "ab" * 32


def empty_tables() -> dict[str, pl.DataFrame]:
    """Every canonical table without a row."""
    return {table.name: empty(table) for table in schema.CANONICAL}


def trace_file(cluster: str, jobs: int, rejects: int = 0, path: str = "raw/log.txt") -> dict[str, Any]:
    return {
        "cluster": cluster, "path": path, "sha256": SHA, "bytes": 12_345, "format": "sacct",
        "timezone": "America/Chicago", "records": jobs + rejects, "allocations": jobs, "steps": 0,
        "samples": 0, "duplicates": 0, "rejects": rejects, "jobs": jobs, "attempts": jobs, "superseded": 0,
        "seconds": 0.1, "reader_version": 1, "is_generated": False,
    }  # fmt: skip


def job(cluster: str, number: int, **values: Any) -> dict[str, Any]:
    """One job of 2 GPUs that waited 60 s and ran an hour, but for `values`."""
    submit = values.get("submit_utc", START)
    wait, run = values.get("wait_s", 60), values.get("run_s", 3600)
    row = {
        "cluster": cluster, "job_key": str(number), "job_id": str(number), "job_name": "train", "user_name": "ann",
        "account": "lab", "partition": "gpu", "state": "COMPLETED", "state_is_inferred": False, "submit_utc": submit,
        "eligible_utc": submit, "requested_nodes": 1, "requested_gpus": 2, "allocated_nodes": 1, "allocated_gpus": 2,
        "limit_s": 7200, "wait_s": wait, "eligible_wait_s": wait, "run_s": run, "attempts": 1,
        "is_time_ambiguous": False, "trace_sha256": SHA, "line": number + 1,
    } | values  # fmt: skip
    if row["wait_s"] is not None:
        row["start_utc"] = submit + timedelta(seconds=wait)
        row["end_utc"] = row["start_utc"] + timedelta(seconds=run)
        row["gpu_time_s"] = row["allocated_gpus"] * run
    return row


def attempts_of(jobs: pl.DataFrame) -> pl.DataFrame:
    """One attempt for each job that started."""
    ran = jobs.filter(pl.col("start_utc").is_not_null())
    return ran.select(
        "cluster", "job_key", pl.lit(0).alias("attempt"), "submit_utc", "start_utc", "end_utc", "run_s", "state",
        pl.col("allocated_nodes").alias("nodes"), pl.col("allocated_gpus").alias("gpus"), "gpu_time_s", "exit_code",
        "exit_signal", "trace_sha256", "line",
    )  # fmt: skip


def write(data: DataFolder, tables: dict[str, pl.DataFrame]) -> None:
    """A warehouse file that holds these tables and no others."""
    data.root.mkdir(parents=True, exist_ok=True)
    data.warehouse.unlink(missing_ok=True)
    with duckdb.connect(str(data.warehouse)) as connection:
        connection.execute(f"CREATE TABLE schema_version AS SELECT {schema.SCHEMA_VERSION}::BIGINT AS version")
        for name, frame in tables.items():
            connection.register("incoming", frame.to_arrow())
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM incoming')
            connection.unregister("incoming")


def with_features(root: Path, tables: dict[str, pl.DataFrame], settings: ClusterSettings) -> DataFolder:
    """A warehouse with the canonical `tables` and every feature table computed from them."""
    data = DataFolder(root)
    canonical = {name: conform(schema.TABLES[name], frame) for name, frame in (empty_tables() | tables).items()}
    write(data, canonical)
    derived: dict[str, pl.DataFrame] = {}
    for module in FEATURES.values():
        derived |= module.compute(data, settings)
    write(data, canonical | derived)
    return data


def one_job(root: Path, **values: Any) -> DataFolder:
    jobs = pl.DataFrame([job("tiny", 1, **values)])
    tables = {
        "jobs": jobs,
        "attempts": attempts_of(conform(schema.JOBS, jobs)),
        "trace_files": pl.DataFrame([trace_file("tiny", 1)]),
    }
    return with_features(root, tables, ClusterSettings("tiny", nodes=2, gpus_per_node=4))


def full(root: Path, *, cluster: str = "gpu-lab", jobs: int = 1500, weeks: int = 12) -> DataFolder:
    """A cluster that has everything: hostile names, rejects, placements, samples, replays, policies and a release."""
    rng = np.random.default_rng(7)
    rows = _jobs(rng, cluster, jobs, weeks)
    attempts = attempts_of(conform(schema.JOBS, rows))
    placements = attempts.filter(pl.col("nodes") == 1).select(
        "cluster",
        "job_key",
        "attempt",
        pl.concat_str(pl.lit("n"), pl.col("line") % 16).alias("node"),
        "gpus",
        pl.concat_str(pl.lit("0-"), pl.col("gpus") - 1).alias("gpu_ids"),
        "trace_sha256",
    )
    rejects = [
        {"cluster": cluster, "path": "raw/log.txt", "line": 10 + n, "reason": f"limit '{name}' is no duration",
         "raw": f"12|{name}|{n}", "trace_sha256": SHA}
        for n, name in enumerate(HOSTILE)
    ]  # fmt: skip
    tables = {
        "jobs": rows,
        "attempts": attempts,
        "placements": placements.select([name for name in schema.PLACEMENTS.names if name in placements.columns]),
        "trace_files": pl.DataFrame([trace_file(cluster, jobs, len(rejects), f"/home/{HOSTILE[0]}/log.txt")]),
        "rejects": pl.DataFrame(rejects),
        "gpu_utilization": _samples(rng, cluster),
        **agent_tables(rng, cluster, START, handovers=7 * weeks // 2, sha=SHA),
    }
    settings = ClusterSettings(cluster, timezone="America/Chicago", nodes=16, gpus_per_node=4)
    data = with_features(root, tables, settings)
    with duckdb.connect(str(data.warehouse)) as connection:
        for name, extra in _policy_tables(rng, cluster, rows).items():
            connection.register("incoming", extra.to_arrow())
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM incoming')
            connection.unregister("incoming")
    return data


def _jobs(rng: np.random.Generator, cluster: str, jobs: int, weeks: int) -> pl.DataFrame:
    users = [f"user{n:02d}-of-the-laboratory" for n in range(30)]
    states = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"]
    rows = []
    for number, at in enumerate(np.sort(rng.uniform(0, weeks * 7 * 86_400, jobs))):
        gpus = int(rng.choice([1, 1, 2, 4, 8, 16]))
        submit = START + timedelta(seconds=int(at))
        busy = 1.0 + 5.0 * (9 <= submit.hour <= 17) + 2.0 * (submit.weekday() < 5)
        wait: int | None = int(rng.exponential(900 * busy * np.sqrt(gpus)) * (rng.random() > 0.3))
        state = str(rng.choice(states, p=[0.68, 0.12, 0.1, 0.06, 0.02, 0.02]))
        if state == "CANCELLED" and rng.random() < 0.4:
            wait = None
        rows.append(
            job(
                cluster, number, submit_utc=submit, wait_s=wait, run_s=int(rng.exponential(9000)) + 1, state=state,
                user_name=(HOSTILE, users)[number % 2][number // 2 % len((HOSTILE, users)[number % 2])],
                account=("lab", "physics & <chem>", "optics")[number % 3],
                job_name=HOSTILE[number % len(HOSTILE)] if number % 5 == 0 else f"net-{number % 40}",
                partition=("gpu", "gpu-long")[number % 2], requested_gpus=gpus, allocated_gpus=gpus,
                requested_nodes=-(-gpus // 4), allocated_nodes=-(-gpus // 4), is_time_ambiguous=number == 3,
                exit_code=0 if state == "COMPLETED" else 1, exit_signal=9 if state == "OUT_OF_MEMORY" else 0,
            )
        )  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def _samples(rng: np.random.Generator, cluster: str, minutes: int = 40_000) -> pl.DataFrame:
    """Two nodes of four GPUs over four weeks; in a sixth of the minutes all GPUs of a node read 0."""
    shape = (2, minutes, 4)  # node, minute, GPU
    node, minute, gpu = (axis.ravel() for axis in np.indices(shape))
    busy = np.clip(rng.normal(40, 30, shape), 0, 100) * (rng.random(shape[:2]) > 1 / 6)[..., None]
    return pl.DataFrame(
        {
            "node": np.array(["n1", "n2"])[node],
            "sample_utc": np.datetime64(START, "us") + minute * np.timedelta64(60_000_000, "us"),
            "gpu": gpu,
            "utilization_percent": busy.ravel(),
        }
    ).with_columns(pl.lit(cluster).alias("cluster"), pl.lit(SHA).alias("trace_sha256"))


def _policy_tables(rng: np.random.Generator, cluster: str, jobs: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """What simulation, comparison and release would leave, invented.

    Over 50 lines: tables of data, one after the other.
    """
    ran = jobs.filter(pl.col("wait_s").is_not_null())
    starts = ran.select(
        "cluster",
        "job_key",
        pl.lit("mirage").alias("scheduler"),
        pl.lit(16).cast(pl.Int64).alias("capacity_nodes"),
        "submit_utc",
        pl.col("requested_nodes").alias("nodes"),
        pl.col("wait_s").alias("recorded_wait_s"),
        (pl.col("wait_s") * pl.Series(rng.uniform(0.2, 1.4, ran.height))).cast(pl.Int64).alias("simulated_wait_s"),
    )
    names = (
        "reactive",
        "average-wait",
        "start-estimate",
        "start-expected",
        "mirage-average",
        "forest",
        "forest-untrained",
        "xgboost",
        "lightgbm",
        "fitted-q",
        "dqn",
        "policy-gradient",
        "oracle",
    )
    chosen = json.dumps({"0.25": None, "1": {"setting": 3.0, "interruption_h": 1.5, "overlap_h": 0.9}})
    grid = np.linspace(0, 1, 9)
    results, curves = [], []
    for nodes, gap in ((1, 3.0), (8, 11.0)):
        for rank, policy in enumerate(names):
            skill = {"reactive": 0.0, "oracle": 1.0}.get(policy, 0.4 + 0.05 * rank)
            points = [(0.0, gap)]
            if policy != "reactive":
                overlaps, interruptions = gap * grid * (1.3 - skill), gap * (1 - skill) * (1 - grid) ** 2 + 0.02
                points = list(zip(overlaps.tolist(), interruptions.tolist(), strict=True))
            for setting, (overlap, interruption) in enumerate(points):
                for window in ("select", "report"):
                    curves.append(
                        {
                            "cluster": cluster,
                            "window": window,
                            "policy": policy,
                            "size": str(nodes),
                            "pair_nodes": nodes,
                            "limit_h": 48.0,
                            "setting": setting,
                            "interruption_h": interruption,
                            "overlap_h": overlap,
                            "zero_share": 0.5,
                            "cost_w1": overlap + interruption,
                            "n": 126,
                        }
                    )
            overlap, interruption = points[len(points) // 2]
            for load, n in (("all", 126), ("light", 60), ("medium", 40), ("heavy", 26)):
                results.append(
                    {
                        "cluster": cluster,
                        "window": "report",
                        "policy": policy,
                        "policy_version": "v",
                        "world": "plain",
                        "load": load,
                        "pairs": "injected",
                        "size": str(nodes),
                        "pair_nodes": nodes,
                        "limit_h": 48.0,
                        "n": n,
                        "blocks": 3,
                        "seeds": 5,
                        "indicative": True,
                        "knob": "h",
                        "setting": None if policy == "reactive" else 4.0,
                        "interruption_h": interruption,
                        "interruption_p50_h": interruption * 0.7,
                        "interruption_p95_h": interruption * 3,
                        "overlap_h": overlap,
                        "zero_share": 0.4,
                        "within_10min_share": 0.45,
                        "cost_w05": interruption + overlap / 2,
                        "cost_w1": interruption + overlap,
                        "regret_h_w1": interruption + overlap - 0.1,
                        "reduction": 1 - interruption / gap,
                        "at_overlap_025_h": None,
                        "at_overlap_05_h": 1.0,
                        "at_overlap_1_h": 0.8,
                        "zero_share_at_overlap_05": 0.6,
                        "best_rule": "start-estimate",
                        "cost_difference_h": interruption + overlap - 1.0,
                        "cost_difference_low_h": interruption + overlap - 1.5,
                        "cost_difference_high_h": interruption + overlap - 0.5,
                        "world_spearman": 0.35,
                        "world_error_over_mean": 0.9,
                        "world_mean_wait_h": 1.0,
                        "recorded_mean_wait_h": 2.0,
                        "chosen": chosen,
                        "ci95": json.dumps(
                            {"interruption_h": [interruption * 0.8, interruption * 1.2], "cost_w1": None}
                        ),
                        "trace_digest": "d",
                        "from_utc": datetime(2024, 2, 1),
                        "to_utc": datetime(2024, 2, 28),
                        "scenario": "mirage scheduler, 16 nodes, plain world",
                        "code_version": "c",
                    }
                )
    release = {
        "cluster": cluster,
        "released_utc": datetime(2024, 4, 1, 12),
        "registered_version": 1,
        "policy": "dqn",
        "candidate_version": 1,
        "verdict": "passed",
        "provisional": False,
        "pairs": 400,
        "losing_pairs": 90,
        "blocks": 9,
        "cost_difference_h": -1.8,
        "reason": "not worse than reactive <b>by</b> the gate",
        "cost_difference_low_h": -3.2,
        "cost_difference_high_h": -0.4,
        "champion_version": None,
    }
    return {
        SIMULATED_STARTS.name: starts,
        **_calibrated(cluster),
        POLICY_RESULTS.name: frame(POLICY_RESULTS, results),
        POLICY_CURVES.name: frame(POLICY_CURVES, curves),
        RELEASE_LOG.name: frame(RELEASE_LOG, [release]),
        CHAMPION_DRIFT.name: champion_drift(cluster),
        **started_tables(cluster),
        **changed.tables(cluster),
        **scheduled.tables(cluster, START, HOSTILE[0]),
    }


def _calibrated(cluster: str) -> dict[str, pl.DataFrame]:
    """A judged month of two jobs: the forked form is one hour off on average of a mean wait of four."""
    month = {"cluster": cluster, "from_utc": datetime(2024, 2, 1)}
    waits = {
        "recorded_mean_wait_s": 14400.0, "simulated_mean_wait_s": 12600.0, "recorded_p90_wait_s": 21600.0,
        "simulated_p90_wait_s": 20000.0, "mean_absolute_error_s": 3600.0, "spearman": 0.9, "spearman_waited": None,
        "spearman_ceiling": 1.0,
    }  # fmt: skip
    kinds = [("forked", "all", ""), ("frozen", "all", ""), ("forked", "none", ""), ("forked", "added", "holds")]
    figures = [
        {**month, "until_utc": datetime(2024, 3, 1), "form": form, "change": change, "mechanism": what, "jobs": 2}
        | waits
        for form, change, what in kinds
    ]
    other = {"frozen_wait_s": 0, "causal_wait_s": 0, "informed_wait_s": 0, "submit_utc": datetime(2024, 2, 2), **month}
    starts = [
        {
            **other,
            "job_key": "a",
            "recorded_wait_s": 7200,
            "forked_wait_s": 7200,
            "forked_error": "within 10 minutes",
        },
        {
            **other,
            "job_key": "b",
            "recorded_wait_s": 21600,
            "forked_wait_s": 14400,
            "forked_error": "over 1 hour early",
        },
    ]
    return {
        CALIBRATION_FIGURES.name: frame(CALIBRATION_FIGURES, figures),
        CALIBRATED_STARTS.name: frame(CALIBRATED_STARTS, starts),
    }
