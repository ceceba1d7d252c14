"""How much longer a held job stays held."""

from __future__ import annotations

import numpy as np
import pytest

from features.futures.holds import MOST_S, held_longer_s


def test_the_law_has_a_mean_which_is_how_long_the_job_has_been_held() -> None:
    held_s = 40_000
    longer_s = np.array([held_longer_s(held_s, one) for one in (np.arange(200_000) + 0.5) / 200_000])
    for share in (0.25, 0.5, 0.9):
        assert (longer_s > held_s * (share**-0.5 - 1)).mean() == pytest.approx(share, abs=1e-3)
    assert longer_s.mean() == pytest.approx(held_s, rel=0.01)


def test_nobody_is_held_beyond_any_clock() -> None:
    assert held_longer_s(0, 0.99) == held_longer_s(100, 0.0) == 0
    assert held_longer_s(10**6, 1 - 1e-12) == MOST_S
