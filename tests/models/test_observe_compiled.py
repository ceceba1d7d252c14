"""What numba makes of `observe.fill` writes the same bytes as the plain Python that an agent runs."""

from __future__ import annotations

import numpy as np
import pytest

from features.observe import FEATURES, observe
from models.provisioning.pairs.injected import _fill, write_observation
from simulator.cluster import Visible
from tests.features.snapshots import random_snapshot


@pytest.mark.parametrize("seed", range(40))
def test_compiled_and_plain_write_the_same_bytes(seed: int) -> None:
    seen = random_snapshot(seed, most_pending=600)  # more than the 400 that an estimate places
    out = np.zeros(len(FEATURES), np.float32)
    _fill(out, seen)
    np.testing.assert_array_equal(out.view(np.int32), observe(seen).view(np.int32), err_msg=str(seen._fields))


@pytest.mark.parametrize("seed", range(5))
def test_every_field_of_a_world_reaches_its_snapshot(seed: int) -> None:
    seen = random_snapshot(seed)
    fields = seen._asdict()
    world = Visible(**{name: fields.pop(name) for name in Visible._fields})
    now, place = fields.pop("now_s"), fields.pop("successor_place")
    out = np.zeros(len(FEATURES), np.float32)
    write_observation(out, world, now, tuple(fields.values()), place)
    np.testing.assert_array_equal(out, observe(seen))
