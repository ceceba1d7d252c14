"""Outcomes of policies on a pair table: from decisions to gaps, and from gaps to figures. Pure functions of arrays.

gap = start of the successor minus end of the predecessor, hours: interruption where positive, overlap where negative.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.conventions import FROZEN_AVERAGE, LIGHT_H, MEDIUM_H, ORACLE, USERS, interruption_h, overlap_h
from features.observe import FEATURES
from models.provisioning.policies.estimates import AVERAGE_FACTORS, RECENT_WAIT
from models.provisioning.protocol import NONE, PairTable, TrainedPolicy
from models.provisioning.stopping import stopping_rows as stopping_rows
from traces.arrays import Float64s, Int64s
from traces.cache.digests import digest
from traces.errors import InputError

MOST_REMEMBERED = 256  # outcomes of a fit on a table, some tens of kilobytes each
_REMEMBERED: dict[tuple[str, str], Float64s] = {}  # by the digests of the pairs and of the artifact
NOTES = ("trained_on", "selected_on", "release", "sha256")  # in a manifest: the origin of an artifact
# From least to most overlap, like any policy's settings: enough for the bound's own curve at little overlap.
ORACLE_WEIGHTS = (64.0, 4.0, 2.0, 1.0, 0.5, 0.25)
HEADLINE_WEIGHT = 1.0


@dataclass(frozen=True)
class PolicyOutcome:
    """A policy's gaps on the pairs of one table, at every setting and with every seed."""

    policy: str
    version: str  # digest of the artifacts
    knob: str
    settings: tuple[float, ...]
    default_setting: float
    gap_h: Float64s  # (seeds, settings, pairs)

    @property
    def interruption_h(self) -> Float64s:
        """(seeds, settings, pairs)"""
        return interruption_h(self.gap_h)

    @property
    def overlap_h(self) -> Float64s:
        """(seeds, settings, pairs)"""
        return overlap_h(self.gap_h)

    def cost_h(self, weight: float) -> Float64s:
        """(seeds, settings, pairs) interruption + weight x overlap."""
        return self.interruption_h + weight * self.overlap_h

    def take(self, pairs: NDArray[np.bool_] | Int64s) -> PolicyOutcome:
        """The outcome on some of the pairs: a mask or positions."""
        return PolicyOutcome(
            self.policy, self.version, self.knob, self.settings, self.default_setting, self.gap_h[:, :, pairs]
        )


def oracle_rows(pairs: PairTable, weight: float) -> Int64s:
    """(p,) the row of least interruption + weight x overlap of each pair, the earliest of equals."""
    gap = pairs.gap_h
    cost = interruption_h(gap) + weight * overlap_h(gap)
    if not len(pairs):
        return np.empty(0, np.int64)
    least = np.minimum.reduceat(cost, pairs.offset[:-1])
    return stopping_rows(pairs, cost == least[pairs.pair_of])


def play(pairs: PairTable, artifacts: Sequence[Artifact], policy: str) -> PolicyOutcome:
    """Play a policy with one artifact per seed. Raises InputError if their settings differ."""
    settings = artifacts[0].settings
    if any(artifact.settings != settings for artifact in artifacts):
        raise InputError(f"policy {policy!r}: its artifacts declare different settings; train all its seeds again")
    contents = [content_digest(artifact) for artifact in artifacts]
    pairs_digest = pairs.digest
    gaps = [_gaps(pairs, pairs_digest, *fitted) for fitted in zip(artifacts, contents, strict=True)]
    return PolicyOutcome(
        policy,
        digest(contents)[:12],
        str(artifacts[0].manifest["knob"]),
        settings,
        float(artifacts[0].manifest["default_setting"]),
        np.stack(gaps),
    )


def _gaps(pairs: PairTable, pairs_digest: str, artifact: Artifact, content: str) -> Float64s:
    """(settings, pairs) gaps of one artifact in hours, read-only.

    They are kept in memory because the comparison and the choice of a candidate use the same ones.
    """
    key = (pairs_digest, content)
    if key not in _REMEMBERED:
        while len(_REMEMBERED) >= MOST_REMEMBERED:
            _REMEMBERED.pop(next(iter(_REMEMBERED)))
        _REMEMBERED[key] = pairs.gap_h[stopping_rows(pairs, pairs.decisions_of(artifact))]
        _REMEMBERED[key].flags.writeable = False
    return _REMEMBERED[key]


def play_oracle(pairs: PairTable) -> PolicyOutcome:
    """Play the clairvoyant bound: the best submit time of each pair, for each weight of `ORACLE_WEIGHTS`."""
    gaps = np.stack([pairs.gap_h[oracle_rows(pairs, weight)] for weight in ORACLE_WEIGHTS])
    return PolicyOutcome(ORACLE, "bound", "weight of overlap", ORACLE_WEIGHTS, HEADLINE_WEIGHT, gaps[None])


