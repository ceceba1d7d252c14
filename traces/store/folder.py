"""The data folder: where everything lies that `--data DIR` moves."""

from __future__ import annotations

import errno
import tempfile
from dataclasses import dataclass
from pathlib import Path

from traces.errors import InputError, WorkError

LAKE = "lake"  # the lock of whoever changes the lake or builds the warehouse from it
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, a quota, a limit on files


@dataclass(frozen=True)
class DataFolder:
    """Everything that `--data DIR` moves."""

    root: Path

    @property
    def raw(self) -> Path:
        """Raw logs, a folder a cluster."""
        return self.root / "raw"

    @property
    def lake(self) -> Path:
        """Parquet files, a folder a raw file."""
        return self.root / "lake"

    @property
    def warehouse(self) -> Path:
        """The DuckDB file of clean tables."""
        return self.root / "warehouse.duckdb"

    @property
    def mlflow(self) -> Path:
        """Runs and registered policies."""
        return self.root / "mlflow"

    @property
    def artifacts(self) -> Path:
        """Pairs, fits and what else a study keeps."""
        return self.root / "artifacts"

    @property
    def reports(self) -> Path:
        """The report and what lies beside it."""
        return self.root / "reports"

    @property
    def dagster(self) -> Path:
        """What Dagster keeps of its runs."""
        return self.root / "dagster"

    @property
    def clusters_toml(self) -> Path:
        """What is declared of each cluster; need not exist."""
        return self.root / "clusters.toml"

    def ensure_writable(self) -> None:
        """Make the folder and write a byte in it. Raises InputError where that cannot be, WorkError on a full disk."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root) as probe:
                probe.write(b"\0")
        except OSError as error:
            if error.errno in _FULL:
                raise WorkError(f"data folder {self.root} cannot be written: {error.strerror}") from error
            raise InputError(
                f"data folder {self.root} is not writable ({error.strerror}): give another with --data or BATON_DATA"
            ) from error
