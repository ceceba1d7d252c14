"""One job, or one user, explained from the record: what it waited for, who was there meanwhile, how it ran.

Describes and chooses nothing; what would have been with another limit or size is in `models.what_if.job`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import polars as pl

from features import queueing
from features.causes import CAUSES, EXPLAINED
from features.tables.queueing import QUEUEING_DELAY
from features.trace import read_trace
from features.usage import runs
from traces.clusters import ClusterSettings
from traces.store import contents, warehouse
from traces.store.folder import DataFolder

MOST_OTHERS = 8  # jobs named; all are counted
JUST_BEFORE_S = 120  # an end so shortly before the start made room for it, or may have
_ABOUT = (
    "job_id", "job_key", "user_name", "account", "partition", "qos", "job_name", "state", "reason", "submit_utc",
    "eligible_utc", "start_utc", "end_utc", "requested_nodes", "requested_gpus", "requested_cpus", "limit_s",
)  # fmt: skip
_WAITED = ("wait_s", "eligible_wait_s", "main_cause", *EXPLAINED, "abandoned_wait_s")
_ATTEMPT = ("attempt", "submit_utc", "wait_s", "start_utc", "end_utc", "run_s", "state", "nodes", "gpus")
_OTHER = ("job_id", "user_name", "nodes", "gpus", "cpus", "held_s", "until_utc")


def delays(data: DataFolder, settings: ClusterSettings) -> pl.DataFrame:
    """`queueing_delay` of the cluster: the warehouse's where it is of the same jobs in the same states, else computed.

    After `baton ingest` alone it is missing, or still that of the files before.
    """
    if QUEUEING_DELAY.name in contents.table_names(data):
        kept = warehouse.read(data, "SELECT * FROM queueing_delay WHERE cluster = ?", [settings.name])
        jobs = warehouse.read(data, "SELECT job_key, state FROM jobs WHERE cluster = ?", [settings.name])
        is_whole = set(QUEUEING_DELAY.names) <= set(kept.columns)  # else it is of an older version
        if is_whole and jobs.height == kept.height == jobs.join(kept, on=["job_key", "state"]).height:
            return kept
    return queueing.compute(data, settings)[QUEUEING_DELAY.name].cast({pl.Categorical: pl.String})


def node_time(data: DataFolder, settings: ClusterSettings, delays: pl.DataFrame) -> pl.DataFrame | None:
    """job_key, user_name, node_time_s of every job that ran: nodes held times the time they were held, s.

    None where any job of `delays` held a GPU: then GPU time tells what was held.
    """
    if delays["gpu_time_s"].sum():
        return None
    held = (pl.col("end_epoch") - pl.col("start_epoch")).clip(0) * pl.col("nodes")
    ran = runs(read_trace(data, settings.name), settings).cast({pl.Categorical: pl.String})
    return ran.group_by("job_key", "user_name").agg(held.drop_nulls().sum().alias("node_time_s"))


@dataclass(frozen=True)
class JobExplainer:
    """What explaining any job of a cluster takes: read once, it explains many.

    `delays` is `queueing_delay`, `by_node` what `node_time` returns.
    """

    data: DataFolder
    cluster: str
    delays: pl.DataFrame
    by_node: pl.DataFrame | None

    def job(self, job_key: str) -> dict[str, Any]:
        """As the function `job`."""
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
    """All that the record tells of one job; JSON values but for datetimes. `wait_s_by_cause` adds up to `wait_s`.

    `has_gpus` is of the cluster: whether any of its jobs held one. Where none did, `node_time_s` says what was held.
    """
    all_delays = delays(data, settings)
    return JobExplainer(data, settings.name, all_delays, node_time(data, settings, all_delays)).job(job_key)


def _everyone(data: DataFolder, cluster: str) -> pl.DataFrame:
    """Every job of the cluster: ids, user, partition, times, nodes, GPUs and CPUs held (else asked for)."""
    return warehouse.read(
        data,
        "SELECT job_key, job_id, user_name, partition, state, submit_utc, start_utc, end_utc, run_s, "
        "coalesce(nullif(allocated_nodes, 0), requested_nodes) AS nodes, "
        "coalesce(nullif(allocated_gpus, 0), requested_gpus) AS gpus, "
        "coalesce(nullif(allocated_cpus, 0), requested_cpus) AS cpus FROM jobs WHERE cluster = ?",
        [cluster],
    )


def _meanwhile(data: DataFolder, cluster: str, about: dict[str, Any], everyone: pl.DataFrame) -> dict[str, Any] | None:
    """Who was ahead and who ran while it waited; None where it did not wait, or the log does not tell when.

    `held_by` and `ended_just_before` are of `held` alone: where that is the nodes that the job then got, so are the
    nodes, GPUs and CPUs of each.
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
    """Jobs that ran in an interval, with held_s, how long of it, and until_utc, their end."""
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
    """Who held, while it waited, the nodes on which it started; None where the log names no nodes of it.

    `nodes`, `gpus`, `cpus` and `held_s` are of these nodes alone: how many of them a job held at once, what it held on
    them (null where the log does not divide it among its nodes), and for how long the longest was held.
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
    """Attempts, steps, what was used of what was asked for; None for a job that never ran."""
    if not delay["ran"]:
        return None
    key = [cluster, about["job_key"]]
    attempts = warehouse.read(data, "SELECT * FROM attempts WHERE cluster = ? AND job_key = ? ORDER BY attempt", key)
    waited = (pl.col("start_utc") - pl.col("submit_utc")).dt.total_seconds()
    attempts = attempts.with_columns(waited.alias("wait_s"))
    steps = warehouse.read(
        data,
        "SELECT step_id, step_name, state, run_s, cpus, max_rss_kib, cpu_time_s, exit_code FROM steps "
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
        "memory_used_mib": _mib(memory_kib),
        "requested_mem_mib": memory_mib,
        "memory_used_share": memory_kib / 1024 / memory_mib if memory_kib is not None and memory_mib else None,
        "attempts": attempts.select(*_ATTEMPT).to_dicts(),
        "steps": steps.to_dicts(),
        "gpu_use": _gpu_use(data, key),
        "failures": _failures(data, key),
    }


def _mib(kib: Any) -> int | None:
    return None if kib is None else int(kib) // 1024


def _gpu_use(data: DataFolder, key: list[str]) -> dict[str, Any] | None:
    """What its GPUs did, by samples; None where the log holds none of it."""
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
    """Attempts that ended badly, with the reason that was found for it; none where it was not looked for."""
    if "failures" not in contents.table_names(data):
        return []
    return warehouse.read(
        data,
        "SELECT attempt, state, reason, runtime_to_failure_s FROM failures WHERE cluster = ? AND job_key = ? "
        "ORDER BY attempt",
        key,
    ).to_dicts()
