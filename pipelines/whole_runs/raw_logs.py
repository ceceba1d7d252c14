"""Which raw logs a command is about, and which cluster they are of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import completion, options
from traces.clusters import NAME, RESERVED, ClusterSettings
from traces.errors import InputError
from traces.given_paths import exists, resolved
from traces.store.folder import DataFolder

SAMPLE = completion.DATA / "sample"
STANDARD_INPUT = Path("-")
NAMELESS = "cluster"  # where a file's name has no letter that a cluster's name may have


@dataclass(frozen=True)
class RawLogs:
    """Raw logs of one cluster: files and folders; none where what the lake holds already is meant."""

    settings: ClusterSettings
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Reading:
    """How raw logs are to be read: the options that `analyze` and `run` share with `ingest`; None is left out."""

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
        """The options that say how the text is read."""
        fields = options.names(self.fields) if self.fields else None
        return {"format": self.format, "fields": fields, "delimiter": self.delimiter}

    def check(self, paths: Sequence[Path]) -> None:
        """Raises InputError, before anything is set up, for a format that no reader has, for a file of none, and for a
        dump without a column that is needed or of other columns than --fields."""
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
    """The raw logs by cluster: all of --cluster, else each of the declared cluster whose folder it is or lies in.

    What belongs to no declared cluster is one cluster together, named after the file or folder. That name is said, and
    that its local times are taken for UTC where no --timezone is given.
    Raises InputError for a path that is not there.
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
                f"cluster name {name!r} is taken from {_home(paths_of_cluster).name!r}: --cluster NAME gives another"
            )
        settings = clusters.resolve(folder, cluster=name, new=True, **reading.flags)
        if reading.timezone is None and name not in known:
            options.say(
                f"local times of cluster {name!r} are taken for {settings.timezone}: --timezone gives another zone"
            )
        made.append(RawLogs(settings, tuple(paths_of_cluster)))
    return made


def in_the_lake(folder: DataFolder, reading: Reading) -> list[RawLogs]:
    """The clusters whose logs the data folder holds, or the one of --cluster. Raises InputError where there is none."""
    from traces import clusters
    from traces.store.raw_files import lake_files

    held = sorted({described["folder"].parent.name for described in lake_files(folder)})
    wanted = held if reading.cluster is None else [name for name in held if name == reading.cluster]
    if not wanted:
        what = f"of cluster {reading.cluster!r} " if reading.cluster else ""
        raise InputError(
            f"no log {what}has been read into {folder.root} (it holds {', '.join(held) or 'none'}): "
            "name raw logs, as in `baton analyze sacct.txt`"
        )
    return [RawLogs(clusters.resolve(folder, cluster=name, **reading.flags)) for name in wanted]


def sample(folder: DataFolder) -> list[RawLogs]:
    """The bundled sample: a cluster a folder."""
    from traces import clusters

    folders = [SAMPLE / "philly", SAMPLE / "slurm"]
    return [RawLogs(clusters.resolve(folder, raw=path), (path,)) for path in folders]


def _home(paths: Sequence[Path]) -> Path:
    """What names the cluster of those paths: the only one, else the folder that they lie in together."""
    if len(paths) == 1:
        return Path("standard-input") if paths[0] == STANDARD_INPUT else paths[0]
    return paths[0].parent


def _name_of(paths: Sequence[Path]) -> str:
    """A cluster's name of the letters that one may have: the file's up to its first dot, or the folder's."""
    home = _home(paths)
    stem = home.name if home.is_dir() else home.name.split(".")[0]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-_")[:64]
    return name if NAME.fullmatch(name) and name not in RESERVED else NAMELESS
