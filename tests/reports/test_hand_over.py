"""What the policy section says first: the comparison of a few recorded pairs, its figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from models.provisioning.comparison.compare import compare
from models.provisioning.comparison.promises import promises
from models.provisioning.protocol import PairTable
from models.provisioning.scenario import CALIBRATED
from models.tables import POLICY_CURVES, POLICY_PROMISES, POLICY_RESULTS, curves_frame, promises_frame, results_frame
from reports.advice.advice import actions
from reports.build import build_report, section_data
from reports.source import Remarks, Source
from tests.models.pair_tables import artifact, context, reactive, trained
from tests.models.provisioning.comparison.test_groups import pairs_of
from tests.reports import warehouse
from traces import schema
from traces.store.folder import DataFolder
from traces.store.frames import conform

NEAR = {"spearman": 0.86, "error_over_mean": 0.38, "mean_wait_h": 10.6, "recorded_mean_wait_h": 9.4}
FAR = {"spearman": 0.35, "error_over_mean": 1.2, "mean_wait_h": 1.5, "recorded_mean_wait_h": 3.8}
# Three jobs: reactive loses 2, 2 and 4 h; an hour's lead -1, 1 and 4 h; a right estimate 1, 1 and 4 h.
GAPS = [[-1.0, -1.0, 2.0], [-1.0, 1.0, 2.0], [-2.0, -1.0, 4.0]]
SELECT = pairs_of([1, 1, 2], [12, 24, 48], [[-3.0, 0.5, 2.0]] * 3, [None] * 3)


def folder(
    root: Path,
    pairs: PairTable,
    *,
    world_error: dict[str, float] = NEAR,
    users: tuple[str, ...] = ("ann", "bob", "cid"),
    world: str = CALIBRATED,
    select: PairTable | None = SELECT,
    promised: list[dict[str, Any]] | None = None,
) -> DataFolder:
    """A warehouse that holds three jobs cut by their limit, and the comparison of these pairs."""
    where = replace(context(), scenario=replace(context().scenario, cluster="tiny", world=world))
    policies = [
        *trained("reactive", reactive()),
        *trained("lead", artifact("constant-lead", (1.0,), 1.0, policy="lead")),
    ]
    compared = compare(pairs, policies, context=where, select=select)
    jobs = pl.DataFrame(
        [
            warehouse.job("tiny", number, user_name=user, state="TIMEOUT", limit_s=48 * 3600, submit_utc=moment)
            for number, (user, moment) in enumerate(zip(users, _submissions(pairs), strict=False))
        ]
    )
    tables = {
        "jobs": jobs,
        "attempts": warehouse.attempts_of(conform(schema.JOBS, jobs)),
        "trace_files": pl.DataFrame([warehouse.trace_file("tiny", len(jobs))]),
    }
    data = DataFolder(root)
    made = {name: conform(schema.TABLES[name], frame) for name, frame in (warehouse.empty_tables() | tables).items()}
    made[POLICY_RESULTS.name] = results_frame(compared.results, world_error)
    made[POLICY_CURVES.name] = curves_frame(compared.curves)
    made[POLICY_PROMISES.name] = promises_frame("tiny", world, promised or promises(pairs, policies, earlier=select))
    warehouse.write(data, made)
    return data


def _submissions(pairs: PairTable) -> list[Any]:
    return pl.from_epoch(pl.Series(pairs.submit_s), time_unit="s").to_list()


def words_of(data: DataFolder, section: str = "policies") -> str:
    return " ".join(section_data(data, "tiny", section)["sentences"])


def test_it_leads_with_what_users_lose_and_what_the_policy_would_on_the_same_jobs(tmp_path: Path) -> None:
    """Of three jobs users went on with two, after 1 and 6 h; the lead has gaps of -1 and -1 h there."""
    data = folder(tmp_path, pairs_of([1, 1, 2], [12, 24, 48], GAPS, [1.0, None, 6.0]))
    section = section_data(data, "tiny", "policies")
    assert section["sentences"][0] == (
        "Of 3 jobs submitted from 1970-01-01 to 1970-01-03 and ended by their time limit (of at least 12 h), users "
        "continued 2 within an hour and lost 7 h between two jobs (median 3.5 h, mean 3.5 h). With lead the same jobs "
        "lose 0.0 h on average, with 1.0 h of overlap."
    )
    assert section["sentences"][1].startswith("On all recorded pairs, calibrated world, reactive submission interrupts")
    words = " ".join(section["sentences"])
    assert "The calibrated world is close to the log. In this window its waits have a rank correlation of 0.86" in words
    assert words.count("users continued") == 1 and "optimal" not in words
    users = [row for row in section["tables"]["comparison-all-calibrated"] if row["policy"] == "users"]
    assert [(row["n"], row["interruption_h"]) for row in users] == [(2, 3.5)]
    html = build_report(data).read_text(encoding="utf-8")
    assert "users continued 2" in html and "Interruption against overlap, all recorded pairs" in html


def test_nobody_went_on_and_one_user_are_said(tmp_path: Path) -> None:
    pairs = pairs_of([1, 1, 2], [12, 24, 48], GAPS, [None] * 3)
    words = words_of(folder(tmp_path, pairs, users=("ann", "ann", "ann")))
    assert "(of at least 12 h), all of one user, users continued none within an hour" in words
    assert "so the time lost between two jobs is unknown" in words


def test_a_month_without_congestion_says_that_reactive_is_optimal_and_advises_nothing(tmp_path: Path) -> None:
    calm = pairs_of([1, 1, 2], [12, 24, 48], [[-2.0, -1.0, 0.0]] * 3, [None] * 3)
    data = folder(tmp_path, calm)
    assert "Reactive is near optimal here: it interrupts for 0.00 h per pair" in words_of(data)
    assert not [action for action in actions(Source(data, "tiny")) if action.unit == "h"]


def test_the_plain_world_is_said_to_be_far_and_why_it_was_taken(tmp_path: Path) -> None:
    pairs = pairs_of([1, 1, 1], [48] * 3, GAPS, [None] * 3)
    select = pairs_of([1, 1, 1], [48] * 3, [[-3.0, 0.5, 2.0]] * 3, [None] * 3)
    data = folder(tmp_path, pairs, world_error=FAR, world="plain", select=select)
    why = "the log shows 0 jobs cut by a limit"
    message = section_data(data, "tiny", "policies", remarks={"tiny": Remarks(why_plain=why)})["sentences"]
    assert "The plain world is far from the log: trust directions, not sizes." in " ".join(message)
    assert any(sentence.endswith(f", not taken from the log: {why}.") for sentence in message)
    (offered,) = [action for action in actions(Source(data, "tiny")) if action.unit == "h"]
    assert "far from the log" in offered.trust and "beats" not in offered.trust


def test_without_a_select_window_no_policy_is_named(tmp_path: Path) -> None:
    pairs = pairs_of([1, 1, 2], [12, 24, 48], GAPS, [1.0, None, 6.0])
    words = words_of(folder(tmp_path, pairs, select=None))
    assert "none was picked without a select window" in words and "; with " not in words.split(".")[0]


@pytest.mark.parametrize(
    ("spearman", "error", "verdict"),
    [(0.75, 0.5, "close to the log"), (0.74, 0.5, "only partly close"), (0.75, 0.51, "only partly close")],
)
def test_the_verdict_on_a_world_follows_its_two_figures(
    tmp_path: Path, spearman: float, error: float, verdict: str
) -> None:
    pairs = pairs_of([1, 1, 2], [12, 24, 48], GAPS, [None] * 3)
    data = folder(tmp_path, pairs, world_error={**NEAR, "spearman": spearman, "error_over_mean": error})
    assert f"The calibrated world is {verdict}" in words_of(data)


def test_promises_are_told_with_their_price_and_drawn_by_week(tmp_path: Path) -> None:
    """Of the policy of least cost on the select window; where it could promise nothing, that is said."""
    pairs = pairs_of([1, 1, 2], [12, 24, 48], GAPS, [1.0, None, 6.0])
    weeks = [
        {"from_utc": f"2023-02-0{day}T00:00:00", "n": 30, "known": 90, "setting": 1.0, "is_promised": True,
         "interrupted_share": share, "overlap_h": 2.0}
        for day, share in ((1, 0.1), (8, 0.3))
    ]  # fmt: skip
    of_all = {"from_utc": weeks[0]["from_utc"], "to_utc": "2023-02-14T00:00:00", "n": 60, "seeds": 1, "blocks": 2}
    figures = {"indicative": True, "weeks": 2, "all_share": 0.2, "all_overlap_h": 2.0, "at_once_share": 0.07}
    kept = {
        "policy": "lead", "risk": 0.2, "promised_weeks": 2, "promised_pairs": 60, "interrupted_share": 0.2,
        "ci95": [0.1, 0.3], "is_kept": True, "any_gap_share": 0.4, "interruption_h": 1.0, "overlap_h": 2.0,
        "next_setting": None, "is_next_promised": True, "weekly": weeks,
    }  # fmt: skip
    never = dict.fromkeys(("interrupted_share", "ci95", "is_kept", "any_gap_share", "interruption_h", "overlap_h"))
    unkept = {**kept, "risk": 0.05, "promised_weeks": 0, "promised_pairs": 0, **never, "is_next_promised": False}
    data = folder(tmp_path, pairs, promised=[{**of_all, **figures, **row} for row in (unkept, kept)])
    words = words_of(data)
    assert "at most 5.0 %: never promised, because even submitting at once would have broken it" in words
    assert "at most 20.0 %: 20.0 % interrupted, with 2.00 h of mean overlap (promised for 2 of 2 weeks)" in words
    assert "Submitting every successor at once would interrupt 7.0 % of the pairs" in words
    rows = section_data(data, "tiny", "policies")["tables"]["promises"]
    assert [(row["next"], row["kept"], row["share_ci"]) for row in rows] == [
        ("cannot", None, None), ("at once", "yes", [0.1, 0.3])
    ]  # fmt: skip
    html = build_report(data).read_text(encoding="utf-8")
    assert "Coverage by week, lead" in html and "at most 20.0 %" in html
