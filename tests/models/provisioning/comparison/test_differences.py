"""The paired difference to the best rule: by hand on a few pairs, in every draw by a twin, and over windows pooled."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from agent.artifact import Artifact
from features.bootstrap import BLOCK_S, start_weights
from features.conventions import RULES, UNTRAINED
from features.observe import FEATURES
from models.provisioning.comparison.compare import Comparison, compare
from models.provisioning.comparison.differences import COMPARED, Difference, best_rule, pool
from models.provisioning.comparison.outcomes import PolicyOutcome, play_all
from models.provisioning.comparison.rules import is_rule, missing_baselines
from models.provisioning.protocol import Learner, PairTable, TrainedPolicy
from models.provisioning.registry import POLICIES, make_policy
from reports.text.comparison import format_table
from tests.models.generated import queue_table
from tests.models.pair_tables import artifact, context, random_pairs, reactive, trained
from tests.models.provisioning.comparison.test_groups import pairs_of
from traces.errors import InputError

LEARNERS = [name for name in POLICIES if isinstance(make_policy(name), Learner)]
SELECT, REPORT = random_pairs(1, 70), random_pairs(2, 200)


def lead(policy: str, hours: float) -> list[TrainedPolicy]:
    """Submits so many hours before the end."""
    return trained(policy, artifact("constant-lead", (hours,), hours, policy=policy))


def row_of(compared: Comparison, policy: str, size: str = "1", load: str = "all") -> dict[str, object]:
    return next(r for r in compared.results if (r["policy"], r["size"], r["load"]) == (policy, size, load))


def test_the_difference_of_a_few_pairs_by_hand() -> None:
    """The estimate, which is right in the select window, is the rule; an hour's lead is held against it.

    In the report window the estimate submits at gaps 0, .5 and 2 h (cost 2.5 / 3), the lead at -1, .5 and 1 h.
    Interruption at .25 h of overlap: the estimate has one setting, without overlap, and none beyond it. The lead's
    curve goes from reactive, (0, 4/3 h), to (1/3 h, 1/2 h): at .25 h, 4/3 - (4/3 - 1/2) x 3/4 = .7083 h.
    """
    select = pairs_of([1] * 3, [12] * 3, [[-9.0, 0.0, 5.0]] * 3, [None] * 3)
    report = pairs_of([1] * 3, [12] * 3, [[0.0, -1.0, 0.0], [-1.0, 0.5, 2.0], [-3.0, 1.0, 2.0]], [None] * 3)
    report.observations[report.offset[2] + 1, FEATURES.index("start_estimate_h")] = 0.0
    policies = [*trained("start-estimate", artifact(settings=(1.0,))), *lead("lead", 1.0)]
    compared = compare(report, policies, context=context(), select=select)
    found = row_of(compared, "lead")["difference_to_best_rule"]
    assert found == {
        "rule": "start-estimate",
        "cost_w1": pytest.approx(2.5 / 3 - 2.5 / 3),
        "interruption_h_at_overlap_0.25": None,
        "ci95": {"cost_w1": None, "interruption_h_at_overlap_0.25": None},  # three days: one block
    }
    assert row_of(compared, "reactive")["difference_to_best_rule"]["cost_w1"] == pytest.approx(4 / 3 - 2.5 / 3)  # type: ignore[index]
    assert row_of(compared, "lead")["interruption_h_at_overlap"]["0.25"] == pytest.approx(4 / 3 - 0.75 * (4 / 3 - 0.5))  # type: ignore[index]


def test_the_zero_share_at_an_overlap_by_hand() -> None:
    """Reactive: none of four without interruption at 0 h; two hours' lead: three of four at 1 h of overlap."""
    pairs = pairs_of([1] * 4, [12] * 4, [[-1.0, 3.0, 3.0]] * 3 + [[-1.0, 1.0, 1.0]], [None] * 4)
    pairs.successor_start_s[-3] += 2 * 3600  # the last pair's, when submitted two hours before: a gap of 1 h
    rows = compare(pairs, [*lead("two", 2.0), *trained("reactive", reactive())], context=context()).results
    two = next(row for row in rows if row["policy"] == "two" and row["load"] == "all")
    assert (two["overlap_h"], two["zero_share"]) == (0.75, 0.75)
    assert two["zero_share_at_overlap_05"] == pytest.approx(0.5)  # two thirds of the way from (0, 0) to (.75, .75)
    assert next(row for row in rows if row["policy"] == "reactive")["zero_share_at_overlap_05"] is None


