"""What every reader of a raw file shares: the file, what reading it gives, times of a zone, values mapped once each."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Protocol

import polars as pl

from traces.clusters import ClusterSettings
from traces.errors import InputError

HEAD_BYTES = 1 << 16
RAW_CHARACTERS = 2_000  # of a rejected record that are kept
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class RawFile:
    """One raw file, the settings that it is read by, and the folder that large tables may be written to directly."""

    path: Path
    settings: ClusterSettings
    fields: tuple[str, ...] | None = None
    delimiter: str | None = None
    folder: Path | None = None
    sha256: str = ""

    def open(self) -> IO[bytes]:
        """The bytes, unpacked where they are gzip."""
        stream = self.path.open("rb")
        if stream.read(2) == GZIP:
            stream.close()
            return io.BufferedReader(gzip.open(self.path, "rb"))
        stream.seek(0)
        return stream

    def is_gzip(self) -> bool:
        """Do the bytes begin as gzip's do?"""
        with self.path.open("rb") as stream:
            return stream.read(2) == GZIP

    def head(self) -> bytes:
        """The first bytes, unpacked. Raises InputError where the file cannot be read."""
        try:
            with self.open() as stream:
                return stream.read(HEAD_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{self.path}: cannot be read: {error}") from error

    def text(self) -> str:
        """All of it, as UTF-8 with U+FFFD where it is not. Raises InputError where the file cannot be read."""
        try:
            with self.open() as stream:
                return stream.read().decode("utf-8", errors="replace").removeprefix("\ufeff")
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{self.path}: cannot be read: {error}: is the file whole?") from error


@dataclass
class Parsed:
    """What became of a file: tables without the columns `cluster` and `trace_sha256`, and the counts of its records.

    `tables` are frames; `written` names tables (with their rows) that the reader has put into the file's folder.
    """

    records: int = 0
    allocations: int = 0
    steps: int = 0
    samples: int = 0
    duplicates: int = 0
    jobs: int = 0
    attempts: int = 0
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)


@dataclass(frozen=True)
class Reject:
    """One record that was refused: 1-based line, why, and the text."""

    line: int
    reason: str
    raw: str


class Reader(Protocol):
    """One raw log format."""

    name: str
    version: int

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Is the file of this format, by its first bytes (and, for Philly's, nothing else)?"""
        ...

    def read(self, file: RawFile) -> Parsed:
        """Read all of it. Raises InputError for a file that is of no use at all."""
        ...


def rejects_frame(rejects: Iterable[Reject]) -> pl.DataFrame:
    """Rejects as rows of the table `rejects` (without cluster, path and digest)."""
    rows = [(r.line, r.reason, r.raw[:RAW_CHARACTERS].replace("\0", "\ufffd")) for r in rejects]
    kinds = {"line": pl.Int64, "reason": pl.String, "raw": pl.String}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def shown(text: str, most: int = 60) -> str:
    """The text in quotes, cut, with control characters escaped: for messages."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def map_unique(values: pl.Series, convert: Callable[[str], Any], kind: Any) -> tuple[pl.Series, pl.Series]:
    """(converted, valid): `convert` called once for each distinct text; valid is false where it raised ValueError.

    A null converts to null and is valid.
    """
    distinct = values.drop_nulls().unique()
    results: list[Any] = []
    failed: list[str] = []
    for text in distinct:
        try:
            results.append(convert(text))
        except ValueError:
            results.append(None)
            failed.append(text)
    new = pl.Series(results, dtype=kind)
    if len(distinct) == 0:
        return pl.Series(values.name, [None] * len(values), dtype=kind), pl.repeat(True, len(values), eager=True)
    frame = pl.DataFrame({"text": distinct, "new": new})
    mapped = values.to_frame("text").join(frame, on="text", how="left", maintain_order="left")["new"]
    valid = ~values.is_in(failed).fill_null(False) if failed else pl.repeat(True, len(values), eager=True)
    return mapped.alias(values.name), valid


def localized(local: pl.Expr, zone: str) -> tuple[pl.Expr, pl.Expr]:
    """(earliest, latest) naive UTC of naive local times; they differ in the doubled hour of a clock change.

    A time in the hour that a clock change leaves out is read by the offset before the change.
    """
    hour = timedelta(hours=1)

    def one(which: str) -> pl.Expr:
        def utc(naive: pl.Expr) -> pl.Expr:
            aware = naive.dt.replace_time_zone(zone, ambiguous=which, non_existent="null")  # type: ignore[arg-type]
            return aware.dt.convert_time_zone("UTC").dt.replace_time_zone(None)

        return pl.coalesce(utc(local), utc(local - hour) + hour)

    return one("earliest"), one("latest")
