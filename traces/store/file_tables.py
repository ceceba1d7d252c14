"""The tables of one raw file on their way into the lake, a batch of rows at a time."""

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

_DISTINCT = frozenset({"job_key", "job_id", "raw"})  # texts that hardly repeat: a dictionary of them only costs


class FileTables:
    """Writes `<folder>/<table>.parquet` for each table that is given rows; a batch becomes a row group.

    The columns that are the same for a whole file (cluster, trace_sha256, path) are added here. Writing goes on in a
    thread of its own while the reader reads on; at most one batch waits.
    """

    def __init__(self, folder: Path, *, cluster: str, sha256: str, path: str) -> None:
        self.folder = folder
        self.same = {"cluster": cluster, "trace_sha256": sha256, "path": storable(path)}
        self.rows: dict[str, int] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._thread = ThreadPoolExecutor(1)
        self._pending: list[Future[None]] = []

    def write(self, name: str, frame: pl.DataFrame) -> None:
        """Add rows to a table. Raises WorkError where they do not fit it, or an earlier batch could not be written."""
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
                # least and greatest texts leave out no row group, and finding them takes a third of the writing
                write_statistics=[c.name for c in columns if c.type != schema.TEXT],
            )
        self._writers[name].write_table(rows)

    def close(self) -> None:
        """Finish every file. Raises what a batch failed with."""
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
            with suppress(OSError):  # on a full disk it fails once more; the first error is the one to be told
                writer.close()