def test_every_draw_of_a_difference_is_that_of_the_twin() -> None:
    """Pair by pair in plain Python: the same starts are drawn for the policy and for the rule."""
    policies = [*trained("start-estimate", artifact(settings=(1.0,))), *lead("lead", 1.0)]
    compared = compare(REPORT, policies, context=context(), select=SELECT, draws=50)
    one = next(d for d in compared.differences if (d.policy, d.size) == ("lead", "8"))
    pairs = REPORT.take(REPORT.pair_nodes == 8)
    every = [*policies, *missing_baselines(policies, pairs)]
    outcomes = {outcome.policy: outcome for outcome in play_all(pairs, every)}
    rule, at = outcomes[one.rule], outcomes[one.rule].settings.index(float(row_of(compared, one.rule, "8")["setting"]))  # type: ignore[arg-type]
    less = np.abs(outcomes["lead"].gap_h[0, 0]) - np.abs(rule.gap_h[0, at])
    weights = start_weights(pairs.submit_s, draws=50)
    assert weights is not None and one.n == len(pairs) and is_rule(one.rule)
    assert (one.from_s, one.until_s) == (pairs.submit_s.min(), pairs.submit_s.max())
    expected = [sum(w * d for w, d in zip(draw, less, strict=True)) / sum(draw) for draw in weights]
    assert one.figures["cost_w1"][0] == pytest.approx(less.mean())
    np.testing.assert_allclose(one.figures["cost_w1"][1:], expected)
    found = row_of(compared, "lead", "8")["difference_to_best_rule"]
    assert found["ci95"]["cost_w1"] == pytest.approx(np.percentile(expected, [2.5, 97.5]))  # type: ignore[index]


def test_the_rule_is_picked_on_the_select_window_among_those_that_learned_nothing() -> None:
    def outcome(policy: str, *gaps: float) -> PolicyOutcome:
        return PolicyOutcome(policy, "v", "k", tuple(map(float, range(len(gaps)))), 0.0, np.array(gaps)[None, :, None])

    select = [
        outcome("reactive", 3.0),
        outcome("start-expected", 2.0, -0.5),
        outcome("forest", 0.1),
        outcome("oracle", 0),
    ]
    assert best_rule({one.policy: one for one in select}) == "start-expected"
    untrained = outcome("dqn" + UNTRAINED, 0.25)
    assert best_rule({one.policy: one for one in [*select, untrained]}) == "dqn-untrained"
    two_seeds = replace(untrained, gap_h=np.array([[[-0.4]], [[-0.4]]]))  # an hour of overlap costs one
    assert best_rule({one.policy: one for one in (outcome("reactive", 0.7), two_seeds)}) == "dqn-untrained"
    assert best_rule({}) is None
    rows = compare(REPORT, trained("reactive", reactive()), context=context()).results
    assert {row["difference_to_best_rule"] for row in rows} == {None}


def test_whatever_was_asked_for_the_rules_and_the_untrained_stand_beside_it() -> None:
    select, report = queue_table(1, 30, sizes=(1,)), queue_table(2, 30, sizes=(1,))
    fits = [TrainedPolicy("champion", 3, make_policy("forest").fit(queue_table(0, 30), 3)[0], "", 0.0)]
    rows = compare(report, fits, context=context(), select=select, draws=10).results
    assert {row["policy"] for row in rows} == {
        *("champion", "forest-untrained", "reactive", "average-wait", "mirage-average"),
        *("start-estimate", "start-expected", "oracle"),
    }
    assert set(RULES) <= {row["policy"] for row in rows}
    added = {(one.name in RULES, one.seed, one.run_id, one.wall_s) for one in missing_baselines(fits, report)}
    assert added == {(True, 0, "", 0.0), (False, 3, "", 0.0)}
    complete = [*fits, *missing_baselines(fits, report)]
    assert [one.name for one in missing_baselines(complete, report)] == []  # no baseline is there twice


@pytest.mark.parametrize("name", ["forest", "xgboost", "lightgbm"])
def test_untrained_trees_are_their_base_estimate(name: str) -> None:
    pairs = queue_table(seed=2, starts=20)
    made = quickly_fitted(name, pairs)
    start = untrained(name, made, pairs)
    scores, rows = start.artifact.scores(pairs.observations), pairs.observations.astype(np.float64)
    expected_h, remaining_h = (rows[:, FEATURES.index(f)] for f in ("start_estimate_expected_h", "remaining_h"))
    factors = np.asarray(made.settings)[:, None]
    np.testing.assert_allclose(
        scores, factors * (1 + np.maximum(expected_h, 0)) - 1 - remaining_h, rtol=1e-5, atol=1e-5
    )
    assert not np.allclose(scores, made.scores(pairs.observations))


