"""`baton simulate --scheduler slurm`: which files describe the cluster, and a replay by them.

Without a slurm.conf (a trace in the Standard Workload Format, a cluster that declares none) the jobs share a flat pool
under Slurm's defaults. With one, nodes, partitions, QOS, accounts, limits and priorities are those of the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines import options
from traces.errors import InputError
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    import polars as pl

    from simulator.slurm.inputs.jobs import Loaded
    from simulator.slurm.world import Result, World
    from simulator.workload import Replay, Workload
    from traces.slurm.conf import SlurmConf

MOST_NODES = 1 << 20  # of a flat pool
MOST_REMARKS = 20  # lines of what is not modelled; --json holds all


@dataclass(frozen=True)
class Files:
    """The files of one cluster; the dumps are None where there are none."""

    folder: DataFolder
    cluster: str
    conf: SlurmConf
    qos: Path | None
    associations: Path | None
    reservations: Path | None
    timezone: str  # in which the reservations' times are printed


def files(
    wanted: Sequence[str],
    folder: DataFolder,
    cluster: str | None,
    *,
    conf: Path | None,
    qos: Path | None,
    associations: Path | None,
    reservations: Path | None,
) -> Files | None:
    """The files that describe the cluster: those given, else `slurm_conf` of clusters.toml and what lies beside it.

    A relative `slurm_conf` is looked up in the data folder; beside it `qos.psv` and `assoc.psv` (`sacctmgr -P show qos`
    and `show assoc`), and `reservations.txt` (`scontrol show reservation -o`). None where nothing describes it. Raises
    InputError for options that do not go together.
    """
    from traces import clusters
    from traces.slurm.conf import read_slurm_conf

    paths = {"--slurm-conf": conf, "--qos": qos, "--associations": associations, "--reservations": reservations}
    used = [name for name, path in paths.items() if path is not None]
    if used and "slurm" not in wanted:
        raise InputError(f"{used[0]} belongs to --scheduler slurm, not to {', '.join(wanted)}")
    if used and cluster is None:
        raise InputError(f"{used[0]} describes the nodes of a --cluster; a trace in SWF runs on a flat pool")
    if "slurm" not in wanted or cluster is None:
        return None
    settings = clusters.resolve(folder, cluster=cluster)
    if conf is None and settings.slurm_conf is not None:
        conf = folder.root / settings.slurm_conf
        qos = qos or _beside(conf, "qos.psv")
        associations = associations or _beside(conf, "assoc.psv")
        reservations = reservations or _beside(conf, "reservations.txt")
    if conf is None:
        if used:
            raise InputError(
                f"{used[0]} needs a slurm.conf: give --slurm-conf, or slurm_conf in {folder.clusters_toml}"
            )
        return None
    return Files(folder, cluster, read_slurm_conf(conf), qos, associations, reservations, settings.timezone)


def _beside(conf: Path, name: str) -> Path | None:
    path = conf.parent / name
    return path if path.is_file() else None


def replay(workload: Workload, ids: pl.Series, capacity: int, described: Files | None) -> Replay:
    """The schedule that Slurm would make of the workload's jobs (of a cluster: all its recorded jobs compete)."""
    import numpy as np

    from simulator.slurm.inputs.jobs import flat
    from simulator.workload import Replay

    if described is None:
        if capacity > MOST_NODES:
            raise InputError(f"scheduler 'slurm' knows each node: {capacity:,} are over {MOST_NODES:,}; use easy")
        result, wall_s = _run(flat(workload, capacity))
        ran = np.where(result.end_s >= 0, result.end_s - result.start_s, workload.run_s)
        return Replay("slurm", result.start_s, ran, wall_s, _notes(result, (), {}))
    loaded = load(described)
    result, wall_s = _run(loaded.world)
    starts, run_s = _of_workload(workload, ids, loaded, result)
    notes = _notes(result, loaded.remarks, loaded.left_out)
    return Replay("slurm", starts, run_s, wall_s, notes)


def _run(world: World) -> tuple[Result, float]:
    """What becomes of the jobs, and the seconds that it took; how far it is stands on standard error meanwhile."""
    from simulator.slurm.run import run_timed
    from traces.progress import Progress

    with Progress("slurm", len(world.jobs), "jobs", stays=False) as progress:
        return run_timed(world, heard=progress.reach)


def load(described: Files) -> Loaded:
    """The world of a cluster's tables and files. Raises InputError (file:line)."""
    from simulator.slurm.inputs.jobs import from_tables
    from traces.slurm.accounts import read_associations, read_qos
    from traces.slurm.reservations import read_reservations
    from traces.store import warehouse

    tables = {
        name: warehouse.read(described.folder, f"SELECT * FROM {name} WHERE cluster = ?", (described.cluster,))  # noqa: S608
        for name in ("jobs", "attempts", "placements")
    }
    qos = read_qos(described.qos) if described.qos else None
    tree = read_associations(described.associations, described.conf.cluster) if described.associations else None
    loaded = from_tables(
        described.conf,
        tables["jobs"],
        tables["attempts"],
        tables["placements"],
        qos=qos.rows if qos else None,
        associations=tree.rows if tree else None,
        reservations=read_reservations(described.reservations, described.timezone) if described.reservations else (),
    )
    unmodelled = [f"{line}: not modelled" for dump in (qos, tree) if dump for line in dump.unmodelled]
    return replace(loaded, remarks=(*loaded.remarks, *unmodelled))


def _of_workload(workload: Workload, ids: pl.Series, loaded: Loaded, result: Result) -> tuple[Any, Any]:
    """First start of each job of the workload and how long it ran; a requeued job as long as recorded."""
    import numpy as np

    runs = Counter(loaded.keys)
    row_of = {key: row for row, key in reversed(list(enumerate(loaded.keys)))}
    rows = np.array([row_of.get(key, -1) for key in ids.to_list()], np.int64)
    known = rows >= 0
    starts = np.where(known, result.start_s[rows], -1)
    once = np.array([runs[key] == 1 for key in ids.to_list()], bool)
    ended = known & once & (result.end_s[rows] >= 0) & (starts >= 0)
    return starts, np.where(ended, result.end_s[rows] - starts, workload.run_s)


def _notes(result: Result, remarks: tuple[str, ...], left_out: dict[str, int]) -> dict[str, Any]:
    """What --json says besides the figures; the same on standard error for a person."""
    unplaceable = result.unplaceable()
    if unplaceable:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in unplaceable.items())
        options.say(f"slurm: {sum(unplaceable.values()):,} jobs can never start: {reasons}")
    if left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        options.say(f"slurm: left out {sum(left_out.values()):,} records: {reasons}")
    for remark in remarks[:MOST_REMARKS]:
        options.say(f"slurm: {remark}")
    if len(remarks) > MOST_REMARKS:
        options.say(f"slurm: {len(remarks) - MOST_REMARKS} more remarks; --json holds all")
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
