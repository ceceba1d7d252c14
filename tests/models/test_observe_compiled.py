"""What numba makes of `observe.fill` writes the same bytes as the plain Python that an agent runs."""

from __future__ import annotations

import numpy as np
import pytest

from features.observe import FEATURES, observe
from features.snapshot import NO_LIMIT, Snapshot
from models.provisioning.pairs.injected import _fill

DAY = 86400


def random_snapshot(seed: int) -> Snapshot:
    """A cluster of up to 200 nodes, each of its lists empty, short or long; overdue jobs and future arrivals too."""
    rng = np.random.default_rng(seed)
    now, capacity = 1_600_000_000 + int(rng.integers(0, 10**7)), int(rng.integers(1, 200))
    pending, running, recent, ended, arrived = (int(rng.choice(n)) for n in ([0, 1, 60, 600], *[[0, 1, 30, 100]] * 4))

    def nodes(count: int) -> np.ndarray:
        return rng.integers(1, max(2, capacity // 3 + 2), count)

    def limits(count: int) -> np.ndarray:
        return rng.choice([600, 3600, 7200, DAY, 2 * DAY], count)

    start = now - int(rng.integers(0, 2 * DAY))
    return Snapshot(
        now, capacity, int(rng.integers(1, capacity + 1)),
        nodes(pending), limits(pending), now - rng.integers(0, 6 * DAY, pending), rng.integers(0, 2, pending),
        rng.integers(0, 4, pending),
        nodes(running), limits(running), now - rng.integers(0, 2 * DAY, running), rng.integers(0, 4, running),
        now - rng.integers(0, DAY, recent), rng.integers(0, 4 * DAY, recent), nodes(recent),
        rng.random(ended), now - rng.integers(-DAY, DAY, arrived), nodes(arrived) * limits(arrived),
        start, int(rng.integers(0, DAY)), start + 2 * DAY, int(rng.integers(1, capacity + 1)), 2 * DAY,
        int(rng.integers(0, 4)), int(rng.integers(0, pending + 1)),
        int(rng.choice([1, 3, NO_LIMIT])), int(rng.choice([2, 50, NO_LIMIT])),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_compiled_and_plain_write_the_same_bytes(seed: int) -> None:
    seen = random_snapshot(seed)
    out = np.zeros(len(FEATURES), np.float32)
    _fill(out, seen)
    np.testing.assert_array_equal(out.view(np.int32), observe(seen).view(np.int32), err_msg=str(seen._fields))
