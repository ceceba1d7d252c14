"""What the last run was made from and what it left, so that the same again with nothing new ends at once.

Every asset knows by itself that it has nothing to do, but to ask them all takes Dagster, MLflow and a quarter of a
minute. Here one file says: made from these raw logs (by content), settings, options and code, and since then no file of
the data folder has changed. A file counts as changed where its size or its ctime differs: unlike the modification time,
which a copy or `touch` sets at will, the kernel renews the ctime at every write and rename.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines import options
from pipelines.whole_runs.raw_logs import STANDARD_INPUT, RawLogs, Reading
from traces.cache.closure import code_digest
from traces.errors import BatonError
from traces.files.whole import write_text
from traces.store.folder import DataFolder

PROGRAM = "pipelines.commands.run"  # its import closure is everything that a run may do
UNTOLD = ("dagster", ".locks", "artifacts/last-runs")  # of the data folder: changes by looking at it


def result_of(folder: DataFolder, command: str, made_from: str | None) -> dict[str, Any] | None:
    """What that command returned, if it would do nothing but return the same; else None."""
    try:
        note = json.loads(_path(folder, command).read_text(encoding="utf-8"))
        if note["left"] != _left(folder) or note["made_from"] != made_from:
            return None
        result: dict[str, Any] = note["result"]
        when = note["ended_utc"]
        if note["check"] != _check(result):
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    options.say(f"nothing new since {when} UTC: what follows is of that run")
    return result


def remember(folder: DataFolder, command: str, made_from: str | None, result: dict[str, Any]) -> None:
    """The command has ended well. Nothing is remembered of standard input, which cannot be read again.

    Where it cannot be written down, that is said, and the next run works again: this one's result stands.
    """
    if made_from is None:
        return
    ended = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    plain = options.plain(result)
    try:
        note = {"made_from": made_from, "left": _left(folder), "result": plain, "ended_utc": ended}
        write_text(_path(folder, command), json.dumps({**note, "check": _check(plain)}))
    except (OSError, BatonError) as error:
        options.say(f"what this run made is not remembered, the next will work again: {' '.join(str(error).split())}")


def _check(result: Any) -> str:
    """Digest of a result, so that a note which was damaged or edited is none."""
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


def _path(folder: DataFolder, command: str) -> Path:
    return folder.artifacts / "last-runs" / f"{command}.json"


def made_from(logs: Sequence[RawLogs], reading: Reading) -> str | None:
    """Digest of everything outside the data folder that the result hangs on; None where it cannot be told.

    To be taken before the logs are read: what they gain while the command works is new to the next one.
    """
    paths = [path for one in logs for path in one.paths]
    if any(path == STANDARD_INPUT or not (path.is_file() or path.is_dir()) for path in paths):
        return None  # what comes through a pipe cannot be read twice
    try:
        return _digest(logs, reading)
    except OSError:
        return None  # whoever reads the logs says what is wrong with them


def _digest(logs: Sequence[RawLogs], reading: Reading) -> str:
    state = hashlib.sha256(json.dumps([asdict(reading), sys.version], default=str).encode())
    state.update(code_digest(PROGRAM).encode())
    for one in logs:
        state.update(json.dumps(asdict(one.settings), default=str).encode())
        for path in one.paths:
            _add(state, path)
    return state.hexdigest()


def _add(state: Any, path: Path) -> None:
    """The names and contents of the file, or of all files of the folder; of pipes, devices and dead links the names."""
    for file in sorted(_files(path)) if path.is_dir() else [str(path)]:
        state.update(os.fsencode(file) + b"\0")
        if os.path.isfile(file):  # a pipe would be waited for, and a device never ends
            with open(file, "rb") as stream:
                state.update(hashlib.file_digest(stream, "sha256").digest())


def _left(folder: DataFolder) -> str:
    """Digest of the names, sizes and ctimes of the data folder's files."""
    state = hashlib.sha256()
    for file in sorted(_files(folder.root, frozenset(str(folder.root / name) for name in UNTOLD))):
        status = os.stat(file) if os.path.exists(file) else os.lstat(file)  # a link that leads nowhere
        state.update(
            f"{file}\0{status.st_size} {status.st_ctime_ns} {status.st_ino}\0".encode("utf-8", "surrogateescape")
        )
    return state.hexdigest()


def _files(folder: Path, but: frozenset[str] = frozenset()) -> Iterator[str]:
    """Every file below, in linked folders too, apart from Python's own compiled ones and from the paths in `but`."""
    seen: set[tuple[int, int]] = set()  # a link may lead back up
    for root, folders, files in os.walk(folder, followlinks=True):
        status = os.stat(root)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if os.path.join(root, name) not in but and name != "__pycache__")
        yield from (path for name in files if (path := os.path.join(root, name)) not in but)
