"""The rows that planning is learned from, by hand, and the player that decides on them."""

from __future__ import annotations

import numpy as np
import pytest

from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.service import rows
from models.provisioning.service.candidates import COLUMNS, LearnedPlan, PlanArtifact
from models.provisioning.service.rows import ADDED, AT, FIRST, LOST
from tests.models.provisioning.pairs.test_recorded import parameters
from tests.models.provisioning.policies.test_plan_learned import plan_alone
from tests.models.provisioning.service.test_plan import PLAN, view
from tests.models.provisioning.service.test_play import P, idle
from traces.arrays import Float64s
from traces.units import HOUR_S


def rows_until(until_s: int) -> Float64s:
    """Of the chain of a job that runs from 100 to 1,100 s where nobody waits; a restart costs 60 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: parameters())
        patch.setattr(rows, "LIMITS_S", (1000,))
        patch.setattr(rows, "RESTART_S", 60)
        return rows.chain_rows(idle(), P, 250, until_s, None)


def test_a_life_holds_what_truly_happens_at_its_decisions() -> None:
    """Decisions 750 s before the end and at it; a link starts a second after its submission."""
    found = rows_until(1500)
    assert found[:, AT].tolist() == [350, 1100]
    early_s = 1100 - 351
    np.testing.assert_allclose(found[:, LOST] * HOUR_S, [60 + 0.5 * 125, 60 + 1])
    np.testing.assert_allclose(found[:, ADDED] * HOUR_S, [1000 - early_s, 1001])
    left_h = np.expm1(found[:, FIRST + COLUMNS.index("left_h")])
    np.testing.assert_allclose(left_h * HOUR_S, [750, 0], atol=1e-6)


def test_only_lives_count_that_were_over_and_known_in_time() -> None:
    """The first link ends at 1,100 s, and the one submitted then starts at 1,101."""
    assert len(rows_until(1101)) == 0 and len(rows_until(1102)) == 2


def test_without_trees_the_player_moves_as_plan_does() -> None:
    player = LearnedPlan(plan_alone(), PLAN)
    late, idle_queue = (lambda limit_h: [7.0, 9.0]), (lambda limit_h: [0.0, 0.0])
    for asked in (
        view(late),
        view(idle_queue, left_h=0),
        view(late, queued=(2,), queued_waits_h=(6, 6)),
        view(late, queued=(2, 2)),
        view(late, wanted_left_h=6),
        view(late, running=((60, 101), (99, 147))),
    ):
        assert player.act(asked) == PLAN.act(asked)
    waits = player.act(view(idle_queue, left_h=3))
    assert waits.submit == () and waits.again_s == 101.5 * HOUR_S
    assert player.act(view(late, wanted_left_h=6)).again_s == 106 * HOUR_S


def test_the_player_follows_the_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that say that waiting saves 10 h, or that a link of 12 h loses much less; after the end it never waits."""
    player = LearnedPlan(plan_alone(), PLAN)
    late = lambda limit_h: [7.0, 9.0]  # noqa: E731
    monkeypatch.setattr(PlanArtifact, "corrections", lambda self, seen: np.full((len(seen), 2), -10.0))
    assert player.act(view(late)).submit == () and player.act(view(late, left_h=0)).submit == (48 * HOUR_S,)

    def shorter(self: PlanArtifact, seen: Float64s) -> Float64s:
        is_shorter = np.expm1(seen[:, -1] - np.log(47 * HOUR_S)) < 0
        return np.stack([np.where(is_shorter, -100.0, 0.0), np.full(len(seen), 100.0)], axis=1)

    monkeypatch.setattr(PlanArtifact, "corrections", shorter)
    slow = lambda limit_h: [40.0] if limit_h > 12 else [38.0]  # noqa: E731
    assert player.act(view(slow)).submit == (12 * HOUR_S,)
