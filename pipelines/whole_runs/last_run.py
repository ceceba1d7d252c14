"""Inputs and outputs of the last run, so that running again without new input ends at once.

Each asset can detect that it has nothing to do, but asking them all needs Dagster, MLflow and 15 s. One file records
the raw logs (by content), settings, options and code of the last run, and the state of the data folder after it. A file
of that folder counts as changed if its size or ctime differs. We use the ctime because the kernel renews it at every
write and rename, whereas a copy or `touch` can set any modification time.
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

PROGRAM = "pipelines.commands.run"  # its import closure is all code that a run can execute
IGNORED = ("dagster", ".locks", "artifacts/last-runs")  # in the data folder; reading it changes these


def result_of(folder: DataFolder, command: str, made_from: str | None) -> dict[str, Any] | None:
    """Return the stored result of that command if running it again would change nothing, else None."""
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
    options.say(f"nothing new since {when} UTC: showing the result of that run")
    return result


def remember(folder: DataFolder, command: str, made_from: str | None, result: dict[str, Any]) -> None:
    """Record the result of a command that succeeded.

    Runs on standard input are not recorded, because it cannot be read again. If the record cannot be written we say so,
    and the next run works again; the result of this one remains valid.
    """
    if made_from is None:
        return
    ended = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    plain = options.plain(result)
    try:
        note = {"made_from": made_from, "left": _left(folder), "result": plain, "ended_utc": ended}
        write_text(_path(folder, command), json.dumps({**note, "check": _check(plain)}))
    except (OSError, BatonError) as error:
        why = " ".join(str(error).split())
        options.say(f"this run could not be recorded, so the next one repeats its work: {why}")


def _check(result: Any) -> str:
    """Compute the digest of a result, so that a damaged or edited record is ignored."""
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


def _path(folder: DataFolder, command: str) -> Path:
    return folder.artifacts / "last-runs" / f"{command}.json"


def made_from(logs: Sequence[RawLogs], reading: Reading) -> str | None:
    """Compute the digest of everything outside the data folder that the result depends on; None if unknown.

    Call it before the logs are read: lines that they gain while the command works are new to the next run.
    """
    paths = [path for one in logs for path in one.paths]
    if any(path == STANDARD_INPUT or not (path.is_file() or path.is_dir()) for path in paths):
        return None  # a pipe cannot be read twice
    try:
        return _digest(logs, reading)
    except OSError:
        return None  # the reader of the logs reports the error


def _digest(logs: Sequence[RawLogs], reading: Reading) -> str:
    state = hashlib.sha256(json.dumps([asdict(reading), sys.version], default=str).encode())
    state.update(code_digest(PROGRAM).encode())
    for one in logs:
        state.update(json.dumps(asdict(one.settings), default=str).encode())
        for path in one.paths:
            _add(state, path)
    return state.hexdigest()


def _add(state: Any, path: Path) -> None:
    """Add names and contents of the file, or of all files of the folder; of pipes, devices and dead links the names."""
    for file in sorted(_files(path)) if path.is_dir() else [str(path)]:
        state.update(os.fsencode(file) + b"\0")
        if os.path.isfile(file):  # reading a pipe would block, and a device never ends
            with open(file, "rb") as stream:
                state.update(hashlib.file_digest(stream, "sha256").digest())


def _left(folder: DataFolder) -> str:
    """Compute the digest of names, sizes and ctimes of the data folder's files."""
    state = hashlib.sha256()
    for file in sorted(_files(folder.root, frozenset(str(folder.root / name) for name in IGNORED))):
        status = os.stat(file) if os.path.exists(file) else os.lstat(file)  # lstat for a dead link
        state.update(
            f"{file}\0{status.st_size} {status.st_ctime_ns} {status.st_ino}\0".encode("utf-8", "surrogateescape")
        )
    return state.hexdigest()


def _files(folder: Path, excluded: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield every file below the folder, also in linked folders, without `__pycache__` and the `excluded` paths."""
    seen: set[tuple[int, int]] = set()  # a link may lead back up
    for root, folders, files in os.walk(folder, followlinks=True):
        status = os.stat(root)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(
            name for name in folders if os.path.join(root, name) not in excluded and name != "__pycache__"
        )
        yield from (path for name in files if (path := os.path.join(root, name)) not in excluded)
