"""The folder of a released model: `manifest.json`, `arrays.npz` (no pickles) and, if released, `checks.json`.

The manifest holds the SHA-256 of the other two. The checks are observations with the answers that the model must give
wherever it is loaded. Needs only numpy; a released model carries a copy of this file.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

ARRAYS, CHECKS, MANIFEST = "arrays.npz", "checks.json", "manifest.json"

# A model may be untrusted, and the agent runs on a shared login node. We reject one before it takes more time or memory
# than these bounds allow. Each comment ends with the most that a fit of Baton has needed so far.
MAX_ARRAY_BYTES = 1 << 28  # of arrays.npz, both packed and unpacked; 360 kB
MAX_CHECKS_BYTES = 1 << 20  # 30 kB
MAX_CHECKS = 1024  # observations in checks.json; 48
MAX_DIRECTORY_BYTES = 1 << 14  # of the list of files in arrays.npz, at about 60 bytes per file; 12 files
CHECK_TOLERANCE = 1e-6  # relative to an answer, or to 1; differences between processors are far smaller


class ModelParts(NamedTuple):
    """The content of a folder; checks is None where there are none."""

    manifest: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    checks: dict[str, Any] | None


def write_model(folder: Path, parts: ModelParts) -> None:
    """Write the folder, replacing an older one as a whole. The same model gives the same bytes."""
    files = {ARRAYS: pack_arrays(parts.arrays)}
    if parts.checks is not None:
        files[CHECKS] = (json.dumps(parts.checks, sort_keys=True, allow_nan=False) + "\n").encode()
    stated = {**parts.manifest, "sha256": digests(files)}
    manifest = json.dumps(stated, indent=1, sort_keys=True, allow_nan=False)
    write_folder(folder, {**files, MANIFEST: (manifest + "\n").encode()})


def read_model(
    folder: Path, most_bytes: int, check: Callable[[dict[str, Any]], None], features: Sequence[str] | None
) -> ModelParts:
    """Read the folder. most_bytes: of its manifest; check: raises ValueError for a manifest of another format.

    features: the names that the caller will observe, in order (None: any). Raises ValueError if the model has others or
    if a file is damaged, and whatever reading a damaged file raises (`one_line` makes one line of it).
    """
    manifest = json_object(MANIFEST, read_file(folder / MANIFEST, most_bytes))
    check(manifest)
    stated = manifest.pop("sha256", None)
    stated = stated if isinstance(stated, dict) else {}
    files = {ARRAYS: read_file(folder / ARRAYS, MAX_ARRAY_BYTES)}
    if CHECKS in stated:
        files[CHECKS] = read_file(folder / CHECKS, MAX_CHECKS_BYTES)
    found = digests(files)
    for name in (*found, *stated):
        if stated.get(name) != found.get(name):
            raise ValueError(f"{name} is damaged or truncated (sha256 differs from manifest.json)")
    if features is not None and list(features) != manifest["features"]:
        raise ValueError(difference(list(features), manifest["features"]))
    checks = json_object(CHECKS, files[CHECKS]) if CHECKS in files else None
    return ModelParts(manifest, unpack_arrays(files[ARRAYS]), checks)


def finite_rows(observations: ArrayLike, names: Sequence[str], model: str) -> NDArray[np.float32]:
    """Return the observations as float32 (n, F) for the `model` named in errors. Raises ValueError for others."""
    rows = np.ascontiguousarray(observations, np.float32)
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise ValueError(f"observations of shape {rows.shape}; the {model} needs (n, {len(names)})")
    finite = np.isfinite(rows)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise ValueError(f"observation {row}: {names[column]} is {rows[row, column]}, not a finite number")
    return rows


def difference(observed: list[str], needed: list[str]) -> str:
    """Describe in one line how two lists of features differ."""
    missing, unknown = [n for n in needed if n not in observed], [n for n in observed if n not in needed]
    detail = f"missing {missing}, unknown {unknown}" if missing or unknown else "the same names in another order"
    return f"made for other features ({detail}); train again, or use a matching release"


@contextlib.contextmanager
def one_line(where: str) -> Iterator[None]:
    """Turn any error from a hostile or truncated file into a ValueError of one line."""
    try:
        yield
    except Exception as error:  # zip, zlib, JSON and numpy each raise their own types
        text = " ".join(str(error).split())[:300]
        raise ValueError(f"{where}: {text or type(error).__name__}") from error


def read_file(path: Path, most: int) -> bytes:
    """Read a whole regular file of at most `most` bytes. Devices, blocked pipes and endless files are refused.

    Raises OSError, and ValueError for a larger file before the rest of it is read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path.name} is not a regular file")
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        size = os.fstat(file.fileno()).st_size  # the file may still grow
        if size > most or len(content := file.read(most + 1)) > most:
            raise ValueError(f"{path.name} is larger than {most} bytes")
    return content


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of these files (content by name), replacing an older one as a whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        temporary.chmod(0o755)
        for name, content in files.items():
            (temporary / name).write_bytes(content)
        if folder.exists():
            aside = temporary.with_name(temporary.name + ".old")
            os.rename(folder, aside)
            os.rename(temporary, folder)
            shutil.rmtree(aside)
        else:
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Compute the SHA-256 of each file's content."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def json_object(name: str, content: bytes) -> dict[str, Any]:
    """Parse the JSON object in a file of that name. Raises ValueError, also for NaN and infinities."""

    def refuse(constant: str) -> float:
        raise ValueError(f"{name} holds {constant}, which JSON does not allow")

    found = json.loads(content, parse_constant=refuse)
    if not isinstance(found, dict):
        raise ValueError(f"{name} does not hold a JSON object")
    return found


def pack_arrays(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Pack the arrays as .npz; the same arrays give the same bytes (numpy's savez stores the time of day)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            content = io.BytesIO()
            np.lib.format.write_array(content, np.ascontiguousarray(arrays[name]), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def unpack_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """Unpack the arrays of an .npz without pickles. Raises ValueError before unpacking over MAX_ARRAY_BYTES."""
    check_directory(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > MAX_ARRAY_BYTES:
            raise ValueError(f"arrays.npz unpacks to more than {MAX_ARRAY_BYTES} bytes")
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in archive.infolist()):
            raise ValueError("arrays.npz is not packed with deflate")  # LZMA could take any amount of memory
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def check_directory(content: bytes) -> None:
    """Raise ValueError unless the zip file's list of files is short, because zipfile makes an object of each entry.

    The last 22 bytes of a zip file without a comment hold the length of the list. A ZIP64 record, 20 bytes before them,
    would override it (PKWARE APPNOTE 4.3.15, 4.3.16). We never write comments or ZIP64.
    """
    end = content[-22:]
    if not end.startswith(b"PK\5\6") or not end.endswith(b"\0\0") or content[-42:-38] == b"PK\6\7":
        raise ValueError("arrays.npz does not end like a plain zip file")
    if int.from_bytes(end[12:16], "little") > MAX_DIRECTORY_BYTES:
        raise ValueError(f"the list of files in arrays.npz is longer than {MAX_DIRECTORY_BYTES} bytes")