@pytest.mark.parametrize("name", ["dqn", "policy-gradient"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a tenth of two steps has no mean
def test_an_untrained_network_is_what_learning_begins_with(name: str) -> None:
    """A training whose steps are of no length leaves just that, with the same seed; another seed begins elsewhere."""
    pairs = queue_table(seed=2, starts=6)
    begun, made = quickly_fitted(name, pairs, learning_rate=0.0), quickly_fitted(name, pairs)
    start = untrained(name, made, pairs).artifact
    assert all(np.array_equal(array, begun.arrays[key]) for key, array in start.arrays.items())
    assert not np.array_equal(start.arrays["weight_1"], made.arrays["weight_1"])
    other = untrained(name, made, pairs, seed=8).artifact
    assert not np.array_equal(start.arrays["weight_0"], other.arrays["weight_0"])


def quickly_fitted(name: str, pairs: PairTable, **values: float) -> Artifact:
    policy = make_policy(name)
    for field, value in {"trees": 5, "rounds": 5, "steps": 2, "updates": 2, **values}.items():
        if hasattr(policy, field):
            setattr(policy, field, value)
    return policy.fit(pairs, 7)[0]


def untrained(name: str, made: Artifact, pairs: PairTable, seed: int = 7) -> TrainedPolicy:
    (start,) = [
        one
        for one in missing_baselines([TrainedPolicy(name, seed, made, "", 0.0)], pairs)
        if one.name.endswith(UNTRAINED)
    ]
    assert start.name == start.artifact.manifest["policy"] == name + UNTRAINED and start.seed == seed
    assert start.artifact.settings == made.settings
    return start


def test_every_learner_can_be_untrained() -> None:
    assert [name for name in POLICIES if make_policy(name).is_learned] == LEARNERS


def window(number: int, cost: list[float], n: int = 100, rule: str = "reactive") -> Difference:
    """One window of a policy: the difference, then that of every draw."""
    from_s = number * 100 * BLOCK_S
    figures = dict.fromkeys(COMPARED, np.asarray(cost))
    return Difference("all", "forest", rule, n, 4, from_s, from_s + 4 * BLOCK_S, figures)


def spread(mean: float, half: float) -> list[float]:
    return [mean, *np.linspace(mean - half, mean + half, 1000)]


def test_windows_are_pooled_by_their_pairs_and_three_are_needed_for_a_verdict() -> None:
    parts = [[window(0, spread(-1.0, 0.6), n=100)], [window(1, spread(-0.4, 0.6), n=300, rule="start-expected")]]
    (two,) = pool(parts)
    assert two["cost_w1"] == pytest.approx(-0.55) and (two["n"], two["blocks"], two["windows"]) == (400, 8, 2)
    assert (two["size"], two["policy"]) == ("all", "forest")
    assert two["rules"] == ["reactive", "start-expected"] and two["beats"] is None and two["loses"] is None
    (three,) = pool([*parts, [window(2, spread(-0.5, 0.6), n=400)]])
    low, high = three["ci95"]["cost_w1"]
    assert three["cost_w1"] == pytest.approx((-100 - 120 - 200) / 800) and three["beats"] is True
    assert high < 0 and three["loses"] is False
    # draws of different windows are independent: their mean spreads less than each (sd .346 x sqrt(sum of share^2))
    sd = 0.6 / np.sqrt(3) * np.sqrt((1 + 9 + 16) / 64)
    assert (high - low) / 2 == pytest.approx(1.96 * sd, rel=0.1)


def test_an_interval_that_holds_zero_is_no_verdict_and_one_above_it_loses() -> None:
    (level,) = pool([[window(number, spread(-0.05, 0.6))] for number in range(3)])
    assert level["beats"] is False and level["loses"] is False
    (worse,) = pool([[window(number, spread(0.5, 0.6))] for number in range(3)])
    assert worse["beats"] is False and worse["loses"] is True
    (alike,) = pool([[window(number, [0.0] * 9)] for number in range(3)])
    assert alike["beats"] is False and alike["loses"] is False
    (one_block,) = pool([[window(number, [-9.0])] for number in range(3)])
    assert one_block["cost_w1"] == -9.0 and one_block["beats"] is None
    (mixed,) = pool([[window(0, [-9.0])], [window(1, spread(-9.0, 0.6))], [window(2, spread(-9.0, 0.6))]])
    assert mixed["ci95"]["cost_w1"] is None and mixed["beats"] is None


def test_windows_that_overlap_are_refused_and_what_is_not_in_all_is_left_out() -> None:
    with pytest.raises(InputError, match="begins before the previous one ends"):
        pool([[window(0, spread(0.0, 1.0))], [window(0, spread(0.0, 1.0))]])
    first, later = window(0, spread(0.0, 1.0)), window(1, spread(0.0, 1.0))
    wide = replace(first, size="8", until_s=later.from_s)  # its pairs end where those of the next window begin
    early = replace(later, size="8", from_s=first.until_s)
    for windows in ([[first, wide], [later]], [[wide, first], [later]], [[first], [later, early]], [[first], [early]]):
        with pytest.raises(InputError, match="begins before the previous one ends"):
            pool(windows)
    assert len(pool([[first], [later]])) == 1
    other = replace(window(1, spread(0.0, 1.0)), policy="dqn")
    assert pool([[window(0, spread(0.0, 1.0))], [other]]) == [] and pool([]) == []


def test_one_window_never_says_that_a_policy_beats_another() -> None:
    policies = [*trained("start-estimate", artifact()), *lead("lead", 1.0)]
    text = format_table(compare(REPORT, policies, context=context(), select=SELECT, draws=50).results)
    assert "one window does not show which policy is better; 3 pooled windows may" in text
    assert re.search(r"cost minus that of \S+, the best rule", text)
