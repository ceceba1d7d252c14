"""A few pairs with snapshots from which their gaps can be read."""

from __future__ import annotations

import numpy as np

from models.provisioning.mirage.networks import Sizes
from models.provisioning.mirage.snapshots import CLUSTER_INPUTS, HISTORY, STEP_S, Histories, Snapshots
from models.provisioning.protocol import PairTable
from tests.models.pair_tables import random_pairs

PAIRS = random_pairs(1, starts=10, sizes=(1,))
SMALL = Sizes(width=8, inner=8, layers=1, heads=1, experts=2, gate=4)


def histories(pairs: PairTable = PAIRS) -> Histories:
    """Snapshots that say the gap: the first number is the level of waits around then."""
    first_s = int(pairs.decision_s.min()) - HISTORY * STEP_S
    rows = np.zeros((int(pairs.decision_s.max() - first_s) // STEP_S + 1, CLUSTER_INPUTS), np.float32)
    places = (pairs.decision_s - first_s) // STEP_S
    rows[places, 0] = pairs.gap_h
    return Histories.of_table(Snapshots(first_s, rows).added_to(pairs))


HISTORIES = histories()
