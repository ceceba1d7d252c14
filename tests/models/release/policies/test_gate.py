"""The gate: which pairs it compares, and what it takes to be let through."""

from __future__ import annotations

import numpy as np
import pytest

from agent.artifact import Artifact
from models.provisioning.protocol import PairTable
from models.provisioning.scenario import INJECTED
from models.release.block_interval import block_interval
from models.release.policies.gate import GateVerdict, compare_with, gate_window, judge
from tests.models.pair_tables import FIRST_S, artifact, mean_cost, quiet, reactive, unlike_days
from traces.units import DAY_S

LONG = unlike_days(3, 86)
GOOD = artifact("constant-lead", (1.5,), 1.5, policy="constant-lead")
BETTER = artifact(settings=(1.0,))


def held(one: Artifact, champion: Artifact | None, pairs: PairTable = LONG) -> GateVerdict:
    part = gate_window(pairs, [one, *([] if champion is None else [champion])], "toy")
    return compare_with(part, one, champion, INJECTED)


def test_the_gate_takes_the_newest_pairs_that_nobody_and_no_setting_was_made_from() -> None:
    newest = int(LONG.submit_s.max())
    part = gate_window(LONG, [artifact(until_s=FIRST_S), reactive()], "toy")
    assert part.submit_s.min() == newest - 84 * DAY_S + 14_400 and part.submit_s.max() == newest
    late = FIRST_S + 30 * DAY_S
    part = gate_window(LONG, [artifact(until_s=FIRST_S), reactive(until_s=late)], "toy")
    assert part.submit_s.min() == late  # the later of the two fits counts
    picked = artifact(until_s=FIRST_S)
    picked.manifest["selected_on"] = {"cluster": "toy", "until_s": late + DAY_S}
    assert gate_window(LONG, [picked, reactive()], "toy").submit_s.min() == late + DAY_S
    assert len(gate_window(LONG, [artifact(until_s=newest + 1)], "toy")) == 0
    assert gate_window(LONG, [artifact(until_s=newest + 1)], "another cluster").submit_s.max() == newest


def test_the_gate_is_a_paired_comparison() -> None:
    same = held(GOOD, GOOD)
    assert same.passed and (same.difference_h, same.low_h, same.high_h) == (0.0, 0.0, 0.0)
    better, worse = held(BETTER, reactive()), held(reactive(), BETTER)
    assert worse.low_h is not None and worse.difference_h is not None and worse.high_h is not None
    assert better.difference_h == pytest.approx(-worse.difference_h)
    assert (better.low_h, better.high_h) == pytest.approx((-worse.high_h, -worse.low_h))
    assert (better.verdict, worse.verdict) == ("passed", "failed") and "worse than the champion" in worse.reason
    assert 0.0 < worse.low_h < worse.difference_h < worse.high_h
    part = gate_window(LONG, [BETTER], "toy")
    cost = [np.mean([mean_cost(part, one, one.settings[0], s) for s in (1, 8)]) for one in (reactive(), BETTER)]
    assert worse.difference_h == pytest.approx(cost[0] - cost[1])
    assert (worse.n, worse.from_s, worse.until_s) == (len(part), min(part.submit_s), max(part.submit_s))
    assert worse.blocks == 12 and worse.losing == int((part.gap_h[part.last] > 2.0).sum()) > 20


def judged(
    difference_h: np.ndarray, *, days: int = 56, losing_every: int = 4, parts: dict[str, np.ndarray] | None = None
) -> GateVerdict:
    """A pair every 4 hours; reactive loses 3 h on every so many-th."""
    submit_s = FIRST_S + np.arange(6 * days, dtype=np.int64) * 14_400
    gap_h = np.where(np.arange(6 * days) % losing_every == 0, 3.0, 0.0)
    return judge(np.broadcast_to(difference_h, submit_s.shape).astype(float), submit_s, gap_h, parts or {})


@pytest.mark.parametrize(("excess_h", "verdict"), [(-1.0, "passed"), (0.05, "passed"), (0.15, "failed")])
def test_not_worse_means_by_at_most_a_tenth_of_an_hour(excess_h: float, verdict: str) -> None:
    """A difference without spread."""
    found = judged(np.asarray(excess_h))
    assert (found.low_h, found.difference_h, found.high_h) == pytest.approx((excess_h,) * 3)
    assert found.verdict == verdict and (found.n, found.blocks, found.losing) == (336, 8, 84)


def test_neither_shown_is_a_verdict_of_its_own() -> None:
    by_week = np.repeat([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0], 42)
    found = judged(by_week)
    assert found.verdict == "cannot tell" and "neither worse nor no worse than the champion" in found.reason
    assert found.low_h == pytest.approx(-found.high_h) and found.high_h > 0.1  # type: ignore[operator]


