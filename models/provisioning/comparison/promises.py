"""The promise "interrupted with probability at most r", kept by choosing the policy's setting anew every week.

Interrupted means a gap of over ten minutes (`simulator.metrics.NOTICED_WAIT_S`). With an empty queue, a successor
submitted at the end starts seconds later; avoiding such gaps would cost hours of overlap and help no user.

Each week uses the setting of least overlap that kept the promise on the outcomes known by its start: pairs submitted in
the ROLLING_DAYS before, whose predecessor has ended. Whether a pair is interrupted under a setting is known ten minutes
after that end, even if its successor still waits, so a long wait hides nothing. The outcome arrives days late, because
the predecessor waits and runs. One more setting follows the policy's own: submit at once, at the first decision.

The choice is conformal risk control (Angelopoulos, Bates, Fisch, Lei and Schuster, "Conformal Risk Control", ICLR 2024,
section 2.1, the loss made monotone as in their remark on losses that are not). With n outcomes and a loss of 0 or 1, a
setting keeps risk r if (n x loss + 1) / (n + 1) <= r. That holds on average if weeks are exchangeable, which the weeks
of a cluster are not. So we measure whether the promise was kept, with its block interval. If no setting keeps it on the
known outcomes, not even submitting at once, the policy makes no promise and submits at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.bootstrap import BLOCK_S, DRAWS, block_count, interval, resampled_means, seed_weights, start_weights
from features.conventions import INDICATIVE_BELOW_BLOCKS, PROMISED_RISKS, RULES
from models.provisioning.comparison.outcomes import play
from models.provisioning.comparison.rules import missing_baselines
from models.provisioning.protocol import PairTable, TrainedPolicy, concatenate
from simulator.metrics import NOTICED_WAIT_S
from simulator.one_thread import one_thread
from traces import instants
from traces.arrays import Bools, Float64s

Row = dict[str, Any]

ROLLING_DAYS = 28  # outcomes that a setting is chosen by: four weeks, the gate's minimum
ROLLING_S = ROLLING_DAYS * 86_400
NOTICED_H = NOTICED_WAIT_S / 3600.0
TOLERANCE = 1e-12  # of a share, so that 2 / 20 counts as 0.1


class SettingChoice(NamedTuple):
    """The setting chosen for the coming week."""

    at: int  # position among the settings; the position after the last is submitting at once
    is_promised: bool  # it keeps the promise on the known outcomes


@dataclass(frozen=True)
class _Outcomes:
    """The outcome of each setting on the pairs before a week, and on those to judge."""

    pairs: PairTable  # earlier ones, then those judged
    judged: Bools  # (p,)
    settings: tuple[float, ...]
    gap_h: Float64s  # (seeds, settings + 1, p), submitting at once last

    @property
    def begin_s(self) -> int:
        """Begin of the first week: the first submission that is judged."""
        return int(self.pairs.submit_s[self.judged].min())

    def week_of(self) -> NDArray[np.int64]:
        """(p,) the week in which each pair is submitted; below 0 before the first."""
        return np.asarray((self.pairs.submit_s - self.begin_s) // BLOCK_S, dtype=np.int64)

    def known_at(self, instant_s: int) -> Bools:
        """(p,) pairs of the rolling window whose outcome is known at the instant."""
        has_ended = self.pairs.predecessor_end_s + NOTICED_WAIT_S <= instant_s
        return has_ended & (self.pairs.submit_s >= instant_s - ROLLING_S)


def choose(interrupted: Bools, risk: float) -> SettingChoice:
    """Choose the setting of least overlap that keeps the risk on the known pairs.

    interrupted: (seeds, settings + 1, n) whether each pair was interrupted under each setting, from least to most
    overlap, submitting at once last; n may be 0. A setting keeps the risk only if all more cautious ones do as well.
    """
    loss = np.maximum.accumulate(interrupted[:, ::-1], axis=1)[:, ::-1].mean(axis=0).sum(axis=1)
    within = np.flatnonzero((loss + 1.0) / (interrupted.shape[2] + 1) <= risk + TOLERANCE)
    return SettingChoice(int(within[0]), True) if len(within) else SettingChoice(len(loss) - 1, False)


@one_thread
def promises(
    report: PairTable,
    trained: Sequence[TrainedPolicy],
    *,
    earlier: PairTable | None = None,
    risks: Sequence[float] = PROMISED_RISKS,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Row]:
    """Measure how each policy kept the promise of each risk on the report window, and the price in overlap.

    There is a row for each policy with a knob, including the rules of every comparison, and each risk; sizes of pairs
    are together. earlier: pairs before the window (those of the select window); their outcomes count as they become
    known. Shares are of pairs with a gap over ten minutes (`any_gap_share`: above 0). `interrupted_share`,
    `interruption_h` and `overlap_h` cover the pairs of the weeks with a promise (`promised_weeks` of `weeks`), None if
    there are none. `ci95` is the interval of the share by 7-day blocks. `is_kept`: the lower end of the interval, or
    without one the share, is at most the risk. `at_once_share` is a bound that no setting undercuts by much.
    `next_setting` is that of the week after the window, None for submitting at once; unless `is_next_promised`, it does
    not keep the risk.
    """
    everything = [*trained, *(one for one in missing_baselines(trained, report) if one.name in RULES)]
    rows = []
    for name in dict.fromkeys(one.name for one in everything):
        artifacts = [one.artifact for one in everything if one.name == name]
        if len(artifacts[0].settings) > 1:
            outcomes = _outcomes(name, artifacts, earlier, report)
            rows += [{"policy": name, **_row(outcomes, risk, draws, seed)} for risk in risks]
    return rows


def promises_of(report: PairTable, artifact: Artifact, earlier: PairTable | None = None) -> list[Row]:
    """The rows of one artifact alone, without the policy's name, for a release. Includes a rule without a knob."""
    outcomes = _outcomes(str(artifact.manifest["policy"]), [artifact], earlier, report)
    return [_row(outcomes, risk, DRAWS, 0) for risk in PROMISED_RISKS]


