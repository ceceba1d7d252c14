"""Reproducible text files: their bytes depend only on their content."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from traces.files.whole import whole_file


@contextmanager
def open_text(path: Path, *, compress: bool) -> Iterator[IO[str]]:
    """Open `path` for UTF-8 text with \\n line ends; gzip stores no name or time, so that the bytes are reproducible.

    The file is written under a temporary name and renamed, so that an interrupted run leaves no partial file.
    """
    with whole_file(path) as part, part.open("wb") as raw:
        target: IO[bytes] = gzip.GzipFile("", "wb", 9, raw, mtime=0) if compress else raw  # type: ignore[assignment]
        text = io.TextIOWrapper(target, encoding="utf-8", newline="\n", write_through=False)
        yield text
        text.detach()  # flushes, and leaves the target open
        if compress:
            target.close()