def play_frozen_average(pairs: PairTable) -> PolicyOutcome:
    """Play Mirage's own baseline (SC'23): the lead is the mean wait of the last 100 started jobs when P starts.

    The lead, times a factor, stays the same until P's end. As it must be remembered, no artifact decides so. P's start
    is its first decision.
    """
    at_start = pairs.observations[pairs.offset[:-1], FEATURES.index(RECENT_WAIT)].astype(np.float64)
    remaining_s = pairs.predecessor_end_s[pairs.pair_of] - pairs.decision_s
    lead_s = np.asarray(AVERAGE_FACTORS)[:, None] * at_start[pairs.pair_of] * 3600.0
    gaps = pairs.gap_h[stopping_rows(pairs, lead_s >= remaining_s)]
    return PolicyOutcome(
        FROZEN_AVERAGE, "fits nothing", "factor on the estimated wait", AVERAGE_FACTORS, 1.0, gaps[None]
    )


def play_users(pairs: PairTable) -> PolicyOutcome:
    """Play the users' own behaviour on recorded pairs. Gaps (1, 1, p) in hours; NaN if the user did not go on."""
    gap_h = (pairs.user_start_s - pairs.predecessor_end_s) / 3600.0
    gaps = np.where(pairs.user_start_s == NONE, np.nan, gap_h)
    return PolicyOutcome(USERS, "recorded", "as users did", (np.nan,), np.nan, gaps[None, None])


def play_all(pairs: PairTable, trained: Sequence[TrainedPolicy]) -> list[PolicyOutcome]:
    """Play all policies in the order given, seeds together, then Mirage's average and the oracle."""
    artifacts: dict[str, list[Artifact]] = {}
    for one in trained:
        artifacts.setdefault(one.name, []).append(one.artifact)
    played = [play(pairs, of_policy, name) for name, of_policy in artifacts.items()]
    return [*played, play_frozen_average(pairs), play_oracle(pairs)]


def cost_h(pairs: PairTable, artifact: Artifact | None) -> Float64s:
    """(p,) interruption + overlap of each pair under an artifact at its default setting; None is reactive."""
    rows = (
        pairs.last
        if artifact is None
        else stopping_rows(pairs, pairs.decisions_of(artifact, [float(artifact.manifest["default_setting"])])[0])
    )
    return np.asarray(np.abs(pairs.gap_h[rows]), dtype=np.float64)


def content_digest(artifact: Artifact) -> str:
    """SHA-256 of an artifact's behaviour: everything but the notes on its origin."""
    manifest = {key: value for key, value in artifact.manifest.items() if key not in NOTES}
    state = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode())
    for name, array in sorted(artifact.arrays.items()):
        state.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def load_masks(reactive_gap_h: Float64s) -> dict[str, NDArray[np.bool_]]:
    """Masks (n,) of the pairs of each load, by the gap under reactive; a label for reporting, never a feature."""
    return {
        "all": np.ones(len(reactive_gap_h), bool),
        "light": reactive_gap_h <= LIGHT_H,
        "medium": (reactive_gap_h > LIGHT_H) & (reactive_gap_h <= MEDIUM_H),
        "heavy": reactive_gap_h > MEDIUM_H,
    }


def at_overlap(interruption_h: Float64s, overlap_h: Float64s, reactive_h: Float64s, budget_h: float) -> Float64s:
    """Interruption at a mean overlap of `budget_h`: (b,) from curves (b, settings) and reactive's interruption (b,).

    Linear between neighbouring settings in order of overlap, from (0, reactive); NaN beyond the last. Among settings
    with equal overlap, the right end of an interval is the one with the least interruption.
    """
    overlap = np.concatenate([np.zeros((len(overlap_h), 1)), overlap_h], axis=1)
    interruption = np.concatenate([reactive_h[:, None], interruption_h], axis=1)
    order = np.lexsort((-interruption, overlap), axis=1)
    overlap = np.take_along_axis(overlap, order, axis=1)
    interruption = np.take_along_axis(interruption, order, axis=1)
    before = (overlap <= budget_h).sum(axis=1) - 1
    inside = before + 1 < overlap.shape[1]
    after = np.where(inside, before + 1, before)
    row = np.arange(len(overlap))
    low, high = overlap[row, before], overlap[row, after]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(high > low, (budget_h - low) / (high - low), 0.0)
    between = interruption[row, before] + share * (interruption[row, after] - interruption[row, before])
    # a curve that ends exactly at the budget still has a value there
    return np.where(inside | (low == budget_h), between, np.nan)
