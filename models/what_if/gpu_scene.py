"""Read a cluster from the warehouse for `baton whatif`: its GPU jobs, its nodes, and the assumptions made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from models.what_if.attempts import failed_attempts, failures_line
from models.what_if.changes import GpuScene
from models.what_if.job_files import with_facts
from models.what_if.profiled import profiled
from models.what_if.schedulers import without_unplaceable
from models.what_if.vectors import of_pods, with_vectors
from simulator.gpu.cluster import PLAIN, GpuCluster, of_nodes
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.gpu.profiles.profile import Profile
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.errors import InputError
from traces.files.queue_tree import check_groups
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.visible import visible

NODES_A_RACK = 16  # if nothing shows which nodes share a switch
_JOBS = """
SELECT job_key, submit_utc, wait_s, run_s, partition, user_name, qos,
    CASE WHEN allocated_gpus > 0 THEN allocated_gpus ELSE requested_gpus END AS gpus, 1::BIGINT AS pod_gpus,
    CASE WHEN allocated_cpus > 0 THEN allocated_cpus ELSE requested_cpus END AS cpus,
    CASE WHEN allocated_mem_mib > 0 THEN allocated_mem_mib ELSE requested_mem_mib END AS mem_mib,
    coalesce(round(1000 * part), 1000)::BIGINT AS gpu_milli
FROM jobs LEFT JOIN (
    SELECT job_key, max(gpu_part) AS part FROM attempts WHERE cluster = $1 AND gpu_part > 0 GROUP BY job_key
) AS parts USING (job_key)
WHERE cluster = $1 ORDER BY submit_utc, job_key
"""
_OF_PODS = "SELECT count(*) AS files FROM trace_files WHERE cluster = ? AND format = 'openb-pods'"


def read_scene(
    data: DataFolder,
    settings: ClusterSettings,
    *,
    profiles: Mapping[str, Profile] | None = None,
    seed: int = 0,
    from_s: int | None = None,
    until_s: int | None = None,
    newest: int | None = None,
    facts: Path | None = None,
    is_strict: bool = False,
) -> GpuScene:
    """Read the cluster's nodes and its jobs that ran on GPUs, submitted from `from_s` and before `until_s` (epoch s).

    `newest` limits the number of jobs to the newest. With `profiles`, by model, a job whose model the file `facts` does
    not name draws one (generated). With `is_strict`, an unmeasured GPU type or batch is refused. Raises InputError if
    there is no such job, and if the number of GPUs of the cluster is unknown.
    """
    every = warehouse.read(data, _JOBS, (settings.name,))
    able = (pl.col("gpus") > 0) & (pl.col("run_s") > 0) & pl.col("submit_utc").is_not_null()
    rows = every.filter(able).with_columns(submit_s=pl.col("submit_utc").dt.epoch("s"))
    assumptions = []
    if len(rows) < len(every):
        assumptions.append(
            f"{counted(len(every) - len(rows), 'job')} without GPUs, run time or submission are left out"
        )
    is_of_pods = names_pods(data, settings)
    if is_of_pods:
        rows, line = _gangs(rows)
        assumptions.append(line)
    rows = _between(rows, from_s, until_s)
    if rows.is_empty():
        raise InputError(f"cluster {settings.name!r} has no job that ran on GPUs in that time; give a wider window")
    if newest is not None and len(rows) > newest:
        assumptions.append(f"of {counted(len(rows), 'job')} the {newest:,} submitted last are replayed")
        rows = rows.tail(newest)
    rows = rows.join(failed_attempts(data, settings.name), on="job_key", how="left", maintain_order="left")
    known = tuple((profiles or {}).values())
    cluster, nodes, machine_assumptions = _machine(data, settings, known)
    jobs, dimension = _jobs(rows)
    cluster, jobs, sized = with_vectors(cluster, jobs, nodes, rows)
    assumptions += [*machine_assumptions, *sized, f"quotas and fair shares go by {dimension}"]
    if is_of_pods:
        jobs, said = of_pods(jobs, rows)
        assumptions += said
    assumptions += failures_line(rows)
    if facts is not None:
        jobs = with_facts(jobs, facts, profiles or {})
    jobs, said = profiled(jobs, known, cluster, seed, is_strict)
    assumptions += said
    quotas = {group: quota for group, quota in settings.quotas.items() if group in jobs.groups}
    check_groups(settings.queues, set(jobs.groups), _named(every))
    scene = GpuScene(cluster, jobs, quotas, settings.queues, assumptions=tuple(assumptions), seed=seed)
    return without_unplaceable(scene)


def _between(rows: pl.DataFrame, from_s: int | None, until_s: int | None) -> pl.DataFrame:
    """Return the jobs submitted from `from_s` and before `until_s`."""
    rows = rows if from_s is None else rows.filter(pl.col("submit_s") >= from_s)
    return rows if until_s is None else rows.filter(pl.col("submit_s") < until_s)


def _named(rows: pl.DataFrame) -> set[str]:
    """Return all names that may be groups of the log, also of jobs that are not replayed."""
    columns = (rows[name].drop_nulls().unique() for name in ("partition", "user_name", "qos"))
    return {str(name) for names in columns for name in names}


def names_pods(data: DataFolder, settings: ClusterSettings) -> bool:
    """Whether the cluster's log has pods instead of jobs."""
    return bool(warehouse.read(data, _OF_PODS, (settings.name,))["files"][0])


