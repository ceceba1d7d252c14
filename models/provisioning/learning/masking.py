"""Hide groups of features from observations, and fit learners on some pairs with hidden features.

A hidden feature is removed from every observation and replaced by its fill value (`features.observe.FILLS`). Without
recent jobs the start estimate by expected run times equals that by limits, as `observe` then computes it. The start
estimates by limits stay as they were, although an observer who does not see its user's limits computes them without.
Futures cannot be played without recent jobs; the start estimate replaces them (`features.futures.summary.AHEAD_FILLS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from features.futures.summary import AHEAD, AHEAD_FILLS
from features.observe import AT, FILLS, HIDDEN_TOGETHER
from models.provisioning.protocol import PairTable
from traces.arrays import Float32s

HIDDEN_SHARE = 0.25  # share of the learners' pairs with hidden features
SEED = 0


def masked(pairs: PairTable, hidden: Sequence[str]) -> PairTable:
    """The pairs with the groups `hidden` of `HIDDEN_TOGETHER` hidden."""
    observations = pairs.observations.copy()
    for name in (feature for group in hidden for feature in HIDDEN_TOGETHER[group]):
        fill = FILLS[name]
        observations[:, getattr(AT, name)] = pairs.observations[:, getattr(AT, fill)] if isinstance(fill, str) else fill
    if "recent" in hidden:
        observations[:, AT.start_estimate_expected_h] = pairs.observations[:, AT.start_estimate_h]
    ahead = _without_futures(pairs) if len(pairs.ahead) and "recent" in hidden else pairs.ahead
    return replace(pairs, observations=observations, ahead=ahead)


def _without_futures(pairs: PairTable) -> Float32s:
    """Fill values for the futures of pairs, which cannot be played without the jobs that ended."""
    ahead = np.empty_like(pairs.ahead)
    for place, name in enumerate(AHEAD):
        fill = AHEAD_FILLS[name]
        ahead[:, place] = pairs.observations[:, getattr(AT, fill)] if isinstance(fill, str) else fill
    return ahead


def hidden_at_random(pairs: PairTable, share: float = HIDDEN_SHARE, seed: int = SEED) -> PairTable:
    """Mask a share of the pairs from start to end: one group hidden, or all groups, each with the same probability.

    A learner that always saw everything takes a fill value literally: no recent wait means no queue. A pair is masked
    as a whole, because a feature hidden from an agent is hidden for a whole job. One seed gives the same pairs.
    """
    rng = np.random.default_rng(seed)
    ways = [*((group,) for group in HIDDEN_TOGETHER), tuple(HIDDEN_TOGETHER)]
    way = np.where(rng.random(len(pairs)) < share, rng.integers(len(ways), size=len(pairs)), -1)
    observations, ahead = pairs.observations.copy(), pairs.ahead.copy()
    for place, hidden in enumerate(ways):
        rows = (way == place)[pairs.pair_of]
        seen = masked(pairs, hidden)
        observations[rows] = seen.observations[rows]
        if len(ahead):
            ahead[rows] = seen.ahead[rows]
    return replace(pairs, observations=observations, ahead=ahead)
