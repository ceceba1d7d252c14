"""The promise "interrupted with probability at most r": the choice against its definition, what is known when."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.provisioning.comparison.promises import NOTICED_H, ROLLING_S, SettingChoice, choose, promises, promises_of
from models.provisioning.protocol import PairTable
from models.tables import POLICY_PROMISES, promises_frame
from reports.text.promises import format_promises
from tests.models.pair_tables import INSTANTS, artifact, random_pairs, reactive, trained, unlike_days
from traces.units import WEEK_S

LEADS = (0.0, 0.5, 1.0, 2.0)
LEAD = artifact("constant-lead", LEADS, 0.0, policy="lead")
REPORT = unlike_days(5, 28)


def moved(pairs: PairTable, by_s: int) -> PairTable:
    return replace(pairs, **{name: getattr(pairs, name) + by_s for name in INSTANTS})


def chosen_slowly(interrupted: list[list[list[bool]]], risk: float) -> SettingChoice:
    """The definition, setting by setting: (n x mean loss + 1) / (n + 1) <= risk, for this one and all behind it."""
    seeds, count, n = len(interrupted), len(interrupted[0]), len(interrupted[0][0])
    for at in range(count):
        lost = 0
        for seed in interrupted:
            for pair in range(n):
                lost += any(seed[later][pair] for later in range(at, count))
        if (lost / seeds + 1) / (n + 1) <= risk + 1e-12:
            return SettingChoice(at, True)
    return SettingChoice(count - 1, False)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 40), st.sampled_from([0.05, 0.1, 0.2, 0.5]), st.data())
def test_the_choice_is_that_of_the_definition(seeds: int, count: int, n: int, risk: float, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    interrupted = rng.random((seeds, count, n)) < rng.random((1, count, 1)) * data.draw(
        st.sampled_from([0.1, 0.5, 1.0])
    )
    assert choose(interrupted, risk) == chosen_slowly(interrupted.tolist(), risk)


def test_few_outcomes_promise_little() -> None:
    """Nineteen pairs without an interruption are what 5 % takes, nine for 10 %."""
    clean = np.zeros((1, 3, 19), dtype=bool)
    assert choose(clean, 0.05) == SettingChoice(0, True)
    assert choose(clean[:, :, :18], 0.05) == SettingChoice(2, False)
    assert choose(clean[:, :, :9], 0.1) == SettingChoice(0, True)
    assert choose(clean[:, :, :0], 0.2) == SettingChoice(2, False)


def by_hand(report: PairTable, earlier: PairTable | None, risk: float) -> list[dict[str, Any]]:
    """Week by week, pair by pair: the leads of LEADS and submitting at once, from what had ended by then."""
    tables = [report] if earlier is None else [earlier, report]
    pairs = []  # submission, end, is judged, gap at each setting
    for table in tables:
        for one in range(len(table)):
            rows = range(table.offset[one], table.offset[one + 1])
            end_s = int(table.predecessor_end_s[one])
            starts = []
            for lead_h in LEADS:
                first = next(row for row in rows if (end_s - table.decision_s[row]) / 3600 <= lead_h + 1e-6)
                starts.append(table.successor_start_s[first])
            starts.append(table.successor_start_s[rows[0]])
            gaps = [(int(start) - end_s) / 3600 for start in starts]
            pairs.append((int(table.submit_s[one]), end_s, table is report, gaps))
    begin_s = min(submit for submit, _, judged, _ in pairs if judged)
    weeks = []
    for week in range(1 + max(submit - begin_s for submit, _, judged, _ in pairs if judged) // WEEK_S):
        now_s = begin_s + week * WEEK_S
        known = [gaps for submit, end, _, gaps in pairs if end + 600 <= now_s and submit >= now_s - ROLLING_S]
        lost = [[gaps[at] > 1 / 6 for gaps in known] for at in range(len(LEADS) + 1)]
        choice = chosen_slowly([lost], risk)
        did = [gaps[choice.at] for submit, _, judged, gaps in pairs if judged and now_s <= submit < now_s + WEEK_S]
        weeks.append({"known": len(known), "choice": choice, "did": did})
    return weeks


@pytest.mark.parametrize("risk", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("has_earlier", [True, False])
def test_weeks_and_figures_are_those_by_hand(risk: float, has_earlier: bool) -> None:
    earlier = moved(unlike_days(6, 21), -21 * 86_400) if has_earlier else None
    row = next(one for one in promises(REPORT, trained("lead", LEAD), earlier=earlier, risks=[risk]))
    weeks = by_hand(REPORT, earlier, risk)
    assert [week["known"] for week in row["weekly"]] == [week["known"] for week in weeks]
    settings_ = [None if week["choice"].at == len(LEADS) else LEADS[week["choice"].at] for week in weeks]
    assert [week["setting"] for week in row["weekly"]] == settings_
    assert [week["is_promised"] for week in row["weekly"]] == [week["choice"].is_promised for week in weeks]
    kept = [gap for week in weeks if week["choice"].is_promised for gap in week["did"]]
    every = [gap for week in weeks for gap in week["did"]]
    assert (row["n"], row["promised_pairs"], row["weeks"]) == (len(every), len(kept), 4)
    assert row["all_share"] == pytest.approx(np.mean([gap > 1 / 6 for gap in every]))
    assert row["all_overlap_h"] == pytest.approx(np.mean([max(-gap, 0) for gap in every]))
    if kept:
        assert row["interrupted_share"] == pytest.approx(np.mean([gap > 1 / 6 for gap in kept]))
        assert row["any_gap_share"] == pytest.approx(np.mean([gap > 0 for gap in kept]))
        assert row["overlap_h"] == pytest.approx(np.mean([max(-gap, 0) for gap in kept]))
        assert row["is_kept"] == (row["ci95"][0] <= risk)


def test_without_earlier_outcomes_the_first_week_is_not_promised() -> None:
    row = promises(REPORT, trained("lead", LEAD), risks=[0.5])[0]
    assert row["weekly"][0] | {"known": 0, "setting": None, "is_promised": False} == row["weekly"][0]
    assert row["promised_weeks"] == 3


def test_what_happens_after_a_week_begins_cannot_change_its_setting() -> None:
    base = promises(REPORT, trained("lead", LEAD), risks=[0.2, 0.5])
    cut_s = int(REPORT.submit_s.min()) + 2 * WEEK_S
    late = REPORT.predecessor_end_s + 600 > cut_s
    start_s = np.where(late[REPORT.pair_of], REPORT.successor_start_s + 40 * 3600, REPORT.successor_start_s)
    changed = promises(replace(REPORT, successor_start_s=start_s), trained("lead", LEAD), risks=[0.2, 0.5])
    for one, other in zip(base, changed, strict=True):
        for place in range(3):
            for name in ("known", "setting", "is_promised"):
                assert one["weekly"][place][name] == other["weekly"][place][name]
    assert [one["all_share"] for one in base] != [other["all_share"] for other in changed]


def test_where_even_submitting_at_once_fails_it_says_that_it_cannot() -> None:
    """Successors of any submission start hours after the end."""
    late = REPORT.predecessor_end_s[REPORT.pair_of] + 5 * 3600
    row = promises(replace(REPORT, successor_start_s=late), trained("lead", LEAD), risks=[0.2])[0]
    assert row["promised_weeks"] == 0 and row["interrupted_share"] is None and row["is_kept"] is None
    assert not row["is_next_promised"] and row["next_setting"] is None and row["at_once_share"] == 1.0
    assert "cannot" in format_promises([row])


def test_only_policies_with_a_knob_and_the_rules_of_every_comparison() -> None:
    rows = promises(REPORT, [*trained("lead", LEAD), *trained("reactive", reactive())], risks=[0.1])
    assert [row["policy"] for row in rows] == ["lead", "average-wait", "start-estimate", "start-expected"]


def test_a_release_has_the_rows_of_its_artifact_alone() -> None:
    earlier = moved(random_pairs(8, 60), -30 * 86_400)
    of_one = promises_of(REPORT, LEAD, earlier)
    rows = [row for row in promises(REPORT, trained("lead", LEAD), earlier=earlier) if row.pop("policy") == "lead"]
    assert of_one == rows and [row["risk"] for row in of_one] == [0.05, 0.1, 0.2]
    assert promises_of(REPORT, reactive(), earlier)[0]["seeds"] == 1


def test_seeds_share_one_setting_and_are_averaged() -> None:
    twice = promises(REPORT, trained("lead", LEAD, LEAD), risks=[0.2])[0]
    once = promises(REPORT, trained("lead", LEAD), risks=[0.2])[0]
    same = ("interrupted_share", "overlap_h", "weekly", "next_setting", "n")
    twice_same, once_same = (  # the sum over two seeds rounds in other places
        json.loads(json.dumps({name: row[name] for name in same}), parse_float=lambda text: round(float(text), 9))
        for row in (twice, once)
    )
    assert twice_same == once_same and twice["seeds"] == 2


def test_exchangeable_weeks_keep_the_promise() -> None:
    """Over many histories without any drift the pooled share of promised pairs is at most the risk."""
    shares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        table = unlike_days(seed, 35)
        wait_h = rng.exponential(0.5, len(table))
        start_s = table.decision_s + np.rint(3600 * wait_h[table.pair_of]).astype(np.int64)
        for row in promises(replace(table, successor_start_s=start_s), trained("lead", LEAD), risks=[0.2]):
            if row["policy"] == "lead":
                shares.append(row["interrupted_share"])
    assert 0.05 < np.mean(shares) <= 0.2 + 0.02
    assert pytest.approx(1 / 6) == NOTICED_H


def test_the_table_holds_the_rows() -> None:
    rows = promises(REPORT, trained("lead", LEAD))
    frame = promises_frame("toy", "plain", rows)
    assert frame.columns == list(POLICY_PROMISES.names) and len(frame) == len(rows)
    assert json.loads(frame["weekly"][0]) == rows[0]["weekly"]
    assert frame.select(POLICY_PROMISES.key).n_unique() == len(rows)
    for column in POLICY_PROMISES.columns:
        assert column.nullable or not frame[column.name].null_count(), column.name
    text = format_promises(rows)
    assert len(text.splitlines()) == len(rows) + 3 and "lead" in text and "20%" in text
