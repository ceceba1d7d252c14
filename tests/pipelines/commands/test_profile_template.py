"""An empty table of step times names the placements of the log, and is read once it is filled in."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from models.what_if.profile_template import placement
from simulator.gpu.profiles.table import read_profiles
from tests.pipelines.commands.test_whatif import data  # noqa: F401 - a fixture
from tests.pipelines.conftest import Baton, baton  # noqa: F401 - a fixture


def test_a_template_is_filled_in_and_read(baton: Baton, data: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "new" / "steps.csv"
    asked = ("profile-template", "--cluster", "small", "--data", data, "--out", out)
    assert baton(*asked).code == 2
    assert baton(*asked, "--mkdir").code == 0
    rows = pl.read_csv(out)
    assert rows["jobs"].sum() == 6 and rows["placement"].is_not_null().all()
    unfilled = baton("whatif", "--cluster", "small", "--data", data, "--schedulers", "fifo", "--profiles", out)
    assert unfilled.code == 2 and "line 2: model '': give a name" in unfilled.err
    rows.with_columns(model=pl.lit("gpt"), local_batch=8, step_s=0.5).write_csv(out)
    assert read_profiles(out)["gpt"].local_batch == 8.0


SPREAD = [(8, 1, "8"), (8, 2, "4-4"), (10, 4, "3-3-2-2"), (3, 3, "1-1-1")]


@pytest.mark.parametrize(("gpus", "nodes", "expected"), SPREAD)
def test_a_gang_is_spread_evenly(gpus: int, nodes: int, expected: str) -> None:
    assert placement(gpus, nodes) == expected
