"""What an observer sees who is not shown some groups of features, and training rows that are seen so.

A feature that is hidden is taken out of every observation, and what stands in for it (`features.observe.FILLS`) goes in
its place. Without recent jobs the start estimate by expected run times is that by limits, as `observe` has it then. The
start estimates by limits stay as they were seen, though an observer without its user's limits makes them without.
Futures cannot be played without recent jobs: the start estimate stands in (`features.ahead.summary.AHEAD_FILLS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from features.ahead.summary import AHEAD, AHEAD_FILLS
from features.observe import AT, FILLS, HIDDEN_TOGETHER
from models.protocol import Float32s, PairTable

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
    ahead = _without_futures(pairs) if len(pairs.ahead) and "recent" in hidden else pairs.ahead
    return replace(pairs, observations=observations, ahead=ahead)


def _without_futures(pairs: PairTable) -> Float32s:
    """What stands in for the futures of pairs, which nobody can play without the jobs that ended."""
    ahead = np.empty_like(pairs.ahead)
    for place, name in enumerate(AHEAD):
        fill = AHEAD_FILLS[name]
        ahead[:, place] = pairs.observations[:, getattr(AT, fill)] if isinstance(fill, str) else fill
    return ahead


def hidden_at_random(pairs: PairTable, share: float = HIDDEN_SHARE, seed: int = SEED) -> PairTable:
    """The pairs, a share of them masked from start to end: one group hidden, or all, each as often.

    A learner that has only ever seen everything takes a fill for what it stands for: no recent wait for no queue. A
    pair is drawn as a whole, because what is hidden from an agent is hidden for the whole of a job. One seed gives the
    same pairs.
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
