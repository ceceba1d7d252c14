"""Check the shared lake for `baton doctor`: version, rights, a round trip, clocks, one winner for each commit."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from traces.errors import BatonError
from traces.lake.listing import listing
from traces.lake.shared import SharedLake
from traces.lake.tables import delta_schema
from traces.schema import INT, Column

MOST_APART_S = 60
WRITERS = 4
PROBES = "probes"  # folder in the lake


class LakeCheck(NamedTuple):
    """One check. `mend` is empty if it passed."""

    name: str
    finding: str
    mend: str = ""


def lake_checks(lake: SharedLake) -> Iterator[LakeCheck]:
    """Yield the checks; stops at the first that fails."""
    url = lake.options.url
    try:
        began = time.perf_counter()
        shared = listing(lake)
        took_s = time.perf_counter() - began
        yield LakeCheck(
            "lake", f"{url} answers in {took_s:.2f} s, version {shared.version}, deltalake {version('deltalake')}"
        )
        place = f"{PROBES}/{secrets.token_hex(8)}"
        try:
            yield from _rights(lake, place)
            yield _commits(lake, place)
        finally:
            with lake.answers():
                lake.files.delete_dir(place)
    except BatonError as error:
        yield LakeCheck("lake", str(error), "mend lake.url, lake.endpoint or the credentials, or start the server")


def _rights(lake: SharedLake, place: str) -> Iterator[LakeCheck]:
    """Write, read and date a file."""
    began, text = time.perf_counter(), secrets.token_bytes(16)
    with TemporaryDirectory() as folder, lake.answers():
        sent, found = Path(folder, "sent"), Path(folder, "found")
        sent.write_bytes(text)
        lake.send(sent, f"{place}/file")
        written_s = time.time()
        lake.fetch(f"{place}/file", found)
        is_whole = found.read_bytes() == text
        info = lake.files.get_file_info(f"{place}/file")
    took_s = time.perf_counter() - began
    if not is_whole:
        yield LakeCheck("lake file", "what was written is not what was read", "use another store")
    yield LakeCheck("lake file", f"written and read in {took_s:.2f} s")
    apart_s = (info.mtime_ns or 0) / 1e9 - written_s
    if abs(apart_s) > MOST_APART_S:
        side = "ahead of" if apart_s > 0 else "behind"
        finding = f"that of the store is {abs(apart_s):,.0f} s {side} this machine's"
        yield LakeCheck("lake clock", finding, "set the clocks of both by NTP: `baton lake vacuum` goes by them")
    else:
        yield LakeCheck("lake clock", f"that of the store is within {MOST_APART_S} s of this machine's")


def _commits(lake: SharedLake, place: str) -> LakeCheck:
    """Let writers commit the same version at once: a store with conditional writes lets one of them win."""
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, write_deltalake
    from deltalake.exceptions import CommitFailedError

    with lake.answers():
        uri = lake.uri(f"{place}/table")
        DeltaTable.create(uri, delta_schema([Column("writer", INT, "", "")]), storage_options=lake.storage)
        opened = [DeltaTable(uri, storage_options=lake.storage) for _ in range(WRITERS)]
        barrier = threading.Barrier(WRITERS)

        def commit(writer: int) -> bool:
            barrier.wait()
            try:
                write_deltalake(
                    opened[writer], pa.table({"writer": [writer]}), mode="append",
                    commit_properties=CommitProperties(max_commit_retries=0),
                )  # fmt: skip
            except CommitFailedError:
                return False
            return True

        with ThreadPoolExecutor(WRITERS) as pool:
            won = sum(pool.map(commit, range(WRITERS)))
        kept = len(DeltaTable(uri, storage_options=lake.storage).to_pyarrow_table())
    if won != kept:
        finding = (
            f"{won} of {WRITERS} writers at once got the answer that their commit succeeded, and {kept} commits exist"
        )
        return LakeCheck("lake commit", finding, "use a store that honours If-None-Match: this one loses data")
    return LakeCheck("lake commit", f"{WRITERS} writers at once: none lost, {kept} kept")
