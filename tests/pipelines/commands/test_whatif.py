"""`baton whatif` on a small log: every combination, what was assumed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.gpu.figures import FIGURES
from tests.pipelines.conftest import Baton, dump


@pytest.fixture
def data(baton: Baton, tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    assert baton("ingest", dump(tmp_path / "log.psv"), "--cluster", "small", "--data", folder).code == 0
    return folder


def test_every_combination_with_what_was_assumed(baton: Baton, data: Path) -> None:
    machine = ("--nodes", 2, "--gpus-per-node", 4, "--data", data, "--workers", 1)
    wanted = ("--cluster", "small", "--schedulers", "fifo,tiresias", "--change", "nodes=+1", "--change", "limit=1h")
    result = baton("whatif", *wanted, *machine, "--json").json
    assert (result["jobs"], result["gpus"]) == (6, 8)
    assert len(result["results"]) == 2 * 3 * len(FIGURES)
    found = {(row["scheduler"], row["change"], row["figure"]): row["value"] for row in result["results"]}
    assert found["fifo", "as it is", "mean_jct_s"] == 7200.0  # one job a day never waits
    assert found["tiresias", "limit=1h", "mean_jct_s"] == 3600.0
    assert any("draws one from the stated mix, seed 0 (generated)" in line for line in result["said"])
    assert any("6 jobs are cut" in line for line in result["said"])
    told = baton("whatif", *wanted, *machine)
    assert "fifo, nodes=+1" in told.out
    assert "who would lose most, beyond chance: nobody" in told.out


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((), "whatif needs schedulers"),
        (("--schedulers", "lottery"), "unknown scheduler 'lottery': known are fifo"),
        (("--schedulers", "fifo", "--profiles", "mine"), "unknown profiles 'mine': known are stated, none"),
        (("--schedulers", "fifo"), "how many GPUs cluster 'small' has is not known: give --nodes and --gpus-per-node"),
        (("--schedulers", "fifo", "--nodes", 2, "--gpus-per-node", 4, "--from", "2030-01-01"), "has no job that ran"),
        (("--schedulers", "fifo", "--nodes", 2, "--gpus-per-node", 4, "--change", "nodes=-2"), "leaves 0 nodes"),
        (("--schedulers", "fifo", "--nodes", 1, "--gpus-per-node", 2), "none of the 6 jobs fits the cluster of 2 GPUs"),
    ],
)
def test_what_is_refused(baton: Baton, data: Path, given: tuple[object, ...], why: str) -> None:
    refused = baton("whatif", "--cluster", "small", "--data", data, *given)
    assert refused.code == 2
    assert why in refused.err
