"""How a file's folder gets into the lake and out of it, so that a run killed at any moment leaves the last good state.

A folder is written under a hidden name and takes its place in one step, also over an older one. What a killed run has
left behind under hidden names is removed by the next.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from traces.errors import WorkError

_TEMPORARY = re.compile(r"\.(?P<name>.+?)\.(?P<pid>\d+)(?:\..*)?")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <linux/fcntl.h>, <linux/fs.h>


def publish(temporary: Path, final: Path) -> None:
    """Put a folder in its place in one step; an older one there ends up under the temporary name, and is removed.

    rename(2) replaces no folder that holds something; renameat2(2) with RENAME_EXCHANGE swaps the two. Raises WorkError
    where the file system can do neither.
    """
    if not final.exists():
        temporary.rename(final)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, bytes(temporary), _AT_FDCWD, bytes(final), _RENAME_EXCHANGE):
        reason = os.strerror(ctypes.get_errno())
        raise WorkError(f"{final}: cannot be replaced in one step ({reason}): delete it and ingest the file again")
    shutil.rmtree(temporary, ignore_errors=True)


def sweep(folder: Path) -> list[str]:
    """Remove what runs that are no more have left under hidden names in a folder; returns the names."""
    swept = []
    for path in folder.glob(".*"):
        match = _TEMPORARY.fullmatch(path.name)
        if match is None or _is_alive(int(match["pid"])):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        swept.append(path.name)
    return swept


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OverflowError, PermissionError):
        return True
    return True


def retire(folder: Path, sources: Mapping[str, str], kept: Iterable[str]) -> list[str]:
    """Remove folders of older contents of files: `sources` gives each file's present digest by its absolute path.

    A digest in `kept` stays, whatever path it was read from: another file of the same run holds it. Returns the digests
    removed.
    """
    present, removed = set(kept), []
    for side in sorted(folder.glob("[!.]*/file.json")):
        try:
            described = json.loads(side.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        source, digest = described.get("source"), described.get("sha256")
        if source in sources and digest != sources[source] and digest not in present:
            hidden = side.parent.with_name(f".{side.parent.name}.{os.getpid()}.retired")
            side.parent.rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)
            removed.append(str(digest))
    return removed