def _gangs(pods: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Make jobs of the pods of a log without jobs: a row for each gang; also return the assumptions.

    Pods of whole GPUs that were created in one second with one request are one gang. It holds all of its GPUs for as
    long as its longest pod ran. A pod with a part of a GPU is a job of its own.
    """
    is_part = pl.col("gpu_milli") < 1000
    request = ("submit_utc", "submit_s", "gpus", "cpus", "mem_mib", "partition", "qos", "alone")
    gangs = (
        pods.with_columns(alone=pl.when(is_part).then("job_key"))
        .group_by(request, maintain_order=True)
        .agg(pl.col("job_key", "user_name", "gpu_milli").first(), pl.col("run_s", "wait_s").max(), pods=pl.len())
        .with_columns(pl.col("gpus", "cpus", "mem_mib") * pl.col("pods"), pod_gpus=pl.col("gpus"))
    )
    wide = int((gangs["pods"] > 1).sum())
    return gangs, (
        f"the log names pods and no jobs: {len(pods):,} pods, of which those created in one second with one request "
        f"are one, make {counted(len(gangs), 'job')}, {wide:,} of several pods; only kubernetes "
        "shares a GPU between pods that ask for parts of it; themis, lyra, sia, gandiva and guided may split a pod"
    )


def _machine(
    data: DataFolder, settings: ClusterSettings, known: tuple[Profile, ...]
) -> tuple[GpuCluster, pl.DataFrame | None, list[str]]:
    """Return the nodes as declared, else as listed, in order of names; also the list, and the assumptions."""
    listed: pl.DataFrame | None = None
    types = tuple(kind for kind, nodes in settings.gpu_types.items() for _ in range(nodes))
    by = "as declared"
    if settings.nodes is not None and settings.gpus_per_node:
        gpus = np.full(settings.nodes, settings.gpus_per_node)
    else:
        listed = warehouse.read(
            data,
            "SELECT gpus, gpu_type, cpus, memory_mib FROM nodes WHERE cluster = ? AND gpus > 0 ORDER BY node",
            (settings.name,),
        )
        if listed.is_empty():
            raise InputError(
                f"the number of GPUs of cluster {settings.name!r} is unknown: give --nodes and --gpus-per-node, "
                "declare them in clusters.toml, or ingest a machine list"
            )
        gpus = listed["gpus"].to_numpy()
        if not types and listed["gpu_type"].null_count() < len(listed):
            types, by = _typed(listed["gpu_type"]), "by the machine list"
    if types and len(types) != len(gpus):
        raise InputError(
            f"gpu_types of cluster {settings.name!r} in clusters.toml are for {counted(len(types), 'node')}, "
            f"but it has {len(gpus):,}"
        )
    plain = next(iter(known[0].steps)) if known else PLAIN
    labels = () if listed is None else tuple(listed["gpu_type"].fill_null("").to_list())
    cluster = of_nodes(gpus, types or (plain,) * len(gpus), rack_nodes=NODES_A_RACK, labels=labels)
    if types:
        mixed = ", ".join(f"{nodes:,} of {kind}" for kind, nodes in Counter(types).items())
        most = f"run times are taken as those of {cluster.reference}, the type of most GPUs"
        line = f"nodes are {mixed}, {by}; {most}, and a job may run on any"
    else:
        line = "all GPUs are of one type" + (f", taken as {plain}" if known else "")
    return cluster, listed, [f"{NODES_A_RACK} nodes share a switch (the log does not say)", line]


def _typed(listed: pl.Series) -> tuple[str, ...]:
    """Return the type of each node of a machine list, without the memory at its end (V100M32 is a V100)."""
    return tuple(visible(name) for name in listed.fill_null(PLAIN).str.replace(r"M\d+$", "").to_list())


def _jobs(rows: pl.DataFrame) -> tuple[GpuJobs, str]:
    """Return the arrays, and what groups the jobs: the partition if there are several, else the user, else the QoS."""
    by = "user_name" if rows["user_name"].null_count() < len(rows) else "qos"
    by = "partition" if rows["partition"].n_unique() > 1 else by
    groups, group = _coded(rows[by])
    users, user = _coded(rows["user_name"])
    if rows["user_name"].null_count() == len(rows):
        users, user = (), np.full(len(rows), -1, dtype=np.int64)
    submit_s, gpus, run_s = (rows[name].to_numpy() for name in ("submit_s", "gpus", "run_s"))
    jobs = replace(
        of_arrays(submit_s.astype(np.float64), gpus, run_s, group, groups),
        user=user,
        users=users,
        pod_gpus=rows["pod_gpus"].to_numpy().astype(np.int64),
        gpu_milli=rows["gpu_milli"].to_numpy().astype(np.int64),
        ids=rows["job_key"].to_numpy().astype(np.str_),
        recorded_wait_s=rows["wait_s"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        fails_s=rows["fails_s"].fill_null(np.nan).to_numpy(),
        hopeless_s=rows["hopeless_s"].fill_null(np.nan).to_numpy(),
    )
    if len(groups) < 2:
        return jobs, "nothing: the log names neither partitions nor users, so all jobs are of one group"
    return jobs, {"partition": "partition or virtual cluster", "user_name": "user", "qos": "class of service"}[by]


def _coded(names: pl.Series) -> tuple[tuple[str, ...], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the distinct names in order, and the index of each row's name."""
    known, index = np.unique(names.fill_null("(none)").to_numpy().astype(str), return_inverse=True)
    return tuple(known.tolist()), index.astype(np.int64)
