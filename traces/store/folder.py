"""The data folder, `--data DIR`: the paths of everything that Baton stores."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from traces.errors import InputError, WorkError

DEFAULT = Path(__file__).resolve().parents[2] / "data"
SHARED = "BATON_SHARED"  # environment variable, which `baton --shared` sets
LAKE = "lake"  # purpose of the lock for changing the lake and for building the warehouse
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, a quota, a limit on files


@dataclass(frozen=True)
class DataFolder:
    """The data folder that `--data DIR` names, and the paths in it."""

    root: Path

    @property
    def raw(self) -> Path:
        """Return the folder of raw logs, with one folder per cluster."""
        return self.root / "raw"

    @property
    def lake(self) -> Path:
        """Return the folder of Parquet files, with one folder per raw file."""
        return self.root / "lake"

    @property
    def warehouse(self) -> Path:
        """Return the DuckDB file of clean tables."""
        return self.root / "warehouse.duckdb"

    @property
    def mlflow(self) -> Path:
        """Return MLflow's folder of runs and registered policies."""
        return self.root / "mlflow"

    @property
    def artifacts(self) -> Path:
        """Return the folder of pairs, fits and other results of studies."""
        return self.root / "artifacts"

    @property
    def reports(self) -> Path:
        """Return the folder of the report and its related files."""
        return self.root / "reports"

    @property
    def dagster(self) -> Path:
        """Return Dagster's folder of runs."""
        return self.root / "dagster"

    @property
    def clusters_toml(self) -> Path:
        """Return the file of cluster settings; it need not exist."""
        return self.root / "clusters.toml"

    def ensure_writable(self) -> None:
        """Make the folder and write a byte into it. Raises InputError if that fails, WorkError for a full disk.

        A folder made here, and DEFAULT at its first use, is its user's alone, because it will hold names of users and
        jobs. With SHARED in the environment, at any use, other users may read it.
        """
        try:
            is_new = not self.root.exists() or (self.root == DEFAULT and not self.lake.exists())
            self.root.mkdir(parents=True, exist_ok=True)
            if SHARED in os.environ:
                self._let_read(0o755)
            elif is_new:
                self._let_read(0o700)
            with tempfile.TemporaryFile(dir=self.root) as probe:
                probe.write(b"\0")
        except OSError as error:
            if error.errno in _FULL:
                raise WorkError(f"data folder {self.root} cannot be written: {error.strerror}") from error
            raise InputError(
                f"data folder {self.root} is not writable ({error.strerror}): set another with --data or BATON_DATA"
            ) from error

    def _let_read(self, mode: int) -> None:
        with contextlib.suppress(PermissionError):  # the folder of another user, who decides about it
            self.root.chmod(mode)
