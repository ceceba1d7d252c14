"""What hiding features costs: observations with fills by hand, a policy that loses by it, and one that does not."""

from __future__ import annotations

import numpy as np
import pytest

from features.observe import AT, FEATURES, FILLS, HIDDEN_TOGETHER
from models.provisioning.comparison.masked import cost_of_hiding
from models.provisioning.comparison.outcomes import cost_h
from models.provisioning.learning.masking import masked
from reports.text.hidden import format_hidden
from tests.models.pair_tables import artifact, random_pairs, trained
from traces.errors import InputError

PAIRS, SELECT = random_pairs(3, 200), random_pairs(4, 80)


def test_every_group_has_fills_and_each_feature_is_in_one() -> None:
    features = [name for names in HIDDEN_TOGETHER.values() for name in names]
    assert len(set(features)) == len(features)
    assert set(features) == set(FILLS) - {"own_pending_jobs"}  # one's own jobs are always shown


@pytest.mark.parametrize("hidden", [["recent"], ["limits", "nodes"], list(HIDDEN_TOGETHER)])
def test_what_is_hidden_has_its_fill_and_the_rest_is_as_it_was(hidden: list[str]) -> None:
    less = masked(PAIRS, hidden).observations
    features = {name for group in hidden for name in HIDDEN_TOGETHER[group]}
    for column, name in enumerate(FEATURES):
        fill = FILLS.get(name)
        expected = PAIRS.observations[:, column]
        if name in features:
            expected = PAIRS.observations[:, getattr(AT, fill)] if isinstance(fill, str) else np.full(len(less), fill)
        elif name == "start_estimate_expected_h" and "recent" in hidden:
            expected = PAIRS.observations[:, AT.start_estimate_h]
        np.testing.assert_array_equal(less[:, column], np.asarray(expected, np.float32), err_msg=name)


def test_a_policy_that_goes_by_recent_waits_loses_by_not_seeing_them() -> None:
    """Its estimate becomes 0, so it submits at the end; one that goes by the start estimate sees no difference."""
    average = artifact(feature="recent_wait_mean_h", policy="average", settings=(1.0,))
    estimate = artifact(policy="estimate", settings=(1.0,))
    policies = [*trained("average", average), *trained("estimate", estimate)]
    rows = cost_of_hiding(PAIRS, policies, ["recent"], kind="injected", select=SELECT)
    assert [(row["policy"], row["size"]) for row in rows] == [
        ("average", "1"), ("estimate", "1"), ("average", "8"), ("estimate", "8"),
    ]  # fmt: skip
    for row in rows:
        pairs = PAIRS.take(PAIRS.pair_nodes == row["pair_nodes"])
        seen = average if row["policy"] == "average" else estimate
        assert row["cost_w1"] == pytest.approx(cost_h(pairs, seen).mean()) and row["seeds"] == 1
        if row["policy"] == "estimate":
            assert row["difference_h"] == 0 and row["ci95"] == [0, 0]
        else:
            assert row["cost_w1_hidden"] == pytest.approx(np.abs(pairs.gap_h[pairs.last]).mean())
            assert row["difference_h"] == pytest.approx(row["cost_w1_hidden"] - row["cost_w1"])
            assert row["difference_h"] != 0 and row["ci95"][0] <= row["difference_h"] <= row["ci95"][1]
        assert (row["n"], row["blocks"], row["hidden"]) == (200, 5, ["recent"])
    text = format_hidden(rows)
    assert len(text.splitlines()) == 6 and "8-node" in text and "only indicative" in text


def test_the_setting_is_picked_where_everything_is_seen() -> None:
    many = artifact(feature="recent_wait_mean_h", policy="average", settings=(0.0, 0.5, 1.0, 2.0))
    (row,) = cost_of_hiding(
        PAIRS.take(PAIRS.pair_nodes == 8), trained("average", many), ["recent"], kind="injected", select=SELECT
    )
    blind = masked(SELECT, ["recent"])
    (other,) = cost_of_hiding(
        PAIRS.take(PAIRS.pair_nodes == 8), trained("average", many), ["recent"], kind="injected", select=blind
    )
    assert row["setting"] != other["setting"]


def test_pairs_of_one_block_have_no_interval() -> None:
    few = PAIRS.take(np.arange(10))
    (row,) = cost_of_hiding(few, trained("estimate", artifact()), ["held"], kind="injected")
    assert row["ci95"] is None and row["blocks"] == 1
    assert format_hidden([row]).splitlines()[-1].split()[-2] == "-"


@pytest.mark.parametrize("hidden", [[], ["recent", "everything"]])
def test_unknown_groups_are_refused(hidden: list[str]) -> None:
    with pytest.raises(InputError, match="recent, limits, nodes, held"):
        cost_of_hiding(PAIRS, trained("estimate", artifact()), hidden, kind="injected")
