"""What an observer sees who is not shown some groups of features, and training rows that are seen so.

A feature that is hidden is taken out of every observation, and what stands in for it (`features.observe.FILLS`) goes in
its place. Without recent jobs the start estimate by expected run times is that by limits, as `observe` has it then. The
start estimates by limits stay as they were seen, though an observer without its user's limits makes them without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from features.observe import AT, FILLS, HIDDEN_TOGETHER
from models.protocol import PairTable

HIDDEN_SHARE = 0.25  # of the pairs that learners are fitted on
SEED = 0


def masked(pairs: PairTable, hidden: Sequence[str]) -> PairTable:
    """The pairs as an observer sees them who is not shown the groups `hidden` of `HIDDEN_TOGETHER`."""
    observations = pairs.observations.copy()
    for name in (feature for group in hidden for feature in HIDDEN_TOGETHER[group]):
        fill = FILLS[name]
        observations[:, getattr(AT, name)] = pairs.observations[:, getattr(AT, fill)] if isinstance(fill, str) else fill
    if "recent" in hidden:
        observations[:, AT.start_estimate_expected_h] = pairs.observations[:, AT.start_estimate_h]
    return replace(pairs, observations=observations)


def hidden_at_random(pairs: PairTable, share: float = HIDDEN_SHARE, seed: int = SEED) -> PairTable:
    """The pairs, a share of them masked from start to end: one group hidden, or all, each as often.

    A learner that has only ever seen everything takes a fill for what it stands for: no recent wait for no queue. A
    pair is drawn as a whole, because what is hidden from an agent is hidden for the whole of a job. One seed gives the
    same pairs.
    """
    rng = np.random.default_rng(seed)
    ways = [*((group,) for group in HIDDEN_TOGETHER), tuple(HIDDEN_TOGETHER)]
    way = np.where(rng.random(len(pairs)) < share, rng.integers(len(ways), size=len(pairs)), -1)
    observations = pairs.observations.copy()
    for place, hidden in enumerate(ways):
        rows = (way == place)[pairs.pair_of]
        observations[rows] = masked(pairs, hidden).observations[rows]
    return replace(pairs, observations=observations)
