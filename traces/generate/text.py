"""Text files whose bytes depend on their content alone."""

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
    """Open `path` for UTF-8 text with \\n line ends; gzip carries neither a name nor a time, so bytes reproduce.

    The file is written beside its place and renamed, so that an interrupted run leaves nothing half-written.
    """
    with whole_file(path) as part, part.open("wb") as raw:
        target: IO[bytes] = gzip.GzipFile("", "wb", 9, raw, mtime=0) if compress else raw  # type: ignore[assignment]
        text = io.TextIOWrapper(target, encoding="utf-8", newline="\n", write_through=False)
        yield text
        text.detach()  # flushes, and leaves the target open
        if compress:
            target.close()
