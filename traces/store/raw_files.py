"""Raw files in the lake: a folder `lake/CLUSTER/DIGEST` for each, with Parquet files and a `file.json` that lists them.

`file.json` is written last. It records the size and digest of every Parquet file, so that a deleted, cut or changed
table is detected. The next ingest of the same raw file then writes the folder again, and a build of the warehouse stops
with the name of the damaged file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from traces import schema
from traces.errors import WorkError
from traces.files.whole import whole_file
from traces.store.folder import DataFolder

NAME = "file.json"
DIGEST_CHARACTERS = 16  # leading characters of the raw file's digest that name its folder
_KINDS = {"schema_version": int, "fingerprint": str, "sha256": str, "path": str, "result": dict}
_COUNTS = ("rows", "rejects", "jobs")  # counts in the result that other modules show
_FOLDER = re.compile(rf"[0-9a-f]{{{DIGEST_CHARACTERS}}}")


def write(folder: Path, described: dict[str, Any]) -> None:
    """Write the folder's `file.json`: `described` (all keys of _KINDS), and its current Parquet files."""
    tables = {path.name: {"bytes": path.stat().st_size, "sha256": _digest(path)} for path in folder.glob("*.parquet")}
    with whole_file(folder / NAME) as part:
        part.write_text(json.dumps({**described, "tables": dict(sorted(tables.items()))}, indent=1), encoding="utf-8")


def read(folder: Path) -> dict[str, Any] | None:
    """Return the contents of the folder's `file.json`; None where it is missing or invalid."""
    try:
        described = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return described if _is_valid(described) else None


def _is_valid(described: Any) -> bool:
    """Return whether `described` has every key that other modules rely on, with a value of the right type."""
    if not isinstance(described, dict) or not all(isinstance(described.get(k), kind) for k, kind in _KINDS.items()):
        return False
    tables = described.get("tables", {})
    return (
        all(isinstance(described["result"].get(name), int) for name in _COUNTS)
        and isinstance(tables, dict)
        and all(isinstance(file, dict) and {"bytes", "sha256"} <= file.keys() for file in tables.values())
    )


def folders(lake: Path) -> list[Path]:
    """Return the sorted folders of raw files in the lake, including those without a `file.json`."""
    paths = (path for path in lake.glob("[!.]*/[!.]*/") if path.parent.name != "derived")
    return sorted(path for path in paths if (path / NAME).is_file() or _FOLDER.fullmatch(path.name))


def by_ingest(folders: Iterable[Path]) -> list[Path]:
    """Sort the folders by the time when their files were ingested."""
    return sorted(folders, key=lambda folder: (_ingested_s(folder), folder.name))


def newest_list_s(lake: Path) -> float:
    """Return when the newest node list in the lake's folder of a cluster was ingested, s since 1970; 0 without one."""
    return max((_ingested_s(path.parent) for path in lake.glob(f"*/{schema.NODES.name}.parquet")), default=0.0)


def _ingested_s(folder: Path) -> float:
    ingested_s = (read(folder) or {}).get("ingested_s")
    return float(ingested_s) if isinstance(ingested_s, int | float) else 0.0


def damage(folder: Path, *, thorough: bool = False) -> str | None:
    """Describe the folder's damage in one line; None for an undamaged folder.

    `thorough` reads every file; otherwise a change that keeps a file's size goes undetected.
    """
    described = read(folder)
    if described is None:
        state = "cannot be read" if (folder / NAME).exists() else "is missing"
        return f"{folder / NAME} {state}"
    for name, written in described.get("tables", {}).items():
        path = folder / name
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != written["bytes"]:
            return f"{path} has {path.stat().st_size:,} bytes instead of {written['bytes']:,}"
        if thorough and _digest(path) != written["sha256"]:
            return f"{path} was changed after it was written"
    return None


def check(lake: Path) -> None:
    """Raise WorkError for a damaged folder, and for one of another schema version."""
    for folder in folders(lake):
        described, damaged = read(folder), damage(folder)
        if damaged is not None:
            raise WorkError(f"{damaged}: {mend(folder)}")
        if described is not None and described["schema_version"] != schema.SCHEMA_VERSION:
            version = described["schema_version"]
            raise WorkError(
                f"{folder} has schema version {version}, but this program writes {schema.SCHEMA_VERSION}: "
                f"{mend(folder)}"
            )


def mend(folder: Path) -> str:
    """Return advice for a folder with missing or damaged Parquet files."""
    if folder.parent.name == "derived":
        return "delete it, and the next `baton analyze` or `baton run` makes it again"
    described = read(folder)
    return f"ingest {described['path'] if described else 'its raw file'} again, or delete {folder} and its rows"


def lake_files(data: DataFolder, cluster: str | None = None) -> list[dict[str, Any]]:
    """Return `file.json` of every raw file in the lake, in order of the folders, with its folder added as "folder"."""
    files = []
    for folder in folders(data.lake):
        if cluster in (None, folder.parent.name) and (described := read(folder)) is not None:
            files.append({**described, "folder": folder})
    return files


def lake_digest(data: DataFolder, cluster: str) -> str:
    """Return a digest of the cluster's ingested raw files and of the rules of reading them."""
    lines = [f"{f['sha256']} {f['fingerprint']}" for f in lake_files(data, cluster)]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
