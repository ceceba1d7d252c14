"""The shared lake of a data folder, if deployment.toml declares one: before a build, and after an ingest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from models.deployment import read_deployment
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from traces.lake.shared import SharedLake
    from traces.readers.staged import FileResult


def shared_lake(data: DataFolder) -> SharedLake | None:
    """Return the declared lake; None without one. Asks no server. Raises InputError."""
    options = read_deployment(data.root).lake
    if not options.url:
        return None
    from traces.lake.shared import SharedLake

    return SharedLake(options)


def pull_shared(data: DataFolder, clusters: set[str] | None) -> None:
    """Pull the files of the clusters (None: of all), if a lake is shared. Raises InputError before any work."""
    if (lake := shared_lake(data)) is not None:
        from traces.lake.pull import pull

        data.ensure_writable()
        pull(lake, data, clusters)


def share(data: DataFolder, cluster: str, results: Sequence[FileResult]) -> None:
    """Push what was ingested, then pull what others pushed; nothing without a shared lake.

    Raises WorkError: then the files are in the local lake, and ingesting them again completes the push.
    """
    lake = shared_lake(data)
    if lake is None:
        return
    from traces.errors import BatonError, WorkError
    from traces.ingest import current_digests
    from traces.lake.pull import pull
    from traces.lake.push import push

    try:
        read = {result.sha256 for result in results if result.sha256}
        push(lake, data, {cluster}, current_digests(results), read)
        pull(lake, data, {cluster})
    except BatonError as error:
        raise WorkError(f"{error} (the files are in {data.lake}; run the command again to share them)") from error
