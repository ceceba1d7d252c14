"""Pull the files that the shared lake lists into the local one, each whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

from traces.cache.digests import digest
from traces.errors import WorkError
from traces.files.locks import locked
from traces.lake.listing import Listing, SharedFile, listing
from traces.lake.push import is_same
from traces.lake.shared import SharedLake, host
from traces.store import raw_files, staging
from traces.store.folder import LAKE, DataFolder
from traces.store.stamps import read_stamp, write_stamp

STAMP = "shared-lake"  # of each cluster: the version that its local files are from


class Pulled(NamedTuple):
    """What a pull changed: the version of the listing, and the numbers of files."""

    version: int
    fetched: int
    retired: int


def pull(lake: SharedLake, data: DataFolder, clusters: set[str] | None = None) -> Pulled:
    """Make the local files of the clusters (None: of all) those that the shared lake lists.

    Local files that it does not know stay. Raises InputError before work begins, WorkError after it.
    """
    shared = listing(lake)
    fetched = retired = 0
    for cluster in sorted({file.part.cluster for file in shared.of(clusters)}):
        files = shared.of({cluster})
        changed = [one for one in files if is_stale(data, one)]
        if changed:
            staging.sweep(data.root, data.lake)
            with staging.workplace(data.root, data.lake / cluster) as place:
                for file in changed:
                    _take(lake, data, file, place)
        fetched += sum(file.retired_utc is None for file in changed)
        retired += sum(file.retired_utc is not None for file in changed)
        _note(lake, data, shared, cluster)
    return Pulled(shared.version, fetched, retired)


def folder_of(data: DataFolder, file: SharedFile) -> Path:
    """Return the folder of the local lake for a row."""
    return data.lake / file.part.cluster / file.part.file


def is_stale(data: DataFolder, file: SharedFile) -> bool:
    """Return whether a pull would change the local folder of a row."""
    folder = folder_of(data, file)
    same = is_same(raw_files.read(folder), file)
    if file.retired_utc is not None:
        return same
    return not same or raw_files.damage(folder) is not None


def _take(lake: SharedLake, data: DataFolder, file: SharedFile, place: Path) -> None:
    """Fetch one file, or retire it, and put the result in place in one step."""
    final, new = folder_of(data, file), place / file.part.file
    place.mkdir(parents=True, exist_ok=True)
    if file.retired_utc is None:
        _fetch(lake, file, new)
    with locked(data.root, LAKE):
        if not is_stale(data, file):  # another process was faster
            return
        if file.retired_utc is None:
            staging.publish(new, final)
        else:
            final.rename(new)
    shutil.rmtree(new, ignore_errors=True)


def _fetch(lake: SharedLake, file: SharedFile, folder: Path) -> None:
    folder.mkdir()
    for name in file.versions:
        with lake.answers():
            lake.fetch(f"{name}/{file.part.path(name)}", folder / f"{name}.parquet")
    described: dict[str, Any] = {**file.described}
    if file.host != host():  # there the same path is another file
        described["source"] = f"{file.host}:{described.get('source')}"
    raw_files.write(folder, described)
    if not is_same(raw_files.read(folder), file):
        raise WorkError(
            f"shared lake {lake.options.url}: {'/'.join(file.part)} differs from its listing; nothing changed"
        )


def _note(lake: SharedLake, data: DataFolder, shared: Listing, cluster: str) -> None:
    """Record the version, unless the cluster's files are those of the version recorded."""
    made_from = digest(lake.options.url, sorted(file.part for file in shared.of({cluster}) if file.retired_utc is None))
    if read_stamp(data, STAMP, cluster, made_from) is None:
        write_stamp(data, STAMP, cluster, made_from, {"url": lake.options.url, "version": shared.version})


def read_version(data: DataFolder, cluster: str) -> tuple[str, int] | None:
    """Return address and version of the shared lake that the cluster's local files are from; None without one."""
    stamp = read_stamp(data, STAMP, cluster)
    return None if stamp is None else (str(stamp["url"]), int(stamp["version"]))
