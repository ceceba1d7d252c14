"""Explanation of one job from the record: the causes of its wait, the jobs around it, and its run.

This module only describes. `models.what_if.job` computes what would have happened with another limit or size.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import polars as pl

from features import queueing
from features.causes.waits import CAUSES, EXPLAINED
from features.resources.usage import runs
from features.tables.queueing import QUEUEING_DELAY
from features.trace import read_trace
from traces.clusters import ClusterSettings
from traces.store import contents, warehouse
from traces.store.folder import DataFolder

MOST_OTHERS = 8  # jobs named individually; all are counted
JUST_BEFORE_S = 120  # a job that ended so shortly before the start may have made room for it
_ABOUT = (
    "job_id", "job_key", "user_name", "account", "partition", "qos", "job_name", "state", "reason", "submit_utc",
    "eligible_utc", "start_utc", "end_utc", "requested_nodes", "requested_gpus", "requested_cpus", "limit_s",
)  # fmt: skip
_WAITED = ("wait_s", "eligible_wait_s", "main_cause", *EXPLAINED, "abandoned_wait_s")
_ATTEMPT = ("attempt", "submit_utc", "wait_s", "start_utc", "end_utc", "run_s", "state", "nodes", "gpus")
_OTHER = ("job_id", "user_name", "nodes", "gpus", "cpus", "held_s", "until_utc")


def delays(data: DataFolder, settings: ClusterSettings) -> pl.DataFrame:
    """Read `queueing_delay` of the cluster from the warehouse if it is up to date, else compute it.

    It is up to date if it holds the same jobs in the same states. After `baton ingest` alone it is missing or outdated.
    """
    if QUEUEING_DELAY.name in contents.table_names(data):
        kept = warehouse.read(data, "SELECT * FROM queueing_delay WHERE cluster = ?", [settings.name])
        jobs = warehouse.read(data, "SELECT job_key, state FROM jobs WHERE cluster = ?", [settings.name])
        has_all_columns = set(QUEUEING_DELAY.names) <= set(kept.columns)  # an older version may lack some
        if has_all_columns and jobs.height == kept.height == jobs.join(kept, on=["job_key", "state"]).height:
            return kept
    return queueing.compute(data, settings)[QUEUEING_DELAY.name].cast({pl.Categorical: pl.String})


def node_time(data: DataFolder, settings: ClusterSettings, delays: pl.DataFrame) -> pl.DataFrame | None:
    """Compute job_key, user_name and node_time_s (nodes held times time held, s) of every job that ran.

    None where any job of `delays` held a GPU, because GPU time then measures what was held.
    """
    if delays["gpu_time_s"].sum():
        return None
    held = (pl.col("end_epoch") - pl.col("start_epoch")).clip(0) * pl.col("nodes")
    ran = runs(read_trace(data, settings.name), settings).cast({pl.Categorical: pl.String})
    return ran.group_by("job_key", "user_name").agg(held.drop_nulls().sum().alias("node_time_s"))


@dataclass(frozen=True)
class JobExplainer:
    """The data needed to explain any job of a cluster, read once for many jobs.

    `delays` is `queueing_delay`; `by_node` is the result of `node_time`.
    """

    data: DataFolder
    cluster: str
    delays: pl.DataFrame
    by_node: pl.DataFrame | None

    def job(self, job_key: str) -> dict[str, Any]:
        """Explain a job; see the function `job`."""
        row = warehouse.read(self.data, "SELECT * FROM jobs WHERE cluster = ? AND job_key = ?", [self.cluster, job_key])
        about = row.row(0, named=True)
        delay = self.delays.filter(pl.col("job_key") == job_key).row(0, named=True)
        held_s = None
        if self.by_node is not None:
            held_s = self.by_node.filter(pl.col("job_key") == job_key)["node_time_s"].first()
        return {
            "cluster": self.cluster,
            **{name: about[name] for name in _ABOUT},
            **{name: delay[name] for name in _WAITED},
            "wait_s_by_cause": {name: delay[name] for name in CAUSES},
            "meanwhile": _meanwhile(self.data, self.cluster, about, self._everyone),
            "has_gpus": self.by_node is None,
            "ran": _ran(self.data, self.cluster, about, {**delay, "node_time_s": held_s}),
        }

    @cached_property
    def _everyone(self) -> pl.DataFrame:
        return _everyone(self.data, self.cluster)


def job(data: DataFolder, settings: ClusterSettings, job_key: str) -> dict[str, Any]:
    """Explain one job from the record. All values except datetimes are JSON values.

    `wait_s_by_cause` adds up to `wait_s`. `has_gpus` says whether any job of the cluster held a GPU. If none did,
    `node_time_s` measures what was held.
    """
    all_delays = delays(data, settings)
    return JobExplainer(data, settings.name, all_delays, node_time(data, settings, all_delays)).job(job_key)


def _everyone(data: DataFolder, cluster: str) -> pl.DataFrame:
    """Read every job of the cluster: ids, user, partition, times, and nodes, GPUs and CPUs held (else requested)."""
    return warehouse.read(
        data,
        "SELECT job_key, job_id, user_name, partition, state, submit_utc, start_utc, end_utc, run_s, "
        "coalesce(nullif(allocated_nodes, 0), requested_nodes) AS nodes, "
        "coalesce(nullif(allocated_gpus, 0), requested_gpus) AS gpus, "
        "coalesce(nullif(allocated_cpus, 0), requested_cpus) AS cpus FROM jobs WHERE cluster = ?",
        [cluster],
    )


def _meanwhile(data: DataFolder, cluster: str, about: dict[str, Any], everyone: pl.DataFrame) -> dict[str, Any] | None:
    """Describe the jobs that were ahead and that ran while it waited; None where it did not wait or times are unknown.

    `held_by` and `ended_just_before` refer to the nodes named in `held`. If these are the nodes on which the job
    started, the nodes, GPUs and CPUs of each entry also refer to these nodes only.
    """
    since = about["eligible_utc"] or about["submit_utc"]
    until = about["start_utc"] or about["end_utc"]
    if since is None or until is None or until <= since:
        return None
    others = everyone.filter(pl.col("job_key") != about["job_key"])
    if about["partition"] is not None:
        others = others.filter(pl.col("partition") == about["partition"])
    waiting = pl.col("submit_utc") <= about["submit_utc"]
    began = pl.col("start_utc")
    still_there = pl.coalesce(began, "end_utc") > about["submit_utc"]
    ahead = others.filter(waiting & still_there.fill_null(pl.col("state") == "PENDING"))
    passed = others.filter((pl.col("submit_utc") > about["submit_utc"]) & (began < until))
    named = _on_its_nodes(data, cluster, about["job_key"], everyone, since, until)
    basis = "the nodes that it then got"
    if named is None:
        named = _running(others, since, until)
        basis = "the nodes of its partition" if about["partition"] is not None else "the cluster's nodes"
    before = named.filter(
        (pl.col("until_utc") <= until) & ((until - pl.col("until_utc")).dt.total_seconds() <= JUST_BEFORE_S)
    )
    weight = pl.col("held_s") * pl.col("nodes").fill_null(1)
    return {
        "since_utc": since,
        "until_utc": until,
        "ahead": _counted(ahead),
        "overtook": _counted(passed) if about["start_utc"] is not None else None,
        "ended_just_before": _others(before.sort("until_utc", descending=True)),
        "held": basis,
        "held_by_jobs": named.height,
        "held_by": _others(named.sort(weight, "job_key", descending=[True, False])),
    }


def _running(jobs: pl.DataFrame, since: datetime, until: datetime) -> pl.DataFrame:
    """List the jobs that ran in an interval, with held_s (their run time within it) and until_utc (their end)."""
    ended = pl.col("end_utc").fill_null(until)
    inside = (
        pl.min_horizontal(ended, pl.lit(until)) - pl.max_horizontal("start_utc", pl.lit(since))
    ).dt.total_seconds()
    return jobs.filter((pl.col("start_utc") < until) & (ended > since)).with_columns(
        inside.alias("held_s"), pl.col("end_utc").alias("until_utc")
    )


def _on_its_nodes(
    data: DataFolder, cluster: str, job_key: str, everyone: pl.DataFrame, since: datetime, until: datetime
) -> pl.DataFrame | None:
    """List the jobs that held, while it waited, the nodes on which it started; None where the log does not name them.

    `nodes`, `gpus`, `cpus` and `held_s` refer to these nodes only: the most that a job held at once, the amounts held
    on them (null where the log does not divide them among nodes), and the longest time for which one was held.
    """
    held = warehouse.read(
        data,
        "SELECT p.job_key, attempt, p.node, a.start_utc, a.end_utc, CASE WHEN a.gpus = 0 THEN 0 WHEN a.nodes = 1 THEN "
        "coalesce(p.gpus, a.gpus) ELSE p.gpus END AS gpus, ceil(a.cpus / greatest(a.nodes, 1))::BIGINT AS cpus "
        "FROM placements p JOIN attempts a USING (cluster, job_key, attempt) WHERE p.cluster = ? AND p.job_key <> ? "
        "AND p.node IN (SELECT node FROM placements WHERE cluster = ? AND job_key = ? AND attempt = 0)",
        [cluster, job_key, cluster, job_key],
    )
    if held.is_empty():
        return None
    known = [pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name) for name in ("gpus", "cpus")]
    inside = (
        _running(held, since, until)
        .group_by("job_key", "attempt")
        .agg(pl.len().alias("nodes"), *known, pl.col("held_s").max(), pl.col("until_utc").max())
        .group_by("job_key")
        .agg(pl.col("nodes", "gpus", "cpus", "held_s", "until_utc").max())
    )
    return inside.join(everyone.select("job_key", "job_id", "user_name"), on="job_key")


def _counted(jobs: pl.DataFrame) -> dict[str, int]:
    return {"jobs": jobs.height, "nodes": int(jobs["nodes"].fill_null(1).sum()), "users": jobs["user_name"].n_unique()}


def _others(jobs: pl.DataFrame) -> list[dict[str, Any]]:
    return jobs.select(_OTHER).head(MOST_OTHERS).to_dicts()


def _ran(data: DataFolder, cluster: str, about: dict[str, Any], delay: dict[str, Any]) -> dict[str, Any] | None:
    """Describe the run: attempts, steps, and use of the requested resources; None for a job that never ran."""
    if not delay["ran"]:
        return None
    key = [cluster, about["job_key"]]
    attempts = warehouse.read(data, "SELECT * FROM attempts WHERE cluster = ? AND job_key = ? ORDER BY attempt", key)
    waited = (pl.col("start_utc") - pl.col("submit_utc")).dt.total_seconds()
    attempts = attempts.with_columns(waited.alias("wait_s"))
    steps = warehouse.read(
        data,
        "SELECT step_id, step_name, state, run_s, cpus, max_rss_kib, cpu_time_s, exit_code, gpu_percent, "
        "gpu_max_percent, gpu_mem_max_kib FROM steps "
        "WHERE cluster = ? AND job_key = ? ORDER BY start_utc, step_id",
        key,
    )
    nodes = warehouse.read(
        data, "SELECT DISTINCT node FROM placements WHERE cluster = ? AND job_key = ? ORDER BY node", key
    )
    longest_s = attempts["run_s"].max() if attempts.height else about["run_s"]
    run_s, limit_s, cpus = about["run_s"], about["limit_s"], about["allocated_cpus"]
    core_time_s = cpus * run_s if cpus and run_s is not None else None
    cpu_s, memory_mib = steps["cpu_time_s"].sum(), about["requested_mem_mib"]
    memory_kib: Any = steps["max_rss_kib"].max()
    return {
        "run_s": run_s,
        "limit_s": limit_s,
        "limit_used_share": longest_s / limit_s if limit_s and longest_s is not None else None,
        "nodes": about["allocated_nodes"],
        "node_names": nodes["node"].head(MOST_OTHERS).to_list(),
        "gpus": about["allocated_gpus"],
        "gpu_time_s": delay["gpu_time_s"],
        "node_time_s": delay["node_time_s"],
        "cpus": cpus,
        "core_time_s": core_time_s,
        "exit_code": about["exit_code"],
        "exit_signal": about["exit_signal"],
        "cpu_used_share": cpu_s / core_time_s if core_time_s and steps["cpu_time_s"].count() else None,
        "gpu_used_share": _gpu_share(steps, delay["gpu_time_s"]),
        "memory_used_mib": _mib(memory_kib),
        "requested_mem_mib": memory_mib,
        "memory_used_share": memory_kib / 1024 / memory_mib if memory_kib is not None and memory_mib else None,
        "attempts": attempts.select(*_ATTEMPT).to_dicts(),
        "steps": steps.to_dicts(),
        "gpu_use": _gpu_use(data, key),
        "failures": _failures(data, key),
    }


def _gpu_share(steps: pl.DataFrame, gpu_time_s: int | None) -> float | None:
    """Return the share of GPU time used according to Slurm's last reading of each step; None where it has none."""
    used_s = steps.select(pl.col("gpu_percent") / 100 * pl.col("run_s")).to_series().drop_nulls()
    return float(used_s.sum()) / gpu_time_s if gpu_time_s and len(used_s) else None


def _mib(kib: Any) -> int | None:
    return None if kib is None else int(kib) // 1024


def _gpu_use(data: DataFolder, key: list[str]) -> dict[str, Any] | None:
    """Summarize the utilization of its GPUs from samples; None where the log holds none."""
    if "utilization_measured" not in contents.table_names(data):
        return None
    rows = warehouse.read(
        data,
        "SELECT sum(samples) AS samples, sum(utilization_mean_percent * samples) / nullif(sum(samples), 0) / 100 "
        "AS mean_share, sum(idle_samples) / nullif(sum(samples), 0) AS idle_share FROM utilization_measured "
        "WHERE cluster = ? AND job_key = ?",
        key,
    )
    use = rows.row(0, named=True)
    return use if use["samples"] else None


def _failures(data: DataFolder, key: list[str]) -> list[dict[str, Any]]:
    """List the attempts that ended badly, with the inferred reason; empty where failures were not analysed."""
    if "failures" not in contents.table_names(data):
        return []
    return warehouse.read(
        data,
        "SELECT attempt, state, reason, runtime_to_failure_s FROM failures WHERE cluster = ? AND job_key = ? "
        "ORDER BY attempt",
        key,
    ).to_dicts()
