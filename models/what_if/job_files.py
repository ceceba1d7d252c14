"""Jobs in files: a trace instead of a log, facts that a log lacks, and what a replay did with each job.

Both files are CSV with a heading. `--trace` has a row per job; `--jobs` has rows for jobs of a log, joined by job id.

| column | meaning |
|---|---|
| `job_id` | name of the job |
| `submit_s` | trace only: submission, s from any zero |
| `gpus` | trace only: GPUs requested |
| `run_s` | trace only: run time on those GPUs, s; may be empty where `model` and `work` are given |
| `start_s`, `user`, `group` | trace only, optional: recorded start, user, virtual cluster |
| `model` | name in the profiles; empty: drawn |
| `batch` | samples of a step over all GPUs, for which its steps are measured; empty: the usual one |
| `counted_batch` | without `batch`: largest batch that a scheduler counts on, while the job chooses its own |
| `work` | total work, in steps of the model's own batch |
| `least_gpus`, `most_gpus` | least and most GPUs of an elastic job |
| `app` | application whose trials share the name |
| `restart_s` | seconds of a checkpoint and a start from it |
| `fails_s` | run time of its first attempt, s, if that fails by an error that shows on one GPU |
| `hopeless_s` | run time until its first failure that no retry cures, s |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from models.what_if.changes import GpuScene
from models.what_if.profiled import profiled
from models.what_if.schedulers import SchedulerOutcome, without_unplaceable
from simulator.gpu.algorithms.placement import fewest_nodes, packed_whole
from simulator.gpu.cluster import GpuCluster
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.profiles.scaling import throughput
from simulator.gpu.training import Training
from traces.arrays import Float64s, Int64s
from traces.counted import counted
from traces.errors import InputError
from traces.files.csv_rows import CsvRow, csv_rows
from traces.files.queue_tree import DeclaredQueue, check_groups
from traces.files.whole import whole_file
from traces.visible import visible

_NUMBERS = ("batch", "counted_batch", "work", "restart_s", "fails_s", "hopeless_s")  # columns with the field's name
FACTS = ("model", "least_gpus", "most_gpus", "app", *_NUMBERS)
_TRACE = ("job_id", "submit_s", "gpus", "run_s")
_TRACE_TOO = ("start_s", "user", "group", *FACTS)
MOST_GPUS = 1_000_000  # of one job
LONGEST_S = 1e9  # of a job whose run time follows from its work


def trace_scene(
    path: Path,
    cluster: GpuCluster,
    profiles: Mapping[str, Profile],
    seed: int,
    is_strict: bool,
    queues: tuple[DeclaredQueue, ...],
) -> GpuScene:
    """Make the scene of a trace file on a declared machine. Errors: see `read_trace`, `profiled`, `check_groups`."""
    jobs = read_trace(path, profiles, cluster)
    jobs, assumptions = profiled(jobs, tuple(profiles.values()), cluster, seed, is_strict)
    check_groups(queues, set(jobs.groups))
    return without_unplaceable(GpuScene(cluster, jobs, queues=queues, assumptions=tuple(assumptions), seed=seed))


def read_trace(path: Path, profiles: Mapping[str, Profile], cluster: GpuCluster) -> GpuJobs:
    """Read the jobs of a trace file, in order of submission, without drawn properties.

    Run times are those on the reference type of `cluster`. Raises InputError with file, line and reason.
    """
    rows = csv_rows(path, _TRACE, _TRACE_TOO)
    if not rows:
        raise InputError(f"{visible(str(path))}: no job in it; give at least one row below the heading")
    _unique(rows)
    submit_s = np.array([row.number("submit_s") for row in rows])
    order = np.argsort(submit_s, kind="stable")
    rows = [rows[at] for at in order]
    gpus = np.array([int(row.number("gpus", 1, whole=True)) for row in rows], dtype=np.int64)
    if (wide := np.flatnonzero(gpus > MOST_GPUS)).size:
        raise rows[wide[0]].error(f"gpus {gpus[wide[0]]}: give at most {MOST_GPUS}")
    run_s = np.array([_run_s(row, int(own), profiles, cluster) for row, own in zip(rows, gpus, strict=True)])
    groups, group = _coded([row.text("group") for row in rows])
    users, user = _coded([row.text("user") for row in rows])
    if len(groups) == 1 and len(users) > 1:
        groups, group = users, user
    jobs = replace(
        of_arrays(submit_s[order], gpus, run_s, group, groups),
        users=users if any(users) else (),
        user=user if any(users) else np.full(len(rows), -1, dtype=np.int64),
        ids=np.array([row.name("job_id") for row in rows]),
        recorded_wait_s=_recorded(rows, submit_s[order]),
    )
    return _with_facts(jobs, dict(enumerate(rows)), profiles)


def with_facts(jobs: GpuJobs, path: Path, profiles: Mapping[str, Profile]) -> GpuJobs:
    """Return the jobs of a log with what the file `path` says of them, joined by `ids`.

    Raises InputError with file, line and reason, also for a job that the log lacks.
    """
    rows = csv_rows(path, ("job_id",), FACTS)
    _unique(rows)
    at = {name: index for index, name in enumerate(jobs.ids.tolist())} if jobs.ids is not None else {}
    for row in rows:
        if row.text("job_id") not in at:
            named = visible(row.text("job_id"))[:60]
            raise row.error(f"job {named!r} is not among the replayed ones ({counted(len(jobs), 'job')})")
    return _with_facts(jobs, {at[row.text("job_id")]: row for row in rows}, profiles)


def write_times(path: Path, ids: Sequence[str], outcomes: Sequence[SchedulerOutcome]) -> None:
    """Write a Parquet file with a row per replay and job: when it started and ended, and the GPU time that it had.

    ids: (jobs,) in the order of `SchedulerOutcome.times`.

    The columns are scheduler, change, seed, job_id, submit_s, start_s, end_s, preemptions, gpu_s and one gpu_s a GPU
    type. Times are the trace's own seconds (epoch s of a log). A column that a replay lacks is null. Raises InputError
    for a path that cannot be written.
    """
    frames = [
        pl.DataFrame(
            {
                "scheduler": pl.Series([one.scheduler] * len(ids), dtype=pl.String),
                "change": pl.Series([one.change] * len(ids), dtype=pl.String),
                "seed": pl.Series([one.seed] * len(ids), dtype=pl.Int64),
                "job_id": pl.Series(ids, dtype=pl.String),
                **one.times,
            }
        )
        for one in outcomes
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        pl.concat(frames, how="diagonal").write_parquet(part)


def _unique(rows: Sequence[CsvRow]) -> None:
    seen: set[str] = set()
    for row in rows:
        if (name := row.name("job_id")) in seen:
            raise row.error(f"job {name[:60]!r} is named twice")
        seen.add(name)


def _run_s(row: CsvRow, gpus: int, profiles: Mapping[str, Profile], cluster: GpuCluster) -> float:
    """Return the given run time, else that of the model's work at the given or its own batch, on the fewest nodes."""
    if row.text("run_s"):
        return row.number("run_s", above=True)
    if not (row.text("model") and row.text("work")):
        raise row.error("run_s is empty: give it, or model and work with --profiles")
    profile = _profile(row, profiles)
    widest, work = cluster.machine().widest, row.number("work", above=True)
    if profile.statistics is not None:
        own = profile.batch or float(profile.statistics.batches[0])
        training = Training(profile, work, row.number("batch", above=True) if row.text("batch") else own)
        training.place((cluster.reference,), packed_whole(gpus, widest))
        if (ended_s := training.run(LONGEST_S)) is None:
            raise row.error(f"work {row.text('work')[:20]} would take over 30 years")
        return ended_s
    samples = work * (profile.batch or profile.local_batch)
    return samples / throughput(profile, cluster.reference, gpus, fewest_nodes(gpus, widest))


