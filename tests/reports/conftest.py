"""Warehouses that several tests of the report read; none changes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.build import build_report
from tests.reports import warehouse
from traces.store.folder import DataFolder


@pytest.fixture(scope="session")
def full_data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A cluster that holds everything, hostile names included."""
    return warehouse.full(tmp_path_factory.mktemp("full"), jobs=400, weeks=10)


@pytest.fixture(scope="session")
def full_report(full_data: DataFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report(full_data, out=tmp_path_factory.mktemp("report") / "report.html")
