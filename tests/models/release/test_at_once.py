"""Releases that are killed before each of their writes, and two at once: registry and log agree in the end.

The work is that of `tests.models.publishing`, in processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import REPOSITORY

CASES = ("second", "rollback", "at once", "rejected", "promotion", *(("first",) if "BATON_KILLS" in os.environ else ()))
PASSED = "not worse than"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("releases")
    done = subprocess.run(
        [sys.executable, "-m", "tests.models.publishing", str(folder), *CASES],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cases: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return cases


def log(one: dict[str, Any]) -> list[tuple[int, str, str, bool]]:
    """Version, policy, verdict, and whether the reason is that it is shown to be no worse."""
    return [(version, policy, verdict, PASSED in reason) for version, policy, verdict, reason in one["log"]]


def killed(cases: list[dict[str, Any]], at_least: int) -> None:
    *before, last = (one["code"] for one in cases)
    assert before == [-9] * len(before) and last == 0 and len(before) >= at_least


def test_a_release_killed_anywhere_is_made_once_and_its_reason_is_kept(found: dict[str, list[dict[str, Any]]]) -> None:
    killed(found["second"], 10)
    for one in found["second"]:
        assert (one["champion"], one["history"], one["rolled_back"], one["open_runs"]) == (2, [1], [], 0), one
        assert one["versions"] == ["reactive", "start-estimate"], one
        assert (one["folder"], one["exported"]) == ("2", ["1", "2", "champion"]), one
        assert log(one) == [(1, "reactive", "passed", True), (2, "start-estimate", "passed", True)], one


@pytest.mark.skipif("first" not in CASES, reason="the long form: set BATON_KILLS")
def test_so_is_the_first_release_of_all(found: dict[str, list[dict[str, Any]]]) -> None:
    killed(found["first"], 10)
    for one in found["first"]:
        assert (one["champion"], one["versions"], one["open_runs"]) == (1, ["reactive"], 0), one
        assert log(one) == [(1, "reactive", "passed", True)], one


def test_a_rollback_killed_anywhere_has_happened_or_not(found: dict[str, list[dict[str, Any]]]) -> None:
    killed(found["rollback"], 3)
    seen = set()
    for one in found["rollback"]:
        seen.add(outcome := (one["champion"], tuple(one["rolled_back"]), one["versions"][one["champion"] - 1]))
        assert outcome in {(2, (), "start-estimate"), (1, (2,), "reactive")}, one
        assert log(one)[:2] == [(1, "reactive", "passed", True), (2, "start-estimate", "passed", True)], one
        assert one["folder"] == str(one["champion"]), one
        later = [(version, policy, passed) for version, policy, passed, _ in one["log"][2:]]
        assert later == ([(1, "start-estimate", "failed")] if one["champion"] == 1 else []), one
    assert len(seen) == 2


def test_of_two_at_once_one_releases_and_both_end_well(found: dict[str, list[dict[str, Any]]]) -> None:
    (both,) = found["at once"]
    assert both["codes"] == [0, 0]
    assert both["message"].startswith("waiting for the release of ") and "has held it since" in both["message"]
    assert (both["champion"], both["versions"], log(both)) == (
        1,
        ["start-estimate"],
        [(1, "start-estimate", "passed", True)],
    )


def test_a_rejected_candidate_killed_anywhere_is_kept_once_and_challenges(
    found: dict[str, list[dict[str, Any]]],
) -> None:
    killed(found["rejected"], 8)
    for one in found["rejected"]:
        assert (one["champion"], one["challenger"], one["folder"], one["open_runs"]) == (1, 2, "1", 0), one
        assert one["versions"] == ["reactive", "average-wait"], one
        assert log(one) == [(1, "reactive", "passed", True), (1, "average-wait", "failed", False)], one


def test_a_promotion_by_hand_killed_anywhere_has_happened_or_not(found: dict[str, list[dict[str, Any]]]) -> None:
    killed(found["promotion"], 5)
    seen = set()
    for one in found["promotion"]:
        seen.add(one["champion"])
        assert one["folder"] == str(one["champion"]), one
        if one["champion"] == 2:
            assert one["challenger"] is None and one["log"][-1] == [2, "average-wait", "by hand", "to see"], one
        else:
            assert one["challenger"] == 2 and len(one["log"]) == 2, one
    assert seen == {1, 2}
