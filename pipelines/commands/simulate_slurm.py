"""`baton simulate --scheduler slurm`: find the files that describe the cluster, and replay with them.

Without a slurm.conf (a trace in the Standard Workload Format, or a cluster that declares none) the jobs share a flat
pool under Slurm's defaults. With one, nodes, partitions, QOS, accounts, limits and priorities come from the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines import options
from traces.counted import counted
from traces.errors import InputError
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    import polars as pl

    from models.study.slurm.files import SlurmFiles
    from simulator.slurm.inputs.jobs import Loaded
    from simulator.slurm.world import SlurmResult, SlurmWorld
    from simulator.workload import Replay, Workload

MOST_NODES = 1 << 20  # of a flat pool
MOST_REMARKS = 20  # printed lines about what is not modelled; --json holds all

Conf = Annotated[Path | None, typer.Option("--slurm-conf", help="slurm.conf, for slurm.")]
Qos = Annotated[Path | None, typer.Option("--qos", help="Dump of `sacctmgr -P show qos`, for slurm.")]
Associations = Annotated[
    Path | None, typer.Option("--associations", help="Dump of `sacctmgr -P show assoc`, for slurm.")
]
Reservations = Annotated[
    Path | None, typer.Option("--reservations", help="Dump of `scontrol show reservation -o`, for slurm.")
]


def files(
    schedulers: Sequence[str],
    folder: DataFolder,
    cluster: str | None,
    *,
    conf: Path | None,
    qos: Path | None,
    associations: Path | None,
    reservations: Path | None,
) -> SlurmFiles | None:
    """Return the files that describe the cluster: those given, else those that its settings declare, else None.

    Raises InputError for options that conflict.
    """
    from models.study.slurm import files as slurm_files
    from traces import clusters
    from traces.slurm.conf import read_slurm_conf

    paths = {"--slurm-conf": conf, "--qos": qos, "--associations": associations, "--reservations": reservations}
    used = [name for name, path in paths.items() if path is not None]
    if used and "slurm" not in schedulers:
        raise InputError(f"{used[0]} applies only to --scheduler slurm, not to {', '.join(schedulers)}")
    if used and cluster is None:
        raise InputError(
            f"{used[0]} describes the nodes of a --cluster, but an SWF trace is replayed on a flat pool: leave it out"
        )
    if "slurm" not in schedulers or cluster is None:
        return None
    settings = clusters.resolve(folder, cluster=cluster)
    if conf is not None:
        read = read_slurm_conf(conf)
        return slurm_files.SlurmFiles(folder, cluster, read, qos, associations, reservations, settings.timezone)
    declared = slurm_files.declared(folder, settings)
    if declared is None and used:
        raise InputError(f"{used[0]} needs a slurm.conf: give --slurm-conf, or slurm_conf in {folder.clusters_toml}")
    return declared and declared.but_for(qos=qos, associations=associations, reservations=reservations)


def replay(workload: Workload, ids: pl.Series, capacity: int, described: SlurmFiles | None) -> Replay:
    """Replay the workload as Slurm would schedule it. For a cluster, all its recorded jobs compete."""
    import numpy as np

    from simulator.slurm.inputs.jobs import flat
    from simulator.workload import Replay

    if described is None:
        if capacity > MOST_NODES:
            raise InputError(
                f"scheduler 'slurm' models each node and takes at most {MOST_NODES:,}, not {capacity:,}; use easy"
            )
        result, wall_s = _run(flat(workload, capacity))
        ran = np.where(result.end_s >= 0, result.end_s - result.start_s, workload.run_s)
        return Replay("slurm", result.start_s, ran, wall_s, _notes(result, (), {}))
    from models.study.slurm.files import load_slurm_files

    loaded = load_slurm_files(described)
    result, wall_s = _run(loaded.world)
    starts, run_s = _of_workload(workload, ids, loaded, result)
    notes = _notes(result, loaded.remarks, loaded.left_out)
    return Replay("slurm", starts, run_s, wall_s, notes)


def _run(world: SlurmWorld) -> tuple[SlurmResult, float]:
    """Run the simulation and show its progress on standard error; return the result and the wall time, s."""
    from simulator.slurm.run import run_timed
    from traces.progress import Progress

    with Progress("replaying under Slurm's rules", len(world.jobs), "jobs", stays=False) as progress:
        return run_timed(world, on_progress=progress.reach)


def _of_workload(workload: Workload, ids: pl.Series, loaded: Loaded, result: SlurmResult) -> tuple[Any, Any]:
    """Return first start and run time of each job of the workload, s; a requeued job keeps its recorded run time."""
    import numpy as np

    runs = Counter(loaded.keys)
    row_of = {key: row for row, key in reversed(list(enumerate(loaded.keys)))}
    rows = np.array([row_of.get(key, -1) for key in ids.to_list()], np.int64)
    known = rows >= 0
    starts = np.where(known, result.start_s[rows], -1)
    once = np.array([runs[key] == 1 for key in ids.to_list()], bool)
    ended = known & once & (result.end_s[rows] >= 0) & (starts >= 0)
    return starts, np.where(ended, result.end_s[rows] - starts, workload.run_s)


def _notes(result: SlurmResult, remarks: tuple[str, ...], left_out: dict[str, int]) -> dict[str, Any]:
    """Build the notes of --json and print them on standard error."""
    unplaceable = result.unplaceable()
    if unplaceable:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in unplaceable.items())
        options.say(f"slurm: {counted(sum(unplaceable.values()), 'job')} can never start: {reasons}")
    if left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        options.say(f"slurm: left out {counted(sum(left_out.values()), 'record')}: {reasons}")
    for remark in remarks[:MOST_REMARKS]:
        options.say(f"slurm: {remark}")
    if len(remarks) > MOST_REMARKS:
        options.say(f"slurm: {len(remarks) - MOST_REMARKS} more remarks; --json shows all")
    started = result.start_s >= 0
    return {
        "slurm_jobs": len(result.start_s),
        "unplaceable": unplaceable,
        "slurm_left_out": left_out,
        "remarks": list(remarks),
        "started_by_backfill": int((result.by_backfill & started).sum()),
        "started_by_main": int((~result.by_backfill & started).sum()),
        "requeues": int(result.restarts.sum()),
    }
