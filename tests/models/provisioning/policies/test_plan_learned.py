"""What learning adds to `plan`: it finds the known best candidate, and when to wait, in rows with a known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.provisioning.policies.plan_learned import PlanRegret, plan_fitted_q
from models.provisioning.protocol import PairTable, no_pairs
from models.provisioning.service.candidates import COLUMNS, INPUTS, PlanArtifact, chosen_candidate
from models.provisioning.service.rows import FIRST, WIDTH
from traces.arrays import Float64s
from traces.errors import InputError
from traces.units import HOUR_S

LIVES, DECISIONS = 200, 6
LONG_H, SHORT_H = 48.0, 12.0
RATE = 0.01


def row(limit_h: float, left_h: float, estimate: float, *, expected_h: float, delay: float) -> list[float]:
    """COLUMNS of a candidate: `plan` expects it to lose so much at once, and to be best after a delay > 0."""
    known = dict.fromkeys(COLUMNS, 0.0) | {
        "lost_h": expected_h,
        "added_h": limit_h,
        "rate": RATE if limit_h == LONG_H else 2 * RATE,
        "start_estimate_h": estimate,
        "delay_share": delay,
        "left_h": float(np.log1p(left_h)),
        "limit_h": float(np.log(limit_h * HOUR_S)),
    }
    return [known[name] for name in COLUMNS]


def table(delay: float, late_h: float, is_short_better: bool = False) -> PairTable:
    """Lives with two candidates a decision, one an hour.

    Where the estimate is high, submitting an hour later costs `late_h` more, and where it is low, as much less; the
    short candidate loses 5 h less than the long one if `is_short_better`. `plan` expects that all are alike, and waits
    or not by `delay`.
    """
    rows = []
    for life in range(LIVES):
        estimate = 1.0 if life % 2 else -1.0
        for number in range(DECISIONS):
            left_h = float(DECISIONS - 1 - number)
            moment_h = 2 * late_h + estimate * late_h * number
            for limit_h in (LONG_H, SHORT_H):
                lost_h = moment_h - (5.0 if is_short_better and limit_h == SHORT_H else 0.0)
                known = row(limit_h, left_h, estimate, expected_h=RATE * LONG_H, delay=delay * (left_h > 0))
                rows.append([life, number * HOUR_S, lost_h, limit_h, *known])
    found = np.array(rows)
    assert found.shape == (LIVES * DECISIONS * 2, WIDTH) and FIRST + len(COLUMNS) == WIDTH
    return replace(no_pairs(), candidates=found)


def decides(artifact: PlanArtifact, estimate: float, delay: float) -> tuple[int, bool]:
    """The chosen candidate (0: long) and whether it waits, three hours before the end."""
    rows: Float64s = np.array(
        [row(limit_h, 3.0, estimate, expected_h=RATE * LONG_H, delay=delay) for limit_h in (LONG_H, SHORT_H)]
    )
    return chosen_candidate(artifact, rows)


def plan_alone() -> PlanArtifact:
    """A fit that learned nothing."""
    return replace(PlanRegret(), learning_rate=1e-12).fit(table(delay=0.0, late_h=2.0), 0)[0]


@pytest.mark.parametrize("policy", [PlanRegret(rounds=60), replace(plan_fitted_q(), rounds=60)], ids=lambda p: p.name)
def test_it_submits_where_waiting_cost_and_waits_where_it_paid(policy: PlanRegret) -> None:
    """`plan` submits at once everywhere, and its own continuation is the next decision."""
    artifact, metrics = policy.fit(table(delay=0.0, late_h=2.0), 0)
    assert decides(artifact, 1.0, 0.0) == (0, False) and decides(artifact, -1.0, 0.0) == (0, True)
    assert len(metrics["wait_rmse_h"]) == policy.backups + 1


def test_backups_know_that_a_rule_need_not_wait_as_long_as_plan() -> None:
    """Waiting an hour saves 2 h if the link is submitted then, and loses if that is put off as `plan` does."""
    rows = table(delay=1.0, late_h=2.0).candidates.copy()
    number, lost = rows[:, 1] / HOUR_S, 2
    rows[:, lost] = np.where(number == 3, 0.0, 2.0) + np.where(number == DECISIONS - 1, 20.0, 0.0)
    pairs = replace(no_pairs(), candidates=rows)
    left = FIRST + COLUMNS.index("late_share")
    rows[:, left] = number / DECISIONS
    asked = rows[(rows[:, 0] == 1) & (number == 2)][:, FIRST:]
    regret, _ = replace(PlanRegret(), rounds=200).fit(pairs, 0)
    learned, _ = replace(plan_fitted_q(), rounds=200).fit(pairs, 0)
    assert not chosen_candidate(regret, asked)[1] and chosen_candidate(learned, asked)[1]


def test_it_takes_the_limit_that_truly_lost_least() -> None:
    artifact, _ = replace(PlanRegret(), rounds=100).fit(table(0.0, 2.0, is_short_better=True), 0)
    assert decides(artifact, 1.0, 0.0)[0] == 1
    alike, _ = replace(PlanRegret(), rounds=100).fit(table(0.0, 2.0), 0)
    assert decides(alike, 1.0, 0.0)[0] == 0


def test_without_trees_it_is_plan() -> None:
    """It waits where `plan` expects less of a later moment than J* x the work, and nowhere else."""
    artifact = plan_alone()
    for estimate in (-1.0, 1.0):
        assert decides(artifact, estimate, 0.0) == (0, False)
    late = np.array([row(LONG_H, 3.0, 1.0, expected_h=RATE * LONG_H + 0.1, delay=0.5)])
    assert chosen_candidate(artifact, late) == (0, True)


def test_the_same_seed_gives_the_same_fit_and_another_seed_another() -> None:
    pairs = table(delay=0.0, late_h=2.0)
    rng = np.random.default_rng(0)
    pairs.candidates[:, FIRST + COLUMNS.index("late_share")] = rng.random(len(pairs.candidates))
    first, second, other = (plan_fitted_q().fit(pairs, seed)[0] for seed in (0, 0, 1))
    assert all(np.array_equal(first.arrays[name], second.arrays[name]) for name in first.arrays)
    assert any(not np.array_equal(first.arrays[name], other.arrays[name]) for name in first.arrays)


def test_without_a_known_life_nothing_is_fitted() -> None:
    with pytest.raises(InputError, match="plan-regret: no link of a chain began and ended in the fit window"):
        PlanRegret().fit(no_pairs(), 0)


def test_an_artifact_that_is_not_a_plans_is_refused() -> None:
    made, _ = PlanRegret().fit(table(delay=0.0, late_h=2.0), 0)
    with pytest.raises(ValueError, match="not a fit of kind plan-trees"):
        replace(made, manifest=made.manifest | {"kind": "trees"})
    with pytest.raises(ValueError, match="group must hold 0 or 1"):
        replace(made, arrays=made.arrays | {"group": made.arrays["group"] + 1})
    with pytest.raises(ValueError, match="a fit with the inputs"):
        replace(made, manifest=made.manifest | {"parameters": {"inputs": list(INPUTS[:-1])}})
    with pytest.raises(InputError, match="policy 'plan-regret' plans chains"):
        made.decide(np.zeros((1, len(made.manifest["features"])), np.float32))
