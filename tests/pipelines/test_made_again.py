"""A copy of the program is edited and run again: what is made again and what is reused, as the files show it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.pipelines.conftest import dump
from traces.cache.closure import PACKAGES

PROGRAM = "import sys; from pipelines.cli import main; main(sys.argv[1:])"
LOAD = {"load", "drift"}


class Copy:
    """The program's sources in a folder of their own, a raw log and a data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        for package in PACKAGES:
            shutil.copytree(REPOSITORY / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPOSITORY / "dagster.yaml", folder)
        self.raw = dump(folder / "raw.psv", 9)  # what-ifs need a week of log

    def edit(self, name: str, line: str) -> None:
        path = self.folder / name
        path.write_text(path.read_text() + line)

    def made_by_a_run(self) -> set[str]:
        """`baton analyze`; the tables, and what else, that it wrote."""
        before = self._written_ns()
        subprocess.run(
            [sys.executable, "-c", PROGRAM, "analyze", self.raw, "--cluster", "lab", "--nodes", "4",
             "--data", self.data],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": str(self.folder)}, check=True, capture_output=True,
        )  # fmt: skip
        return {name for name, at_ns in self._written_ns().items() if before.get(name) != at_ns}

    def _written_ns(self) -> dict[str, int]:
        tables = {path.parent.name: path for path in self.data.glob("lake/derived/*/lab.parquet")}
        other = {"warehouse": self.data / "warehouse.duckdb", "report": self.data / "reports" / "report.html"}
        other |= {path.name: path for path in self.data.glob("lake/lab/*/file.json")}
        return {name: path.stat().st_mtime_ns for name, path in (tables | other).items() if path.exists()}


@pytest.mark.slow
def test_an_edited_program_makes_again_what_depends_on_the_edit(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    everything = copy.made_by_a_run()
    assert {"file.json", "warehouse", "report", "queueing_delay", "simulated_starts", "what_if"} | LOAD <= everything
    tables = everything - {"file.json", "warehouse", "report"}

    copy.edit("features/load/load.py", "# Said in other words.\n")
    assert copy.made_by_a_run() == set()

    copy.edit("features/load/load.py", "edited = 1\n")
    copy.edit("models/tables.py", "edited = 1\n")
    assert copy.made_by_a_run() == LOAD | {"what_if", "warehouse", "report"}

    copy.edit("traces/store/settle.py", "edited = 1\n")
    assert copy.made_by_a_run() == tables | {"warehouse", "report"}