def test_the_interval_is_students_over_block_means() -> None:
    from scipy import stats

    by_week = np.repeat(np.random.default_rng(0).normal(size=8), 42)
    found = block_interval(by_week, np.arange(336) // 42)
    expected = stats.t.interval(0.98, 7, by_week.mean(), stats.sem(by_week[::42]))
    assert found is not None and (found.low, found.high) == pytest.approx(expected)
    judged_low, judged_high = judged(by_week).low_h, judged(by_week).high_h
    assert judged_low is not None and judged_high is not None
    assert judged_low <= found.low and judged_high >= found.high, "skewness moves an end out and none in"


@pytest.mark.parametrize(
    ("days", "losing_every", "reason"),
    [
        (27, 4, "fewer than 4 blocks of 7 days"),
        (6, 4, "begin within 5.8 days, less than two whole blocks of 7; add newer logs"),
        (56, 20, "a calm window"),
        (56, 10**6, "a calm window"),
    ],
)
def test_a_window_that_shows_nothing_lets_nobody_through(days: int, losing_every: int, reason: str) -> None:
    found = judged(np.asarray(-1.0), days=days, losing_every=losing_every)
    assert found.verdict == "cannot tell" and reason in found.reason
    assert judged(np.asarray(-1.0), days=28).passed


def test_losing_pairs_of_one_spell_are_a_calm_window_too() -> None:
    submit_s = FIRST_S + np.arange(6 * 56, dtype=np.int64) * 14_400
    spell = np.where(np.arange(6 * 56) < 100, 3.0, 0.0)  # three blocks of eight
    found = judge(np.full(len(spell), -1.0), submit_s, spell, {})
    assert found.losing == 100 and found.verdict == "cannot tell" and "a calm window" in found.reason


def test_no_part_of_the_pairs_may_be_worse() -> None:
    big = np.arange(336) % 6 == 1
    found = judged(np.where(big, 0.5, -1.0), parts={"of 8 nodes": big, "of 1 node": ~big})
    assert found.verdict == "cannot tell" and "worse on the 56 pairs of 8 nodes (+0.50 h" in found.reason
    on_losing = judged(np.where(np.arange(336) % 4 == 0, 0.5, -1.0))
    assert on_losing.verdict == "cannot tell" and "worse in the mean where reactive loses" in on_losing.reason


def test_reactive_does_not_replace_what_is_far_cheaper_in_a_calm_month() -> None:
    """Waits so short that reactive is within a tenth of an hour, as it was of a champion 2.4 times cheaper."""
    calm = quiet(LONG, 0.15)
    found = held(reactive(), artifact("constant-lead", (0.05,), 0.05), calm)
    assert found.high_h is not None and found.high_h <= 0.1 and found.verdict == "cannot tell"
    assert "a calm window" in found.reason


def test_nothing_to_compare() -> None:
    none = held(artifact(until_s=FIRST_S + 400 * DAY_S), None)
    assert none.verdict == "cannot tell" and none.n == 0
    assert "no pair starts after candidate and reactive were fitted" in none.reason


def test_rare_losses_move_the_upper_end_out_and_rare_gains_the_lower_one() -> None:
    """By hand: skewness of the days' means over the root of the days that count, in the Cornish-Fisher term."""
    from scipy.special import stdtrit

    rng = np.random.default_rng(4)
    day = np.repeat(np.arange(28), 6)
    loss_h = np.where(np.isin(day, (3, 4, 17)), 6.0, -0.8) + rng.normal(0, 0.3, len(day))
    plain, skewed = block_interval(loss_h, day // 7), block_interval(loss_h, day // 7, day=day)
    assert plain is not None and skewed is not None
    means = loss_h.reshape(28, 6).mean(axis=1)
    weeks = loss_h.reshape(4, 42).mean(axis=1)
    variance = np.var(weeks, ddof=1) / 4
    days = min(28, max(4, np.var(means) / variance))
    skewness = 1.5 * np.mean((means - means.mean()) ** 3) / np.var(means) ** 1.5 / days**0.5
    quantile = stdtrit(3, 0.99)
    assert skewed.high == pytest.approx(
        means.mean() + variance**0.5 * (quantile + skewness / 6 * (2 * quantile**2 + 1))
    )
    assert skewed.high > plain.high and (skewed.mean, skewed.low) == (plain.mean, plain.low)
    mirrored = block_interval(-loss_h, day // 7, day=day)
    assert mirrored is not None and (mirrored.low, mirrored.high) == pytest.approx((-skewed.high, -skewed.low))
    flat = block_interval(np.ones(168), day // 7, day=day)
    assert flat == (1.0, 1.0, 1.0)
