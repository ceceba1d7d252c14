"""Shared parts of the readers: the raw file, the result of reading it, local times, conversion of distinct texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import polars as pl

from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.readers.raw_text import GZIP, LONGEST_LINE, UNREADABLE, unpacked

if TYPE_CHECKING:
    from traces.store.file_tables import FileTables

HEAD_BYTES = 1 << 16
RAW_CHARACTERS = 2_000  # characters kept of a rejected record


@dataclass(frozen=True)
class RawFile:
    """One raw file, the settings for reading it, and where a reader may write tables before the end of the file.

    `folder` is for scratch files; `tables` takes a table's rows a batch at a time; `shown` is the name for messages
    where `path` is a copy of the given file (standard input).
    """

    path: Path
    settings: ClusterSettings
    fields: tuple[str, ...] | None = None
    delimiter: str | None = None
    folder: Path | None = None
    sha256: str = ""
    tables: FileTables | None = None
    shown: str = ""

    def open(self) -> IO[bytes]:
        """Open the file and decompress it if needed. Opening and reading raise `raw_text.UNREADABLE`."""
        return unpacked(self.path)

    def is_gzip(self) -> bool:
        """Return whether the file begins with gzip's magic bytes."""
        with self.path.open("rb") as stream:
            return stream.read(2) == GZIP

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the decompressed bytes, `size` at a time. Raises InputError where the file cannot be read."""
        try:
            with self.open() as stream:
                while piece := stream.read(size):
                    yield piece
        except UNREADABLE as error:
            raise InputError(f"{self.path}: cannot be read: {error}: is the file whole?") from error

    def head(self) -> bytes:
        """Return the first HEAD_BYTES decompressed bytes. Raises InputError where the file cannot be read."""
        try:
            with self.open() as stream:
                return stream.read(HEAD_BYTES)
        except UNREADABLE as error:
            raise InputError(f"{self.path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error

    def text(self) -> str:
        """Return a small file as text; bytes that are not UTF-8 become U+FFFD. Raises InputError if unreadable."""
        try:
            with self.open() as stream:
                data = stream.read(LONGEST_LINE + 1)
                if len(data) > LONGEST_LINE:
                    raise InputError(f"{self.path}: over {LONGEST_LINE >> 20} MiB: too long for a list of machines")
                return data.decode("utf-8", errors="replace").removeprefix("\ufeff")
        except UNREADABLE as error:
            raise InputError(f"{self.path}: cannot be read: {error}: is the file whole?") from error


@dataclass
class Parsed:
    """The result of reading a file: tables without the columns `cluster` and `trace_sha256`, and counts of records.

    `tables` are frames. `written` names tables, with their number of rows, that the reader wrote to the file's folder
    itself. `rejected` counts rejects that it wrote there, in addition to those in `rejects`. `slow` counts records that
    could not be read in bulk.
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
    rejected: int = 0
    slow: int = 0


@dataclass(frozen=True)
class Reject:
    """One rejected record: its 1-based line, the reason, and the text."""

    line: int
    reason: str
    raw: str


class Reader(Protocol):
    """The reader of one raw log format."""

    name: str
    version: int  # reported in `trace_files`; a digest of the code decides whether a file is read again

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the file has this format, judged by its first bytes."""
        ...

    def read(self, file: RawFile) -> Parsed:
        """Read the whole file. Raises InputError for an unusable file."""
        ...


def rejects_frame(rejects: Iterable[Reject]) -> pl.DataFrame:
    """Convert rejects to rows of the table `rejects`, without cluster, path and digest."""
    rows = [(r.line, r.reason, r.raw[:RAW_CHARACTERS].replace("\0", "\ufffd")) for r in rejects]
    kinds = {"line": pl.Int64, "reason": pl.String, "raw": pl.String}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def shown(text: str, most: int = 60) -> str:
    """Return the text for a message: in quotes, cut, with control characters escaped."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def map_unique(values: pl.Series, convert: Callable[[str], Any], kind: Any) -> tuple[pl.Series, pl.Series]:
    """Call `convert` once for each distinct text and return (converted, valid).

    `valid` is false where `convert` raised ValueError, and for whole numbers of over 62 bits. A null converts to null
    and is valid. With kind Object, only `valid` is useful: the converted values are dropped.
    """
    return map_codes(*coded(values), convert, kind)


def coded(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return (distinct texts, index of each value among them; null for a null)."""
    distinct = values.drop_nulls().unique()
    return distinct, values.cast(pl.Enum(distinct)).to_physical().cast(pl.UInt32)


def map_codes(
    distinct: pl.Series, codes: pl.Series, convert: Callable[[str], Any], kind: Any
) -> tuple[pl.Series, pl.Series]:
    """Convert values as `map_unique` does, given their codes; a null among the texts converts to null."""
    results: list[Any] = []
    failed: list[int] = []
    for number, text in enumerate(distinct):
        try:
            new = None if text is None else convert(text)
            if isinstance(new, int) and abs(new) >> 62:
                raise ValueError("out of range")
            results.append(new)
        except ValueError:
            results.append(None)
            failed.append(number)
    valid = ~codes.is_in(failed).fill_null(False) if failed else pl.repeat(True, len(codes), eager=True)
    kind = pl.Null if kind == pl.Object else kind
    if len(distinct) == 0 or kind == pl.Null:
        return pl.Series([None], dtype=kind).new_from_index(0, len(codes)), valid
    return pl.Series(results, dtype=kind).gather(codes), valid


def localized(local: pl.Expr, zone: str) -> tuple[pl.Expr, pl.Expr]:
    """Convert naive local times to (earliest, latest) naive UTC; they differ in the repeated hour of a clock change.

    A time in the hour that a clock change skips is read with the offset before the change.
    """
    hour = timedelta(hours=1)

    def one(which: str) -> pl.Expr:
        def utc(naive: pl.Expr) -> pl.Expr:
            aware = naive.dt.replace_time_zone(zone, ambiguous=which, non_existent="null")  # type: ignore[arg-type]
            return aware.dt.convert_time_zone("UTC").dt.replace_time_zone(None)

        return pl.coalesce(utc(local), utc(local - hour) + hour)

    return one("earliest"), one("latest")
