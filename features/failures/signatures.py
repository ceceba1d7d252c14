"""Failure signatures in the tails of a job's stdout and stderr: the extensible rules file and the folder of tails.

Tails are in `logs/<cluster>/` of the data folder: files `<job id>.out` and `<job id>.err` of a job's last attempt, or
`<job id>.<attempt>.out`; and files `*.jsonl` with one object per line: job_id, attempt (optional), stdout, stderr.
Following Jeon et al., ATC'19, section 4.2, an explicit signature is preferred to "Traceback from crash".
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from traces.errors import InputError
from traces.given_paths import bytes_of
from traces.store.folder import DataFolder

BUNDLED = Path(__file__).parents[1] / "rules" / "log_signatures.toml"
CATEGORIES = ("user", "engine", "infrastructure", "scheduler", "unknown")
TAIL_BYTES = 64 * 1024  # read from the end of each file, where the failure is
_NAME = re.compile(r"(?P<job>.+?)(?:\.(?P<attempt>\d+))?\.(?:out|err)")
TAILS = {
    "job_id": pl.String, "attempt": pl.Int64, "log_reason": pl.String, "log_category": pl.String,
    "is_weak": pl.Boolean, "is_hopeless": pl.Boolean,
}  # fmt: skip


@dataclass(frozen=True)
class Signature:
    """A rule: a text that contains `pattern` failed for `reason`. Weak rules apply after all others."""

    reason: str
    category: str
    pattern: re.Pattern[str]
    is_weak: bool = False
    is_hopeless: bool = False


def signatures(data: DataFolder | None) -> list[Signature]:
    """Read the data folder's own rules, then the bundled ones; weak ones come last.

    Raises InputError for a file that does not follow the documented format.
    """
    own = [] if data is None else _read(data.root / "log_signatures.toml")
    return sorted([*own, *_read(BUNDLED)], key=lambda rule: rule.is_weak)


def _read(path: Path) -> list[Signature]:
    try:
        tables = tomllib.loads(bytes_of(path, pipes=False).decode("utf-8"))
    except FileNotFoundError:
        return []
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not readable as TOML: {' '.join(str(error).split())}") from error
    entries = tables.pop("signature", [])
    if tables or not isinstance(entries, list):
        raise InputError(f"{path}: unknown keys {sorted(tables)}: allowed are only [[signature]] tables")
    return [_signature(f"{path}: signature {number}", entry) for number, entry in enumerate(entries, 1)]


def _signature(where: str, entry: Any) -> Signature:
    allowed = {"reason": str, "category": str, "pattern": str, "weak": bool, "hopeless": bool}
    if not isinstance(entry, dict):
        raise InputError(f"{where} must be a table with {', '.join(allowed)}, but is {entry!r}")
    for key, value in entry.items():
        if key not in allowed or not isinstance(value, allowed[key]):
            raise InputError(
                f"{where}: {key} = {value!r} is not allowed: "
                "use reason, category, pattern (text), weak and hopeless (true or false)"
            )
    for key in ("reason", "category", "pattern"):
        if not entry.get(key):
            raise InputError(f"{where}: {key} is missing or empty")
    if entry["category"] not in CATEGORIES:
        raise InputError(f"{where}: category {entry['category']!r}: allowed are {', '.join(CATEGORIES)}")
    try:
        pattern = re.compile(entry["pattern"], re.IGNORECASE | re.MULTILINE)
    except re.error as error:
        raise InputError(f"{where}: pattern {entry['pattern']!r} is no regular expression: {error}") from error
    return Signature(
        entry["reason"], entry["category"], pattern, entry.get("weak", False), entry.get("hopeless", False)
    )


def classify(text: str, rules: list[Signature]) -> Signature | None:
    """Return the first rule that matches, or None ("no signature"). `rules`: weak ones last."""
    return next((rule for rule in rules if rule.pattern.search(text)), None)


def tails_folder(data: DataFolder, cluster: str) -> Path:
    """Return the folder that may hold the last lines of each job's log."""
    return data.root / "logs" / cluster


def tails_digest(data: DataFolder, cluster: str) -> str:
    """Compute a digest of the rules and of the names, sizes and times of the tails."""
    digest = hashlib.sha256()
    own = data.root / "log_signatures.toml"
    for rules in (BUNDLED, own):
        digest.update(rules.read_bytes() if rules.is_file() else b"")
    for path in _files(tails_folder(data, cluster)):
        status = path.stat()
        digest.update(f"{path.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def read_tails(data: DataFolder, cluster: str) -> pl.DataFrame:
    """Read and classify the tails: TAILS, one row per job and attempt (null: the last); no reason without a match.

    Raises InputError, with file and line, for a JSONL line that does not follow the documented format.
    """
    rules = signatures(data)
    texts: dict[tuple[str, int | None], list[str]] = {}
    for path in _files(tails_folder(data, cluster)):
        for key, text in _lines(path) if path.suffix == ".jsonl" else _tail(path):
            texts.setdefault(key, []).append(text)
    rows = []
    for (job, attempt), parts in sorted(texts.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        rule = classify("\n".join(parts), rules)
        reason_of = (None, None, None, None) if rule is None else (
            rule.reason, rule.category, rule.is_weak, rule.is_hopeless,
        )  # fmt: skip
        rows.append((job, attempt, *reason_of))
    return pl.DataFrame(rows, schema=TAILS, orient="row")


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in (".out", ".err", ".jsonl") and path.is_file())


def _tail(path: Path) -> Iterator[tuple[tuple[str, int | None], str]]:
    match = _NAME.fullmatch(path.name)
    if match is None:
        return
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - TAIL_BYTES, 0))
        text = stream.read().decode("utf-8", errors="replace")
    yield (match["job"], int(match["attempt"]) if match["attempt"] else None), text


def _lines(path: Path) -> Iterator[tuple[tuple[str, int | None], str]]:
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            attempt = entry.get("attempt") if isinstance(entry, dict) else None
            if (
                not isinstance(entry, dict)
                or not isinstance(entry.get("job_id"), str | int)
                or (attempt is not None and (not isinstance(attempt, int) or attempt < 0))
            ):
                raise InputError(
                    f"{path}:{number}: {line.strip()[:60]!r} is no tail: write job_id (text), attempt (0, 1, ..., "
                    "optional), stdout and stderr (text)"
                )  # fmt: skip
            text = "\n".join(str(entry.get(name) or "")[-TAIL_BYTES:] for name in ("stdout", "stderr"))
            yield (str(entry["job_id"]), attempt), text
