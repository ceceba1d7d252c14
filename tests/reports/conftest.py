"""Warehouses that several tests of the report read; none changes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.build import build_report
from tests.conftest import made_once
from tests.reports import warehouse
from traces.store.folder import DataFolder


@pytest.fixture(scope="session")
def full_data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A cluster that holds everything, hostile names included."""
    return DataFolder(made_once(tmp_path_factory, "full", lambda root: warehouse.full(root, jobs=400, weeks=10)))


@pytest.fixture(scope="session")
def full_report(full_data: DataFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of `full_data`."""
    folder = made_once(tmp_path_factory, "report", lambda root: build_report(full_data, out=root / "report.html"))
    return folder / "report.html"