def _outcomes(name: str, artifacts: Sequence[Artifact], earlier: PairTable | None, report: PairTable) -> _Outcomes:
    tables = [report] if earlier is None or not len(earlier) else [earlier, report]
    gaps = [play(table, artifacts, name).gap_h for table in tables]
    pairs = concatenate(tables)
    at_once = np.broadcast_to(pairs.gap_h[pairs.offset[:-1]], (len(artifacts), 1, len(pairs)))
    judged = np.arange(len(pairs)) >= len(pairs) - len(report)
    whole = np.concatenate([np.concatenate(gaps, axis=2), at_once], axis=1)
    return _Outcomes(pairs, judged, artifacts[0].settings, whole)


def _row(outcomes: _Outcomes, risk: float, draws: int, seed: int) -> Row:
    gap_h, submit_s, week_of = outcomes.gap_h, outcomes.pairs.submit_s, outcomes.week_of()
    interrupted = gap_h > NOTICED_H
    did = np.zeros((len(gap_h), len(submit_s)))  # (seeds, p) gap at the setting of the pair's week
    is_promised = np.zeros(len(submit_s), dtype=bool)
    weeks = int(week_of.max()) + 1
    weekly = []
    for week in range(weeks):
        now = outcomes.judged & (week_of == week)
        begin_s = outcomes.begin_s + week * BLOCK_S
        known = outcomes.known_at(begin_s)
        choice = choose(interrupted[:, :, known], risk)
        did[:, now], is_promised[now] = gap_h[:, choice.at][:, now], choice.is_promised
        if now.any():
            weekly.append(_week(begin_s, did[:, now], int(known.sum()), choice, outcomes.settings))
    after = choose(interrupted[:, :, outcomes.known_at(outcomes.begin_s + weeks * BLOCK_S)], risk)
    judged = outcomes.judged
    return {
        "risk": risk,
        "from_utc": instants.utc(outcomes.begin_s).isoformat(),
        "to_utc": instants.utc(int(submit_s[judged].max())).isoformat(),
        "n": int(judged.sum()),
        "blocks": (blocks := block_count(submit_s[judged], outcomes.begin_s)),
        "indicative": blocks < INDICATIVE_BELOW_BLOCKS,
        "seeds": len(gap_h),
        "weeks": len(weekly),
        "promised_weeks": sum(week["is_promised"] for week in weekly),
        **_kept(did[:, judged], is_promised[judged], submit_s[judged], risk, draws, seed),
        "all_share": float((did[:, judged] > NOTICED_H).mean()),
        "all_overlap_h": float(np.maximum(-did[:, judged], 0.0).mean()),
        "at_once_share": float(interrupted[:, -1][:, judged].mean()),
        "next_setting": _setting(after, outcomes.settings),
        "is_next_promised": after.is_promised,
        "weekly": weekly,
    }


def _week(begin_s: int, did_h: Float64s, known: int, choice: SettingChoice, settings: Sequence[float]) -> Row:
    """One week: the outcomes known at its start, the choice, and the gaps of its pairs (seeds, n)."""
    return {
        "from_utc": instants.utc(begin_s).isoformat(),
        "n": did_h.shape[1],
        "known": known,
        "setting": _setting(choice, settings),
        "is_promised": choice.is_promised,
        "interrupted_share": float((did_h > NOTICED_H).mean()),
        "overlap_h": float(np.maximum(-did_h, 0.0).mean()),
    }


def _setting(choice: SettingChoice, settings: Sequence[float]) -> float | None:
    """The value of the knob; None means submitting at once."""
    return float(settings[choice.at]) if choice.at < len(settings) else None


def _kept(did_h: Float64s, promised: Bools, submit_s: NDArray[np.int64], risk: float, draws: int, seed: int) -> Row:
    """Figures of the pairs (seeds, n) with a promise; all None if there was none."""
    if not promised.any():
        names = ("interrupted_share", "any_gap_share", "interruption_h", "overlap_h", "ci95", "is_kept")
        return {"promised_pairs": 0, **dict.fromkeys(names)}
    share = float((did_h[:, promised] > NOTICED_H).mean())
    starts, ci95 = start_weights(submit_s, draws, seed), None
    if starts is not None:
        values = (did_h[:, None, promised] > NOTICED_H).astype(np.float64)
        ci95 = interval(resampled_means(values, starts[:, promised], seed_weights(len(did_h), draws, seed))[:, 0])
    return {
        "promised_pairs": int(promised.sum()),
        "interrupted_share": share,
        "any_gap_share": float((did_h[:, promised] > 0.0).mean()),
        "interruption_h": float(np.maximum(did_h[:, promised], 0.0).mean()),
        "overlap_h": float(np.maximum(-did_h[:, promised], 0.0).mean()),
        "ci95": ci95,
        "is_kept": (share if ci95 is None else ci95[0]) <= risk,
    }
