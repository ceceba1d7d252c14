"""Push files of the local lake to the shared one: partitions first, then one change of the listing."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from traces import schema
from traces.errors import WorkError
from traces.files.locks import locked
from traces.lake import tables
from traces.lake.listing import Listing, SharedFile, change, listing, now_utc
from traces.lake.shared import SharedLake, host
from traces.lake.tables import Added, Part
from traces.store import raw_files
from traces.store.folder import LAKE, DataFolder


class Pushed(NamedTuple):
    """What a push changed: the version of the listing after it, and the numbers of files."""

    version: int
    sent: int
    retired: int


def push(
    lake: SharedLake,
    data: DataFolder,
    clusters: set[str] | None = None,
    current: Mapping[str, str] | None = None,
    read: Set[str] = frozenset(),
) -> Pushed:
    """Push what the shared lake lacks; `read` are the digests of the files that `ingest` just read.

    A file that is not in `read` is pushed only if the shared lake never had it. One that is counts in any case, and
    earlier contents of its path, read on this machine, are retired: `current` gives digests by absolute path. The local
    lake stays locked, so that its files stay as they are. Raises InputError before work begins, WorkError after it.
    """
    with locked(data.root, LAKE):
        here = [f for f in raw_files.lake_files(data) if clusters is None or f["folder"].parent.name in clusters]
        shared = listing(lake)
        news = [one for one in here if _is_news(one, shared, read)]
        sent = _send(lake, news)

    def edit(files: dict[tuple[str, str], SharedFile]) -> dict[tuple[str, str], SharedFile]:
        return _retired({**files, **_wanted(files, sent, read)}, current or {}, read, clusters)

    if shared.table is None and not sent:
        return Pushed(shared.version, 0, 0)
    before, after = change(lake, edit, is_new=shared.table is None)
    _clear(lake, before, after, sent)
    retired = sum(f.retired_utc is not None and before.files.get(f.key) != f for f in after.files.values())
    return Pushed(after.version, len(sent), retired)


def key_of(described: Mapping[str, Any]) -> tuple[str, str]:
    """Return cluster and file of a folder of the local lake."""
    return described["folder"].parent.name, described["folder"].name


def is_same(described: Mapping[str, Any] | None, file: SharedFile) -> bool:
    """Return whether a folder of the local lake is the very reading that a row lists."""
    if described is None:
        return False
    apart = ("folder", "source")
    return {k: v for k, v in described.items() if k not in apart} == {
        k: v for k, v in file.described.items() if k not in apart
    }


def _is_news(described: Mapping[str, Any], shared: Listing, read: Set[str]) -> bool:
    file = shared.files.get(key_of(described))
    if file is None:
        return True
    if file.retired_utc is not None:
        return described["sha256"] in read or not is_same(described, file)
    return described["sha256"] in read and described["fingerprint"] != file.described["fingerprint"]


def _send(lake: SharedLake, news: Sequence[Mapping[str, Any]]) -> list[SharedFile]:
    """Send the Parquet files and add them to their tables; return the rows that would list them."""
    began, parts = time.time(), []
    added: dict[str, list[Added]] = {name: [] for name in schema.TABLES}
    for described in news:
        folder = described["folder"]
        if (damaged := raw_files.damage(folder)) is not None:
            raise WorkError(f"{damaged}: {raw_files.mend(folder)}")
        part = Part(*key_of(described), secrets.token_hex(8))
        parts.append(part)
        for name in schema.TABLES:
            if (path := folder / f"{name}.parquet").is_file():
                with lake.answers():
                    lake.send(path, f"{name}/{part.path(name)}")
                added[name].append(Added(part, path.stat().st_size, rows_of(path)))
    versions: dict[str, int] = {}
    for name, files in added.items():
        if files:
            with lake.answers():
                versions[name] = tables.add(lake, schema.TABLES[name], files)
    if time.time() - began > lake.options.keep_days * 86_400 / 2:
        raise WorkError(
            f"shared lake {lake.options.url}: this took so long that `vacuum` may have removed it; try again"
        )
    rows = []
    for described, part in zip(news, parts, strict=True):
        content = {name: value for name, value in described.items() if name != "folder"}
        own = {name: versions[name] for name, files in added.items() if any(file.part == part for file in files)}
        rows.append(SharedFile(part, host(), content, own))
    return rows


def rows_of(path: Path) -> int:
    """Return the number of rows of a Parquet file, from its footer."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def _wanted(
    files: Mapping[tuple[str, str], SharedFile], sent: Sequence[SharedFile], read: Set[str]
) -> dict[tuple[str, str], SharedFile]:
    """Return the rows to list of those sent: another process may have pushed the same file meanwhile."""
    wanted = {}
    for file in sent:
        other = files.get(file.key)
        is_listed = other is not None and other.retired_utc is None
        if not is_listed or (
            file.described["sha256"] in read
            and other is not None
            and other.described["fingerprint"] != file.described["fingerprint"]
        ):
            wanted[file.key] = file
    return wanted


def _retired(
    files: Mapping[tuple[str, str], SharedFile], current: Mapping[str, str], read: Set[str], clusters: set[str] | None
) -> dict[tuple[str, str], SharedFile]:
    """Mark earlier contents of the current files as retired, if they were read on this machine."""

    def is_earlier(file: SharedFile) -> bool:
        digest = file.described["sha256"]
        newer = current.get(str(file.described.get("source")), digest)
        in_question = file.host == host() and (clusters is None or file.part.cluster in clusters)
        return in_question and newer != digest and digest not in read and file.retired_utc is None

    return {key: file._replace(retired_utc=now_utc()) if is_earlier(file) else file for key, file in files.items()}


def _clear(lake: SharedLake, before: Listing, after: Listing, sent: Sequence[SharedFile]) -> None:
    """Remove the partitions that this push made superfluous, so that readers without the listing see them no longer."""
    counts = {file.part for file in after.files.values() if file.retired_utc is None}
    known = [*before.files.values(), *sent]
    gone = [
        file
        for file in known
        if file.part not in counts and (file in sent or before.files[file.key].retired_utc is None)
    ]
    for name in schema.TABLES:
        with lake.answers():
            tables.remove(lake, name, [file.part for file in gone if name in file.versions])
