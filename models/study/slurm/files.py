"""The files that describe a Slurm cluster, and the world that they make of its recorded jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from models.study.as_of import END, attempts_as_of, jobs_as_of
from traces.cache.digests import digest
from traces.clusters import ClusterSettings
from traces.slurm.accounts import Association, Dump, Qos, read_associations, read_qos
from traces.slurm.conf import SlurmConf, read_slurm_conf
from traces.slurm.reservations import read_reservations
from traces.store import warehouse
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    import polars as pl

    from simulator.slurm.inputs.jobs import Loaded
    from simulator.slurm.inputs.submitted import SubmitterNames

    # Changes a cluster and its jobs before their world is built (columns as in `traces.schema`).
    SlurmEdit = Callable[["SlurmDescription", pl.DataFrame], tuple["SlurmDescription", pl.DataFrame]]

HALF_LIVES = 8  # after so many, 0.4 % of a job's usage still counts in fair share


class SlurmDescription(NamedTuple):
    """What the files say of a cluster; None for a missing dump."""

    conf: SlurmConf
    qos: tuple[Qos, ...] | None = None
    associations: tuple[Association, ...] | None = None


@dataclass(frozen=True)
class SlurmFiles:
    """The files of one cluster; missing dumps are None."""

    data: DataFolder
    cluster: str
    conf: SlurmConf
    qos: Path | None
    associations: Path | None
    reservations: Path | None
    timezone: str  # of the times in the reservations

    def but_for(self, **paths: Path | None) -> SlurmFiles:
        """These files with some replaced; None leaves one as it is."""
        return replace(self, **{name: path for name, path in paths.items() if path is not None})  # type: ignore[arg-type]

    def read_qos(self) -> Dump[Qos] | None:
        """Read the QOS dump. Raises InputError (file:line)."""
        return None if self.qos is None else read_qos(self.qos)

    def read_associations(self) -> Dump[Association] | None:
        """Read this cluster's rows in the association dump. Raises InputError (file:line)."""
        return None if self.associations is None else read_associations(self.associations, self.conf.cluster)

    @property
    def digest(self) -> str:
        """Digest of the files' content."""
        dumps = (path and path.read_bytes().hex() for path in (self.qos, self.associations, self.reservations))
        return digest(str(self.conf), *dumps, self.timezone)


def declared(data: DataFolder, settings: ClusterSettings) -> SlurmFiles | None:
    """The files that the cluster's settings declare: `slurm_conf` and the files next to it; None without one.

    A relative path is looked up in the data folder. Next to it are `qos.psv` and `assoc.psv` (`sacctmgr -P show qos`
    and `show assoc`), and `reservations.txt` (`scontrol show reservation -o`). Raises InputError (file:line).
    """
    if settings.slurm_conf is None:
        return None
    conf = data.root / settings.slurm_conf
    beside = (conf.parent / name for name in ("qos.psv", "assoc.psv", "reservations.txt"))
    qos, associations, reservations = (path if path.is_file() else None for path in beside)
    return SlurmFiles(data, settings.name, read_slurm_conf(conf), qos, associations, reservations, settings.timezone)


def load_slurm_files(
    files: SlurmFiles,
    *,
    from_s: int | None = None,
    until_s: int | None = None,
    submitter: SubmitterNames | None = None,
    edit: SlurmEdit | None = None,
    around: tuple[int, int] | None = None,
) -> Loaded:
    """The world of the cluster's recorded jobs and files, changed by `edit`.

    It holds the jobs submitted from `from_s` on, as they were known before `until_s` (epoch s; None: no bound). For a
    replay that starts from the recorded state, `around` is its first second and the end of its submissions: jobs that
    had ended before count only while their usage does, and those that run in that second are pinned to their nodes.
    Raises InputError (file:line).
    """
    from simulator.slurm.inputs.jobs import from_tables

    since = "true" if from_s is None else f"submit_utc >= make_timestamp({int(from_s) * 1_000_000})"
    since = since if around is None else _needed(files.conf, *around)
    jobs = warehouse.read(files.data, f"{jobs_as_of(until_s)} AND cluster = ? AND {since}", (files.cluster,))
    attempts = warehouse.read(files.data, f"{attempts_as_of(until_s)} AND cluster = ?", (files.cluster,))
    qos, tree = files.read_qos(), files.read_associations()
    described = SlurmDescription(files.conf, qos.rows if qos else None, tree.rows if tree else None)
    if edit is not None:
        described, jobs = edit(described, jobs)
    loaded = from_tables(
        described.conf,
        jobs,
        attempts.filter(attempts["job_key"].is_in(jobs["job_key"].implode())),
        None if around is None else _nodes_held(files, around[0]),
        qos=described.qos,
        associations=described.associations,
        reservations=read_reservations(files.reservations, files.timezone) if files.reservations else (),
        submitter=submitter,
    )
    unmodelled = [f"{line}: not modelled" for dump in (qos, tree) if dump for line in dump.unmodelled]
    return replace(loaded, remarks=(*loaded.remarks, *unmodelled))


def _needed(conf: SlurmConf, at_s: int, until_s: int) -> str:
    """SQL condition: the job was submitted before `until_s`, and at `at_s` it or its usage counts."""
    needed = f"submit_utc < make_timestamp({until_s * 1_000_000})"
    if not conf.decay_half_life_s:
        return needed
    counts_s = at_s - HALF_LIVES * conf.decay_half_life_s
    return f"{needed} AND coalesce({END} >= make_timestamp({counts_s * 1_000_000}), true)"


def _nodes_held(files: SlurmFiles, at_s: int) -> pl.DataFrame:
    """The recorded nodes of the runs that hold them in second `at_s`, as in the table `placements`."""
    at = f"make_timestamp({at_s * 1_000_000})"
    return warehouse.read(
        files.data,
        "SELECT p.job_key, p.attempt, p.node FROM placements p JOIN attempts a USING (cluster, job_key, attempt) "  # noqa: S608 - our own words
        f"WHERE p.cluster = ? AND a.start_utc < {at} "
        f"AND coalesce(coalesce(a.end_utc, a.start_utc + to_seconds(a.run_s)) >= {at}, true)",
        (files.cluster,),
    )
