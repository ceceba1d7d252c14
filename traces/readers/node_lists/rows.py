"""Shared part of the readers of Slurm's node lists: convert texts of records to rows of the table `nodes`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from traces.errors import InputError
from traces.readers import plausible
from traces.readers.common import Parsed, Reject, shown
from traces.slurm import text as slurm_text

_KINDS: dict[str, Any] = {
    "node": pl.String, "gpus": pl.Int64, "gpu_type": pl.String, "cpus": pl.Int64, "memory_mib": pl.Int64,
    "partitions": pl.String, "features": pl.String, "state": pl.String, "line": pl.Int64,
}  # fmt: skip
_NOTHING = frozenset({"", "(null)", "n/a", "N/A", "none"})
_COUNT = re.compile(r"(?P<number>[0-9]{1,18})(?P<differs>\+|-[0-9]{1,18})?")


class NodeRows:
    """The nodes of one file. For a node in several records, later values replace earlier ones; partitions add up."""

    def __init__(self) -> None:
        self._parsed = Parsed()
        self._rows: dict[str, dict[str, Any]] = {}

    def add(self, line: int, raw: str, printed: Mapping[str, str | None]) -> None:
        """Add one record: texts by name, for `nodes` (a node list), `gres` and columns of the table.

        An invalid record counts as a reject; a record without new information counts as a duplicate.
        """
        self._parsed.records += 1
        try:
            names = slurm_text.expand_nodes(printed.get("nodes") or "")
            if not names or any(re.search(r"\s", name) for name in names):
                raise ValueError(f"{shown(printed.get('nodes') or '')} names no node")
            values = _values(printed)
        except ValueError as error:
            self.refuse(line, str(error), raw, counted=True)
            return
        new = [self._put(name, {**values, "line": line}) for name in names]
        if any(new):
            self._parsed.samples += 1
        else:
            self._parsed.duplicates += 1

    def refuse(self, line: int, reason: str, raw: str, *, counted: bool = False) -> None:
        """Record a reject; `counted` says that it is already counted as a record."""
        self._parsed.records += not counted
        self._parsed.rejects.append(Reject(line, reason, raw))

    def _put(self, name: str, values: dict[str, Any]) -> bool:
        """Merge a record's values into a node; return whether any value is new."""
        old = self._rows.get(name)
        if old is None:
            self._rows[name] = {**values, "node": name}
            return True
        known = {key: value for key, value in values.items() if value is not None and key not in ("line", "partitions")}
        partitions = tuple(dict.fromkeys((*old["partitions"], *values["partitions"])))
        new = {**old, **known, "partitions": partitions}
        if new == old:
            return False
        self._rows[name] = {**new, "line": values["line"]}
        return True

    def parsed(self, path: Path) -> Parsed:
        """Return the result of reading the file. Raises InputError where it holds no record."""
        if not self._parsed.records:
            raise InputError(f"{path}: holds no nodes")
        rows = [{**row, "partitions": ",".join(row["partitions"]) or None} for row in self._rows.values()]
        self._parsed.tables = {"nodes": pl.DataFrame(rows, schema=_KINDS)}
        return self._parsed


def _values(printed: Mapping[str, str | None]) -> dict[str, Any]:
    """Convert texts to columns of the table. Raises ValueError with the invalid value."""
    gpus, gpu_type = _gpus(printed.get("gres"))
    partitions = _text(printed.get("partitions")) or ""
    return {
        "gpus": gpus,
        "gpu_type": gpu_type,
        "cpus": _count("cpus", printed.get("cpus")),
        "memory_mib": _count("memory_mib", printed.get("memory_mib")),
        "partitions": tuple(name.rstrip("*") for name in partitions.split(",") if name.rstrip("*")),
        "features": _text(printed.get("features")),
        "state": _text(printed.get("state")),
    }


def _text(printed: str | None) -> str | None:
    return None if printed is None or printed.strip() in _NOTHING else printed.strip()


def _count(column: str, printed: str | None) -> int | None:
    """Parse a count; None where it is missing or the nodes differ (sinfo prints `64+` or `64-128`)."""
    text = _text(printed)
    if text is None:
        return None
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{column} {shown(text)} is not a whole number")
    plausible.check_plausible(column, int(match["number"]))
    return None if match["differs"] else int(match["number"])


def _gpus(gres: str | None) -> tuple[int | None, str | None]:
    """Return (GPUs, their type) of a GRES text; (None, None) where the list does not print GRES.

    Several types are joined by commas, in the order of the text.
    """
    if gres is None:
        return None, None
    gpus = slurm_text.gres_gpus(gres) or 0
    plausible.check_plausible("gpus", gpus)
    return gpus, (",".join(slurm_text.gres_gpu_types(gres)) or None) if gpus else None
