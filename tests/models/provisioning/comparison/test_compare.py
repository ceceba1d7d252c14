"""The comparison against twins in plain Python, one pair at a time, from the definitions of the protocol."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.bootstrap import BLOCK_S, start_weights
from features.conventions import OVERLAP_BUDGETS_H
from models import tables
from models.provisioning.comparison.cells import cells, drawn
from models.provisioning.comparison.compare import Comparison, compare
from models.provisioning.comparison.outcomes import (
    PolicyOutcome,
    at_overlap,
    oracle_rows,
    play,
    play_all,
    play_oracle,
    stopping_rows,
)
from models.provisioning.comparison.settings import headline, pick_within
from models.provisioning.protocol import PairTable, TrainedPolicy
from reports.text.comparison import format_table
from tests.models.pair_tables import artifact, context, random_pairs, reactive, trained
from tests.models.provisioning.comparison.test_groups import pairs_of
from traces.errors import InputError

SELECT, REPORT = random_pairs(1, 70), random_pairs(2, 66)


def policies() -> list[TrainedPolicy]:
    """Reactive, two baselines and a 'learner' whose seeds look at different features."""
    return [
        *trained("reactive", reactive()),
        *trained("start-estimate", artifact()),
        *trained("constant-lead", artifact("constant-lead", (0.0, 0.5, 1.0, 3.0), 0.5, policy="constant-lead")),
        *trained("learner", artifact(), artifact(feature="recent_wait_mean_h")),
    ]


@pytest.fixture(scope="module")
def compared() -> Comparison:
    return compare(REPORT, policies(), context=context(), select=SELECT, draws=200)


def twin_gaps(pairs: PairTable, one: Artifact, setting: float, size: int, load: str = "all") -> list[float]:
    """Gap in hours of every pair of a size and load, by asking for one decision after the other."""
    gaps = []
    for i in range(len(pairs)):
        rows = range(pairs.offset[i], pairs.offset[i + 1])
        last_gap = (pairs.successor_start_s[rows[-1]] - pairs.predecessor_end_s[i]) / 3600
        name = "light" if last_gap <= 2 else "medium" if last_gap <= 12 else "heavy"
        if pairs.pair_nodes[i] != size or load not in ("all", name):
            continue
        at = rows[-1]
        for row in rows:
            if one.decide(pairs.observations[row : row + 1], setting)[0]:
                at = row
                break
        gaps.append((pairs.successor_start_s[at] - pairs.predecessor_end_s[i]) / 3600)
    return gaps


def twin_best_cost(pairs: PairTable, i: int, weight: float) -> float:
    gaps = [
        (pairs.successor_start_s[row] - pairs.predecessor_end_s[i]) / 3600
        for row in range(pairs.offset[i], pairs.offset[i + 1])
    ]
    return float(min(gap if gap > 0 else -weight * gap for gap in gaps))


def twin_at_overlap(points: list[tuple[float, float]], reactive_h: float, budget: float) -> float | None:
    """Interruption at an overlap, walking along the curve; of equal overlaps the least interruption counts last."""
    curve = sorted([(0.0, reactive_h), *points], key=lambda point: (point[0], -point[1]))
    for (o1, i1), (o2, i2) in itertools.pairwise(curve):
        if o1 <= budget < o2:
            return i1 + (i2 - i1) * (budget - o1) / (o2 - o1)
    return curve[-1][1] if curve[-1][0] == budget else None


@pytest.mark.parametrize("seed", range(3))
def test_stopping_rows_are_the_first_yes_or_the_exact_end(seed: int) -> None:
    pairs = random_pairs(seed, 9)
    submit = np.random.default_rng(seed).random((2, len(pairs.decision_s))) < 0.05
    found = stopping_rows(pairs, submit)
    for k in range(2):
        for i in range(len(pairs)):
            rows = range(pairs.offset[i], pairs.offset[i + 1])
            assert found[k, i] == next((row for row in rows if submit[k, row]), rows[-1])


def test_no_pairs_no_rows() -> None:
    empty = REPORT.take(np.zeros(len(REPORT), bool))
    assert stopping_rows(empty, np.zeros((3, 0), bool)).shape == (3, 0)
    assert stopping_rows(empty, np.zeros(0, bool)).shape == (0,)
    assert oracle_rows(empty, 1.0).shape == (0,)


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_the_oracle_is_the_best_of_all_submit_times(weight: float) -> None:
    gap = REPORT.gap_h[oracle_rows(REPORT, weight)]
    cost = np.maximum(gap, 0) + weight * np.maximum(-gap, 0)
    np.testing.assert_allclose(cost, [twin_best_cost(REPORT, i, weight) for i in range(len(REPORT))])


def test_the_oracle_is_judged_at_weight_one() -> None:
    assert play_oracle(REPORT).default_setting == 1.0


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("load", ["all", "light", "medium", "heavy"])
def test_every_figure_of_a_row_is_that_of_the_twin(compared: Comparison, size: int, load: str) -> None:
    rows = {r["policy"]: r for r in compared.results if (r["pair_nodes"], r["load"]) == (size, load)}
    reactive_h = np.mean(np.maximum(twin_gaps(REPORT, reactive(), 0.0, size, load), 0))
    of_load = [
        i for i in range(len(REPORT)) if REPORT.pair_nodes[i] == size
        and (load == "all" or load_name(REPORT.gap_h[REPORT.last[i]]) == load)
    ]  # fmt: skip
    oracle_h = np.mean([twin_best_cost(REPORT, i, 1.0) for i in of_load])
    for name in ("reactive", "start-estimate", "learner"):
        row = rows[name]
        artifacts = [one.artifact for one in policies() if one.name == name]
        gaps = np.array([twin_gaps(REPORT, one, row["setting"], size, load) for one in artifacts])
        interruption, overlap = np.maximum(gaps, 0), np.maximum(-gaps, 0)
        assert row["n"] == gaps.shape[1] == len(of_load)
        assert row["seeds"] == len(artifacts)
        ends = (datetime.fromtimestamp(int(pick(REPORT.submit_s[of_load])), UTC) for pick in (np.min, np.max))
        assert [row["from_utc"], row["to_utc"]] == [end.replace(tzinfo=None).isoformat() for end in ends]
        assert row["interruption_h"] == pytest.approx(interruption.mean())
        assert row["overlap_h"] == pytest.approx(overlap.mean())
        assert row["interruption_p50_h"] == pytest.approx(np.median(interruption))
        assert row["interruption_p95_h"] == pytest.approx(np.quantile(interruption, 0.95))
        assert row["zero_share"] == pytest.approx((gaps <= 0).mean())
        assert row["within_10min_share"] == pytest.approx((gaps <= 1 / 6 + 1e-12).mean())
        assert row["cost_w05"] == pytest.approx((interruption + overlap / 2).mean())
        assert row["cost_w1"] == pytest.approx((interruption + overlap).mean())
        assert row["regret_h_w1"] == pytest.approx(row["cost_w1"] - oracle_h)
        assert row["reduction"] == pytest.approx(1 - interruption.mean() / reactive_h)
        points = []
        for setting in artifacts[0].settings:
            all_gaps = np.array([twin_gaps(REPORT, one, setting, size, load) for one in artifacts])
            points.append((np.maximum(-all_gaps, 0).mean(), np.maximum(all_gaps, 0).mean()))
        for budget, overlap_h in OVERLAP_BUDGETS_H.items():
            expected = twin_at_overlap(points, float(reactive_h), overlap_h)
            assert row["interruption_h_at_overlap"][budget] == (None if expected is None else pytest.approx(expected))


def load_name(gap_h: float) -> str:
    return "light" if gap_h <= 2 else "medium" if gap_h <= 12 else "heavy"


def test_the_loads_share_out_all_pairs_and_all_occur(compared: Comparison) -> None:
    for size in (1, 8):
        n = {r["load"]: r["n"] for r in compared.results if (r["pair_nodes"], r["policy"]) == (size, "reactive")}
        assert n["all"] == n["light"] + n["medium"] + n["heavy"] == 66
        assert min(n.values()) > 0


def test_the_report_window_picks_nothing(compared: Comparison) -> None:
    """Headline and chosen settings are those that the twin picks on the select window."""
    for name, one in (("start-estimate", artifact()), ("constant-lead", policies()[2].artifact)):
        gaps = {s: np.array(twin_gaps(SELECT, one, s, 8)) for s in one.settings}
        cost = {s: np.abs(g).mean() for s, g in gaps.items()}
        row = next(r for r in compared.results if (r["policy"], r["pair_nodes"], r["load"]) == (name, 8, "all"))
        assert row["setting"] == min(cost, key=lambda s: cost[s])
        for budget, overlap_h in OVERLAP_BUDGETS_H.items():
            within = {s: np.maximum(g, 0).mean() for s, g in gaps.items() if np.maximum(-g, 0).mean() <= overlap_h}
            if not within:
                assert row["chosen"][budget] is None
                continue
            best = min(within, key=lambda s: within[s])
            real = np.array(twin_gaps(REPORT, one, best, 8))
            assert row["chosen"][budget] == {
                "setting": best,
                "interruption_h": pytest.approx(np.maximum(real, 0).mean()),
                "overlap_h": pytest.approx(np.maximum(-real, 0).mean()),
            }


def outcome(gaps: list[list[float]]) -> PolicyOutcome:
    """One seed, a row of gaps a setting."""
    return PolicyOutcome("p", "v", "k", tuple(float(s) for s in range(len(gaps))), 1.0, np.array([gaps], float))


def test_ties_go_to_the_first_setting_and_to_the_least_overlap() -> None:
    equal = outcome([[2.0, 0.0], [-2.0, 0.0], [-3.0, 0.0]])
    assert headline(equal, equal) == 0
    assert headline(outcome([[2.0], [3.0], [0.0]]), None) == 1  # the default setting
    assert pick_within(outcome([[0.0, -2.0], [0.0, -1.0], [0.0, -9.0]]), 1.0) == 1
    assert pick_within(outcome([[-2.0, -2.0]]), 1.0) is None
    assert pick_within(outcome([[1.0, 1.0], [-2.0, 0.0]]), 1.0) == 1  # just as much as the budget


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 1.0, 3.0]), st.floats(0, 9)), min_size=1, max_size=8),
    st.floats(0, 9),
    st.sampled_from(list(OVERLAP_BUDGETS_H.values())),
)
def test_interpolation_is_that_of_the_twin(points: list[tuple[float, float]], reactive_h: float, budget: float) -> None:
    curve = np.array(points)
    found = at_overlap(curve[None, :, 1], curve[None, :, 0], np.array([reactive_h]), budget)[0]
    expected = twin_at_overlap(points, reactive_h, budget)
    assert np.isnan(found) if expected is None else found == pytest.approx(expected, abs=1e-9)


def test_a_curve_in_many_draws_is_each_curve_alone() -> None:
    rng = np.random.default_rng(0)
    interruption, overlap = rng.random((50, 6)), rng.random((50, 6)) * 2
    together = at_overlap(interruption, overlap, np.full(50, 2.0), 0.5)
    for b in range(50):
        alone = twin_at_overlap(list(zip(overlap[b], interruption[b], strict=True)), 2.0, 0.5)
        assert together[b] == pytest.approx(np.nan if alone is None else alone, nan_ok=True)


def test_the_oracle_bounds_every_policy_and_seed(compared: Comparison) -> None:
    assert all(row["regret_h_w1"] >= 0 for row in compared.results)
    assert {row["regret_h_w1"] for row in compared.results if row["policy"] == "oracle"} == {0.0}


def test_reactive_never_overlaps_and_has_no_curve(compared: Comparison) -> None:
    for row in compared.results:
        if row["policy"] == "reactive":
            assert row["overlap_h"] == 0 and row["reduction"] == 0
            assert set(row["interruption_h_at_overlap"].values()) == {None}


def test_the_same_draws_serve_every_policy() -> None:
    twins = [*trained("a", artifact()), *trained("b", artifact()), *trained("c", artifact(), artifact())]
    rows = compare(REPORT, twins, context=context(), select=SELECT, draws=100).results
    intervals = [row["ci95"] for row in rows if row["load"] == "all" and row["pair_nodes"] == 8]
    assert intervals[0] == intervals[1] == intervals[2]


def test_intervals_hold_their_figures_and_the_same_seed_gives_the_same_bytes(compared: Comparison) -> None:
    again = compare(REPORT, policies(), context=context(), select=SELECT, draws=200)
    assert again == compared  # the same seed, the same bytes
    for row in compared.results:
        assert row["indicative"] is True and row["blocks"] in ((2,) if row["load"] == "all" else (1, 2))
        assert bool(row["ci95"]) == (row["blocks"] > 1)  # pairs of one block say nothing about spread
        assert (row["difference_to_best_rule"]["ci95"]["cost_w1"] is not None) == (row["blocks"] > 1)
        if row["load"] == "all" and row["policy"] != "oracle":
            for name in ("interruption_h", "cost_w1", "zero_share"):
                low, high = row["ci95"][name]
                assert low <= row[name] <= high


def test_what_follows_from_means_follows_in_every_draw_from_those_of_the_draw() -> None:
    """Reduction and interruption at half an hour of overlap, pair by pair, of one setting between reactive and it."""
    pairs = REPORT.take(REPORT.pair_nodes == 8)
    outcomes = play_all(pairs, [*trained("reactive", reactive()), *trained("p", artifact(settings=(2.0,)))])
    (whole,) = (cell for cell in cells(pairs, outcomes, 20, 0, np.ones(len(pairs), bool)) if cell.load == "all")
    lead = next(outcome for outcome in outcomes if outcome.policy == "p")
    found, weights = drawn(lead, 0, whole, 0), start_weights(pairs.submit_s, 20)
    assert weights is not None
    reactive_gaps = pairs.gap_h[pairs.last]
    for draw, weight in enumerate(weights):
        mean = partial(np.average, weights=weight)
        reactive_h, lost_h = mean(np.maximum(reactive_gaps, 0)), mean(np.maximum(lead.gap_h[0, 0], 0))
        overlap_h = float(mean(np.maximum(-lead.gap_h[0, 0], 0)))
        assert found["reduction"][draw] == pytest.approx(1 - lost_h / reactive_h)
        for figure, begin, end in (
            ("interruption_h_at_overlap_0.5", reactive_h, lost_h),
            ("zero_share_at_overlap_05", mean(reactive_gaps <= 0), mean(lead.gap_h[0, 0] <= 0)),
        ):
            expected = twin_at_overlap([(overlap_h, float(end))], float(begin), 0.5)
            if figure.startswith("zero"):  # of equal overlaps the least interruption counts: turned round
                flipped = twin_at_overlap([(overlap_h, 1 - float(end))], 1 - float(begin), 0.5)
                expected = None if flipped is None else 1 - flipped
            assert found[figure][draw] == pytest.approx(np.nan if expected is None else expected, nan_ok=True)
    assert np.isfinite(found["zero_share_at_overlap_05"]).any()


def test_ten_minutes_on_the_second_are_within_ten_minutes() -> None:
    pairs = pairs_of([1] * 2, [12] * 2, [[1 / 6], [1 / 6 + 1 / 3600]], [None] * 2)
    rows = compare(pairs, trained("reactive", reactive()), context=context()).results
    assert {row["within_10min_share"] for row in rows if row["policy"] == "reactive"} == {0.5}


def test_a_window_of_one_block_has_no_intervals() -> None:
    one_block = compare(random_pairs(3, 20), policies(), context=context(), select=SELECT)
    assert {json.dumps(row["ci95"]) for row in one_block.results} == {"{}"}
    assert {values.shape for one in one_block.differences for values in one.figures.values()} == {(1,)}  # no draw
    assert format_table(one_block.results).count("\n") > 10


def test_a_load_whose_pairs_are_of_one_block_has_no_intervals() -> None:
    """Its window has two: the heavy pairs of the second are left out."""
    is_late = REPORT.submit_s >= REPORT.submit_s.min() + BLOCK_S
    pairs = REPORT.take(~(is_late & (REPORT.gap_h[REPORT.last] > 12)))
    rows = compare(pairs, policies(), context=context(), select=SELECT, draws=10).results
    heavy = [row for row in rows if row["load"] == "heavy"]
    assert heavy and {row["blocks"] for row in heavy} == {1} and {row["blocks"] for row in rows} == {1, 2}
    assert all(row["ci95"] == {} for row in heavy)
    assert all(set(row["difference_to_best_rule"]["ci95"].values()) == {None} for row in heavy)


@pytest.mark.parametrize(("blocks", "is_indicative"), [(7, True), (8, False)])
def test_intervals_of_fewer_than_eight_blocks_are_only_indicative(blocks: int, is_indicative: bool) -> None:
    pairs = random_pairs(3, blocks, sizes=(1,), every_s=BLOCK_S)
    rows = compare(pairs, trained("reactive", reactive()), context=context(), draws=10).results
    assert {(row["blocks"], row["indicative"]) for row in rows if row["load"] == "all"} == {(blocks, is_indicative)}


def test_without_a_select_window_the_default_setting_counts() -> None:
    for select in (None, SELECT.take(SELECT.pair_nodes == 99)):
        rows = compare(REPORT, policies(), context=context(), select=select, draws=10).results
        assert {row["setting"] for row in rows if row["policy"] == "constant-lead"} == {0.5}
        assert all(row["chosen"] is None for row in rows)


def test_reduction_is_null_where_reactive_loses_nothing() -> None:
    pairs = random_pairs(5, 12, sizes=(1,))
    zero = PairTable(**{**pairs.__dict__, "successor_start_s": pairs.decision_s})
    rows = compare(zero, policies(), context=context()).results
    assert all(row["reduction"] is None for row in rows)
    assert {row["load"] for row in rows} == {"all", "light"}


def test_nothing_to_compare_is_said_in_one_line() -> None:
    with pytest.raises(InputError, match="0 pairs and 5 trained"):
        compare(REPORT.take(np.zeros(len(REPORT), bool)), policies(), context=context())
    with pytest.raises(InputError, match="0 trained policies"):
        compare(REPORT, [], context=context())


def test_seeds_of_different_settings_are_refused() -> None:
    with pytest.raises(InputError, match="different settings"):
        play(REPORT, [artifact(), artifact(settings=(0.0, 9.0))], "learner")


def test_rows_are_json_and_fit_their_tables(compared: Comparison) -> None:
    json.dumps([compared.results, compared.curves], allow_nan=False)
    results, curves = tables.results_frame(compared.results), tables.curves_frame(compared.curves)
    assert results.columns == list(tables.POLICY_RESULTS.names)
    assert curves.columns == list(tables.POLICY_CURVES.names)
    for frame, table in ((results, tables.POLICY_RESULTS), (curves, tables.POLICY_CURVES)):
        assert frame.select(table.key).is_duplicated().sum() == 0
        required = [column.name for column in table.columns if not column.nullable]
        assert sum(frame.select(required).null_count().row(0)) == 0
    assert json.loads(results["ci95"][0]).keys() >= {"interruption_h", "reduction", "interruption_h_at_overlap_0.5"}


def test_the_curve_has_a_point_a_setting_of_both_windows(compared: Comparison) -> None:
    points = [p for p in compared.curves if (p["policy"], p["pair_nodes"]) == ("start-estimate", 8)]
    assert [(p["window"], p["setting"]) for p in points] == [
        (window, setting) for window in ("select", "report") for setting in artifact().settings
    ]
    for point in points:
        gaps: NDArray[np.float64] = np.array(
            twin_gaps(SELECT if point["window"] == "select" else REPORT, artifact(), point["setting"], 8)
        )
        assert point["interruption_h"] == pytest.approx(np.maximum(gaps, 0).mean())
        assert point["overlap_h"] == pytest.approx(np.maximum(-gaps, 0).mean())
        assert point["zero_share"] == pytest.approx((gaps <= 0).mean())
        assert point["cost_w1"] == pytest.approx(np.abs(gaps).mean())
        assert point["n"] == len(gaps)


def test_what_each_seed_did_in_both_windows_is_that_of_the_twin(compared: Comparison) -> None:
    fits = [one.artifact for one in policies() if one.name == "learner"]
    rows = [row for row in compared.by_seed if (row["policy"], row["size"]) == ("learner", "8")]
    assert [(row["window"], row["seed"]) for row in rows] == [
        (window, seed) for window in ("select", "report") for seed in (0, 1)
    ]
    (setting,) = {
        row["setting"]
        for row in compared.results
        if (row["policy"], row["size"], row["load"]) == ("learner", "8", "all")
    }
    for row in rows:
        gaps = np.array(twin_gaps(SELECT if row["window"] == "select" else REPORT, fits[row["seed"]], setting, 8))
        assert row["setting"] == setting
        assert row["interruption_h"] == pytest.approx(np.maximum(gaps, 0).mean())
        assert row["overlap_h"] == pytest.approx(np.maximum(-gaps, 0).mean())
        assert row["cost_w1_h"] == pytest.approx(np.abs(gaps).mean())
    assert {row["policy"] for row in compared.by_seed}.isdisjoint({"oracle", "mirage-average"})  # nobody fitted them


def test_the_text_table_has_a_line_a_policy_least_cost_first(compared: Comparison) -> None:
    one, eight = format_table(compared.results).split("\n\n")
    assert one.startswith("1-node pairs of 48 h, toy") and "n 66, 2 blocks of 7 days, intervals only indicative" in one
    lines = eight.splitlines()
    assert len(lines) == 2 + 8 + 1 and lines[2].startswith("oracle")
    assert {len(line) for line in lines[1:-1]} == {len(lines[1])}
