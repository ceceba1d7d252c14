"""Which pairs are measured together, and what users did: small tables whose figures are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.conventions import judged_sizes, size_rank
from features.observe import FEATURES
from models.provisioning.comparison.compare import compare
from models.provisioning.comparison.groups import groups, judged
from models.provisioning.comparison.outcomes import play_frozen_average
from models.provisioning.protocol import NONE, PairTable
from models.provisioning.scenario import CALIBRATED, RECORDED, Context
from models.release.policies.candidate import choose_candidate
from tests.models.pair_tables import artifact, context, random_pairs, reactive, trained
from traces.units import HOUR_S


def pairs_of(
    nodes: list[int], limits_h: list[int], gaps_h: list[list[float]], users_h: list[float | None]
) -> PairTable:
    """Pairs a day apart, each with as many hourly decisions as it has gaps; the last is P's end.

    users_h: hours after P's end at which its user's next job started, None where there is none. The start estimate of
    a decision is the wait that it really has.
    """
    count = len(nodes)
    submit = np.arange(count, dtype=np.int64) * 24 * HOUR_S
    end = submit + np.array([len(gaps) - 1 for gaps in gaps_h]) * HOUR_S
    decision = np.concatenate([submit[i] + np.arange(len(gaps)) * HOUR_S for i, gaps in enumerate(gaps_h)])
    offset = np.cumsum([0, *map(len, gaps_h)])
    pair_of = np.repeat(np.arange(count), np.diff(offset))
    start = end[pair_of] + np.rint(np.concatenate(gaps_h) * HOUR_S).astype(np.int64)
    observations = np.zeros((len(decision), len(FEATURES)), np.float32)
    observations[:, FEATURES.index("remaining_h")] = (end[pair_of] - decision) / HOUR_S
    observations[:, FEATURES.index("start_estimate_h")] = (start - decision) / HOUR_S
    user_start = [NONE if hours is None else int(end[i] + hours * HOUR_S) for i, hours in enumerate(users_h)]
    return PairTable(
        pair_nodes=np.array(nodes, np.int64),
        limit_s=np.array(limits_h, np.int64) * HOUR_S,
        submit_s=submit,
        predecessor_start_s=submit,
        predecessor_end_s=end,
        user_start_s=np.array(user_start, np.int64),
        offset=offset.astype(np.int64),
        decision_s=decision,
        successor_start_s=start,
        observations=observations,
    )


# Gaps when submitted two hours before the end, one hour before it, and at the end.
GAPS = [[-1.0, 1.0, 2.0], [0.0, 0.5, 1.0], [-2.0, -1.0, 4.0], [1.0, 2.0, 3.0]]
PAIRS = pairs_of([1, 1, 3, 20], [12, 48, 48, 24], GAPS, [None, 1.5, 6.0, None])


def recorded() -> Context:
    """The calibrated world, in which pairs are recorded."""
    return replace(context(), scenario=replace(context().scenario, world=CALIBRATED))


def test_recorded_pairs_are_grouped_by_size_and_all_together_last() -> None:
    found = groups(PAIRS, RECORDED)
    assert [group.size for group in found] == ["1", "2-4", "17-up", "all"]  # none of 5 to 16 nodes
    assert [int(group.of(PAIRS).sum()) for group in found] == [2, 1, 1, 4]
    assert [group.size for group in judged(PAIRS, RECORDED)] == ["all"]
    kinds = [group.identity(PAIRS.take(group.of(PAIRS))) for group in found]
    assert [(kind["pair_nodes"], kind["limit_h"]) for kind in kinds] == [(1, None), (3, 48.0), (20, 24.0), (None, None)]


def test_injected_pairs_are_grouped_by_size_and_limit() -> None:
    found = groups(PAIRS, "injected")
    assert [(group.size, group.limit_s) for group in found] == [
        ("1", 12 * HOUR_S), ("1", 48 * HOUR_S), ("3", 48 * HOUR_S), ("20", 24 * HOUR_S)
    ]  # fmt: skip
    assert [int(group.of(PAIRS).sum()) for group in found] == [1, 1, 1, 1]
    assert judged(PAIRS, "injected") == found


def test_sizes_in_order_and_those_that_are_judged_by() -> None:
    assert sorted(["all", "17-up", "8", "2-4", "1"], key=size_rank) == ["1", "2-4", "8", "17-up", "all"]
    assert judged_sizes(["2-4", "all", "1"]) == ["all"] and judged_sizes(["8", "1", "8"]) == ["1", "8"]


def test_what_users_did_stands_on_the_pairs_with_which_they_went_on() -> None:
    """1.5 and 6 h after the end; there reactive loses 1 and 4 h, and the estimate, which is right, 0 and 4 h."""
    early = artifact("constant-lead", (2.0,), 2.0, policy="constant-lead")
    policies = [*trained("exact", artifact(settings=(1.0,))), *trained("early", early)]
    rows = {
        (row["policy"], row["size"]): row
        for row in compare(PAIRS, policies, context=recorded()).results
        if row["load"] == "all"
    }
    users = rows["users", "all"]
    assert (users["n"], users["interruption_h"], users["overlap_h"], users["zero_share"]) == (2, 3.75, 0.0, 0.0)
    assert users["interruption_p50_h"] == 3.75 and rows["users", "2-4"]["interruption_h"] == 6.0
    assert ("users", "17-up") not in rows and users["setting"] is None
    assert users["reduction"] == pytest.approx(1 - 3.75 / 2.5)  # of reactive's 1 and 4 h on the same two pairs
    assert rows["reactive", "all"]["interruption_users_h"] == 2.5 and rows["reactive", "all"]["n"] == 4
    exact = rows["exact", "all"]  # submits at the first gap of at least 0: 0 and 4 h
    assert (exact["interruption_users_h"], exact["overlap_users_h"]) == (2.0, 0.0)
    early_row = rows["early", "all"]  # two hours before the end: 0 and -2 h
    assert (early_row["interruption_users_h"], early_row["overlap_users_h"]) == (0.0, 1.0)
    assert rows["reactive", "17-up"]["interruption_users_h"] is None
    assert {row["pairs"] for row in rows.values()} == {"recorded"}


def test_injected_pairs_have_no_users() -> None:
    rows = compare(random_pairs(2, 10), trained("reactive", reactive()), context=context()).results
    assert "users" not in {row["policy"] for row in rows}
    assert {(row["interruption_users_h"], row["overlap_users_h"]) for row in rows} == {(None, None)}


def test_mirage_keeps_the_average_of_the_predecessors_start() -> None:
    """1 h when P starts, 9 h an hour later: submitted one hour before the end all the same, or two with factor 2."""
    pairs = pairs_of([1], [12], [[-1.0, 0.5, 2.0]], [None])
    pairs.observations[:, FEATURES.index("recent_wait_mean_h")] = [1.0, 9.0, 9.0]
    played = play_frozen_average(pairs)
    gap = dict(zip(played.settings, played.gap_h[0, :, 0], strict=True))
    assert (gap[0.75], gap[1.0], gap[1.5], gap[2.0], gap[48.0]) == (2.0, 0.5, 0.5, -1.0, -1.0)


def test_recorded_candidates_are_judged_on_all_pairs_together() -> None:
    """The one that suits the many small pairs wins; a mean over sizes would prefer the one that suits the wide pair."""
    gaps = [[-1.0, 1.0, 2.0]] * 9 + [[-8.0, -8.0, 0.0]]
    pairs = pairs_of([1] * 9 + [8], [12] * 10, gaps, [None] * 10)
    fits = [
        *trained("early", artifact("constant-lead", (1.0,), 1.0, policy="early")),  # costs 1 h, and 8 h once
        *trained("late", artifact("constant-lead", (0.0,), 0.0, policy="late")),  # costs 2 h, and nothing once
    ]
    assert choose_candidate(pairs, fits, RECORDED).policy == "early"  # 1.7 h against 1.8 h
    assert choose_candidate(pairs, fits).policy == "late"  # 4.5 h against 1 h
