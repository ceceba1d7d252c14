"""Find the raw logs of a command and the cluster that each belongs to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import options
from traces.clusters import NAME, RESERVED, ClusterSettings
from traces.errors import InputError
from traces.given_paths import exists, resolved
from traces.store.folder import DEFAULT, DataFolder

SAMPLE = DEFAULT / "sample"
STANDARD_INPUT = Path("-")
NAMELESS = "cluster"  # the name if the file's name has no character that a cluster name may have


@dataclass(frozen=True)
class RawLogs:
    """Raw logs of one cluster: files and folders. No paths mean the logs that the lake already holds."""

    settings: ClusterSettings
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Reading:
    """How to read raw logs: the options that `analyze` and `run` share with `ingest`. None: not given."""

    cluster: str | None = None
    timezone: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    resource: str | None = None
    format: str = "auto"
    fields: str | None = None
    delimiter: str | None = None

    @property
    def flags(self) -> dict[str, Any]:
        """The options that override a cluster's declared settings."""
        names = ("timezone", "nodes", "gpus_per_node", "cpus_per_node", "resource")
        return {name: getattr(self, name) for name in names}

    @property
    def of_text(self) -> dict[str, Any]:
        """The options for parsing the text."""
        fields = options.names(self.fields) if self.fields else None
        return {"format": self.format, "fields": fields, "delimiter": self.delimiter}

    def check(self, paths: Sequence[Path]) -> None:
        """Check the options and files before anything is set up.

        Raises InputError for an unknown format, for a file that no reader accepts, and for a dump that lacks a needed
        column or has other columns than --fields.
        """
        from traces.formats import check_format

        check_format(self.format)
        files = [path for path in paths if path != STANDARD_INPUT and path.is_file()]
        if not files:
            return
        from traces.ingest import unescaped
        from traces.readers.common import RawFile
        from traces.readers.registry import reader_for
        from traces.readers.sacct.reader import Sacct

        fields = tuple(options.names(self.fields)) if self.fields else None
        delimiter = unescaped(self.delimiter)
        for path in files:
            raw = RawFile(path, ClusterSettings("unnamed"), fields, delimiter)
            reader = reader_for(raw, self.format)
            if isinstance(reader, Sacct):
                reader.layout(raw)


def of_paths(folder: DataFolder, raw: Sequence[Path], reading: Reading) -> list[RawLogs]:
    """Group the raw logs by cluster: by --cluster, else by the declared cluster whose folder holds each path.

    Paths of no declared cluster form one cluster together, named after the file or folder. We print that name, and that
    its local times are read as UTC unless --timezone is given. Raises InputError for a path that does not exist.
    """
    from traces import clusters

    paths = [path if path == STANDARD_INPUT else resolved(path) for path in raw]
    for path, given in zip(paths, raw, strict=True):
        if path != STANDARD_INPUT and not exists(path):
            raise InputError(f"{given}: no such file or folder; give the raw logs, or the folder that holds them")
    known = clusters.load(folder)
    declared = {settings.folder: name for name, settings in known.items() if settings.folder}
    groups: dict[str, list[Path]] = {}
    for path in paths:
        home = path.name if path.is_dir() else path.parent.name
        groups.setdefault(reading.cluster or declared.get(home, ""), []).append(path)
    made = []
    for cluster, paths_of_cluster in groups.items():
        name = cluster or _name_of(paths_of_cluster)
        if not cluster:
            options.say(
                f"cluster name {name!r} is taken from {_home(paths_of_cluster).name!r}; --cluster NAME sets another"
            )
        settings = clusters.resolve(folder, cluster=name, new=True, **reading.flags)
        if reading.timezone is None and name not in known:
            options.say(
                f"local times of cluster {name!r} are read as {settings.timezone}; --timezone sets another zone"
            )
        made.append(RawLogs(settings, tuple(paths_of_cluster)))
    return made


def in_the_lake(folder: DataFolder, reading: Reading) -> list[RawLogs]:
    """Return the clusters whose logs the data folder holds, or only --cluster. Raises InputError if there is none."""
    from traces import clusters
    from traces.store.raw_files import lake_files

    held = sorted({described["folder"].parent.name for described in lake_files(folder)})
    chosen = held if reading.cluster is None else [name for name in held if name == reading.cluster]
    if not chosen:
        what = f"of cluster {reading.cluster!r} " if reading.cluster else ""
        raise InputError(
            f"no log {what}has been read into {folder.root} (clusters there: {', '.join(held) or 'none'}); "
            "name raw logs, as in `baton analyze sacct.txt`"
        )
    return [RawLogs(clusters.resolve(folder, cluster=name, **reading.flags)) for name in chosen]


def sample(folder: DataFolder) -> list[RawLogs]:
    """Return the raw logs of the bundled sample, one cluster for each folder."""
    from traces import clusters

    folders = [SAMPLE / "philly", SAMPLE / "slurm"]
    return [RawLogs(clusters.resolve(folder, raw=path), (path,)) for path in folders]


def _home(paths: Sequence[Path]) -> Path:
    """Return the path that names the cluster: the only path, else the folder of the first one."""
    if len(paths) == 1:
        return Path("standard-input") if paths[0] == STANDARD_INPUT else paths[0]
    return paths[0].parent


def _name_of(paths: Sequence[Path]) -> str:
    """Derive a valid cluster name from the file's name up to its first dot, or from the folder's name."""
    home = _home(paths)
    stem = home.name if home.is_dir() else home.name.split(".")[0]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-_")[:64]
    return name if NAME.fullmatch(name) and name not in RESERVED else NAMELESS
