"""The compiled count of a node's samples: quantiles are numpy's, readings stand in order of sharing."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from features.resources.tally import sample_quantiles, tally

runs = st.lists(
    st.lists(st.sampled_from((0.0, 0.1, 33.3, 99.9, 100.0)), min_size=1, max_size=40), min_size=1, max_size=5
)


@settings(max_examples=100, deadline=None)
@given(runs)
def test_quantiles_are_those_of_numpy(of: list[list[float]]) -> None:
    values, shares = np.concatenate(of), np.array([0.5, 0.9, 0.95])
    n = np.array([len(run) for run in of])
    first, found = np.cumsum(n) - n, np.empty((len(of), 3))
    sample_quantiles(values, first, n, shares, np.empty(n.max()), found)
    assert np.allclose(found, [np.quantile(run, shares) for run in of], atol=1e-12)
    assert (values == np.concatenate(of)).all()


def test_readings_of_dedicated_minutes_stand_first() -> None:
    """Two GPUs by four minutes; minute 1 is shared, GPU 1 offline in minute 2, nothing sampled in minute 3."""
    nan = np.nan
    values = np.array([[1.0, 2.0, 0.0, nan], [3.0, 4.0, nan, nan]])
    read = np.array([[1, 1, 2, 0], [1, 1, 1, 0]], dtype=np.uint8)
    counts, totals = np.zeros((1, 8), dtype=np.int64), np.zeros(1)
    readings, seen = np.zeros((1, 2), dtype=np.int64), np.full(8, -1.0)
    shared = np.array([False, True, False, False])
    one = np.array([0]), np.array([4])
    tally(values, read, shared, *one, np.array([0, 1]), np.array([0, 2]), np.array([0]), counts, totals, readings, seen)
    assert counts.tolist() == [[6, 1, 1, 3, 1, 3, 1, 1]] and totals.tolist() == [10.0]
    assert readings.tolist() == [[3, 2]]
    assert sorted(seen[:3]) == [0.0, 1.0, 3.0] and sorted(seen[3:5]) == [2.0, 4.0]


def test_the_same_without_compiling() -> None:
    code = (
        "import numpy as np\nfrom features.resources.tally import sample_quantiles\nfound = np.empty((1, 1))\n"
        "values, shares = np.array([3.0, 1.0, 2.0]), np.array([0.5])\n"
        "sample_quantiles(values, np.array([0]), np.array([3]), shares, np.empty(3), found)\n"
        "assert found[0, 0] == 2.0\n"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
