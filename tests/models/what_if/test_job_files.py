"""Run times of a trace that follow from the work of its jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.what_if.job_files import read_trace
from simulator.gpu.cluster import of_nodes
from tests.simulator.gpu.test_training import read
from traces.errors import InputError

CLUSTER = of_nodes(np.array([2, 2]), ("T4", "T4"), "T4")
GAINS = (9 + 1) / (9 / 4 + 1), (19 + 1) / (19 / 4 + 1)  # of four times the own batch in the two epochs


def run_s(folder: Path, row: str) -> float:
    profile = read(folder)
    trace = folder / "jobs.csv"
    trace.write_text(f"job_id,submit_s,gpus,run_s,model,work,batch\n{row}\n")
    return float(read_trace(trace, {"m": profile}, CLUSTER).run_s[0])


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("a,0,2,,m,150,40", 2 * 1.7 * (100 / GAINS[0] + 50 / GAINS[1])),  # on one node, slowed down by 2
        ("a,0,4,,m,150,40", 2 * 1.5 * (100 / GAINS[0] + 50 / GAINS[1])),  # 10 samples on each of 4 GPUs of two nodes
        ("a,0,1,,m,150,", 2 * 1.0 * 150),  # its own batch of 10
        ("a,0,2,77,m,150,40", 77.0),
    ],
)
def test_a_run_time_follows_from_work_and_batch(tmp_path: Path, row: str, expected: float) -> None:
    assert run_s(tmp_path, row) == pytest.approx(expected)


def test_work_beyond_any_life_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"jobs\.csv, line 2: work 1e12 would take over 30 years"):
        run_s(tmp_path, "a,0,2,,m,1e12,40")