def _recorded(rows: Sequence[CsvRow], submit_s: Float64s) -> Float64s | None:
    if not any(row.text("start_s") for row in rows):
        return None
    pairs = zip(rows, submit_s.tolist(), strict=True)
    starts = [row.number("start_s", submitted) if row.text("start_s") else np.nan for row, submitted in pairs]
    return np.asarray(np.array(starts) - submit_s, dtype=np.float64)


def _coded(names: Sequence[str]) -> tuple[tuple[str, ...], Int64s]:
    order = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return tuple(visible(name) for name in order), np.array([order[name] for name in names], dtype=np.int64)


def _profile(row: CsvRow, profiles: Mapping[str, Profile]) -> Profile:
    name = row.text("model")
    if name not in profiles:
        known = ", ".join(profiles) or "none: give --profiles"
        raise row.error(f"model {visible(name)[:60]!r} has no profile; known are {known}")
    return profiles[name]


def _with_facts(jobs: GpuJobs, rows: Mapping[int, CsvRow], profiles: Mapping[str, Profile]) -> GpuJobs:
    """Return the jobs with the facts of `rows` (position of a job -> its row); the others are unchanged."""
    count = len(jobs)
    order = {name: index for index, name in enumerate(profiles)}
    named = np.full(count, -1, dtype=np.int64)
    facts = {
        name: np.full(count, np.nan) if (known := getattr(jobs, name)) is None else known.copy()
        for name in (*_NUMBERS, "least", "most")
    }
    apps: dict[str, int] = {}
    app = np.full(count, -1, dtype=np.int64)
    for at, row in rows.items():
        if row.text("model"):
            named[at] = order[_profile(row, profiles).model]
        if row.text("app"):
            app[at] = apps.setdefault(row.name("app"), len(apps))
        for column in _NUMBERS:
            if row.text(column):
                facts[column][at] = row.number(column, above=column != "restart_s")
        gpus = int(jobs.gpus[at])
        if row.text("least_gpus"):
            facts["least"][at] = row.number("least_gpus", 1, whole=True)
        if row.text("most_gpus"):
            facts["most"][at] = row.number("most_gpus", 1, whole=True)
        if facts["least"][at] > gpus or facts["most"][at] < gpus:
            raise row.error(f"least_gpus and most_gpus must be around the {gpus} GPUs that the job requests")
    elastic = (facts["most"] > jobs.gpus) | (facts["least"] < jobs.gpus)
    given: dict[str, Any] = {name: None if np.isnan(values).all() else values for name, values in facts.items()}
    return replace(
        jobs,
        profiles=tuple(profiles.values()),
        named=named,
        model=named.copy(),
        elastic=elastic,
        app=app if apps else None,
        **given,
    )
