"""What every reader uses: the raw file, the result of reading it, times of a zone, texts converted once each."""

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
RAW_CHARACTERS = 2_000  # of a rejected record that are kept


@dataclass(frozen=True)
class RawFile:
    """One raw file, the settings that it is read by, and where a reader may write tables before it has read it all.

    `folder` is for scratch files; `tables` takes a table's rows a batch at a time; `shown` is its name where `path` is
    not the one that was given (standard input).
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
        """The bytes, unpacked where they are packed. Opening and reading raise `raw_text.UNREADABLE`."""
        return unpacked(self.path)

    def is_gzip(self) -> bool:
        """Do the bytes begin as gzip's do?"""
        with self.path.open("rb") as stream:
            return stream.read(2) == GZIP

    def pieces(self, size: int) -> Iterator[bytes]:
        """The bytes, unpacked, `size` at a time. Raises InputError where the file cannot be read."""
        try:
            with self.open() as stream:
                while piece := stream.read(size):
                    yield piece
        except UNREADABLE as error:
            raise InputError(f"{self.path}: cannot be read: {error}: is the file whole?") from error

    def head(self) -> bytes:
        """The first bytes, unpacked. Raises InputError where the file cannot be read."""
        try:
            with self.open() as stream:
                return stream.read(HEAD_BYTES)
        except UNREADABLE as error:
            raise InputError(f"{self.path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error

    def text(self) -> str:
        """All of a small file, as UTF-8 with U+FFFD where it is not. Raises InputError where it cannot be read."""
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
    """What became of a file: tables without the columns `cluster` and `trace_sha256`, and the counts of its records.

    `tables` are frames; `written` names tables (with their rows) that the reader has put into the file's folder.
    `rejected` counts the rejects that it has written there too, beside those of `rejects`; `slow` the records that
    did not go through in bulk.
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
    """One record that was refused: 1-based line, why, and the text."""

    line: int
    reason: str
    raw: str


class Reader(Protocol):
    """One raw log format."""

    name: str
    version: int  # told in `trace_files`; whether a file is read again is told by the code

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

    A null converts to null and is valid, a whole number of over 62 bits is not. With kind Object only `valid` is of
    use: nothing converted is kept.
    """
    return map_codes(*coded(values), convert, kind)


def coded(values: pl.Series) -> tuple[pl.Series, pl.Series]:
    """(distinct texts, the number among them of each value, null for a null)."""
    distinct = values.drop_nulls().unique()
    return distinct, values.cast(pl.Enum(distinct)).to_physical().cast(pl.UInt32)


def map_codes(
    distinct: pl.Series, codes: pl.Series, convert: Callable[[str], Any], kind: Any
) -> tuple[pl.Series, pl.Series]:
    """As `map_unique`, of values that are coded already; a null among the texts converts to null."""
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
