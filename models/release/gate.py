"""The gate: whether a candidate may replace the champion. Pure functions of pair tables and artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.artifact import Artifact
from features.bootstrap import (
    block_count,
    interval,
    resampled_means,
    seed_weights,
    start_weights,
)
from features.conventions import INDICATIVE_BELOW_BLOCKS, NOT_WORSE_H
from models.comparison.one_thread import one_thread
from models.comparison.outcomes import cost_h
from models.protocol import PairTable

GATE_S = 28 * 86_400


@dataclass(frozen=True)
class Gate:
    """The paired comparison on the gate's window: candidate minus opponent, cost of weight 1, hours a pair."""

    passed: bool
    reason: str
    n: int = 0
    blocks: int = 0
    from_s: int | None = None  # first and last submission compared, epoch s
    until_s: int | None = None
    difference_h: float | None = None
    low_h: float | None = None
    high_h: float | None = None


@one_thread
def gate(
    pairs: PairTable, candidate: Artifact, champion: Artifact | None, cluster: str, known_until_s: int | None = None
) -> Gate:
    """Holds the candidate against the champion (None: reactive) at their default settings.

    Compared are the pairs that start in the newest 28 days for which the outcome is known (before `known_until_s`,
    where given) and that start after both were fitted. Passed where the upper end of the paired 95 % moving-block
    interval of the cost difference (weight 1) is at most 0.1 h.
    """
    opponent = "reactive" if champion is None else "the champion"
    part = gate_window(pairs, [candidate, *([champion] if champion else [])], cluster, known_until_s)
    if not len(part):
        return Gate(False, f"no pair starts after candidate and {opponent} were fitted; add newer logs, or fit on less")
    difference = cost_h(part, candidate) - cost_h(part, champion)
    starts = start_weights(part.submit_s)
    ci95 = None
    if starts is not None:
        ci95 = interval(resampled_means(difference[None, None], starts, seed_weights(1))[:, 0])
    blocks = block_count(part.submit_s, int(part.submit_s.min()))
    window = (len(part), blocks, int(part.submit_s.min()), int(part.submit_s.max()), float(difference.mean()))
    if ci95 is None:
        reason = f"{len(part)} pairs against {opponent} span no more than one block of 7 days; add newer logs"
        return Gate(False, reason, *window)
    passed = ci95[1] <= NOT_WORSE_H
    note = ", indicative" if blocks < INDICATIVE_BELOW_BLOCKS else ""
    reason = (
        f"{'not worse' if passed else 'not shown to be no worse'} than {opponent}: cost difference "
        f"{difference.mean():+.3f} h a pair, 95 % [{ci95[0]:+.3f}, {ci95[1]:+.3f}] (at most {NOT_WORSE_H:+.1f} "
        f"passes), {len(part)} pairs in {blocks} blocks{note}"
    )
    return Gate(passed, reason, *window, ci95[0], ci95[1])


def gate_window(
    pairs: PairTable, artifacts: Sequence[Artifact], cluster: str, known_until_s: int | None = None
) -> PairTable:
    """The newest 28 days of pairs with known outcomes that none of the artifacts was fitted on."""
    fitted = [artifact.manifest.get("trained_on", {}) for artifact in artifacts]
    after_s = max((int(note["until_s"]) for note in fitted if note.get("cluster") == cluster), default=None)
    known = pairs if known_until_s is None else pairs.known_before(known_until_s)
    fresh = known if after_s is None else known.take(known.submit_s >= after_s)
    return fresh.take(fresh.submit_s > fresh.submit_s.max() - GATE_S) if len(fresh) else fresh
