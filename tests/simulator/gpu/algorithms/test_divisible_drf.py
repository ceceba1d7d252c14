"""Dominant resource fairness: the paper's example, and its promises on random instances."""

from __future__ import annotations

import numpy as np
import pytest

from tests.twins.gpu.divisible_drf import progressive_filling


def test_the_example_of_the_paper() -> None:
    """9 CPUs and 18 GB; tasks of <1, 4> and <3, 1>: 3 and 2 tasks (section 4.1)."""
    tasks = progressive_filling(np.array([[1.0, 4.0], [3.0, 1.0]]), np.array([9.0, 18.0]))
    assert tasks.tolist() == pytest.approx([3.0, 2.0])


@pytest.mark.parametrize("seed", range(40))
def test_its_promises(seed: int) -> None:
    rng = np.random.default_rng(seed)
    users, resources = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    capacity = rng.uniform(1.0, 50.0, resources)
    demands = rng.uniform(0.0, 2.0, (users, resources)) * (rng.random((users, resources)) < 0.7)
    demands[np.arange(users), rng.integers(0, resources, users)] += 0.1
    tasks = progressive_filling(demands, capacity)
    held = demands * tasks[:, None]
    assert (held.sum(axis=0) <= capacity * (1.0 + 1e-9)).all()

    def with_(bundle: np.ndarray, user: int) -> float:
        needed = demands[user] > 0.0
        return float((bundle[needed] / demands[user][needed]).min())

    for user in range(users):
        assert tasks[user] >= with_(capacity / users, user) - 1e-9  # sharing incentive
        for other in range(users):
            assert tasks[user] >= with_(held[other], user) - 1e-9  # envy-freeness
        left = capacity - held.sum(axis=0)
        assert with_(left, user) <= 1e-9 * capacity.max()  # Pareto: nobody can have more without another's
