"""Read a raw file as decompressed bytes, or as numbered lines in pieces of bounded size.

Polars is its only slow import.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import polars as pl

from traces.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LONGEST_LINE = 1 << 26  # bytes without a line break; more is not text, or a decompression bomb
PIECE_BYTES = 1 << 25
EXACT = 2.0**53  # whole numbers below it are exact as floats
GZIP = b"\x1f\x8b"
ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")  # a frame, or a skippable frame (pzstd)
UNREADABLE = (OSError, EOFError, zlib.error)  # what reading from `unpacked` may raise


def unpacked(path: Path) -> IO[bytes]:
    """Open a file or pipe and decompress gzip and zstd, also several frames in one file.

    Opening and reading raise UNREADABLE.
    """
    file = path.open("rb")
    magic = file.peek(4)  # peek, because a pipe cannot be rewound
    if magic.startswith(GZIP):
        return io.BufferedReader(gzip.GzipFile(fileobj=file))
    if ZSTD.match(magic):
        return io.BufferedReader(_Zstd(file))
    return file


class _Zstd(io.RawIOBase):
    """Decompressed zstd; a damaged frame raises OSError, as with gzip."""

    def __init__(self, packed: IO[bytes]) -> None:
        import pyarrow as pa

        self._packed, self._stream, self._damage = packed, pa.CompressedInputStream(packed, "zstd"), pa.ArrowInvalid

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        into = memoryview(buffer).cast("B")
        try:
            data = self._stream.read(len(into))
        except self._damage as error:
            raise OSError(str(error)) from error
        into[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._packed.close()
        super().close()


def whole_lines(stream: IO[bytes], size: int, path: Path) -> Iterator[bytes]:
    """Yield the rest of a stream in pieces of whole lines, about `size` bytes each; every piece ends in a line break.

    Raises InputError for a line of over LONGEST_LINE bytes.
    """
    rest = b""
    while block := stream.read(size):
        cut = block.rfind(b"\n") + 1
        if cut:
            yield rest + block[:cut]
            rest = b""
        rest += block[cut:]
        if len(rest) > LONGEST_LINE:
            raise InputError(f"{path}: over {LONGEST_LINE >> 20} MiB without a line break: this is not a text file")
    if rest:
        yield rest + b"\n"


def numbered_lines(stream: IO[bytes], line: int, path: Path, size: int | None = None) -> Iterator[pl.DataFrame]:
    """Yield frames of (line, raw) with about `size` bytes of text each (default PIECE_BYTES), without blank lines.

    `line` is the number of the stream's next line. Bytes that are not UTF-8 become U+FFFD. Raises InputError for a line
    of over LONGEST_LINE bytes.
    """
    for block in whole_lines(stream, size or PIECE_BYTES, path):
        text = block.decode("utf-8", errors="replace").replace("\r\n", "\n").removesuffix("\n")
        frame = pl.DataFrame({"raw": text.split("\n")}, schema={"raw": pl.String})
        numbered = frame.select(pl.int_range(line, line + pl.len(), dtype=pl.Int64).alias("line"), "raw")
        line += block.count(b"\n")
        yield numbered.filter(pl.col("raw").str.strip_chars() != "")
