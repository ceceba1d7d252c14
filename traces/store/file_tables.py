"""Write the tables of one raw file to Parquet, a batch of rows at a time."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import polars as pl
import pyarrow.parquet as pq

from traces import schema
from traces.store.frames import conform
from traces.visible import storable

_DISTINCT = frozenset({"job_key", "job_id", "raw"})  # texts that hardly repeat, so a dictionary would only cost time


class FileTables:
    """A writer of `<folder>/<table>.parquet` for each table that gets rows; a batch becomes a row group.

    It adds the columns that are constant in a file (cluster, trace_sha256, path). A separate thread writes while the
    reader continues; at most one batch waits.
    """

    def __init__(self, folder: Path, *, cluster: str, sha256: str, path: str) -> None:
        self.folder = folder
        self.same = {"cluster": cluster, "trace_sha256": sha256, "path": storable(path)}
        self.rows: dict[str, int] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._thread = ThreadPoolExecutor(1)
        self._pending: list[Future[None]] = []

    def write(self, name: str, frame: pl.DataFrame) -> None:
        """Add rows to a table. Raises WorkError if they do not fit it, and the error of an earlier batch."""
        if frame.is_empty():
            return
        table = schema.TABLES[name]
        same = {key: value for key, value in self.same.items() if key in table.names and key not in frame.columns}
        batch = conform(table, frame.with_columns(pl.lit(value).alias(key) for key, value in same.items()))
        self.rows[name] = self.rows.get(name, 0) + len(batch)
        while len(self._pending) > 1:
            self._pending.pop(0).result()
        self._pending.append(self._thread.submit(self._append, name, batch))

    def _append(self, name: str, batch: pl.DataFrame) -> None:
        rows = batch.to_arrow()
        if name not in self._writers:
            path = self.folder / f"{name}.parquet"
            columns = schema.TABLES[name].columns
            words = [c.name for c in columns if c.type == schema.TEXT and c.name not in _DISTINCT]
            self._writers[name] = pq.ParquetWriter(
                path,
                rows.schema,
                compression="zstd",
                use_dictionary=words,
                # minimum and maximum of texts never exclude a row group, and computing them takes a third of the time
                write_statistics=[c.name for c in columns if c.type != schema.TEXT],
            )
        self._writers[name].write_table(rows)

    def close(self) -> None:
        """Finish every file. Raises the error of a batch that failed."""
        try:
            for future in self._pending:
                future.result()
        finally:
            self._thread.shutdown()
            for writer in self._writers.values():
                writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        for future in self._pending:
            future.cancel()
        self._thread.shutdown()
        for writer in self._writers.values():
            with suppress(OSError):  # on a full disk closing fails too, but the first error should be reported
                writer.close()
